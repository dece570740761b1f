"""The schedule of a DeepSpeed pipeline engine: its own class, evaluated for every stage, as a ``Schedule``.

DeepSpeed's commands carry a buffer, which is not the microbatch: microbatches are counted. Sends and receives are no
instructions but waiting.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.instruction import LOAD, NO_MICROBATCH, Instruction, Kind
from perseus_dist.planning.schedule.schedule import Exchange, Schedule
from perseus_dist.training.rank.constant_kinds import REDUCE, STEP, TIED

_KINDS: Final[dict[str, str]] = {
    "LoadMicroBatch": LOAD,
    "ForwardPass": Kind.FORWARD,
    "BackwardPass": Kind.BACKWARD,
    "ReduceTiedGrads": TIED,
    "ReduceGrads": REDUCE,
    "OptimizerStep": STEP,
}
_ONCE_AN_ITERATION = frozenset({TIED, REDUCE, STEP})
_TRANSFERS: Final[dict[str, tuple[str, int]]] = {  # what they send or receive, and how many stages on its sender is
    "SendActivation": (Kind.FORWARD, 0),
    "RecvActivation": (Kind.FORWARD, -1),
    "SendGrad": (Kind.BACKWARD, 0),
    "RecvGrad": (Kind.BACKWARD, 1),
}
_WAITING = frozenset(_TRANSFERS)
_UNPLANNED = {
    # A send leaves with the next batch of exchanges, and that may be behind another instruction. Plans that do not know
    # that slow its iterations down by 1 to 4 %: replayed on the profile of GPT-3 175B on A100, 4 ranks.
    "DualPipeVSchedule": "DualPipeV exchanges results in batches, which plans do not know yet",
}


class InstructionCounter:
    """Names the commands of one stage as they run, microbatches by counting.

    Attributes:
        stage: The stage.
    """

    def __init__(self, stage: int) -> None:
        self.stage = stage
        self._counts: Counter[str] = Counter()

    def begin_iteration(self) -> None:
        """Count from 0."""
        self._counts.clear()

    def name(self, command: str) -> Instruction | None:
        """The instruction of the next command of this class; None for waiting and for unknown commands."""
        kind = _KINDS.get(command)
        if kind is None:
            return None
        if kind in _ONCE_AN_ITERATION:
            return Instruction(self.stage, kind, NO_MICROBATCH)
        microbatch = self._counts[kind]
        self._counts[kind] += 1
        return Instruction(self.stage, kind, microbatch)


def is_instruction(command: str) -> bool:
    """Whether a command of this class is an instruction, rather than waiting."""
    return command in _KINDS


def transfer_of(command: str, stage: int) -> tuple[str, int] | None:
    """The kind and the stage of the instruction whose result a command of this class, on a stage, sends or receives."""
    if command not in _TRANSFERS:
        return None
    kind, distance = _TRANSFERS[command]
    return kind, stage + distance


def read_schedule(engine: Any) -> Schedule:
    """The schedule that the engine's next iteration will follow, on all stages.

    Args:
        engine: A ``PipelineEngine``.

    Raises:
        ScheduleError: It has commands that no plan is made for.
    """
    schedule_class = _schedule_class(engine)
    name = schedule_class.__name__
    if name in _UNPLANNED:
        raise ScheduleError(f"{_UNPLANNED[name]}; a PipelineModule, which runs 1F1B, can be planned")
    return Schedule(
        ranks=tuple(
            tuple(
                _instructions(
                    stage,
                    schedule_class(micro_batches=engine.micro_batches, stages=engine.num_stages, stage_id=stage),
                )
            )
            for stage in range(engine.num_stages)
        ),
        exchange=Exchange.SERIAL,
    )


def _schedule_class(engine: Any) -> Any:
    if hasattr(engine, "_train_schedule"):  # since 0.19.8
        return type(engine._train_schedule())  # noqa: SLF001 - its only name
    from deepspeed.runtime.pipe.schedule import TrainSchedule

    return TrainSchedule


def _instructions(stage: int, steps: Iterable[Iterable[object]]) -> Iterator[Instruction]:
    counter = InstructionCounter(stage)
    for step in steps:
        for command in step:
            name = type(command).__name__
            instruction = counter.name(name)
            if instruction is not None:
                yield instruction
            elif name not in _WAITING:
                raise ScheduleError(
                    f"the pipeline's schedule has a command {name}, which Perseus does not know; it knows "
                    f"{', '.join(_KINDS)}"
                )
