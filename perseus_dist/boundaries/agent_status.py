"""Status of an agent for its trainer's own monitor: one small block in their shared memory.

The agent writes it about once a second, and the trainer reads it whenever it likes; neither waits. A checksum tells a
block that was caught half written.
"""

import math
import struct
from dataclasses import dataclass
from zlib import crc32

NO_ITERATION = -1

_MAX_TARGET_BYTES = 40  # the longest that the planner knows has 35
_BODY = struct.Struct(f"<16sqqqddddddddiiqq{_MAX_TARGET_BYTES}s")
_CHECKSUM = struct.Struct("<I")
STATUS_BYTES = _BODY.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """How it goes, as far as the agent knows.

    Attributes:
        phase: Of the job, as at the planner; empty until a planner has told it. This and all else of the job is known
            to rank 0's agent, and to those of ranks that show the job.
        iteration: The newest one that this rank's figures are of; ``NO_ITERATION`` before the first.
        time_s: [s] that it took.
        energy_j: [J] that this rank's GPU drew in it; None where that is not known.
        clock_mhz: [MHz] asked for now; 0 where none is.
        job_time_s: [s] of the whole job's newest iteration; 0 where it is not known.
        job_energy_j: [J] of all GPUs in it; None where that is not known.
        predicted_saving: Share of energy that the plans in force save by the profile; 0 without.
        target: The iteration time that the job wants: ``t_min``, ``slowdown=1.05`` or ``deadline_s=2.5``; empty where
            it is not known.
        num_stragglers: That the planner knows of now.
        straggler_degree: By how much the slowest is: its iteration's time over that at all-maximum clocks; 1 without.
        table_revision, switch_revision: Of the newest plans, and of the decision which of them is followed; 0 without.
        measured_saving: Share of energy that iterations under the plan in force save, by measurement against the run's
            baseline; None where that is not known.
        t_prime_s: [s] the time of the slowest pipeline, which the others wait for; 0 where none waits.
        num_probes: At full clocks, ordered since the run's begin, as far as the planner knows.
        num_falls: Plans given up because they took too long, likewise.
    """

    phase: str = ""
    iteration: int = NO_ITERATION
    time_s: float = 0.0
    energy_j: float | None = None
    clock_mhz: int = 0
    job_time_s: float = 0.0
    job_energy_j: float | None = None
    predicted_saving: float = 0.0
    target: str = ""
    num_stragglers: int = 0
    straggler_degree: float = 1.0
    table_revision: int = 0
    switch_revision: int = 0
    measured_saving: float | None = None
    t_prime_s: float = 0.0
    num_probes: int = 0
    num_falls: int = 0


def encode_status(status: AgentStatus) -> bytes:
    """Bytes of the agent's status block in the shared memory."""
    body = _BODY.pack(
        status.phase.encode("ascii"),
        status.iteration,
        status.table_revision,
        status.switch_revision,
        status.time_s,
        _number(status.energy_j),
        status.job_time_s,
        _number(status.job_energy_j),
        status.predicted_saving,
        _number(status.measured_saving),
        status.straggler_degree,
        status.t_prime_s,
        status.clock_mhz,
        status.num_stragglers,
        status.num_probes,
        status.num_falls,
        status.target.encode("ascii"),
    )
    return body + _CHECKSUM.pack(crc32(body))


def decode_status(block: bytes) -> AgentStatus | None:
    """The inverse of ``encode_status``; None where the block is not whole, or was never written."""
    if crc32(block[: _BODY.size]) != _CHECKSUM.unpack_from(block, _BODY.size)[0]:
        return None
    (
        phase,
        iteration,
        table_revision,
        switch_revision,
        time_s,
        energy_j,
        job_time_s,
        job_energy_j,
        predicted_saving,
        measured_saving,
        straggler_degree,
        t_prime_s,
        clock_mhz,
        num_stragglers,
        num_probes,
        num_falls,
        target,
    ) = _BODY.unpack_from(block)
    return AgentStatus(
        phase=_text(phase),
        iteration=iteration,
        time_s=time_s,
        energy_j=_known(energy_j),
        clock_mhz=clock_mhz,
        job_time_s=job_time_s,
        job_energy_j=_known(job_energy_j),
        predicted_saving=predicted_saving,
        target=_text(target),
        num_stragglers=num_stragglers,
        straggler_degree=straggler_degree,
        table_revision=table_revision,
        switch_revision=switch_revision,
        measured_saving=_known(measured_saving),
        t_prime_s=t_prime_s,
        num_probes=num_probes,
        num_falls=num_falls,
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("ascii")
