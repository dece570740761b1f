"""Kept iterations of a pipeline as ``Execution``s, so that what was measured is drawn like what was planned."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.frontier.replay import Execution
from perseus_dist.planning.schedule.dag import Dag, build_dag
from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.report.analysis.iterations import Iterations
from perseus_dist.runlog.files import RunFiles
from perseus_dist.runlog.ranks import RankTimeline
from perseus_dist.runlog.timed_iteration import TimedIteration
from perseus_dist.units import PS_PER_NS, IntArray, ps_from_s, uj_from_j

_SAME_HOST_NS = 100_000_000
"""CLOCK_MONOTONIC begins when a host starts. Offsets to the wall clock nearer than this are one host's, read twice."""


MAX_PIPELINES = 4
"""Pipelines do the same; more of them make a report no wiser, but larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRun:
    """One instruction of one rank.

    Attributes:
        index: In ``Dag.instructions``.
        begin_ns, end_ns: On the clock that all ranks share.
    """

    index: int
    begin_ns: int
    end_ns: int
    requested_mhz: int
    observed_mhz: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedIteration:
    """A kept iteration of one rank, on the clock that all ranks share."""

    timeline: RankTimeline
    kept: TimedIteration
    begin_ns: int
    end_ns: int
    runs: tuple[PlacedRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptPipelines:
    """Whole iterations of the first pipelines of a run.

    Attributes:
        dag: Of one pipeline; None where the schedule cannot be read.
        iterations: By dp_rank, for pipelines of which every rank is there: the iterations that all of them kept and
            that fit the schedule, ascending, each rank by rank.
        notes: What was left out, a sentence each.
    """

    dag: Dag | None
    iterations: Mapping[int, tuple[tuple[PlacedIteration, ...], ...]]
    notes: tuple[str, ...]


def kept_pipelines(run: RunFiles) -> KeptPipelines:
    """Put what ranks kept side by side."""
    try:
        dag = build_dag(parse_schedule(run.job.schedule))
    except ScheduleError as error:
        return KeptPipelines(dag=None, iterations={}, notes=(f"no timelines: the schedule in job.json: {error}",))
    if dag.schedule.num_ranks != run.job.pp_size:
        note = f"no timelines: the schedule has {dag.schedule.num_ranks} pp_ranks, the job {run.job.pp_size}"
        return KeptPipelines(dag=None, iterations={}, notes=(note,))
    places = _Places(dag, run)
    iterations = {dp_rank: places.of_pipeline(dp_rank) for dp_rank in places.whole_pipelines()[:MAX_PIPELINES]}
    return KeptPipelines(dag=dag, iterations=iterations, notes=tuple(places.notes))


class _Places:
    """Finds each run's place in the schedule and on the shared clock."""

    def __init__(self, dag: Dag, run: RunFiles) -> None:
        self._timelines = sorted(run.timelines.values(), key=lambda one: (one.dp_rank, one.pp_rank, one.tp_rank))
        self._ranks_per_pipeline = run.job.pp_size * run.job.tp_size
        self._shift_ns = _shifts_ns(self._timelines)
        self._index = {instruction: index for index, instruction in enumerate(dag.instructions)}
        self._stages = [
            sorted({one.stage for one in order}) for order in dag.schedule.ranks
        ]  # of each pp_rank's chunks
        self.notes: list[str] = []

    def whole_pipelines(self) -> list[int]:
        counts = Counter(timeline.dp_rank for timeline in self._timelines if timeline.pp_rank < len(self._stages))
        return [dp_rank for dp_rank, count in sorted(counts.items()) if count == self._ranks_per_pipeline]

    def of_pipeline(self, dp_rank: int) -> tuple[tuple[PlacedIteration, ...], ...]:
        timelines = [timeline for timeline in self._timelines if timeline.dp_rank == dp_rank]
        by_number = [{kept.iteration: kept for kept in timeline.iterations} for timeline in timelines]
        found = []
        for number in sorted(set.intersection(*map(set, by_number))):
            placed = [self._place(line, kept[number]) for line, kept in zip(timelines, by_number, strict=True)]
            ranks = tuple(rank for rank in placed if rank is not None)
            if len(ranks) == len(placed):
                found.append(ranks)
        return tuple(found)

    def _place(self, timeline: RankTimeline, kept: TimedIteration) -> PlacedIteration | None:
        shift_ns, stages = self._shift_ns[timeline.rank], self._stages[timeline.pp_rank]
        runs, previous_ns = [], kept.begin_ns
        for run in kept.runs:
            stage = stages[run.chunk] if run.chunk < len(stages) else -1
            index = self._index.get(Instruction(stage, run.kind, run.microbatch))
            if index is None:
                self.notes.append(
                    f"timeline-{timeline.rank}.jsonl: iteration {kept.iteration} is left out: {run.kind} of chunk "
                    f"{run.chunk}, microbatch {run.microbatch}, is not in the schedule"
                )
                return None
            begin_ns = max(run.begin_ns, previous_ns)  # viewers drop what overlaps
            previous_ns = max(run.end_ns, begin_ns)
            runs.append(
                PlacedRun(
                    index=index,
                    begin_ns=begin_ns + shift_ns,
                    end_ns=previous_ns + shift_ns,
                    requested_mhz=run.requested_mhz,
                    observed_mhz=run.observed_mhz,
                )
            )
        return PlacedIteration(
            timeline=timeline,
            kept=kept,
            begin_ns=kept.begin_ns + shift_ns,
            end_ns=max(kept.end_ns, previous_ns) + shift_ns,
            runs=tuple(runs),
        )


def execution_of(dag: Dag, ranks: Sequence[PlacedIteration], measured: Iterations) -> Execution:
    """One kept iteration of a pipeline as it ran.

    A tensor-parallel group is one: from its first begin to its last end, at its lowest clock. A computation whose
    clock was not seen or requested is taken to have kept that of the one before it. Constants that the trainer does
    not report take no time. What single instructions drew is not known: their energies are 0.

    Args:
        dag: Of the pipeline.
        ranks: All of it, of one iteration.
        measured: The pipeline's iterations; where it has this one, that gives time and energy, until the next begins.
    """
    num = len(dag.instructions)
    never = np.iinfo(np.int64).max
    begin_ns, end_ns, clocks_mhz = np.full(num, never), np.full(num, -1), np.full(num, never)
    for rank in ranks:
        for run in rank.runs:
            begin_ns[run.index] = min(begin_ns[run.index], run.begin_ns)
            end_ns[run.index] = max(end_ns[run.index], run.end_ns)
            clocks_mhz[run.index] = min(clocks_mhz[run.index], run.observed_mhz or run.requested_mhz or never)
    origin_ns = min(rank.begin_ns for rank in ranks)
    for index, before in enumerate(dag.previous_on_rank.tolist()):
        if end_ns[index] < 0:
            begin_ns[index] = end_ns[index] = origin_ns if before < 0 else end_ns[before]
    start_ps, end_ps = (PS_PER_NS * np.maximum(times - origin_ns, 0) for times in (begin_ns, end_ns))
    clocks_mhz = _known_clocks(dag, np.where(clocks_mhz == never, 0, clocks_mhz))
    number = ranks[0].kept.iteration
    at = np.flatnonzero(measured.number == number)
    time_ps = PS_PER_NS * (max(rank.end_ns for rank in ranks) - origin_ns)
    energy_j = 0.0
    if len(at):
        time_ps = int(ps_from_s(measured.time_s[at[0]]))
        energy_j = float(np.nan_to_num(measured.energy_j[at[0]]))
    return Execution(
        dag=dag,
        clocks_mhz=clocks_mhz,
        start_ps=start_ps,
        end_ps=end_ps,
        energy_uj=np.zeros(num, dtype=np.int64),
        changes=_changes(dag, clocks_mhz),
        blocking_uw=np.zeros(dag.schedule.num_ranks, dtype=np.int64),
        time_ps=max(time_ps, int(end_ps.max(initial=0))),
        total_uj=int(uj_from_j(energy_j)),
    )


def _known_clocks(dag: Dag, clocks_mhz: IntArray) -> IntArray:
    """Constants have none; other gaps are filled from the computation before on the rank, the first from the next."""
    constant = np.array([instruction.is_constant for instruction in dag.instructions], dtype=bool)
    filled = np.where(constant, 0, clocks_mhz)
    for rank in range(dag.schedule.num_ranks):
        here = np.flatnonzero((dag.pp_rank == rank) & ~constant)
        known = np.flatnonzero(filled[here] > 0)
        if len(known):
            last_known = known[np.maximum(np.searchsorted(known, np.arange(len(here)), side="right") - 1, 0)]
            filled[here] = filled[here[last_known]]
    return filled


def _changes(dag: Dag, clocks_mhz: IntArray) -> IntArray:
    """(num_ranks) how often the clock changed from one computation to the next."""
    of_rank = [clocks_mhz[(dag.pp_rank == rank) & (clocks_mhz > 0)] for rank in range(dag.schedule.num_ranks)]
    return np.array([np.count_nonzero(np.diff(clocks)) for clocks in of_rank], dtype=np.int64)


def _shifts_ns(timelines: Sequence[RankTimeline]) -> dict[int, int]:
    """By rank: what brings its times onto the first rank's clock. Ranks of one host share their clock already."""
    shifts: dict[int, int] = {}
    offsets_ns: list[int] = []  # of hosts, the first rank's first
    for timeline in timelines:
        offset_ns = timeline.wall_minus_monotonic_ns
        host_ns = next((known for known in offsets_ns if abs(known - offset_ns) < _SAME_HOST_NS), offset_ns)
        if host_ns == offset_ns:
            offsets_ns.append(offset_ns)
        shifts[timeline.rank] = host_ns - offsets_ns[0]
    return shifts
