"""A run as a Chrome trace for https://ui.perfetto.dev: what each rank did, and what the plan wanted, on one time axis.

Two processes per pipeline: ``measured`` with the iterations that were kept, and ``planned`` with the replay of the plan
on the measured profile, begun when each of these iterations began. A thread per rank (per model chunk where there are
several), a counter with its clock. One process more for what happened to the job: verdicts, reports, switches.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np

from perseus_dist.errors import PerseusError
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import Execution, replay
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.dag import Dag
from perseus_dist.report.analysis.figures import RunReport
from perseus_dist.report.analysis.measured_execution import PlacedIteration
from perseus_dist.report.plots.timeline_layout import chunks_of
from perseus_dist.report.trace.run_instants import instants, wall_ns
from perseus_dist.report.trace.trace import CATEGORIES, Event
from perseus_dist.runlog.events import KeptEvent
from perseus_dist.units import PS_PER_NS, PS_PER_S, IntArray, j_from_uj, uw_from_w

Iteration = tuple[PlacedIteration, ...]

_TIDS = 10_000  # thread numbers of a process; those of the next one lie beyond them
_MAX_RUN_NS = 366 * 24 * 3600 * 10**9


def run_trace_events(report: RunReport, notes: list[str]) -> list[Event]:
    """The events of all kept iterations; empty if none was kept.

    Args:
        report: Of the run.
        notes: Gets a sentence where no plan can be replayed, or events have no place on the time axis.
    """
    dag = report.kept.dag
    iterations = {dp_rank: kept for dp_rank, kept in report.kept.iterations.items() if kept}
    if dag is None or not iterations:
        return []
    problem = _problem(report, dag, notes)
    origin_ns = min(rank.begin_ns for ranks in chain(*iterations.values()) for rank in ranks)
    first = min(report.run.timelines.values(), key=lambda one: (one.dp_rank, one.pp_rank, one.tp_rank))
    wall_ns_of_zero = first.wall_minus_monotonic_ns  # kept iterations are on this rank's clock
    happened = _happened(report, origin_ns + wall_ns_of_zero, notes)
    origin_ns = min([origin_ns, *(wall_ns(at) - wall_ns_of_zero for at, _ in happened if at is not None)])
    events: list[Event] = []
    for place, (dp_rank, kept) in enumerate(iterations.items()):
        tracks = _Tracks(dag, kept, pid=2 * place + 1, name=f"pipeline {dp_rank}", origin_ns=origin_ns)
        events += tracks.measured()
        if problem is not None:
            events += tracks.planned(problem, table_revision=report.job.table_revision)
    pid = 2 * len(iterations) + 1
    events += instants(happened, pid=pid, tid=_TIDS * pid, zero_ns=origin_ns + wall_ns_of_zero)
    return events


def _happened(report: RunReport, near_ns: int, notes: list[str]) -> list[KeptEvent]:
    """Events with a place on the time axis of the kept iterations; a host's clock may have been set meanwhile."""
    events = report.run.events
    found = [one for one in events if one.at is not None and abs(wall_ns(one.at) - near_ns) < _MAX_RUN_NS]
    if len(found) < len(events):
        notes.append(f"trace.json is without {len(events) - len(found)} events: they are far from all kept iterations")
    return found


def _problem(report: RunReport, dag: Dag, notes: list[str]) -> PlanningProblem | None:
    """The planning problem of the plan, as far as a replay needs it."""
    job, profile = report.job, report.run.profile
    if profile is None:
        return None
    try:
        return make_problem(
            dag.schedule,
            read_profile(profile),
            blocking_uw_of_rank=[int(uw_from_w(job.blocking_power_w))] * job.pp_size,
            tensor_parallel=job.tp_size,
        )
    except PerseusError as error:
        notes.append(f"trace.json is without the plan: {error}")
        return None


class _Tracks:
    """The two processes of one pipeline."""

    def __init__(self, dag: Dag, kept: Sequence[Iteration], *, pid: int, name: str, origin_ns: int) -> None:
        self._dag = dag
        self._kept = kept
        self._pid = pid
        self._name = name
        self._origin_ns = origin_ns
        self._chunk, self._num_chunks = chunks_of(dag)
        self._busy_until: dict[tuple[int, int], float] = {}  # by process and thread

    def measured(self) -> Iterator[Event]:
        """The instructions that ran."""
        pid, ranks = self._pid, [rank.timeline for rank in self._kept[0]]
        tids = self._tids(pid, [rank.pp_rank for rank in ranks])
        names = [
            f"pp_rank {rank.pp_rank}" + (f" tp_rank {rank.tp_rank}" if len(ranks) > len(self._num_chunks) else "")
            for rank in ranks
        ]
        yield from self._names(pid, f"{self._name}, measured", names, [rank.pp_rank for rank in ranks])
        for iteration in self._kept:
            yield self._whole(pid, iteration)
            for rank, first_tid in zip(iteration, tids, strict=True):
                for run in rank.runs:
                    begin, end = self._us(run.begin_ns), self._us(run.end_ns)
                    clocks = {"requested_mhz": run.requested_mhz, "observed_mhz": run.observed_mhz}
                    yield self._complete(pid, first_tid, run.index, begin, end, iteration[0].kept.iteration, clocks)
        for place, name in enumerate(names):
            yield from self._clock_counter(pid, name, [iteration[place] for iteration in self._kept])

    def planned(self, problem: PlanningProblem, *, table_revision: int) -> Iterator[Event]:
        """The instructions as planned, by the newest table: the only one whose profile is there."""
        pid, dag = self._pid + 1, self._dag
        num_ranks = dag.schedule.num_ranks
        names = [f"pp_rank {rank}" for rank in range(num_ranks)]
        tids = self._tids(pid, range(num_ranks))
        counted: list[list[tuple[float, int]]] = [[] for _ in names]
        is_named = False
        for iteration in self._kept:
            execution = _replayed(problem, iteration) if iteration[0].kept.table_revision == table_revision else None
            if execution is None:
                continue
            if not is_named:
                is_named = True
                yield from self._names(pid, f"{self._name}, planned", names, range(num_ranks))
            yield self._whole(pid, iteration, execution)
            begin = self._us(min(rank.begin_ns for rank in iteration))
            starts, ends = (begin + _us_of_ps(times_ps) for times_ps in (execution.start_ps, execution.end_ps))
            energies_j = j_from_uj(execution.energy_uj)
            scheduled = zip(starts.tolist()[: dag.num_scheduled], ends.tolist()[: dag.num_scheduled], strict=True)
            for index, (start, end) in enumerate(scheduled):
                pp_rank, clock_mhz = int(dag.pp_rank[index]), int(execution.clocks_mhz[index])
                args = {"clock_mhz": clock_mhz, "energy_j": round(float(energies_j[index]), 6)}
                number = iteration[0].kept.iteration
                yield self._complete(pid, tids[pp_rank], index, start, end, number, args)
                if clock_mhz:
                    counted[pp_rank].append((start, clock_mhz))
        for name, values in zip(names, counted, strict=True):
            yield from _counter(pid, f"{name} clock", values)

    def _tids(self, pid: int, pp_ranks: Sequence[int]) -> list[int]:
        """The first thread of each rank, behind the one of the iterations; no two processes share a number."""
        sizes = [int(self._num_chunks[pp_rank]) for pp_rank in pp_ranks]
        return list(accumulate(sizes[:-1], initial=_TIDS * pid + 1))

    def _names(self, pid: int, name: str, ranks: Sequence[str], pp_ranks: Sequence[int]) -> Iterator[Event]:
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
        threads = [(_TIDS * pid, "iterations")]
        for rank, pp_rank, first in zip(ranks, pp_ranks, self._tids(pid, pp_ranks), strict=True):
            chunks = int(self._num_chunks[pp_rank])
            threads += [(first + chunk, rank + (f" chunk {chunk}" if chunks > 1 else "")) for chunk in range(chunks)]
        for tid, thread in threads:
            yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": thread}}
            yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}

    def _whole(self, pid: int, iteration: Iteration, execution: Execution | None = None) -> Event:
        """The iteration as one event above its instructions."""
        kept = iteration[0].kept
        begin = self._us(min(rank.begin_ns for rank in iteration))
        end = self._us(max(rank.end_ns for rank in iteration))
        if execution is not None:
            end = begin + float(_us_of_ps(execution.time_ps))
        what = f"plan {kept.point} of table {kept.table_revision}" if kept.is_planned else "no plan"
        args = {"iteration": kept.iteration, "under": what}
        return self._event(pid, _TIDS * pid, f"iteration {kept.iteration}", "iteration", begin, end, args)

    def _complete(
        self, pid: int, first_tid: int, index: int, begin: float, end: float, iteration: int, args: dict[str, Any]
    ) -> Event:
        instruction = self._dag.instructions[index]
        category = CATEGORIES.get(instruction.kind, "constant")
        tid = first_tid + int(self._chunk[index])
        return self._event(pid, tid, str(instruction), category, begin, end, {"iteration": iteration, **args})

    def _event(
        self, pid: int, tid: int, name: str, category: str, begin: float, end: float, args: dict[str, Any]
    ) -> Event:
        """Viewers drop what overlaps on one thread, so an event begins where the one before it ends at the earliest."""
        begin = max(begin, self._busy_until.get((pid, tid), begin))
        end = self._busy_until[pid, tid] = max(begin, end)
        dur = round(end - begin, 3)
        return {"ph": "X", "pid": pid, "tid": tid, "name": name, "cat": category, "ts": begin, "dur": dur, "args": args}

    def _clock_counter(self, pid: int, name: str, iterations: Sequence[PlacedIteration]) -> Iterator[Event]:
        """The clock that was seen, or else requested, at each computation."""
        values = [
            (self._us(run.begin_ns), run.observed_mhz or run.requested_mhz)
            for iteration in iterations
            for run in iteration.runs
            if not self._dag.instructions[run.index].is_constant and (run.observed_mhz or run.requested_mhz)
        ]
        return _counter(pid, f"{name} clock", values)

    def _us(self, time_ns: int) -> float:
        return (time_ns - self._origin_ns) / 1e3


def _counter(pid: int, name: str, values: Sequence[tuple[float, int]]) -> Iterator[Event]:
    """An event wherever it changes."""
    last = None
    for ts, value in values:
        if value != last:
            yield {"ph": "C", "pid": pid, "name": name, "ts": ts, "args": {"MHz": value}}
        last = value


def _replayed(problem: PlanningProblem, iteration: Iteration) -> Execution | None:
    """The iteration's planned clocks, replayed by the profile; None without a plan, or with clocks that it lacks."""
    by_pp_rank = {rank.timeline.pp_rank: rank.kept.planned_clocks_mhz or () for rank in reversed(iteration)}
    clocks_mhz = list(chain.from_iterable(by_pp_rank[pp_rank] for pp_rank in sorted(by_pp_rank)))
    if len(clocks_mhz) != problem.dag.num_scheduled:
        return None
    clocks_mhz += [0] * (problem.num_instructions - len(clocks_mhz))  # transfers
    menus = [curve.clocks_mhz.tolist() for curve in problem.curves]
    chosen = []
    for curve, clock_mhz in zip(problem.curve_of.tolist(), clocks_mhz, strict=True):
        if clock_mhz and clock_mhz not in menus[curve]:
            return None
        chosen.append(menus[curve].index(clock_mhz) if clock_mhz else 0)
    latency_s = max(rank.timeline.switch_latency_s for rank in iteration)
    return replay(problem, np.array(chosen, dtype=np.int32), switch_latency_ps=round(latency_s * PS_PER_S))


def _us_of_ps(time_ps: IntArray | int) -> IntArray:
    """Microseconds with nanosecond digits, as the format has it."""
    return np.asarray((np.asarray(time_ps) + PS_PER_NS // 2) // PS_PER_NS / 1e3)
