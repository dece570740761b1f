"""Configuration of a stand-in trainer: which rank it is, and how long its work takes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from perseus_dist.hooks import RankSpec
from perseus_dist.simulator.work import KERNELS


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionTime:
    """How long one kind of instruction of one stage takes.

    Attributes:
        stage: Virtual stage over the whole model.
        kind: As in the schedule.
        seconds: [s] at the maximum clock; of a constant at every clock.
    """

    stage: int
    kind: str
    seconds: float

    @property
    def kernel_class(self) -> str | None:
        """The simulated GPU's class of kernels; None for a constant."""
        return KERNELS[self.kind][0] if self.kind in KERNELS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """One rank of a simulated job.

    Attributes:
        spec: The rank, its schedule and how its agent is to run.
        gpu: Index of its simulated GPU.
        times: Of every stage and kind that the rank runs.
        num_iterations: After these it ends.
        device_ordered: Enqueue whole iterations, as frameworks on CUDA do; else synchronise after each instruction.
        transfer_s: [s] that sending a result to another rank takes.
        optimizer_s: [s] of the optimizer step, at every clock.
        first_semaphore: Of the simulated machine's; the same on all ranks of a job, and unused by earlier jobs.
    """

    spec: RankSpec
    gpu: int
    times: tuple[InstructionTime, ...]
    num_iterations: int
    device_ordered: bool = True
    transfer_s: float = 0.0
    optimizer_s: float = 0.0
    first_semaphore: int = 0
    _seconds: Mapping[tuple[int, str], InstructionTime] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_seconds", {(time.stage, time.kind): time for time in self.times})

    def time_of(self, stage: int, kind: str) -> InstructionTime:
        """How long an instruction takes.

        Raises:
            KeyError: The configuration does not say.
        """
        return self._seconds[stage, kind]

    def to_json(self) -> str:
        """The text on a trainer's standard input."""
        fields = asdict(self)
        del fields["_seconds"]
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> "TrainerConfig":
        """The inverse of ``to_json``."""
        fields = json.loads(text)
        times = tuple(InstructionTime(**time) for time in fields["times"])
        return cls(**{**fields, "spec": RankSpec.from_fields(fields["spec"]), "times": times})
