"""One schedule under Perseus: its boundaries go to the rank's agent, and training is never harmed.

Only methods of the schedule itself, and of its stages, are replaced. An iteration begins when the schedule runs its
microbatches to train. It ends when it has, or, where ``attach`` was given the optimizer, when that has stepped.
"""

import logging
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from perseus_dist.boundaries.agent_status import AgentStatus
from perseus_dist.boundaries.record import Mark
from perseus_dist.errors import ScheduleError
from perseus_dist.fingerprint import Workload
from perseus_dist.pipelining.refusals import reason_against
from perseus_dist.pipelining.schedule_order import read_schedule, stages_of
from perseus_dist.pipelining.stage_workload import workload_of
from perseus_dist.planning.schedule.instruction import (
    NO_MICROBATCH,
    SEND_BACKWARD,
    SEND_FORWARD,
    SENDS,
    Instruction,
    Kind,
)
from perseus_dist.training.final_report import make_report_at_exit
from perseus_dist.training.options import PerseusOptions
from perseus_dist.training.rank.constant_kinds import STEP
from perseus_dist.training.rank.device import Device, open_device
from perseus_dist.training.rank.iteration_work import TokenCount
from perseus_dist.training.rank.job_identity import torch_store
from perseus_dist.training.rank.job_member import Framework, JobMember, RankIdentity
from perseus_dist.training.rank.join_pace import JoinPace
from perseus_dist.training.replaced_function import replace_function

_log = logging.getLogger(__name__)

_BATCHES = ("arg_mbs", "kwarg_mbs", "target_mbs")  # of _step_microbatches
_newest: "weakref.ref[Attachment] | None" = None  # of this process, whose one GPU has one clock

_pace = JoinPace()
_left_hooks: list[Callable[[], None]] = []  # remove hooks from optimizers of collected schedules; those do nothing


class Attachment:
    """Perseus in one schedule, until that is collected. Made by ``adapter.attach``."""

    def __init__(self, schedule: Any) -> None:
        self._schedule = schedule
        self._stages: list[Any] = []
        self._rank, self._tp_size = 0, 1
        self._member: JobMember | None = None
        self._put_back: list[Callable[[], None]] = []
        self._tokens = TokenCount()
        self._reductions: dict[int, Instruction] = {}  # by stage
        self._sends: frozenset[Instruction] = frozenset()
        self._step: Instruction | None = None
        self._first_microbatch: Any = None  # of the iteration that begins
        self._open_forward: Instruction | None = None  # whose loss is still to be computed
        self._is_in_schedule = False
        self._is_iterating = False

    @property
    def is_active(self) -> bool:
        """Whether the schedule is under Perseus now."""
        return self._member is not None

    @property
    def is_newest(self) -> bool:
        """Whether the process has attached no later schedule, the same on all ranks: also once this rank has failed."""
        return _newest_in_place() is self

    def status(self) -> AgentStatus | None:
        """The agent's newest status, for a monitor of one's own; None where nothing is known yet."""
        hook = None if self._member is None else self._member.hook
        return None if hook is None else hook.status()

    def install(
        self, options: PerseusOptions, *, optimizer: Any, read_place: Callable[[list[Any]], RankIdentity]
    ) -> None:
        """Take part from the next iteration on. Arguments as in ``attach_by``.

        An earlier schedule of this process takes no further part: a script may make its schedule anew.

        Raises:
            PerseusError: No plan is made for what runs, or for how ranks are arranged.
        """
        global _newest  # noqa: PLW0603 - as there is one GPU
        while _left_hooks:
            _left_hooks.pop()()
        schedule = self._schedule
        reason = reason_against(schedule, optimizer)
        if reason is not None:
            raise ScheduleError(reason)
        stages = self._stages = stages_of(schedule)
        place = read_place(stages)
        instructions = read_schedule(schedule, has_step=optimizer is not None)
        order = instructions.ranks[place.pp_rank]
        self._reductions = {i.stage: i for i in order if i.microbatch == NO_MICROBATCH and i.kind != STEP}
        self._sends = frozenset(i for i in order if i.kind in SENDS)
        self._step = next((i for i in order if i.kind == STEP), None)
        self._rank, self._tp_size = place.rank, place.tp_size
        seen = weakref.ref(self)  # the member outlives schedule and stages, to release its clocks
        framework = Framework(
            read_schedule=lambda: instructions,
            open_device=_device_opener(stages, place.local_rank),
            open_store=torch_store,
            read_workload=lambda: _workload_of(seen()),
        )
        member = self._member = JobMember(place, options, framework, first_join=_pace.next_wait())
        weakref.finalize(schedule, _close, member).atexit = False
        if (earlier := _newest_in_place()) is not None:
            earlier.supersede()
        _newest = seen
        self._replace(schedule, "_step_microbatches", self._run_schedule)
        self._replace(schedule, "_maybe_compute_loss", self._run_loss)
        for stage in stages:
            self._replace(stage, "forward_one_chunk", partial(self._run_forward, stage))
            self._replace(stage, "backward_one_chunk", partial(self._run_backward, stage.stage_index))
            self._replace(stage, "backward_weight_one_chunk", partial(self._run_weight, stage.stage_index))
            if self._sends:
                for kind, name in ((SEND_FORWARD, "get_fwd_send_ops"), (SEND_BACKWARD, "get_bwd_send_ops")):
                    self._replace(stage, name, partial(self._run_send, stage.stage_index, kind))
            if stage.stage_index in self._reductions:
                self._replace(stage, "perform_reduce_grad", partial(self._run, self._reductions[stage.stage_index]))
        if optimizer is not None:
            begin, end = weakref.WeakMethod(self._begin_step), weakref.WeakMethod(self._end_step)
            removes = (
                optimizer.register_step_pre_hook(partial(_call, begin)).remove,
                optimizer.register_step_post_hook(partial(_call, end)).remove,
            )
            self._put_back += removes
            # Not removed at once: the optimizer may go through its hooks when the schedule is collected.
            weakref.finalize(schedule, _left_hooks.extend, removes).atexit = False
        if place.rank == 0 and options.report is not None:
            make_report_at_exit(options.report, partial(_close, member))

    def remove(self) -> None:
        """Leave schedule, stages and optimizer as they were found; clocks are released."""
        while self._put_back:
            self._put_back.pop()()
        self._is_iterating = False
        self._safely(JobMember.close)
        self._member = None

    def detach(self) -> None:
        """As ``remove``, because the script says so: what it attaches next takes part at once."""
        if self.is_newest:
            _pace.forget()
        self.remove()

    def supersede(self) -> None:
        """Make room for a later schedule of this process. Should this one train again, both are given up."""
        self.remove()
        self._replace(self._schedule, "_step_microbatches", self._give_up_both)

    # ---- methods in the place of torch's -----------------------------------------------------------------------------

    def _replace(self, owner: Any, name: str, run: Callable[[Any], Any]) -> None:
        self._put_back.append(replace_function(owner, name, run))

    def _run_schedule(self, call: Any) -> Any:
        """``_step_microbatches``, which ``step`` and ``eval`` both run."""
        if self._is_in_schedule:
            return call()
        if self.is_newest and self._schedule._has_backward:  # noqa: SLF001 - all that tells step() from eval()
            _pace.count_iteration()  # as on other ranks, also where this one has failed
        if not self.is_active:
            return call()
        if not self._schedule._has_backward:  # noqa: SLF001 - as above
            return self._evaluate(call)
        self._begin_iteration(call)
        self._is_in_schedule = True
        try:
            result = call()
        except BaseException:
            self._is_iterating = False
            self._safely(JobMember.abandon_iteration)
            raise
        finally:
            self._is_in_schedule = False
            self._open_forward = None
        if self._step is None:
            self._end_iteration()
        return result

    def _give_up_both(self, call: Any) -> Any:
        """Two schedules train in turns: the plan of one would leave the other whatever clock it set last."""
        self.remove()
        if (other := _newest_in_place()) is not None:
            other.remove()
            if self._rank == 0:
                _log.warning("perseus: two schedules train in this process, on one GPU's clock: clocks are released")
        return call()

    def _run_forward(self, stage: Any, call: Any) -> Any:
        if not self._is_in_schedule:
            return call()
        instruction = Instruction(stage.stage_index, Kind.FORWARD, _argument(call, 0, "fwd_chunk_id"))
        self._safely(lambda member: member.begin(instruction))
        result = call()
        if stage is self._stages[0]:  # later chunks compute on the same tokens
            self._tokens.add(_argument(call, 1, "args"), _argument(call, 2, "kwargs"), result)
        if stage.is_last:
            self._open_forward = instruction
        else:
            self._safely(lambda member: member.end(instruction))
        return result

    def _run_loss(self, call: Any) -> Any:
        """Compute the loss: of the forward of the last stage, which has just run. Other stages have none."""
        result = call()
        instruction, self._open_forward = self._open_forward, None
        if instruction is not None:
            self._safely(lambda member: member.end(instruction))
        return result

    def _run_backward(self, stage: int, call: Any) -> Any:
        is_whole = _argument(call, 2, "full_backward", default=True)
        kind = Kind.BACKWARD if is_whole else Kind.INPUT_GRADIENT
        return self._run(Instruction(stage, kind, _argument(call, 0, "bwd_chunk_id")), call)

    def _run_weight(self, stage: int, call: Any) -> Any:
        return self._run(Instruction(stage, Kind.WEIGHT_GRADIENT, _argument(call, 0, "bwd_chunk_id")), call)

    def _run_send(self, stage: int, kind: str, call: Any) -> Any:
        """Collect tensors for a send, which begins then; most sends are no instructions."""
        name = "fwd_chunk_id" if kind == SEND_FORWARD else "bwd_chunk_id"
        instruction = Instruction(stage, kind, _argument(call, 0, name))
        return self._run(instruction, call) if instruction in self._sends else call()

    def _run(self, instruction: Instruction, call: Any) -> Any:
        if not self._is_in_schedule:
            return call()
        self._safely(lambda member: member.begin(instruction))
        result = call()
        self._safely(lambda member: member.end(instruction))
        return result

    def _evaluate(self, call: Any) -> Any:
        self._safely(lambda member: member.mark(Mark.EVAL_BEGIN))
        try:
            return call()
        finally:
            self._safely(lambda member: member.mark(Mark.EVAL_END))

    # ---- iterations -------------------------------------------------------------------------------------------------

    def _begin_iteration(self, call: Any) -> None:
        self._end_iteration()  # where the optimizer has not stepped, which its order does not fit
        self._is_iterating = True
        self._tokens.begin_iteration()

        def begin(member: JobMember) -> None:
            batches = [_argument(call, place, name) for place, name in enumerate(_BATCHES)]
            self._first_microbatch = [batch[0] for batch in batches if batch]
            member.begin_iteration(self._schedule._n_microbatches)  # noqa: SLF001 - its only name

        self._safely(begin)
        self._first_microbatch = None  # is not to outlive the call

    def _begin_step(self) -> None:
        if self._is_iterating and self._step is not None:
            step = self._step
            self._safely(lambda member: member.begin(step))

    def _end_step(self) -> None:
        if self._is_iterating and self._step is not None:
            step = self._step
            self._safely(lambda member: member.end(step))
            self._end_iteration()

    def _end_iteration(self) -> None:
        if self._is_iterating:
            self._is_iterating = False
            self._safely(lambda member: member.end_iteration(self._tokens.num_tokens))

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


def _argument(call: Any, place: int, name: str, default: Any = None) -> Any:
    """An argument of a call that is still to be made, a ``functools.partial``."""
    return call.args[place] if place < len(call.args) else call.keywords.get(name, default)


def _newest_in_place() -> Attachment | None:
    """The one whose schedule this process trains, unless it was removed. Ranks alike, whichever has failed alone."""
    newest = None if _newest is None else _newest()
    return newest if newest is not None and newest._put_back else None  # noqa: SLF001 - its module


def _close(member: JobMember) -> None:
    with suppress(Exception):
        member.close()


def _call(method: "weakref.WeakMethod[Callable[[], None]]", *_: Any) -> None:
    """As a hook of an optimizer, which may outlive the schedule."""
    alive = method()
    if alive is not None:
        alive()


def _workload_of(attachment: Attachment | None) -> Workload:
    if attachment is None:
        return Workload()
    return workload_of(attachment._stages, attachment._first_microbatch, attachment._tp_size)  # noqa: SLF001 - its module


def _device_opener(stages: list[Any], local_rank: int) -> Callable[[], Device]:
    import torch

    device = torch.device(stages[0].device)
    return partial(
        open_device,
        local_rank,
        is_cuda=device.type == "cuda",
        num_stages=stages[0].num_stages,
        num_chunks=len(stages),
        cuda_index=device.index,  # scripts may name it everywhere, and leave the current one at 0 on every rank
    )
