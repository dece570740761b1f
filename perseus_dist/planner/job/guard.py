"""The guard of the promise: under a plan, iterations take no longer than the target allows, whatever is believed.

    iteration times, each at full clocks, planned, or mixed --> Guard --> probe | breach

It believes iteration times alone: no verdict, no profile, no prediction. The reference is what the same job takes *now*
at full clocks. Only trying can tell that, since under a plan all ranks wait for all others' clocks, so a *probe* runs a
few iterations at full clocks on all ranks: rarely where all is well, at once where something looks wrong. A plan is in
breach where a probe shows that it is clearly slower than the target allows, or where small losses have added up to the
budget. The bound is the ledger's: what is lost between two probes cannot exceed what the plan loses until the next one.

A pure value: every number is an argument, so that tests invent them.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

_NUM_NOISE = 64
_NUM_KEPT = 32
_TRUSTED_SHARE = 0.75
_NUM_RESTED = 64
_STEADY = 0.02
_NUM_FIRST, _NUM_FASTER = 3, 8  # iterations at full clocks, before and after they have become faster
_NUM_ON_TIME = 2
_NUM_CLEAR = 2  # iterations that a probe counts
_MAX_UNSEEN = 3  # plans in a row that no probe sees: where plans change all the time, gaps begin no more with each
_USUAL_NOISE = 0.01
_LEAST_NOISE = 1e-4
_MIN_NOISE_PAIRS = 4
_MAX_PAUSE = 1.1  # times what iterations usually take, of an iteration that takes longer
_NORMAL = 1.4826 / math.sqrt(2)  # from a median of absolute differences to a standard deviation
_MEDIAN_INFLATION = math.pi / 2  # variance of a median over that of a mean


class Mode(StrEnum):
    """The mode of all ranks of the job in one iteration.

    Attributes:
        FREE: All ran at full clocks.
        PLANNED: Plans were in force, on some ranks at least: a rank that does not follow is part of what is judged.
        MIXED: It says nothing: clocks were swept, or a probe had not reached all ranks.
    """

    FREE = "free"
    PLANNED = "planned"
    MIXED = "mixed"


class Waiting(StrEnum):
    """Whether pipelines wait for a straggler, and whether its own times still say that it is one."""

    NONE = "none"
    SEEN = "seen"
    BLIND = "blind"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPolicy:
    """How closely the guard looks.

    Attributes:
        num_probe_iterations: Of a probe. The first is not counted: clocks are still on their way.
        num_planned: Iterations that a plan is judged by, the newest.
        first_gap: Iterations from a switch to the first probe; each that finds nothing doubles the gap.
        max_gap: Iterations between two probes at most. Where full clocks draw half as much again as the plan, probes
            cost 0.1 % of the energy then.
        waiting_gap: The same at least, while pipelines wait and it is heard of what they wait for, iteration by
            iteration: full clocks are what waiting saves.
        blind_gap: Iterations between two probes at most, while pipelines wait and nothing is heard of what for.
        min_spacing: Iterations between two probes at least; each suspicion that comes to nothing doubles it.
        max_spacing: Upper limit of ``min_spacing`` as it doubles.
        tolerance: Share of the time allowed by which a plan is clearly slower.
        z: Standard errors between a comparison and its doubt; a second probe must agree.
        sure_z: The same, where one probe is enough.
        suspicion: Share by which iterations take more or less than expected, before that is suspicious.
        budget_share: Share of the time allowed that may be lost.
        budget_iterations: Iterations that may be lost besides.
    """

    num_probe_iterations: int = 3
    num_planned: int = 8
    first_gap: int = 8
    max_gap: int = 1500
    waiting_gap: int = 64
    blind_gap: int = 16
    min_spacing: int = 4
    max_spacing: int = 64
    tolerance: float = 0.01
    z: float = 3.0
    sure_z: float = 6.0
    suspicion: float = 0.005
    budget_share: float = 0.005
    budget_iterations: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A plan that does not keep the promise.

    Attributes:
        reference_s: [s] an iteration at full clocks, now.
        allowed_s: [s] what the target makes of it.
        observed_s: [s] an iteration under the plan.
        lost_s: [s] in the ledger.
        is_on_time_again: The newest iterations under the plan took no longer than allowed.
    """

    reference_s: float
    allowed_s: float
    observed_s: float
    lost_s: float
    is_on_time_again: bool = False

    @property
    def sentence(self) -> str:
        """Why, without a full stop."""
        return (
            f"iterations take {self.observed_s:.4f} s under the plan, {self.allowed_s:.4f} s are allowed and "
            f"{self.reference_s:.4f} s are taken at full clocks; {self.lost_s:.2f} s lost"
        )


@dataclass(slots=True, kw_only=True)
class Guard:
    """Of one job in one run.

    Attributes:
        reference_s: [s] an iteration at full clocks, by the newest that are known; None before there are any.
        lost_s: [s] by which iterations under plans took longer than allowed, as far as probes have confirmed it.
        num_probes: Ordered so far.
        num_measured: Iterations at full clocks that the reference was measured by, but for a probe's first two.
        breach: One that the life cycle has not acted upon yet.
    """

    policy: GuardPolicy = field(default_factory=GuardPolicy)
    reference_s: float | None = None
    lost_s: float = 0.0
    num_probes: int = 0
    num_measured: int = 0
    breach: Breach | None = None

    _first: int = 0  # of the plan in force
    _number: int = -1
    _mode: Mode = Mode.MIXED
    _time_s: float = 0.0
    _free_s: deque[float] = field(default_factory=lambda: deque(maxlen=8))
    _planned_s: deque[float] = field(default_factory=lambda: deque(maxlen=8))
    _rested_s: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_RESTED))  # at full clocks, since a switch
    _kept: deque[bool] = field(default_factory=lambda: deque(maxlen=_NUM_KEPT))
    _noise: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_NOISE))
    _ledger_s: float = 0.0
    _unjudged_s: float = 0.0  # of iterations under the plan since the last comparison
    _num_unjudged: int = 0
    _reference_before_s: float = 0.0  # as of the first of them
    _expected_s: float | None = None
    _reference_then_s: float = 0.0  # as of the last switch
    _suspicion: str = ""
    _may_be_spent: bool = False
    _was_slow: bool = False  # by the last comparison
    _gap: int = 8
    _spacing: int = 4
    _probed: range = range(0)
    _is_probing: bool = False
    _num_unseen: int = 0  # plans in a row that were followed, and replaced before a probe
    _since: int = 0  # iteration that gaps are counted from

    def begin_plan(self, first_iteration: int) -> None:
        """Another plan is in force from this iteration on; what was seen of the one before says nothing about it."""
        was_unseen = self._num_unjudged > 0
        self._planned_s = deque(maxlen=self.policy.num_planned)
        self._rested_s.clear()
        self._reference_then_s = self.reference_s or 0.0
        self._unjudged_s, self._num_unjudged = 0.0, 0
        self._expected_s, self._suspicion, self._may_be_spent, self.breach = None, "", False, None
        self._was_slow = False
        self._gap, self._spacing = self.policy.first_gap, self.policy.min_spacing
        self._num_unseen = self._num_unseen + 1 if was_unseen else 0
        if self._num_unseen < _MAX_UNSEEN:
            self._since = first_iteration
        self._first = first_iteration

    @property
    def first_iteration(self) -> int:
        """The first under the plan in force, as it was ordered."""
        return self._first

    def forget_kept(self) -> None:
        """Begin to count anew how often plans keep the promise."""
        self._kept.clear()

    def take(self, number: int, time_s: float, mode: Mode, allowed: Callable[[float], float]) -> None:
        """Take note of an iteration of the whole job.

        Args:
            number: Of the iteration; ascending but for restarts of training.
            time_s: [s] it took.
            mode: What the ranks did in it.
            allowed: [s] at full clocks -> [s] that the target allows.
        """
        if number > self._probed.stop:
            self._is_probing = False  # it has not been seen whole
        if number <= self._number:  # training goes on from earlier
            self._first, self._since = min(self._first, number), min(self._since, number)
            self._probed = range(0)
        if mode is Mode.PLANNED and number < self._first:  # under the plan before
            mode = Mode.MIXED
        is_settled = mode is self._mode and number == self._number + 1
        if is_settled and mode is not Mode.MIXED:
            self._noise.append(abs(math.log(time_s / self._time_s)))
        self._number, self._mode, self._time_s = number, mode, time_s
        if mode is Mode.FREE:
            self._record_free(time_s, is_settled, allowed)
        elif mode is Mode.PLANNED:
            self._judge_planned(time_s, is_settled, allowed)

    def suspect(self, why: str) -> None:
        """Something looks wrong: probe as soon as that makes sense."""
        self._suspicion = self._suspicion or why

    def wanted_probe(self, iteration: int, waiting: Waiting, *, wish: str = "") -> str:
        """Why a probe is wanted now, a clause; empty if none is.

        Args:
            iteration: The newest that any rank has begun.
            waiting: Whether pipelines wait.
            wish: Why others want one, whatever plan is in force; empty if they do not.
        """
        if self._mode is not Mode.PLANNED or iteration < self._probed.stop:
            return ""
        if wish and iteration >= self._probed.stop + self.policy.min_spacing:
            return wish
        if len(self._planned_s) < 2:
            return ""
        num_since = iteration - self._since
        is_spent = self._may_be_spent and waiting is not Waiting.SEEN  # for a straggler, that is no loss of ours
        why = self._suspicion or ("the budget of lost time may be spent" if is_spent else "")
        if why and num_since >= self._spacing:
            return why
        gap = self._gap
        if waiting is not Waiting.NONE:
            is_seen = waiting is Waiting.SEEN
            gap = max(gap, self.policy.waiting_gap) if is_seen else min(gap, self.policy.blind_gap)
        return f"{num_since} iterations have passed" if num_since >= gap else ""

    def order_probe(self, first_iteration: int) -> range:
        """The iterations of a probe that begins there."""
        self.num_probes += 1
        self._probed = range(first_iteration, first_iteration + self.policy.num_probe_iterations)
        self._is_probing = True
        self._since = self._probed.stop
        return self._probed

    def is_probed(self, iteration: int) -> bool:
        """Whether the newest probe has all ranks run that iteration at full clocks."""
        return iteration in self._probed

    def is_first_probed(self, iteration: int) -> bool:
        """Whether the newest probe begins with that iteration."""
        return bool(self._probed) and iteration == self._probed.start

    def is_probe_ahead(self, iteration: int) -> bool:
        """Whether a probe has been ordered that is not over, or has just been, when this is the newest iteration."""
        return iteration <= self._probed.stop

    @property
    def is_probing(self) -> bool:
        """Whether a probe has been ordered that the plan has not been judged by; under another plan it will not be."""
        return self._is_probing

    def clear_excess(self, allowed: Callable[[float], float]) -> float:
        """Share by which the plan's iterations take longer than is allowed by the newest reference, beyond doubt."""
        if self.reference_s is None or len(self._planned_s) < _NUM_CLEAR:
            return 0.0
        doubt = self.policy.z * self.noise * math.sqrt(_MEDIAN_INFLATION * (1 / len(self._planned_s) + 1 / _NUM_CLEAR))
        return median(self._planned_s) / allowed(self.reference_s) - 1 - doubt

    @property
    def is_trusting(self) -> bool:
        """Whether several probes in a row have found nothing, and the plan has nearly always kept the promise."""
        return self._gap >= 8 * self.policy.first_gap and self.kept_share >= _TRUSTED_SHARE

    @property
    def kept_share(self) -> float:
        """Share of the newest iterations under plans that took no longer than allowed; a wrong profile leaves few."""
        return sum(self._kept) / len(self._kept) if self._kept else 0.0

    @property
    def is_steady(self) -> bool:
        """Whether iterations at full clocks take the same time since the last switch, but for one pause."""
        *usual_s, _ = sorted(self._rested_s) or [0.0]
        return not usual_s or usual_s[-1] <= usual_s[0] * (1 + max(_STEADY, 6 * self.noise))

    @property
    def has_become_faster(self) -> bool:
        """Whether iterations at full clocks take clearly less than before the last switch, or first after it."""
        if len(self._rested_s) < _NUM_FASTER:
            return False
        rested_s = list(self._rested_s)
        before_s = max(median(rested_s[:_NUM_FIRST]), self._reference_then_s)
        return max(rested_s[-_NUM_FASTER:]) < (1 - max(_STEADY, 6 * self.noise)) * before_s

    @property
    def is_noise_known(self) -> bool:
        """Whether ``noise`` is of many iterations."""
        return len(self._noise) == _NUM_NOISE

    @property
    def noise(self) -> float:
        """Standard deviation of one iteration's time, as a share of it."""
        if len(self._noise) < _MIN_NOISE_PAIRS:
            return _USUAL_NOISE
        return max(_LEAST_NOISE, _NORMAL * median(self._noise))

    def _record_free(self, time_s: float, is_settled: bool, allowed: Callable[[float], float]) -> None:  # noqa: FBT001
        if not is_settled:
            self._free_s.clear()
            return
        self._free_s.append(time_s)
        self._rested_s.append(time_s)
        self.reference_s = median(self._free_s)
        if len(self._free_s) >= self.policy.num_probe_iterations - 1:
            self.num_measured += 1
            if self._num_unjudged:
                self._compare(allowed)

    def _judge_planned(self, time_s: float, is_settled: bool, allowed: Callable[[float], float]) -> None:  # noqa: FBT001
        if not self._num_unjudged:
            self._reference_before_s = self.reference_s or 0.0
        # A pause, as for a checkpoint, is no plan's fault; a plan that is slow is slow in most iterations.
        self._unjudged_s += min(time_s, _MAX_PAUSE * median(self._planned_s)) if self._planned_s else time_s
        self._num_unjudged += 1
        if not is_settled:
            return
        self._planned_s.append(time_s)
        if self.reference_s is not None:
            slow_s = allowed(self.reference_s) * (1 + self.policy.tolerance + self.policy.z * self.noise)
            self._kept.append(time_s <= slow_s)
        newest_s = list(self._planned_s)[-3:]
        if self._expected_s is not None and len(newest_s) == 3:
            change = median(newest_s) / self._expected_s - 1
            if abs(change) > max(self.policy.suspicion, 4 * self.noise):
                self._planned_s = deque(newest_s, maxlen=self.policy.num_planned)
                self._expected_s = median(newest_s)
                direction = "longer" if change > 0 else "shorter"
                self.suspect(f"iterations take {100 * abs(change):.1f} % {direction} than before")
        if self.reference_s is not None:
            provisional_s = self._ledger_s + self._unjudged_loss_s(allowed(self.reference_s))
            self._may_be_spent = provisional_s > self.policy.budget_iterations * allowed(self.reference_s)

    def _unjudged_loss_s(self, allowed_s: float) -> float:
        """[s] lost since the last comparison, beyond the share that may be."""
        return self._unjudged_s - self._num_unjudged * allowed_s * (1 + self.policy.budget_share)

    def _compare(self, allowed: Callable[[float], float]) -> None:
        """A probe has been seen: judge the plan by it, and decide when to look again."""
        self._is_probing = False
        assert self.reference_s is not None
        # The time of the change is not known: the slower of the two references may have held all the time.
        generous_s = allowed(max(self.reference_s, self._reference_before_s))
        self.lost_s += max(0.0, self._unjudged_s - self._num_unjudged * generous_s)
        self._ledger_s = max(0.0, self._ledger_s + self._unjudged_loss_s(generous_s))
        self._unjudged_s, self._num_unjudged = 0.0, 0
        was_suspicious, self._suspicion, self._may_be_spent = bool(self._suspicion), "", False
        if not self._planned_s:
            return
        allowed_s, observed_s = allowed(self.reference_s), median(self._planned_s)
        error = self.noise * math.sqrt(_MEDIAN_INFLATION * (1 / len(self._planned_s) + 1 / len(self._free_s)))
        excess, doubt = observed_s / allowed_s - 1, self.policy.z * error
        self._expected_s = observed_s
        was_slow, self._was_slow = self._was_slow, excess - doubt > self.policy.tolerance
        is_sure = excess - self.policy.sure_z * error > self.policy.tolerance
        is_slow = is_sure or (self._was_slow and was_slow)
        if is_slow or self._ledger_s > self.policy.budget_iterations * allowed_s:
            self.breach = Breach(
                reference_s=self.reference_s,
                allowed_s=allowed_s,
                observed_s=observed_s,
                lost_s=self.lost_s,
                is_on_time_again=max(list(self._planned_s)[-_NUM_ON_TIME:]) <= allowed_s * (1 + self.policy.tolerance),
            )
            self._ledger_s = 0.0
        elif self._was_slow:
            self.suspect("the last probe found the plan slow")
        elif excess + doubt <= 2 * self.policy.tolerance:
            self._gap = min(2 * self._gap, self.policy.max_gap)
            self._spacing = min(2 * self._spacing, self.policy.max_spacing) if was_suspicious else self._spacing
