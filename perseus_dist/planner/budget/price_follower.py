"""A job's way along its frontier while a price or carbon changes: no I/O, and the time is an argument.

At each slot of the signal the rest of the way is planned anew from what is expected then. Whatever prices say, the
deadline wins: once what is left at the job's own target takes all the time that is left but a reserve, the job is at
its own target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from perseus_dist.planner.budget.demand import Demand
from perseus_dist.planner.job.facts.policies import PricePolicySet, PriceProgress
from perseus_dist.planner.job.job import Job
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.outlook import outlook, price_at
from perseus_dist.policies.pace import pace
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.tariff import Tariff
from perseus_dist.policies.water_filling import lower_hull

RESERVE_SHARE, RESERVE_ITERATIONS, RESERVE_S = 0.001, 2.0, 3.0
"""Kept of the time that is left, so that a small delay makes no job late."""
_SLACK = 2.0  # times the reserve that there has to be, for a job in a hurry to look at prices again
_MAX_POINTS = 32
_LEAST_DWELL_S = 20.0  # at a point; less is not worth a switch
_LONGEST_PLAN_S = 3600.0
_WATCHED_S, _WATCHED_ITERATIONS = 60.0, 10  # behind a look at how long iterations really take
_SURE = 100  # times what a look is unsure by
_GAIN = 0.3
_LEAST_DEGREE, _MOST_DEGREE = 0.8, 1.5
_STORED_EVERY_S = 10.0
_BEHIND = 8  # iterations


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal as it was last read.

    Attributes:
        content: Pieces or a tariff; None where the file cannot be used, or its provider's last answer is stale.
        trouble: Why not, or why it is not the newest, in a clause; empty otherwise.
        version: Another one wherever the content is.
        is_read: Whether the planner has tried to read the signal yet.
    """

    content: tuple[Piece, ...] | Tariff | None
    trouble: str = ""
    version: int = 0
    is_read: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedJob:
    """A job under a price policy, now.

    Attributes:
        job_id: Its name.
        done: Iterations of it that are done.
        left: Iterations that are not done.
        pace: That is asked for; 0 for the job's own target.
        slowdown: Of an iteration against full clocks at that pace; None where nothing is known of it.
        price_kwh: Per kWh, now; None where the signal does not say.
        finish_s: Unix time when the last iteration is expected to end; None where that is not known.
        reason: Why it is at its own target, or what else is to say; may be empty.
        is_on_time: Whether the deadline is kept, by what is known now.
        is_over: Whether all is done, or the deadline has passed.
        is_known: Whether there is such a job, and it is not over.
    """

    job_id: str
    done: float
    left: float
    pace: float = 0.0
    slowdown: float | None = None
    price_kwh: float | None = None
    finish_s: float | None = None
    reason: str = ""
    is_on_time: bool = True
    is_over: bool = False
    is_known: bool = True


@dataclass(slots=True)
class _Degree:
    """How long iterations really take against what is planned, pauses between them included.

    Attributes:
        value: Of the newest that were watched.
    """

    value: float = 1.0
    _since: tuple[float, int, float] | None = None  # since when, from which count, at which time [s]

    def reset(self, planned_s: float | None = None) -> None:
        """Begin to watch anew, unless iterations are planned to take this long [s] still."""
        if planned_s is None or (self._since is not None and self._since[2] != planned_s):
            self._since = None

    def note(self, now_s: float, counted: int, planned_s: float, least_s: float) -> None:
        """An iteration has ended since the last look; so long at least is watched before something is learnt [s]."""
        if self._since is None:
            self._since = now_s, counted, planned_s
            return
        since_s, before, _ = self._since
        if now_s - since_s >= least_s and counted - before >= _WATCHED_ITERATIONS:
            degree = (now_s - since_s) / ((counted - before) * planned_s)
            self.value += _GAIN * (min(max(degree, _LEAST_DEGREE), _MOST_DEGREE) - self.value)
            self._since = now_s, counted, planned_s


class PriceFollower:
    """One job of a price policy.

    Attributes:
        num_plans: Ways that it has planned.
    """

    def __init__(self, policy: PricePolicySet, job_id: str, progress: PriceProgress | None = None) -> None:
        """Begin, or go on from what was stored.

        Args:
            policy: That the job is under.
            job_id: Its name.
            progress: As it was last stored.
        """
        self.policy = policy
        self.job_id = job_id
        self._progress = progress or PriceProgress(policy=policy.name, job_id=job_id, done=0, run_id="", iteration=0)
        self._stored = progress
        self._stored_at_s = 0.0
        self._way: tuple[tuple[float, float], ...] = ()  # until when at which pace
        self._way_since_s = 0.0
        self._planned_for: tuple[object, ...] = ()
        self._pace = 0.0
        self._has_resumed = False
        self._finish_s: float | None = None
        self._is_hurrying = False
        self.num_plans = 0
        self._degree = _Degree()  # soon known, so that the deadline is kept
        self._sure_degree = _Degree()  # and without what looks now and then make of it, to plan by
        self._counted = -1
        self._looked_s = 0.0

    def begin_at(self, job: Job | None) -> PriceProgress:
        """Count from where a job is now, or is first heard of."""
        run_id, iteration = _position(job) if job is not None else ("", None)
        self._progress = PriceProgress(
            policy=self.policy.name,
            job_id=self.job_id,
            done=0,
            run_id=run_id,
            iteration=-1 if iteration is None else iteration,
        )
        self._stored = self._progress
        return self._progress

    def resume(self, job: Job) -> None:
        """Stay, until there is a way, at the pace that the policy has asked for before the planner was restarted."""
        if not self._has_resumed:
            self._has_resumed = True
            if job.chosen_pace is not None and job.chosen_pace.price == self.policy.name:
                self._pace = job.chosen_pace.slowdown

    def count(self, job: Job) -> None:
        """Note how far a job is. Iterations of the same run while no planner looked count, too."""
        run_id, iteration = _position(job)
        before = self._progress
        if iteration is None:
            return
        if run_id != before.run_id:
            # Each start of the trainers counts from 0. A position that is not lower may be that of the run before.
            done = before.done + (iteration if iteration < before.iteration else 0)
        elif iteration >= before.iteration >= 0:
            done = before.done + iteration - before.iteration
        elif 0 <= before.iteration - iteration <= _BEHIND:
            return  # a rank that attaches again is a little behind the others
        else:
            done = before.done  # another start, or not: too few make no job late
        self._progress = PriceProgress(
            policy=before.policy, job_id=before.job_id, done=done, run_id=run_id, iteration=iteration
        )

    def to_store(self, now_s: float) -> PriceProgress | None:
        """The progress where it is time to store it: now and then, and at once of a new run."""
        now, stored = self._progress, self._stored
        if now == stored:
            return None
        is_due = not 0 <= now_s - self._stored_at_s < _STORED_EVERY_S
        if stored is not None and stored.run_id == now.run_id and not is_due and now.done < self.policy.iterations:
            return None
        self._stored, self._stored_at_s = now, now_s
        return now

    def step(self, now: datetime, demand: Demand | None, signal: Signal, *, may_plan: bool = True) -> PricedJob:
        """Choose the pace of this moment.

        Args:
            now: With its offset from UTC.
            demand: Of the job; None where nothing is known of it.
            signal: That its policy follows.
            may_plan: Whether there is time to plan the way anew; else the job stays at its pace until the next look.
        """
        now_s, policy = now.timestamp(), self.policy
        done = self._progress.done
        left, time_left_s = max(0, policy.iterations - done), policy.deadline_s - now_s
        piece = None if signal.content is None else price_at(signal.content, now)
        price_kwh = None if piece is None else piece.value
        if not left or time_left_s <= 0:
            self._pace = 0.0
            reason = "all iterations are done" if not left else f"the deadline has passed, {left:,.0f} are not done"
            return PricedJob(job_id=self.job_id, done=done, left=left, reason=reason, is_on_time=not left, is_over=True)
        if demand is None or not demand.paces:
            return PricedJob(
                job_id=self.job_id,
                done=done,
                left=left,
                pace=self._pace,
                price_kwh=price_kwh,
                reason="nothing is known of the job, or it is over" if demand is None else demand.reason,
                is_known=demand is not None,
            )
        self._watch(now_s, demand)
        own_s = demand.points.times_s[0] * self._degree.value
        reserve_s = RESERVE_SHARE * time_left_s + RESERVE_ITERATIONS * own_s + RESERVE_S
        spare_s = time_left_s - left * own_s
        self._is_hurrying = spare_s < reserve_s * (_SLACK if self._is_hurrying else 1.0)
        asked_s = demand.points.times_s[demand.point_at(demand.pace)] * self._degree.value if demand.pace else own_s
        is_on_time, reason = spare_s >= 0, ""
        if self._is_hurrying:
            self._forget_way()
            reason = "at its own target, to be in time" if is_on_time else "the deadline cannot be kept"
        elif not signal.is_read:
            reason = "its signal was not read yet"
        elif signal.content is None or piece is None:
            self._forget_way()
            reason = f"at its own target: {signal.trouble or 'the signal says nothing of this time'}"
        else:
            if may_plan or not self._has_ended(now_s, demand, signal):
                self._follow(now, demand, signal, left, time_left_s - reserve_s)
        if demand.pace > self._pace and left * asked_s > time_left_s:
            is_on_time = False
        return PricedJob(
            job_id=self.job_id,
            done=done,
            left=left,
            pace=self._pace,
            slowdown=demand.points.slowdown(demand.point_at(self._pace)) if self._pace else demand.points.slowdown(0),
            price_kwh=price_kwh,
            finish_s=self._finish_s if self._finish_s is not None else now_s + left * own_s,
            reason=reason,
            is_on_time=is_on_time,
        )

    def _forget_way(self) -> None:
        self._way, self._pace, self._finish_s = (), 0.0, None

    def _has_ended(self, now_s: float, demand: Demand, signal: Signal) -> bool:
        """Whether another way is to be planned."""
        planned_for = (signal.version, demand.points.times_s, demand.paces)
        is_within = bool(self._way) and self._way_since_s <= now_s < self._way[-1][0]  # clocks are set back, too
        return not is_within or planned_for != self._planned_for

    def _follow(self, now: datetime, demand: Demand, signal: Signal, left: float, within_s: float) -> None:
        """Go on along the way that is planned, or plan another where it has ended or is no longer of any use."""
        assert signal.content is not None
        now_s = now.timestamp()
        if self._has_ended(now_s, demand, signal):
            points, kept = _thinned(demand.points, self._sure_degree.value)
            slots = outlook(signal.content, now, within_s)
            found = pace(points, slots, left)
            stretches = [(one.duration_s, kept[one.point]) for one in found.stretches[0]]
            slot_s = min(slots[0].duration_s, _LONGEST_PLAN_S)
            self._way, self._way_since_s = _way(now_s, slot_s, stretches, demand.paces), now_s
            self._planned_for = (signal.version, demand.points.times_s, demand.paces)
            self._finish_s = now_s + found.finish_s
            self.num_plans += 1
        chosen = next(chosen for until_s, chosen in self._way if now_s < until_s)
        self._pace = chosen if chosen > demand.paces[0] else 0.0

    def _watch(self, now_s: float, demand: Demand) -> None:
        """Learn how long iterations take against what is planned, pauses between them included."""
        counted, planned_s = self._progress.done, demand.points.times_s[demand.point_at(demand.pace)]
        since_look_s, self._looked_s = now_s - self._looked_s, now_s
        for degree in (self._degree, self._sure_degree):
            degree.reset(planned_s if demand.is_settled else None)
        has_moved, self._counted = counted != self._counted, counted
        if not has_moved or not demand.is_settled:
            return
        self._degree.note(now_s, counted, planned_s, _WATCHED_S)
        unsure_s = min(since_look_s, planned_s)  # of when the iteration has ended, or how much of the next is done
        self._sure_degree.note(now_s, counted, planned_s, max(_WATCHED_S, _SURE * unsure_s))


def _position(job: Job) -> tuple[str, int | None]:
    """The run that a job is in, and how many of its iterations are over; None while that is not known."""
    run_id = job.spec.run_id if job.spec is not None else ""
    return run_id, job.progress.iteration if job.progress.iteration >= 0 else None


def _thinned(points: OperatingPoints, degree: float) -> tuple[OperatingPoints, list[int]]:
    """A few points that say nearly the same, as slow as they really are, and which they are."""
    hull = lower_hull([1 / time_s for time_s in points.times_s], points.powers_w).points[::-1]
    step = max(1.0, (len(hull) - 1) / (_MAX_POINTS - 1))
    kept = sorted({hull[min(len(hull) - 1, round(number * step))] for number in range(_MAX_POINTS)})
    return OperatingPoints(
        times_s=tuple(degree * points.times_s[point] for point in kept),
        powers_w=tuple(points.powers_w[point] for point in kept),
        full_time_s=degree * points.full_time_s,
        full_power_w=points.full_power_w,
    ), kept


def _way(
    now_s: float, slot_s: float, stretches: Sequence[tuple[float, int]], paces: Sequence[float]
) -> tuple[tuple[float, float], ...]:
    """Until which Unix time at which pace; of two stretches a short one is left out."""
    if len(stretches) > 1:
        (first_s, first), (second_s, second) = stretches[:2]
        if min(first_s, slot_s) < _LEAST_DWELL_S:
            stretches = [(slot_s, second)]
        elif first_s >= slot_s or second_s < _LEAST_DWELL_S:
            stretches = [(slot_s, first)]
        else:
            return (now_s + first_s, paces[first]), (now_s + slot_s, paces[second])
    return ((now_s + slot_s, paces[stretches[0][1]] if stretches else 0.0),)
