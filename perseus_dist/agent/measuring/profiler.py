"""Cost of one clock: times and energies of each kind of instruction, from boundaries and edges of the energy counter.

    counter      |         |         |         |         |         edges, each known to about a millisecond
    activity  .FFFFFFF..FFFFFFF.BBBBBBBBBBBBBB..FFFFFFF.BBBBBBBB   F and B known from boundaries, else it waits
    energy at an edge = offset + sum over kinds of (power of the kind x its time until the edge)

The powers are fitted to all edges by least squares. One computation is far too short for the counter. Hundreds of
them, which edges cut at different places, tell the powers apart. Where edges always cut at the same places,
computations are held alike, as strongly as edges may be misplaced. Offsets are renewed every few dozen edges, so that
a power that drifts slowly, as silicon warms up, is not mistaken for a difference between kinds.
Iterations in which the GPU was slower than in most are left out: the additional time of their instructions would count
as waiting. So are those in which all computations were slower than in another iteration of the step.

Constants, such as loading a batch, may be over in no time. One too short to tell its power apart is taken to draw what
the GPU draws while it waits; and since no clock changes how long it takes, it is timed at whichever clock it runs.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perseus_dist.agent.measuring.counter import Edge
from perseus_dist.agent.measuring.least_squares import LeastSquares, Observation, Unknown
from perseus_dist.messages.from_agent import Sample
from perseus_dist.planning.schedule.instruction import Kind

WAITING = (-1, "")
"""Activity of a rank between its instructions: it waits for a peer."""

OUTSIDE = (-2, "")
"""Activity between its last instruction and the next iteration: gradient synchronisation, the optimizer's step."""

_EDGES_PER_OFFSET = 64
_BOUNDARY_ERROR_NS = 50_000
_MIN_EDGES = 8
_ALIKE_SHARE = 0.25  # of their power, that computations of a GPU at one clock usually differ by
_MIN_CONSTANT_SHARE = 0.01  # of the window; a constant rarer than that is not told apart from waiting
_MAX_ERROR = 0.2  # of a power; worse is no measurement
_MAX_WAITING_SHARE = 0.9  # of the least power of a computation at the same clock
_FENCE = 1.5  # interquartile ranges beyond the quartiles (Tukey); a host that was late is no property of the GPU
_MIN_FENCE = 0.01  # of the median, for devices that repeat themselves exactly
_DISTURBED_SHARE = 0.015
_DISTURBED_SIGMAS = 4.0
_MIN_TIME_S = 1e-6  # devices count in half of that, and a constant may do nothing at all
_COMPUTATIONS = frozenset(Kind)

Key = tuple[int, str]
"""(chunk, kind)."""


class Activity(NamedTuple):
    """A period in which the GPU did one kind of work.

    Attributes:
        is_exact: Timed by the device; otherwise its end may have been noticed late.
    """

    begin_ns: int
    end_ns: int
    key: Key
    is_exact: bool = False


class Span(NamedTuple):
    """A stretch of time in which the clock is known to have been the one held."""

    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimate of one step of a sweep.

    Attributes:
        blocking_power_w: While the rank waited for a peer; 0 where it hardly did.
        trouble: What could not be measured, in a sentence; empty otherwise.
    """

    samples: tuple[Sample, ...]
    blocking_power_w: float
    trouble: str


def estimate(
    *, clock_mhz: int, period_ns: int, spans: Sequence[Span], activities: Sequence[Activity], edges: Sequence[Edge]
) -> Estimate:
    """Fit times and powers.

    Args:
        clock_mhz: Held.
        period_ns: [ns] of the counter.
        spans: When the clock was held; what lies outside is left out.
        activities: All that the GPU did but waiting, ascending, also beyond the spans.
        edges: Of the counter, ascending.
    """
    spans = _without(_disturbed_iterations(activities, spans), spans)
    durations_s: dict[Key, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))  # (seen, exact)
    for activity in activities:
        if activity.key != OUTSIDE and (_is_constant(activity.key) or _is_within(activity, spans)):
            durations_s[activity.key][activity.is_exact].append((activity.end_ns - activity.begin_ns) / 1e9)
    typical_s = {key: _without_outliers(exact or seen) for key, (seen, exact) in durations_s.items()}
    limits_s = {key: max(values) for key, values in typical_s.items()}
    steady = _without(_slow_iterations(activities, limits_s), spans)
    fit = _fit_powers(_trimmed(activities, typical_s), _groups(edges, steady, period_ns // 4))
    samples, missed = [], []
    for (chunk, kind), values in sorted(typical_s.items()):
        time_s = max(statistics.fmean(values), _MIN_TIME_S)
        time_std_s = statistics.stdev(values) if len(values) > 1 else 0.0
        power = fit.power_w((chunk, kind))
        if power is None:
            missed.append(f"{kind} of chunk {chunk}")
            continue
        samples.append(
            Sample(
                chunk=chunk,
                kind=kind,
                clock_mhz=clock_mhz,
                time_s=time_s,
                energy_j=power.value * time_s,
                time_std_s=time_std_s,
                energy_std_j=math.hypot(power.error * time_s, power.value * time_std_s / math.sqrt(len(values))),
                num_runs=len(values),
                window_s=fit.window_s,
            )
        )
    return Estimate(
        samples=tuple(samples),
        blocking_power_w=fit.waiting_w,
        trouble=f"no energy of {', '.join(missed)} at {clock_mhz} MHz in {fit.window_s:.1f} s" if missed else "",
    )


class _Fit(NamedTuple):
    powers_w: dict[Key, Unknown]
    mean_w: float
    window_s: float

    def told_apart_w(self, key: Key) -> Unknown | None:
        """The power of an activity; None where it is not known well enough."""
        power = self.powers_w.get(key)
        return None if power is None or power.value <= 0 or power.error > _MAX_ERROR * power.value else power

    def power_w(self, key: Key) -> Unknown | None:
        """The power of an instruction. A constant always has one: never above the hottest computation's."""
        power = self.told_apart_w(key)
        if not _is_constant(key) or not self.powers_w:
            return power
        if power is None:
            power = self.told_apart_w(WAITING) or Unknown(self.mean_w, self.mean_w)
        told_apart = (self.told_apart_w(other) for other in self.powers_w if other[1] in _COMPUTATIONS)
        hottest_w = max((other.value for other in told_apart if other is not None), default=math.inf)
        return power if power.value <= hottest_w else Unknown(hottest_w, power.error)

    @property
    def waiting_w(self) -> float:
        """[W] while waiting; 0 where that is not known.

        A rank that hardly waits takes the ends of long computations for it, and finds that it draws as much as they do.
        """
        waiting = self.told_apart_w(WAITING)
        computing_w = [power.value for key, power in self.powers_w.items() if key[1] in _COMPUTATIONS]
        most_w = _MAX_WAITING_SHARE * min(computing_w, default=math.inf)
        return waiting.value if waiting is not None and waiting.value <= most_w else 0.0


def _is_constant(key: Key) -> bool:
    """Whether no clock changes it."""
    return key not in (WAITING, OUTSIDE) and key[1] not in _COMPUTATIONS


def _is_within(activity: Activity, spans: Iterable[Span]) -> bool:
    return any(span.begin_ns <= activity.begin_ns and activity.end_ns <= span.end_ns for span in spans)


def _fit_powers(activities: Sequence[Activity], groups: Sequence[Sequence[Edge]]) -> _Fit:
    window_ns = sum(group[-1].time_ns - group[0].time_ns for group in groups)
    energy_mj = sum(group[-1].energy_mj - group[0].energy_mj for group in groups)
    if sum(map(len, groups)) < _MIN_EDGES or window_ns <= 0 or energy_mj <= 0:
        return _Fit({}, 0.0, 0.0)
    mean_w = energy_mj * 1e6 / window_ns
    elapsed = [_elapsed_s(activities, group) for group in groups]
    total_s: dict[Key, float] = defaultdict(float)
    for rows in elapsed:
        _, of_group_s = rows[-1]
        for key, seconds in of_group_s.items():
            total_s[key] += seconds
    least_s = _MIN_CONSTANT_SHARE * window_ns / 1e9
    told_apart = {key for key, seconds in total_s.items() if seconds >= (least_s if _is_constant(key) else 1e-9)}
    columns = {key: k for k, key in enumerate(sorted(told_apart))}
    # A constant too rare for a column of its own is taken for waiting, and without any for the mean.
    column_of = {key: columns.get(WAITING if key not in columns and _is_constant(key) else key) for key in total_s}
    squares = LeastSquares(len(columns))
    for group, rows in zip(groups, elapsed, strict=True):
        observations = []
        for edge, (at_edge, row) in zip(group, rows, strict=True):
            factors = [0.0] * len(columns)
            rare_j = 0.0
            for key, seconds in row.items():
                column = column_of[key]
                if column is None:
                    rare_j += mean_w * seconds
                else:
                    factors[column] += seconds
            error_s = math.hypot(edge.width_ns / math.sqrt(12), _BOUNDARY_ERROR_NS) / 1e9
            value_j = edge.energy_mj / 1e3 - rare_j
            blurred = columns[at_edge] if at_edge[1] in _COMPUTATIONS else -1  # what waits draws another power
            observations.append(Observation(factors, value_j, mean_w * error_s, blurred=blurred, blur=error_s))
        squares.add_group(observations)
    first = squares.solve([Unknown(mean_w, mean_w)] * len(columns))
    unknowns = squares.solve(_alike(first, columns, total_s, mean_w))
    return _Fit({key: unknowns[k] for key, k in columns.items()}, mean_w, window_ns / 1e9)


def _alike(
    powers_w: Sequence[Unknown], columns: dict[Key, int], total_s: dict[Key, float], mean_w: float
) -> list[Unknown]:
    """(num_columns) [W] priors: computations draw much the same, and what they draw together is known well."""
    at = {key: column for key, column in columns.items() if key[1] in _COMPUTATIONS}
    seconds = sum(total_s[key] for key in at)
    together_j = sum(powers_w[column].value * total_s[key] for key, column in at.items())
    alike_w = together_j / seconds if together_j > 0 else mean_w
    alike = Unknown(alike_w, _ALIKE_SHARE * alike_w)
    return [alike if key in at else Unknown(mean_w, mean_w) for key in columns]


def _elapsed_s(activities: Sequence[Activity], edges: Sequence[Edge]) -> list[tuple[Key, dict[Key, float]]]:
    """(num_edges) the activity at each edge, and seconds of every one from the first edge until then."""
    rows = []
    elapsed_ns: dict[Key, int] = defaultdict(int)
    pieces = iter(_pieces(activities, edges[0].time_ns, edges[-1].time_ns))
    begin_ns, end_ns, key = edges[0].time_ns, edges[0].time_ns, WAITING
    for edge in edges:
        while end_ns < edge.time_ns:
            elapsed_ns[key] += end_ns - begin_ns
            begin_ns, end_ns, key, _ = next(pieces)
        elapsed_ns[key] += edge.time_ns - begin_ns
        begin_ns = edge.time_ns
        rows.append((key, {k: ns / 1e9 for k, ns in elapsed_ns.items()}))
    return rows


def _pieces(activities: Iterable[Activity], begin_ns: int, end_ns: int) -> Iterator[Activity]:
    """From begin to end without a gap: activities, and waiting in between."""
    at_ns = begin_ns
    for activity in activities:
        if activity.end_ns <= at_ns:
            continue
        if activity.begin_ns >= end_ns:
            break
        if activity.begin_ns > at_ns:
            yield Activity(at_ns, activity.begin_ns, WAITING)
        yield Activity(max(at_ns, activity.begin_ns), min(activity.end_ns, end_ns), activity.key)
        at_ns = min(activity.end_ns, end_ns)
    if at_ns < end_ns:
        yield Activity(at_ns, end_ns, WAITING)


def _groups(edges: Sequence[Edge], spans: Sequence[Span], max_width_ns: int) -> list[list[Edge]]:
    """The well-located edges of each span, cut up; neighbours share the edge between them."""
    groups = []
    for span in spans:
        inside = [
            edge
            for edge in edges
            if edge.width_ns <= max_width_ns and span.begin_ns <= edge.earliest_ns and edge.latest_ns <= span.end_ns
        ]
        groups += [inside[k : k + _EDGES_PER_OFFSET + 1] for k in range(0, len(inside) - 1, _EDGES_PER_OFFSET)]
    return groups


def _disturbed_iterations(activities: Sequence[Activity], spans: Sequence[Span]) -> list[Span]:
    """Iterations all of whose computations took longer than in another one: something slowed the GPU for a while."""
    found: list[tuple[Span, dict[Key, tuple[float, float]]]] = []
    for iteration in _iterations(activities):
        durations_s: dict[Key, list[float]] = defaultdict(list)
        for activity in iteration:
            if activity.key[1] in _COMPUTATIONS and _is_within(activity, spans):
                durations_s[activity.key].append((activity.end_ns - activity.begin_ns) / 1e9)
        found.append(
            (
                Span(iteration[0].begin_ns, iteration[-1].end_ns),
                {key: (statistics.fmean(values), _standard_error(values)) for key, values in durations_s.items()},
            )
        )
    fastest: dict[Key, tuple[float, float]] = {}
    for _, means in found:
        for key, mean in means.items():
            fastest[key] = min(mean, fastest.get(key, mean))
    return [
        span
        for span, means in found
        if means
        and all(
            time_s > (1 + _DISTURBED_SHARE) * fastest[key][0] + _DISTURBED_SIGMAS * math.hypot(error_s, fastest[key][1])
            for key, (time_s, error_s) in means.items()
        )
    ]


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _slow_iterations(activities: Sequence[Activity], limits_s: dict[Key, float]) -> list[Span]:
    """Iterations in which most instructions took longer than they usually do: the GPU was slower, no host late."""
    slow: list[Span] = []
    for iteration in _iterations(activities):
        inside = [activity for activity in iteration if activity.key != OUTSIDE]
        num_longer = sum(one.end_ns - one.begin_ns > limits_s.get(one.key, math.inf) * 1e9 for one in inside)
        if 2 * num_longer > len(inside):
            slow.append(Span(iteration[0].begin_ns, iteration[-1].end_ns))
    return slow


def _iterations(activities: Iterable[Activity]) -> Iterator[list[Activity]]:
    iteration: list[Activity] = []
    for activity in activities:
        iteration.append(activity)
        if activity.key == OUTSIDE:
            yield iteration
            iteration = []
    if iteration:
        yield iteration


def _without(left_out: Sequence[Span], spans: Iterable[Span]) -> list[Span]:
    """The spans without these others; both ascending."""
    remaining = []
    for span in spans:
        begin_ns = span.begin_ns
        for out in left_out:
            if out.end_ns > begin_ns and out.begin_ns < span.end_ns:
                if out.begin_ns > begin_ns:
                    remaining.append(Span(begin_ns, out.begin_ns))
                begin_ns = out.end_ns
        if begin_ns < span.end_ns:
            remaining.append(Span(begin_ns, span.end_ns))
    return remaining


def _trimmed(activities: Sequence[Activity], typical_s: dict[Key, list[float]]) -> list[Activity]:
    """An end that was noticed late is put where such an instruction usually ends: from there on the GPU waited."""
    limits_ns = {key: (max(values) * 1e9, statistics.fmean(values) * 1e9) for key, values in typical_s.items()}
    trimmed = []
    for activity in activities:
        limit_ns, usual_ns = limits_ns.get(activity.key, (math.inf, 0.0))
        is_late = not activity.is_exact and activity.end_ns - activity.begin_ns > limit_ns
        trimmed.append(activity._replace(end_ns=activity.begin_ns + round(usual_ns)) if is_late else activity)
    return trimmed


def _without_outliers(values: Sequence[float]) -> list[float]:
    if len(values) < 4:
        return list(values)
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    reach = max(_FENCE * (third - first), _MIN_FENCE * median)
    return [value for value in values if first - reach <= value <= third + reach]
