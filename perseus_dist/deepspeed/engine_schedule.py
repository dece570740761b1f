"""The schedule of a DeepSpeed pipeline engine: its own class, evaluated for every stage, as a ``Schedule``.

DeepSpeed's commands carry a buffer, which is not the microbatch: microbatches are counted. Those of DualPipeV carry a
phase, too: which of the rank's two stages they are of. Sends and receives are no instructions but waiting.
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
EXCHANGE: Final = "CommitP2P"
"""DualPipeV's command that exchanges what others before it have put in line."""
_WAITING = frozenset({*_TRANSFERS, EXCHANGE})
_DUALPIPEV = "DualPipeVSchedule"


class InstructionCounter:
    """Names the commands of one rank as they run, microbatches by counting.

    Attributes:
        stages: Of the rank, by phase.
    """

    def __init__(self, stages: tuple[int, ...]) -> None:
        self.stages = stages
        self._counts: Counter[tuple[str, int]] = Counter()

    def begin_iteration(self) -> None:
        """Begin each class of instructions at microbatch 0 again."""
        self._counts.clear()

    def name(self, command: str, phase: int = 0) -> Instruction | None:
        """The instruction of the next command of this class; None for waiting and for unknown commands."""
        kind = _KINDS.get(command)
        if kind is None:
            return None
        stage = self.stages[phase]
        if kind in _ONCE_AN_ITERATION:
            return Instruction(stage, kind, NO_MICROBATCH)
        microbatch = self._counts[kind, stage]
        self._counts[kind, stage] += 1
        return Instruction(stage, kind, microbatch)


def is_instruction(command: str) -> bool:
    """Whether a command of this class is an instruction, rather than waiting."""
    return command in _KINDS


def transfer_of(command: str, stage: int) -> tuple[str, int] | None:
    """The kind and the stage of the instruction whose result a command of this class, on a stage, sends or receives."""
    if command not in _TRANSFERS:
        return None
    kind, distance = _TRANSFERS[command]
    return kind, stage + distance


def link_of(command: str, phase: int) -> tuple[bool, int]:
    """Whether a rank sends by a command of this class, and whether to or from the next pp_rank, 1, or the one before.

    Args:
        command: Of those that ``transfer_of`` knows.
        phase: 1 for the stages through which microbatches come back.
    """
    is_sent = command.startswith("Send")
    is_behind = is_sent == (_TRANSFERS[command][0] == Kind.FORWARD)  # in the order of stages
    return is_sent, 1 if is_behind == (phase == 0) else -1


def read_schedule(engine: Any) -> Schedule:
    """The schedule that the engine's next iteration will follow, on all stages.

    Args:
        engine: A ``PipelineEngine``.

    Raises:
        ScheduleError: It has commands that no plan is made for.
    """
    schedule_class = _schedule_class(engine)
    return Schedule(
        ranks=tuple(
            tuple(
                _instructions(
                    stages_of(engine, pp_rank),
                    schedule_class(micro_batches=engine.micro_batches, stages=engine.num_stages, stage_id=pp_rank),
                )
            )
            for pp_rank in range(engine.num_stages)
        ),
        exchange=Exchange.DUALPIPEV if schedule_class.__name__ == _DUALPIPEV else Exchange.SERIAL,
    )


def stages_of(engine: Any, pp_rank: int) -> tuple[int, ...]:
    """The stages of a pp_rank, by phase: under DualPipeV two, as far from the model's begin as from its end."""
    is_dualpipev = _schedule_class(engine).__name__ == _DUALPIPEV
    return (pp_rank, 2 * engine.num_stages - 1 - pp_rank) if is_dualpipev else (pp_rank,)


def _schedule_class(engine: Any) -> Any:
    if hasattr(engine, "_train_schedule"):  # since 0.19.8
        return type(engine._train_schedule())  # noqa: SLF001 - its only name
    from deepspeed.runtime.pipe.schedule import TrainSchedule

    return TrainSchedule


def _instructions(stages: tuple[int, ...], steps: Iterable[Iterable[Any]]) -> Iterator[Instruction]:
    counter = InstructionCounter(stages)
    for step in steps:
        for command in step:
            name = type(command).__name__
            instruction = counter.name(name, getattr(command, "phase", 0))
            if instruction is not None:
                yield instruction
            elif name not in _WAITING:
                raise ScheduleError(
                    f"the pipeline's schedule has a command {name}, which Perseus does not know; it knows "
                    f"{', '.join(_KINDS)}"
                )
