"""The guard of one job: what ranks report, in the guard's terms, and how often its plans have failed."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from statistics import median

from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.job_status import GuardFigures
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.guard import Guard, Mode

_MAX_BEHIND = 4  # iterations that a silent rank is waited for
_NUM_SPEEDS = 3
_NUM_RATIOS = 5
_BETWEEN_CLOCKS = 0.02  # of a time that was read between two clocks of a profile, or of noise
_MIN_AT_FULL, _NUM_AT_FULL = 2, 4  # iterations, of one probe and of two
_MISSTATED = 0.02
_FASTER = 0.98
_AS_PROFILED = 0.01
_CLEARLY_SLOWER = 0.005
_MAX_LATE = 64  # iterations that a switch is waited for
_MAX_PROBE_LEAD = 63  # iterations
_FIRST_HOLD = 4  # iterations
_FIRST_OWN_HOLD = 64  # iterations
_MAX_DOUBLINGS = 10
_EARLIEST = 8  # iterations of a hold that ends early
_EARLY_GAP = 128  # iterations between two holds that end early, unless what the plan lost is made up for before
_MIN_KEPT_SHARE = 0.25
"""Of a plan's iterations that kept the promise: a profile that is wrong makes nearly all of them slow."""


@dataclass(slots=True)
class _Part:
    """One iteration, as far as it has been reported."""

    num_ranks: int = 0
    time_s: float = 0.0
    is_free: bool = True
    is_of_other: bool = False
    is_proven: bool = False


@dataclass(slots=True)
class _Speed:
    """A rank's times over the profile's: the newest, and what they were when last looked at."""

    newest: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_SPEEDS))
    usual: float = 0.0


@dataclass(slots=True, kw_only=True)
class GuardWatch:
    """Owned by its job.

    Attributes:
        guard: The pure part.
        num_falls: Plans that were given up in breach of the promise.
        num_wait_falls, num_plan_falls: In a row: because waiting for a straggler had become needless; because the plan
            was slow.
        num_own_falls: Times that plans for pipelines with stragglers were slow.
        held_until: Iteration before which no straggler is waited for.
        own_plans_held_until: Iteration before which such plans are not followed, and full clocks are; 0 for none.
        is_holding: ``held_until`` has not been reached since it was set.
        is_released: The hold is one at full clocks, since a plan was given up.
        is_profile_wrong: The plan that was given up last was one of a profile that all replicas have left for long.
        kept_share: The guard's, of that plan.
        was_as_profiled: Under that plan, instructions took what the profile says.
        slower_then: Under that plan, how much slower than usual ranks were, as ``slower``.
        was_steady: Iterations at full clocks took the same time in the newest hold.
        num_since_sweep: Plans given up since all ranks were swept again, as long as none is trusted; None before that.
        swept_until: Iteration before which clocks may have been those of a sweep.
        probe_lead: Iterations that probes are ordered ahead, beside those that a message usually takes: as many as
            messages have been found to be late by.
        ratios: By rank, its newest times over the profile's at the clocks requested, under whatever plans.
        misstated: By rank whose computations of some kind took another time in probes since the newest switch than by
            the profile, by what share at most.
    """

    guard: Guard = field(default_factory=Guard)
    num_falls: int = 0
    num_wait_falls: int = 0
    num_plan_falls: int = 0
    num_own_falls: int = 0
    held_until: int = 0
    own_plans_held_until: int = 0
    is_holding: bool = False
    is_released: bool = False
    is_profile_wrong: bool = False
    kept_share: float = 0.0
    was_as_profiled: bool = False
    slower_then: dict[int, float] = field(default_factory=dict)
    was_steady: bool = True
    num_since_sweep: int | None = None
    swept_until: int = 0
    probe_lead: int = 0
    ratios: dict[int, deque[float]] = field(default_factory=dict)
    misstated: dict[int, float] = field(default_factory=dict)
    _num_switches: int = 0
    _moved_by: dict[int, int] = field(default_factory=dict)  # by dp_rank, the newest switch that changed its order
    _newest_move: int = 0
    _parts: dict[int, _Part] = field(default_factory=dict)
    _newest: int = -1
    _ended_early: int | None = None
    _was_on_time_again: bool = False  # the plan that was given up last, at its end
    _fell_at: int = 0
    _lost_before_s: float = 0.0  # in the ledger, as the plan in force began
    _made_up_at: float = 0.0  # iteration from which what that plan lost is within the budget
    _speeds: dict[int, _Speed] = field(default_factory=dict)
    _at_full: dict[int, deque[dict[str, float]]] = field(default_factory=dict)  # by rank, in probes since a switch
    _noted_at_full: int = -1  # the newest iteration of these
    _full_ratios: dict[int, float] = field(default_factory=dict)  # by rank, as ``ratios``, in the newest probe

    @property
    def figures(self) -> GuardFigures:
        """The guard's reference, losses and probes, as operators see them."""
        guard = self.guard
        return GuardFigures(
            reference_s=guard.reference_s or 0.0, lost_s=guard.lost_s, probes=guard.num_probes, falls=self.num_falls
        )

    @property
    def has_heard_all(self) -> bool:
        """Whether all ranks have told of the newest iteration that ``misstated`` knows, or will not."""
        return self._newest >= self._noted_at_full

    @property
    def instruction_excess(self) -> float:
        """Under the plan, a usual rank's instruction times over the profile's, minus 1; 0 where that is not known."""
        known = [median(speed.newest) for speed in self._speeds.values() if speed.newest]
        return median(known) - 1 if known else 0.0

    @property
    def is_off_profile(self) -> bool | None:
        """Whether some rank's instructions, under the plan in force, do not take what the profile says.

        None where that is not known.
        """
        excesses = [abs(median(speed.newest) - 1) for speed in self._speeds.values() if speed.newest]
        return max(excesses) > self._profile_doubt if excesses else None

    @property
    def is_slower_than_profile(self) -> bool:
        """Whether some rank's instructions, under the plan in force, clearly take longer than the profile says."""
        return any(median(speed.newest) - 1 > self._profile_doubt for speed in self._speeds.values() if speed.newest)

    @property
    def _profile_doubt(self) -> float:
        return max(_AS_PROFILED, 4 * self.guard.noise)

    def time_ratios(self, rank: int) -> tuple[float, float, float] | None:
        """A rank's instruction times over the profile's lately: least, median, most; None where few are known.

        Between clocks that were measured a profile may be a little off: what the newest probe found is the most, where
        that is so little more that the rank cannot be faster since.
        """
        newest = self.ratios.get(rank, ())
        if len(newest) != _NUM_RATIOS:
            return None
        most, full = max(newest), self._full_ratios.get(rank, 0.0)
        return min(newest), median(newest), full if most < full < (1 + _BETWEEN_CLOCKS) * most else most

    @property
    def slower(self) -> dict[int, float]:
        """By rank, how much more than a usual rank its instructions take over the profile's, where that is clear.

        Where clocks fall late usual ranks take less than the profile says, and no rank that takes as much is slow.
        """
        usual = max(1.0, 1 + self.instruction_excess)
        excesses = {rank: median(speed.newest) / usual - 1 for rank, speed in self._speeds.items() if speed.newest}
        clear = max(_CLEARLY_SLOWER, 4 * self.guard.noise)
        return {rank: excess for rank, excess in excesses.items() if excess > clear}

    def begin_plan(self, first_iteration: int, moved: Collection[int]) -> None:
        """Another plan is in force from this iteration on.

        Args:
            first_iteration: As ordered.
            moved: The dp_ranks whose order is another one than before.
        """
        self.guard.begin_plan(first_iteration)
        self._lost_before_s = self.guard.lost_s
        self._num_switches += 1
        self._moved_by |= dict.fromkeys(moved, self._num_switches)
        self._newest_move = max(self._moved_by.values(), default=0)
        self._speeds.clear()
        self._at_full.clear()
        self.misstated.clear()

    def observe(
        self,
        rank: int,
        dp_rank: int,
        report: IterationReport,
        *,
        is_planned: bool,
        num_attached: int,
        is_held_slow: bool = False,
        allowed: Callable[[float], float],
    ) -> bool:
        """Take note of a rank's iteration; whether an iteration of the job is known by it.

        An iteration lasts as long on all ranks, so that one whose agent is dead or silent is not waited for.

        Args:
            rank: Global.
            dp_rank: Its pipeline.
            report: Its own.
            is_planned: It followed the switch in force.
            is_held_slow: Others wait because this rank is held to be slow.
            num_attached: Ranks that can be expected to report.
            allowed: [s] at full clocks -> [s] that the target allows.
        """
        if report.kind_times:
            ratio = sum([one.time_ratio for one in report.kind_times]) / len(report.kind_times)
            self.ratios.setdefault(rank, deque(maxlen=_NUM_RATIOS)).append(ratio)
            if is_planned:
                self._note_speed(rank, ratio, is_held_slow=is_held_slow)
            elif report.point == NO_POINT and self.guard.is_probed(report.iteration):
                self._full_ratios[rank] = ratio
                self._note_at_full(rank, {one.kind: one.time_ratio for one in report.kind_times})
                self._noted_at_full = report.iteration
        if report.iteration <= self._newest and report.iteration not in self._parts:
            return False
        part = self._parts.setdefault(report.iteration, _Part())
        part.num_ranks += 1
        part.time_s = max(part.time_s, report.time_s)
        part.is_free &= report.point == NO_POINT
        part.is_of_other |= report.point != NO_POINT and not is_planned
        part.is_proven |= is_planned and self._moved_by.get(dp_rank, 0) == self._newest_move
        is_known = False
        # With most reports the oldest iteration is not whole yet.
        oldest = min(self._parts)
        may_be_known = self._parts[oldest].num_ranks >= num_attached or report.iteration - oldest >= _MAX_BEHIND
        for number in sorted(self._parts) if may_be_known else ():
            known = self._parts[number]
            if known.num_ranks < num_attached and report.iteration - number < _MAX_BEHIND:
                break
            del self._parts[number]
            self._newest = number
            if known.time_s > 0:
                mode = self._mode(number, known, is_whole=known.num_ranks >= num_attached)
                if self.guard.is_first_probed(number) and not known.is_free:
                    self.probe_lead = min(2 * self.probe_lead + 1, _MAX_PROBE_LEAD)
                self.guard.take(number, known.time_s, mode, allowed)
                is_known = True
        if self.guard.is_trusting:
            self.num_wait_falls = self.num_plan_falls = 0
            self.num_since_sweep, self.was_steady = None, True
        return is_known

    def go_back(self, iteration: int) -> None:
        """Training goes on from an earlier iteration, this one: what was set for later ones is not waited for."""
        self._parts.clear()
        self._newest = min(self._newest, iteration)
        self._noted_at_full = min(self._noted_at_full, iteration)
        self.swept_until = min(self.swept_until, iteration)
        self._ended_early = None
        self.held_until = min(self.held_until, iteration + _FIRST_HOLD)
        self.own_plans_held_until = min(self.own_plans_held_until, iteration + _FIRST_OWN_HOLD)

    @property
    def is_passing(self) -> bool:
        """Whether the plan in force is slow now and then alone, if at all, for which no profile can be to blame."""
        return self.guard.kept_share >= _MIN_KEPT_SHARE or not self.was_steady

    def may_sweep(self, *, is_too_slow: bool) -> bool:
        """Whether the profile may be why a plan was given up, and can be measured.

        It is not where the plan was slow now and then, or instructions took what the profile says: transfers may be
        slow then. One just measured gets a second chance. Where times jump, its clocks could not be compared.

        Args:
            is_too_slow: Iterations at full clocks are shorter than the profile says, so that it has no such chance, and
                is to blame even where instructions at the plan's clocks take what it says.
        """
        if self.is_profile_wrong:
            return True
        is_second = self.num_since_sweep is None or self.num_since_sweep > 1 or is_too_slow
        is_doubtful = is_too_slow or (self.kept_share < _MIN_KEPT_SHARE and not self.was_as_profiled)
        return is_second and is_doubtful and self.was_steady

    def has_held(self, iteration: int) -> bool:
        """Whether a hold is over, once for each; early, at times, where what made the plan slow seems to be over."""
        is_early = self._may_end_early(iteration) and (
            self.guard.has_become_faster
            or (self._was_on_time_again and iteration >= self._fell_at + _EARLIEST and self.guard.is_steady)
        )
        is_over = self.is_holding and (iteration >= self.held_until or is_early)
        if is_early:
            self.held_until = self._ended_early = iteration
        if is_over:
            self.was_steady = self.guard.is_steady
        self.is_holding &= not is_over
        return is_over

    def fall_from_waiting(self, iteration: int) -> None:
        """Waiting for stragglers ends, and does not begin again for a while: each time twice as long."""
        self.is_released = False
        self._fall(iteration, self.num_wait_falls)
        self.num_wait_falls += 1

    def fall_from_own_plans(self, iteration: int) -> None:
        """Pipelines with stragglers run at full clocks for a while: each time twice as long."""
        self.own_plans_held_until = iteration + _FIRST_OWN_HOLD * 2 ** min(self.num_own_falls, _MAX_DOUBLINGS)
        self.num_falls += 1
        self.num_own_falls += 1

    def begin_sweep(self) -> None:
        """Some stages, or all, are swept again."""
        self.num_since_sweep = 0
        self.ratios.clear()
        self._full_ratios.clear()
        self.guard.forget_kept()

    def fall_from_plan(
        self, iteration: int, *, is_profile_wrong: bool = False, was_on_time_again: bool = False
    ) -> None:
        """Clocks are released, and stay so for a while: each time twice as long."""
        self._was_on_time_again, self._fell_at = was_on_time_again, iteration
        first, policy = self.guard.first_iteration, self.guard.policy
        num_lost = (self.guard.lost_s - self._lost_before_s) / self.guard.reference_s if self.guard.reference_s else 0.0
        self._made_up_at = first + max(num_lost, policy.tolerance * (iteration - first)) / policy.budget_share
        self.is_profile_wrong = is_profile_wrong
        self.kept_share, self.was_as_profiled = self.guard.kept_share, self.is_off_profile is False
        self.slower_then = self.slower
        self.guard.forget_kept()
        if self.num_since_sweep is not None:
            self.num_since_sweep += 1
        self.is_released = True
        self._fall(iteration, self.num_plan_falls)
        self.num_plan_falls += 1

    def hold_back(self, iteration: int) -> None:
        """There is no plan to go back to yet: wait, each time twice as long, before the next attempt."""
        self.is_released = True
        self._hold(iteration, self.num_plan_falls)
        self.num_plan_falls += 1

    def _may_end_early(self, iteration: int) -> bool:
        """A GPU that comes and goes all the time ends few holds, so that its plans cost no more than they would."""
        if not (self.is_released and self.is_holding and iteration < self.held_until):
            return False
        return self._ended_early is None or iteration >= min(self._ended_early + _EARLY_GAP, self._made_up_at)

    def _fall(self, iteration: int, num_before: int) -> None:
        self.num_falls += 1
        self._hold(iteration, num_before)

    def _hold(self, iteration: int, num_before: int) -> None:
        self.held_until = iteration + (_FIRST_HOLD << min(num_before, _MAX_DOUBLINGS))
        self.is_holding = True

    def _mode(self, number: int, part: _Part, *, is_whole: bool) -> Mode:
        if number < self.swept_until or (self.guard.is_probed(number) and not part.is_free):
            return Mode.MIXED
        if part.is_free:
            return Mode.FREE
        # The switch may have come too late for it, as a planner's that was stopped: a pipeline that it has not moved
        # does not show that others follow it.
        may_be_of_other = part.is_of_other or not (part.is_proven or is_whole)
        return Mode.MIXED if may_be_of_other and number < self.guard.first_iteration + _MAX_LATE else Mode.PLANNED

    def _note_at_full(self, rank: int, ratios: dict[str, float]) -> None:
        """One probe shows that a rank was slow as it was profiled, which is over; two, that it has become slow.

        A power cap may have held computations of one kind alone.
        """
        noted = self._at_full.setdefault(rank, deque(maxlen=_NUM_AT_FULL))
        noted.append(ratios)
        least = _MISSTATED + 3 * self.guard.noise
        shares = []
        for kind in ratios:
            of_kind = [one[kind] for one in noted if kind in one]
            is_faster = len(of_kind) >= _MIN_AT_FULL and median(of_kind) < 1 - least
            is_slower = len(of_kind) == _NUM_AT_FULL and min(of_kind) > 1 + least
            if is_faster or is_slower:
                shares.append(median(of_kind) - 1)
        if shares:
            self.misstated[rank] = max(shares, key=abs)
        else:
            self.misstated.pop(rank, None)

    def _note_speed(self, rank: int, ratio: float, *, is_held_slow: bool) -> None:
        """A rank that is faster than it was may end what others wait for, or what a profile took for its usual."""
        speed = self._speeds.setdefault(rank, _Speed())
        speed.newest.append(ratio)
        if len(speed.newest) < _NUM_SPEEDS:
            return
        _, now, _ = sorted(speed.newest)
        if is_held_slow and now < 1 + max(_AS_PROFILED, 4 * self.guard.noise):
            self.guard.suspect(f"rank {rank} is held to be slow and takes what the profile says")
        if speed.usual and now < min(_FASTER, 1 - 4 * self.guard.noise) * speed.usual:
            self.guard.suspect(f"rank {rank} is faster than it was by {100 * (1 - now / speed.usual):.1f} %")
        elif speed.usual:
            return
        speed.usual = now
