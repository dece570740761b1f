"""One pipeline engine under Perseus: its boundaries go to the rank's agent, and training is never harmed.

Only attributes of the engine itself are set. ``PipelineEngine._exec_schedule`` looks each command up in
``self._INSTRUCTION_MAP``, which holds functions and not methods: a map on the engine comes before its class's.
"""

import functools
import logging
import weakref
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from perseus_dist.boundaries.record import Mark
from perseus_dist.deepspeed.engine_place import place_of
from perseus_dist.deepspeed.engine_schedule import (
    EXCHANGE,
    InstructionCounter,
    is_instruction,
    link_of,
    read_schedule,
    stages_of,
    transfer_of,
)
from perseus_dist.deepspeed.engine_workload import workload_of
from perseus_dist.deepspeed.monitor import write_status
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.training.options import PerseusOptions
from perseus_dist.training.rank.device import Device, open_device
from perseus_dist.training.rank.iteration_work import TokenCount
from perseus_dist.training.rank.job_identity import torch_store
from perseus_dist.training.rank.job_member import Framework, JobMember

_log = logging.getLogger(__name__)

_MAP = "_INSTRUCTION_MAP"
_ABSENT = object()
_newest: "weakref.ref[Attachment] | None" = None  # of this process, whose one GPU has one clock


class Attachment:
    """Perseus in one engine, until that is destroyed, collected or replaced. Made by ``adapter.attach``."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._member: JobMember | None = None
        self._counter = InstructionCounter((0,))
        self._line: defaultdict[tuple[bool, int], list[tuple[str, int]]] = defaultdict(list)  # transfers, by link
        self._tokens = TokenCount()
        self._is_training = False
        self._found: dict[str, tuple[object, object]] = {}  # in the engine's own dictionary: before, and ours

    @property
    def is_active(self) -> bool:
        """Whether the engine is under Perseus now."""
        return self._member is not None

    def install(self, options: PerseusOptions) -> None:
        """Take part from the next iteration on.

        An earlier engine of this process takes no further part: a script that makes its engine anew goes on with it.

        Raises:
            PerseusError: No plan is made for this arrangement of ranks.
        """
        global _newest  # noqa: PLW0603 - as there is one GPU
        engine = self._engine
        seen = weakref.ref(engine)  # the member outlives the engine, to release its clocks
        place = place_of(engine)
        framework = Framework(
            read_schedule=lambda: read_schedule(seen()),
            open_device=lambda: _open_device(seen(), place.local_rank),
            open_store=torch_store,
            read_workload=lambda: workload_of(seen()),
        )
        self._counter = InstructionCounter(stages_of(engine, place.pp_rank))
        member = self._member = JobMember(place, options, framework)
        weakref.finalize(engine, _close, member).atexit = False
        if (earlier := _active()) is not None:
            earlier.remove()
        _newest = weakref.ref(self)
        if place.rank == 0 and getattr(engine, "dynamic_shape", False):
            _log.warning("perseus: shapes change from microbatch to microbatch, and plans are made for their means")
        functions = getattr(engine, _MAP)
        self._replace(_MAP, {command: self._told(command, function) for command, function in functions.items()})
        self._replace("eval_batch", self._marked(engine.eval_batch, Mark.EVAL_BEGIN, Mark.EVAL_END))
        self._replace("save_checkpoint", self._marked(engine.save_checkpoint, Mark.CHECKPOINT))
        self._replace("reset_activation_shape", self._changing(engine.reset_activation_shape))
        self._replace("destroy", self._removing(engine.destroy))

    def remove(self) -> None:
        """Leave the engine as it was found, but for what its script has replaced since; clocks are released."""
        for name, (found, ours) in self._found.items():
            if self._engine.__dict__.get(name) is not ours:
                continue
            del self._engine.__dict__[name]
            if found is not _ABSENT:
                self._engine.__dict__[name] = found
        self._found.clear()
        self._safely(JobMember.close)
        self._member = None

    def run_iteration(self, train_batch: Callable[[], Any]) -> Any:
        """Run the engine's own ``train_batch`` as an iteration."""
        if not self.is_active:
            self._give_up_both()
            return train_batch()
        if self._is_training:
            return train_batch()
        self._counter.begin_iteration()
        self._line.clear()
        self._tokens.begin_iteration()
        self._safely(lambda member: member.begin_iteration(self._engine.micro_batches))
        self._is_training = True
        try:
            loss = train_batch()
        except BaseException:
            self._safely(JobMember.abandon_iteration)
            raise
        finally:
            self._is_training = False
        self._safely(self._end_iteration)
        return loss

    def _give_up_both(self) -> None:
        """Two engines train in turns, one perhaps refused: a plan would leave the other whatever clock it set last."""
        if (other := _active()) is not None:
            other.remove()
            if getattr(self._engine, "global_rank", 0) == 0:
                _log.warning("perseus: two engines train in this process, and a GPU has one clock: clocks are released")

    def _end_iteration(self, member: JobMember) -> None:
        member.end_iteration(self._tokens.num_tokens)
        if member.hook is not None:
            write_status(self._engine, member.hook)

    def _safely(self, tell: Callable[[JobMember], None]) -> None:
        """Nothing of ours reaches training: after the first error we are gone."""
        member = self._member
        if member is None:
            return
        try:
            tell(member)
        except Exception as error:
            self._member = None
            _close(member)
            _log.warning("perseus: clocks stay as they are: %s", error or type(error).__name__)

    # ---- what the engine runs instead -------------------------------------------------------------------------------

    def _replace(self, name: str, value: object) -> None:
        # Not setattr: a torch module's looks at what it is given.
        self._found[name] = self._engine.__dict__.get(name, _ABSENT), value
        self._engine.__dict__[name] = value

    def _told(self, command: type, function: Callable[..., Any]) -> Callable[..., Any]:
        name = command.__name__
        if name == EXCHANGE:
            return self._exchanging(function)
        if transfer_of(name, 0) is not None:
            return self._transferring(name, function)
        if not is_instruction(name):
            return function

        @functools.wraps(function)
        def run(engine: Any, *args: Any, **kwargs: Any) -> Any:
            # Evaluation runs the same commands.
            phase = kwargs.get("phase", 0)
            instruction = self._counter.name(name, phase) if self._is_training else None
            if instruction is None:
                return function(engine, *args, **kwargs)
            self._safely(lambda member: member.begin(instruction))
            result = function(engine, *args, **kwargs)
            self._safely(lambda member: member.end(instruction, is_sent=False))
            if instruction.kind == Kind.FORWARD and phase == 0:  # a later stage computes on the same tokens
                self._tokens.add(_input_of(engine, kwargs.get("buffer_id")))
            return result

        return run

    def _transferring(self, command: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A slow link takes its time once the tensor is there: it holds both sides from when both have come to it."""

        @functools.wraps(function)
        def run(engine: Any, *args: Any, **kwargs: Any) -> Any:
            result = function(engine, *args, **kwargs)
            if self._is_training:
                phase = kwargs.get("phase", 0)
                transfer = transfer_of(command, self._counter.stages[phase])
                assert transfer is not None
                if len(self._counter.stages) > 1:  # it is only put in line
                    self._line[link_of(command, phase)].append(transfer)
                else:
                    self._hold_up(*transfer)
            return result

        return run

    def _hold_up(self, kind: str, sender: int) -> None:
        self._safely(lambda member: member.send(kind, sender))

    def _exchanging(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Slow links carry what is in line at the same time, each one tensor after the other."""

        @functools.wraps(function)
        def run(engine: Any, *args: Any, **kwargs: Any) -> Any:
            result = function(engine, *args, **kwargs)
            for transfer in max(self._line.values(), key=len, default=()):
                self._hold_up(*transfer)
            self._line.clear()
            return result

        return run

    def _marked(self, method: Callable[..., Any], before: str, after: str | None = None) -> Callable[..., Any]:
        @functools.wraps(method)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._safely(lambda member: member.mark(before))
            try:
                return method(*args, **kwargs)
            finally:
                if after is not None:
                    self._safely(lambda member: member.mark(after))

        return run

    def _changing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._safely(lambda member: member.change("the shape of activations changed"))
            return method(*args, **kwargs)

        return run

    def _removing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.remove()
            return method(*args, **kwargs)

        return run


def _active() -> Attachment | None:
    """The one that takes part in this process."""
    newest = None if _newest is None else _newest()
    return newest if newest is not None and newest.is_active else None


def _close(member: JobMember) -> None:
    with suppress(Exception):
        member.close()


def _input_of(engine: Any, buffer_id: Any) -> Any:
    """The input of a stage's forward, which stays in its buffer for the backward; None where it cannot be found.

    The first stage has loaded it, the others have received it.
    """
    with suppress(Exception):
        return engine.pipe_buffers["inputs"][buffer_id]
    return None


def _open_device(engine: Any, local_rank: int) -> Device:
    num_chunks = len(stages_of(engine, engine.stage_id))
    return open_device(
        local_rank,
        is_cuda=engine.device.type == "cuda",
        num_stages=num_chunks * engine.num_stages,
        num_chunks=num_chunks,
        sends_block=True,
    )
