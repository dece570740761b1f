"""The specification that a trainer starts its agent with: the rank, and the descriptors that they share."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from perseus_dist.fingerprint import UNKNOWN_WORKLOAD, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPlanner:
    """The planner that rank 0 embeds, as ranks on other hosts reach it.

    Attributes:
        address: ``host:port``.
        token: That its calls need.
        certificate: In PEM; no other is trusted.
    """

    address: str
    token: str = field(repr=False)
    certificate: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpec:
    """One rank of a job and how its user wants it run. Standard library only: adapters fill it in.

    Attributes:
        job_id: The same on every rank of the job.
        rank: Global rank.
        pp_rank, dp_rank, tp_rank: Its places in its groups.
        pp_size, dp_size, tp_size: How large these are.
        schedule: The whole pipeline's schedule as text, a line per pp_rank.
        local_rank: The GPU among those that CUDA shows to this process, where ``gpu_uuid`` is not known.
        gpu_uuid: The GPU that this rank computes on, as NVML writes it.
        planner: ``host:port``; None embeds one in rank 0's agent.
        rendezvous: Folder that all ranks see, where the embedded planner leaves its address.
        shared_planner: The embedded planner, on a rank that runs on another host than rank 0.
        token_file: File with the job's token.
        target: As on the command line: ``t_min``, ``slowdown=1.05`` or ``deadline_s=2.5``.
        profile: CSV of an earlier run, which spares the sweep.
        report: Where the savings report goes.
        control: ``auto``, ``clockd``, ``zeusd``, ``direct`` or ``observe``.
        shows_job: Whether this rank's trainer shows the whole job's figures in a monitor of its own, so that its agent
            follows them as rank 0's does.
        run_id: The same on all ranks of one start of the trainers, another one at each start. Without it the planner
            takes an agent that it does not know for a new run's where no rank of the job is attached.
        workload: What the framework knows of the rank's work: a planner uses what it measured again for the same alone.
        granularity: ``instruction``, or ``rank`` where instructions of an iteration cannot be seen: one boundary pair
            of kind ``planning.schedule.granularity.ITERATION`` stands for all of them; clocks may change by time.
        options: Further settings of the agent, by name.
    """

    job_id: str
    rank: int
    pp_rank: int
    dp_rank: int
    tp_rank: int
    pp_size: int
    dp_size: int
    tp_size: int
    schedule: str
    local_rank: int
    gpu_uuid: str | None = None
    planner: str | None = None
    rendezvous: str | None = None
    shared_planner: SharedPlanner | None = None
    token_file: str | None = None
    target: str | None = None
    profile: str | None = None
    report: str | None = None
    control: str = "auto"
    shows_job: bool = False
    run_id: str = ""
    workload: Workload = UNKNOWN_WORKLOAD
    granularity: str = "instruction"
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "RankSpec":
        """The spec whose ``dataclasses.asdict`` went through JSON.

        Raises:
            TypeError: Fields are missing or unknown.
        """
        workload: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.get("workload", {}).items()
        }
        shared = fields.get("shared_planner")
        planner = None if shared is None else SharedPlanner(**shared)
        return cls(**{**fields, "workload": Workload(**workload), "shared_planner": planner})


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStart:
    """The agent's standard input: JSON until its end.

    Attributes:
        spec: The rank.
        trainer_pid: The process to follow.
        trainer_pidfd: Inherited; readable once that process has ended.
        trainer_image_fd: Inherited; readable once that process runs another program, by exec, or has ended.
        ring_fd: Inherited; what ``BoundaryReader`` maps.
        doorbell_fd: Inherited; an eventfd, see ``BoundaryReader``.
        is_replacement: Whether the rank's agent before this one was killed: what it has read and written stands.
    """

    spec: RankSpec
    trainer_pid: int
    trainer_pidfd: int
    trainer_image_fd: int
    ring_fd: int
    doorbell_fd: int
    is_replacement: bool = False

    def to_json(self) -> bytes:
        """The text on standard input."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "AgentStart":
        """The inverse of ``to_json``.

        Raises:
            ValueError: Not JSON.
            TypeError, KeyError: Fields are missing or unknown.
        """
        fields = json.loads(text)
        return cls(**{**fields, "spec": RankSpec.from_fields(fields["spec"])})
