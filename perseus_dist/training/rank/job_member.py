"""A rank's part in its job, whatever the framework: joins when everybody does, and again when what runs has changed."""

import atexit
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from perseus_dist import hooks
from perseus_dist.boundaries.rank_spec import RankSpec, SharedPlanner
from perseus_dist.errors import PerseusError
from perseus_dist.fingerprint import Workload
from perseus_dist.planning.schedule.granularity import ITERATION, Granularity
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, Instruction
from perseus_dist.planning.schedule.schedule import Schedule, format_schedule
from perseus_dist.training.options import PerseusOptions
from perseus_dist.training.rank.agent_options import agent_options
from perseus_dist.training.rank.device import Device
from perseus_dist.training.rank.host_pace import HostPaceFile
from perseus_dist.training.rank.hosts import meeting_host
from perseus_dist.training.rank.job_identity import (
    IdentityError,
    JobIdentity,
    PlannerAnnouncement,
    Store,
    announced_planner,
    find_identity,
    is_first_to_say,
    is_store_kept,
    leave_identity,
    leave_refusal,
    make_identity,
)
from perseus_dist.training.rank.ordered_boundaries import OrderedBoundaries
from perseus_dist.training.rank.tracing import JobTracing, open_tracer, start_tracing
from perseus_dist.training.rank.workload import read_workload

if TYPE_CHECKING:
    from perseus_dist.hooks import Hook

_log = logging.getLogger(__name__)

_FIRST_BACKOFF = 2  # iterations; doubled at each change, so that a batch that grows all the time costs little
_MAX_BACKOFF = 1024
_LASTING_BACKOFFS = 4  # for which content must have lasted, so that the next is planned as soon as the first was
_MAX_JOIN_ATTEMPTS = 5  # at rank 0's word, an iteration apart; by what it promises, the second finds it
# Looks for the planner that rank 0 announces, an iteration apart; after them, twice as far apart each time, up to
# `_MAX_BACKOFF`.
_CLOSE_LOOKS = 32
_numbers = count()  # ranks make their engines in the same order


class TopologyError(PerseusError):
    """Ranks are arranged in a way that no plan is made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankIdentity:
    """Who a rank is. As in ``RankSpec``."""

    rank: int
    pp_rank: int
    dp_rank: int
    tp_rank: int
    pp_size: int
    dp_size: int
    tp_size: int
    local_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework's answers when its rank joins.

    Attributes:
        read_schedule: The schedule that the next iteration will follow. May raise ``PerseusError``.
        open_device: Where the rank computes; asked once. May raise ``PerseusError``.
        open_store: The store that all ranks of the job share. May raise anything.
        shows_job: As in ``RankSpec``.
        read_workload: What the next iteration will compute; asked each time that the rank joins. May raise anything.
    """

    read_schedule: Callable[[], Schedule]
    open_device: Callable[[], Device]
    open_store: Callable[[], Store]
    shows_job: bool = False
    read_workload: Callable[[], Workload] = Workload


class JobMember:
    """One rank. Calls come from the thread that trains; any of them may raise, and is to be kept from training.

    Args:
        place: Who the rank is.
        options: What was asked for.
        framework: How the framework answers.
        first_join: The iteration at which it joins, the same on all ranks.

    Attributes:
        hook: The rank's, while it takes part.
    """

    def __init__(
        self, place: RankIdentity, options: PerseusOptions, framework: Framework, *, first_join: int = 0
    ) -> None:
        self._place = place
        self._options = options
        self._framework = framework
        self._number = next(_numbers)
        self._job = options.job
        self._device: Device | None = None
        self._boundaries: OrderedBoundaries | None = None
        self._iteration = -1
        self._shape: object = None
        self._first_join = first_join
        self._join_iteration: int | None = first_join  # at which all ranks join; None: this rank never will
        self._rejoin_backoff = _FIRST_BACKOFF
        self._changed_at = 0  # the iteration
        self._num_join_attempts = 0
        self._num_looks = 0  # for the planner of rank 0's host, which starts
        self._next_look = 0  # the iteration
        self._announcement: PlannerAnnouncement | None = None
        self._tracing: JobTracing | None = None
        self._host_pace = HostPaceFile(rank=place.rank, report=options.report)
        self._has_run = False  # any instruction, whether it was reported or not
        self._granularity = Granularity.INSTRUCTION

    @property
    def hook(self) -> "Hook | None":
        """The rank's, while it takes part."""
        return None if self._boundaries is None else self._boundaries.hook

    def begin_iteration(self, shape: object, *, sees_instructions: bool = True) -> None:
        """An iteration begins.

        Args:
            shape: What the schedule depends on, the same on all ranks; compared with the iteration's before.
            sees_instructions: Whether those of this iteration can be seen as they run, on all ranks alike. Otherwise
                clocks change by time alone, or not at all, and ``begin`` and ``end`` publish nothing.
        """
        self._iteration += 1
        granularity = Granularity.INSTRUCTION if sees_instructions else Granularity.RANK
        if self._shape not in (None, shape):
            self.change(f"the batch changed from {self._shape} to {shape}")
        elif granularity != self._granularity:
            self.change(f"each {granularity} has one clock from now on")
        self._shape, self._granularity = shape, granularity
        self._has_run |= not sees_instructions
        if self._boundaries is None and self._join_iteration is not None and self._iteration >= self._join_iteration:
            self._join(self._join_iteration)
        if self._boundaries is not None:
            self._boundaries.begin_iteration(self._iteration)
            if not sees_instructions:
                self._boundaries.begin(self._whole_iteration)
        if self._announcement is not None and self._announcement.is_made():
            self._announcement = None

    def begin(self, instruction: Instruction) -> None:
        """An instruction begins."""
        self._has_run = True
        if self._device is not None:
            self._device.begin(instruction.kind, instruction.stage)
        if self._boundaries is not None and self._granularity == Granularity.INSTRUCTION:
            self._boundaries.begin(instruction)

    def finish(self) -> None:
        """The instruction's result is there, and leaves before its end."""
        if self._device is not None:
            self._device.end()

    def end(self, instruction: Instruction, *, is_sent: bool = True) -> None:
        """The instruction ends.

        Args:
            instruction: The one that began last.
            is_sent: Whether its result leaves at once; otherwise ``send`` says when it does.
        """
        if self._device is not None:
            self._device.end()
        if self._boundaries is not None and self._granularity == Granularity.INSTRUCTION:
            self._boundaries.end(instruction)
        if is_sent:
            self.send(instruction.kind, instruction.stage)

    def send(self, kind: str, stage: int) -> None:
        """A result of such an instruction of a stage leaves for another rank, or has come from one."""
        if self._device is not None:
            self._device.send(kind, stage)

    def end_iteration(self, tokens: int = 0, input_wait_ns: int | None = None) -> None:
        """The iteration is over.

        Args:
            tokens: As in ``Hook.work``.
            input_wait_ns: As there.
        """
        if self._boundaries is not None:
            if self._granularity == Granularity.RANK:
                self._boundaries.end(self._whole_iteration)
            self._boundaries.end_iteration(self._iteration, tokens, input_wait_ns)
        self._host_pace.keep(self._device)

    def abandon_iteration(self) -> None:
        """Stop following the plan in the iteration that failed: no plan was made for what comes next."""
        if self._device is not None:
            self._device.end()
        if self._boundaries is not None:
            self._boundaries.abandon_iteration()

    def mark(self, phase: str) -> None:
        """Something else begins: as ``Hook.mark``."""
        if self._boundaries is not None:
            self._boundaries.hook.mark(phase)

    def change(self, what: str) -> None:
        """The content of iterations has changed, on all ranks: clocks are released, and a new plan is made.

        All ranks join again once nothing has changed for a while: twice as long each time, unless the content before
        has lasted for long.
        """
        if self._join_iteration is None or not self._has_run:
            return
        if self._place.rank == 0 and self._boundaries is not None:
            _log.warning("perseus: %s: clocks are released, and a new plan will be made", what)
        self._leave()
        if self._iteration - self._changed_at >= _LASTING_BACKOFFS * self._rejoin_backoff:
            self._rejoin_backoff = _FIRST_BACKOFF
        self._changed_at = self._iteration
        self._join_iteration = max(self._first_join, max(self._iteration, 0) + self._rejoin_backoff)
        self._rejoin_backoff = min(2 * self._rejoin_backoff, _MAX_BACKOFF)
        self._num_join_attempts = self._num_looks = self._next_look = 0

    def close(self) -> None:
        """Never take part again."""
        self._join_iteration = None
        self._leave()
        if self._device is not None:
            self._device.close()
            self._device = None

    @property
    def _whole_iteration(self) -> Instruction:
        return Instruction(self._place.pp_rank, ITERATION, NO_MICROBATCH)

    # ---- joining ----------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        self._host_pace.keep(self._device, is_over=True)
        if self._tracing is not None:
            self._tracing.close()
            self._tracing = None
        if self._boundaries is not None:
            atexit.unregister(self._end_with_process)
            self._boundaries.hook.close()
            self._boundaries = None

    def _end_with_process(self, pid: int) -> None:
        """Say goodbye before the interpreter ends, which takes seconds with a framework in it.

        Else the first rank to end would take the planner that it embeds away from the others. What has failed ends
        without a word, and so does a fork.
        """
        if os.getpid() == pid and not hasattr(sys, "last_value"):
            with suppress(Exception):
                self._leave()

    def _join(self, due: int) -> None:
        key = f"perseus/{self._number}/{due}"
        store = self._framework.open_store()
        if self._place.rank == 0:
            self._join_first(store, key)
        elif self._iteration < self._next_look:
            return
        elif self._iteration > due or not is_store_kept():  # else the word may be an earlier attempt's
            self._join_others(store, key)

    def _join_first(self, store: Store, key: str) -> None:
        """As rank 0, which makes the job."""
        identity = None
        try:
            schedule = self._framework.read_schedule()
            is_planner_embedded = self._options.planner is None
            host = self._share() if is_planner_embedded else None
            identity = make_identity(job=self._job, is_planner_embedded=is_planner_embedded, is_shared=host is not None)
            hook = self._attach(schedule, identity, store, key, share=host)
            if not hook.enabled:
                raise IdentityError("the agent of rank 0 could not be started")
        except Exception as error:
            if identity is not None:
                identity.discard()
            leave_refusal(store, key, str(error))
            raise
        self._job = identity.job
        leave_identity(store, key, identity)
        if identity.is_shared:
            self._announcement = PlannerAnnouncement(store, f"{key}/{identity.run_id}", identity)

    def _share(self) -> str | None:
        """Where other nodes are to reach the planner that rank 0 embeds; None where there are none."""
        if self._options.share is not None:
            return None if self._options.share == "off" else self._options.share
        return meeting_host()

    def _join_others(self, store: Store, key: str) -> None:
        try:
            identity = find_identity(store, key)
            own_key = "" if identity is None else f"{key}/{identity.run_id}"
            needs_planner = identity is not None and not identity.is_within_reach and identity.is_shared
            planner = announced_planner(store, own_key) if needs_planner else None
        except IdentityError as error:
            # Rank 0 or its planner has said it aloud.
            _log.debug("perseus: rank %d takes no part: %s", self._place.rank, error)
            self.close()
            return
        if needs_planner and planner is None:  # rank 0's is still starting
            self._num_looks += 1
            apart = 1 << max(0, self._num_looks - _CLOSE_LOOKS)
            self._next_look = self._iteration + min(apart, _MAX_BACKOFF)
        elif identity is not None:
            if not (identity.is_within_reach or needs_planner) and is_first_to_say(store, own_key):
                _log.warning(
                    "perseus: the job spans several hosts, and rank 0's planner is not shared with other nodes: clocks "
                    "stay as they are; name an address of rank 0's host with "
                    "--perseus-share HOST, or start 'perseus-dist planner' and name it with --perseus-planner HOST:PORT"
                )
            if not self._attach(self._framework.read_schedule(), identity, store, key, planner=planner).enabled:
                self.close()  # the hook has said why
        else:
            self._num_join_attempts += 1
            if self._num_join_attempts == _MAX_JOIN_ATTEMPTS:
                raise IdentityError("rank 0 has not said which job this is; is Perseus disabled there?")

    def _attach(
        self,
        schedule: Schedule,
        identity: JobIdentity,
        store: Store,
        key: str,
        *,
        planner: SharedPlanner | None = None,
        share: str | None = None,
    ) -> "Hook":
        if self._device is None:
            self._device = self._framework.open_device()
            if not self._device.has_clock and self._place.rank == 0:
                _log.warning("perseus: training does not run on a GPU: there is no clock to plan, and none is set")
        place, options = self._place, self._options
        if options.planner is not None and options.stragglers is not None and place.rank == 0:
            _log.warning(
                "perseus: what is done about stragglers is up to the planner that was named: start that one "
                "with --stragglers"
            )
        tracer = open_tracer()
        # One rank's spans are the whole job's.
        if tracer is not None and not is_first_to_say(store, f"{key}/{identity.run_id}/traces"):
            tracer = None
        is_observing = not self._device.has_clock or not (identity.is_within_reach or planner is not None)
        spec = RankSpec(
            job_id=identity.job,
            rank=place.rank,
            pp_rank=place.pp_rank,
            dp_rank=place.dp_rank,
            tp_rank=place.tp_rank,
            pp_size=place.pp_size,
            dp_size=place.dp_size,
            tp_size=place.tp_size,
            schedule=format_schedule(schedule),
            local_rank=place.local_rank,
            gpu_uuid=self._device.gpu_uuid,
            planner=options.planner,
            rendezvous=identity.rendezvous,
            shared_planner=planner,
            token_file=options.token_file,
            target=options.target,
            profile=options.profile,
            report=options.report,
            control="observe" if is_observing else options.control or "auto",
            shows_job=self._framework.shows_job or tracer is not None,
            run_id=identity.run_id,
            workload=read_workload(self._framework.read_workload),
            granularity=self._granularity,
            options=agent_options(options) | ({} if share is None else {"planner_share": share}),
        )
        hook = hooks.attach(spec, device_stream=self._device.device_stream)
        if hook.enabled:
            sees_instructions = self._granularity == Granularity.INSTRUCTION
            order = schedule.ranks[place.pp_rank] if sees_instructions else (self._whole_iteration,)
            self._boundaries = OrderedBoundaries(hook, order, rank=place.rank)
            atexit.register(self._end_with_process, os.getpid())
            if tracer is not None:
                self._tracing = start_tracing(tracer, job=identity.job, rank=place.rank, read_status=hook.status)
        return hook
