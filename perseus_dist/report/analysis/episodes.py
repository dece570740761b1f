"""Stragglers of a run from begin to end: when each slowed down, was detected, was answered, and was over.

An episode begins with a verdict on a rank, or an operator's report on a pipeline, and ends with the recovery, or with
the clearing of the report. A planner that begins anew repeats its verdict on a rank that still straggles; where it does
not, the episode ends with that planner's first switch under which no pipeline waits. Iterations count from the
injection where the run is a test that throttled the GPU itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from perseus_dist.messages.job_status import JobEvent
from perseus_dist.report.analysis.pipelines import FollowedSwitch
from perseus_dist.runlog.events import Injection, KeptEvent

_BEGINS = {"verdict": "recovered", "reported": "cleared"}
_OTHER_DEGREE = 0.005
"""A verdict this far from the one before answers a new injection; one that is nearer may be of before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A straggler begins, or changes its degree by injection; iterations are None where something is not known.

    Attributes:
        injected_iteration: The newest begun when the throttle was injected.
        thermal_cap_mhz: What was injected.
        detected_iteration: The newest begun when the verdict stood.
        degree: Of the newest verdict until the next step.
        effective_iteration: Of the switch that answered it, as decided.
        switched_iteration: In which all ranks followed that switch for the first time.
    """

    injected_iteration: int | None
    thermal_cap_mhz: int | None
    detected_iteration: int
    degree: float
    effective_iteration: int | None
    switched_iteration: int | None

    def document(self) -> dict[str, Any]:
        """The step as it stands in ``report.json``."""
        return {
            **asdict(self),
            "detected_after_iterations": later(self.detected_iteration, self.injected_iteration),
            "switched_after_iterations": later(self.switched_iteration, self.since),
        }

    @property
    def since(self) -> int:
        """The iteration that others are counted from: of the injection, or else of the detection."""
        return self.detected_iteration if self.injected_iteration is None else self.injected_iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One straggler from begin to end.

    Attributes:
        rank: -1 where a pipeline was reported as a whole.
        cause: As the last verdict has it; ``reported`` where an operator said so.
        low, high: The interval of the highest degree.
        steps: At least one; the first is its begin.
        lifted_iteration: The newest begun when the injected throttle was taken off; None without injection.
        over_iteration: The newest begun when it was held to be over; None if it never was.
        full_speed_iteration: In which all ranks followed the target's plan again; None if that was not seen, or if
            another straggler still held them up.
    """

    rank: int
    dp_rank: int
    cause: str
    low: float
    high: float
    steps: tuple[Step, ...]
    lifted_iteration: int | None
    over_iteration: int | None
    full_speed_iteration: int | None

    @property
    def end(self) -> int | None:
        """The iteration that the way back to full speed is counted from."""
        return self.over_iteration if self.lifted_iteration is None else self.lifted_iteration

    def document(self) -> dict[str, Any]:
        """The episode as it stands in ``report.json``."""
        return {
            **asdict(self),
            "steps": [step.document() for step in self.steps],
            "over_after_iterations": later(self.over_iteration, self.lifted_iteration),
            "full_speed_after_iterations": later(self.full_speed_iteration, self.end),
        }


def episodes_of(
    events: Sequence[KeptEvent],
    injections: Sequence[Injection],
    switches: Sequence[FollowedSwitch],
    pp_rank_of: Mapping[int, int],
) -> tuple[Episode, ...]:
    """All of a run, in the order in which they began.

    Args:
        events: Of the run.
        injections: Of a test; else none.
        switches: Of the run, as they were followed; the same events.
        pp_rank_of: By rank, as far as it is known: of a tensor-parallel group any rank may be named.
    """
    unanswered = _Injections(injections)
    open_ones: dict[tuple[str, int, int], _Open] = {}
    found: list[_Open] = []
    detected: list[_Open] = []  # since the last switch
    over: list[_Open] = []  # likewise
    unsure: set[tuple[str, int, int]] = set()  # open verdicts that a planner which began anew has not repeated

    def end(key: tuple[str, int, int], event: JobEvent) -> None:
        if (known := open_ones.pop(key, None)) is not None:
            known.end(event, unanswered)
            over.append(known)
            detected[:] = [one for one in detected if one is not known]

    followed = iter(switches)
    newest = 0
    for _, event in events:
        if event.sequence <= newest:
            unsure = {key for key in open_ones if key[0] == _BEGINS["verdict"]}
        newest = event.sequence
        place = pp_rank_of.get(event.rank, event.rank), event.dp_rank
        # By a report of degree 1 the operator says that there is none, or none any more.
        kind = "cleared" if event.kind == "reported" and event.degree <= 1 else event.kind
        if kind in _BEGINS:
            key = (_BEGINS[kind], *place)
            unsure.discard(key)
            if key not in open_ones:
                open_ones[key] = _Open(worst=event, newest=event)
                found.append(open_ones[key])
            if open_ones[key].record(event, unanswered):
                detected.append(open_ones[key])
        elif kind in _BEGINS.values():
            end((kind, *place), event)
        elif kind == "switch":
            switch = next(followed)
            if not event.t_prime_s:  # no pipeline waits: the new planner holds them to be over, and reports no end
                for key in unsure & open_ones.keys():
                    end(key, replace(event, rank=open_ones[key].newest.rank))
                unsure = set()
            for known in detected:
                known.answer(switch)
            for known in over if not event.t_prime_s else ():
                known.full_speed_iteration = switch.first_iteration
            detected.clear()
            over.clear()
    return tuple(one.episode() for one in found)


class _Injections:
    """Throttles that nothing has answered yet, by rank."""

    def __init__(self, injections: Sequence[Injection]) -> None:
        self._of_rank: dict[int, list[Injection]] = {}
        for injection in sorted(injections, key=lambda one: one.iteration):
            self._of_rank.setdefault(injection.rank, []).append(injection)

    def answer(self, event: JobEvent) -> Injection | None:
        """The newest on its rank by then; those that it overtook are no longer asked about."""
        waiting = self._of_rank.get(event.rank, [])
        before = [one for one in waiting if one.iteration <= event.iteration]
        self._of_rank[event.rank] = waiting[len(before) :]
        return before[-1] if before else None


@dataclass(slots=True, kw_only=True)
class _Open:
    """An episode as it is put together."""

    worst: JobEvent
    newest: JobEvent
    steps: list[Step] = field(default_factory=list)
    lifted_iteration: int | None = None
    over_iteration: int | None = None
    full_speed_iteration: int | None = None

    def record(self, event: JobEvent, unanswered: _Injections) -> bool:
        """Record a verdict or report; returns whether it is a step."""
        self.newest = event
        if event.degree > self.worst.degree:
            self.worst = event
        injection = None
        if not self.steps or abs(event.degree - self.steps[-1].degree) > _OTHER_DEGREE * event.degree:
            injection = unanswered.answer(event)
            if injection is not None and injection.thermal_cap_mhz is None:
                injection = None
        if self.steps and injection is None:
            self.steps[-1] = replace(self.steps[-1], degree=event.degree)
            return False
        step = Step(
            injected_iteration=None if injection is None else injection.iteration,
            thermal_cap_mhz=None if injection is None else injection.thermal_cap_mhz,
            detected_iteration=event.iteration,
            degree=event.degree,
            effective_iteration=None,
            switched_iteration=None,
        )
        self.steps.append(step)
        return True

    def answer(self, switch: FollowedSwitch) -> None:
        """Record the switch that the newest step led to."""
        self.steps[-1] = replace(
            self.steps[-1],
            effective_iteration=switch.event.effective_iteration,
            switched_iteration=switch.first_iteration,
        )

    def end(self, event: JobEvent, unanswered: _Injections) -> None:
        """Record the iteration in which the straggler was over, and the injection whose end explains it."""
        lifted = unanswered.answer(event)
        self.lifted_iteration = lifted.iteration if lifted is not None and lifted.thermal_cap_mhz is None else None
        self.over_iteration = event.iteration

    def episode(self) -> Episode:
        """As far as it went."""
        return Episode(
            rank=self.newest.rank,
            dp_rank=self.newest.dp_rank,
            cause=self.newest.cause or "reported",
            low=self.worst.low,
            high=self.worst.high,
            steps=tuple(self.steps),
            lifted_iteration=self.lifted_iteration,
            over_iteration=self.over_iteration,
            full_speed_iteration=self.full_speed_iteration,
        )


def later(iteration: int | None, since: int | None) -> int | None:
    """How many iterations later one is than another; None without both."""
    return None if iteration is None or since is None else iteration - since
