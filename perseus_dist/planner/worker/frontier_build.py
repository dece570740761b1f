"""A planning request carried out: profile, frontier, tables, files. Runs in the planning worker."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_dist.messages.from_planner import PlannerMessage
from perseus_dist.planner.job.frontier_summary import SLOW_FACTORS, FrontierSummary
from perseus_dist.planner.job.measured_transfers import (
    Snapshot,
    Transfers,
    TransferTimes,
    have_moved,
    least_change_s,
    slowest,
)
from perseus_dist.planner.worker.measured_profile import profile_csv, profile_of_request, with_transfers
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planner.worker.plan_table import plan_tables
from perseus_dist.planner.worker.planning_time_left import Expect, PlanningTimeLeft
from perseus_dist.planning.coarse.coarse_frontier import plan_coarse_frontier
from perseus_dist.planning.frontier.bounding_case import BoundingCase
from perseus_dist.planning.frontier.following_on import following_on
from perseus_dist.planning.frontier.frontier import (
    NUM_POINTS_TO_T_STAR,
    NUM_QUICK_POINTS,
    Frontier,
    plan_first,
    plan_frontier,
)
from perseus_dist.planning.frontier.frontier_file import frontier_npz
from perseus_dist.planning.frontier.noise_margin import NoiseMargin, margin_for, plan_with_margin, stretched_ps
from perseus_dist.planning.frontier.noisy_replay import NoisyReplay
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.frontier.saving_interval import saving_intervals
from perseus_dist.planning.frontier.several_cases import Case, as_played, on_time_in_all
from perseus_dist.planning.frontier.slow_rank import SlowRank, with_slow_ranks
from perseus_dist.planning.profile.profile import Profile
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.instruction import BETWEEN_ITERATIONS, Kind
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.units import PS_PER_S, deadline_ps_from_s, ps_from_s, uw_from_w

_MATTERING = 1.001  # of the time of an iteration
_LEAST_GAIN = 0.002  # of it, by iterations that overlap; less is not worth a frontier of its own
_GAINED = 1 / 3  # of what iterations that overlap can gain: a host that is late takes some of it
_NUM_PLAYED, _NUM_DRAWS = 7, 32  # of intervals of savings
_NUM_LIKELY, _NUM_THOROUGH = 8, 4  # pipelines of a snapshot that get a frontier of their own; those not roughly
_NUM_COARSE = 4  # likewise where instructions share clocks, whose frontiers take as long in any case


def build_plan(
    request: PlanningRequest, *, encode: Callable[[PlannerMessage], bytes], expect: Expect | None = None
) -> PlanResult:
    """Plan.

    Args:
        request: What.
        encode: Of a message, for the wire: ``rpc.codec.encode_planner_message``.
        expect: As of ``planned_request``.

    Raises:
        PerseusError: The samples make no profile that fits the schedule.
    """
    return result_of(request, planned_request(request, expect=expect), encode=encode)


class PlannedRequest(NamedTuple):
    """The part of a result that depends on the content of a request alone, not on its numbers.

    Attributes:
        summary, frontier_npz, profile_csv, is_first: As of ``PlanResult``.
    """

    frontier: Frontier
    summary: FrontierSummary
    frontier_npz: bytes
    profile_csv: bytes
    is_first: bool


def planned_request(request: PlanningRequest, *, quick: bool = False, expect: Expect | None = None) -> PlannedRequest:
    """Frontier and profile, whichever revision they get.

    Args:
        request: What.
        quick: Whether a rough plan will do, made in a tenth of the time; every plan is on time all the same.
        expect: Called a few times a second with the time [s] that is left, once that is known.

    Raises:
        PerseusError: The samples make no profile that fits the schedule.
    """
    schedule = parse_schedule(request.schedule_text)
    bare = with_transfers(profile_of_request(schedule, request), dict.fromkeys(_links(request.snapshots), 0.0))

    spreads_s = slowest([request.transfer_spreads])

    def problem_with(transfers_s: TransferTimes) -> PlanningProblem:
        return _problem(schedule, request, with_transfers(bare, transfers_s, spreads_s))

    groups = _transfers_that_matter(
        request.snapshots,
        request.schedule_text,
        lambda known_s: replay_all_max(problem_with(known_s)).time_ps,
        most=_NUM_LIKELY if request.granularity == Granularity.INSTRUCTION else _NUM_COARSE,
    )
    is_first = request.is_first and problem_with(groups[0].planned[0]).num_instructions > request.whole_up_to
    between, overlap_ps, gained_ps = _between_others(request, problem_with(groups[0].planned[0]))
    num_frontiers = sum(len(group.planned) for group in groups) + len(request.slightly_slow) + bool(overlap_ps)
    time_left = None if expect is None else PlanningTimeLeft(num_frontiers, expect)

    extra_ps, latency_ps = int(ps_from_s(request.extra_s)), int(ps_from_s(request.switch_latency_s))
    kept = _kept_margin(request, problem_with(groups[0].planned[0]), is_first=is_first)

    def frontier_of(problem: PlanningProblem, *, roughly: bool = quick, overlap_ps: int = 0) -> Frontier:
        if time_left is not None:
            time_left.begin_frontier()
        all_max_ps = replay_all_max(problem, switch_latency_ps=latency_ps).time_ps - overlap_ps
        wanted_ps = [
            *(deadline_ps_from_s(deadline_s) for deadline_s in request.deadlines_s),
            *(round(slowdown * (all_max_ps + extra_ps)) for slowdown in request.slowdowns),
        ]
        deadlines_ps = [max(one - extra_ps + overlap_ps, 1) for one in wanted_ps]
        if request.granularity != Granularity.INSTRUCTION:
            return plan_coarse_frontier(
                problem,
                request.granularity,
                switch_latency_ps=latency_ps,
                deadlines_ps=deadlines_ps,
                is_whole=not is_first,
                progress=time_left,
            )
        at_max_ps = replay_all_max(problem).time_ps
        within_ps = [stretched_ps(one, at_max_ps, kept.margin) for one in deadlines_ps]

        def plan(one: PlanningProblem) -> Frontier:
            if is_first:
                return plan_first(one, switch_latency_ps=latency_ps, deadlines_ps=within_ps, progress=time_left)
            return plan_frontier(
                one,
                num_points=NUM_QUICK_POINTS if roughly else NUM_POINTS_TO_T_STAR,
                thorough=not roughly,
                switch_latency_ps=latency_ps,
                deadlines_ps=within_ps,
                progress=time_left,
            )

        return plan_with_margin(problem, kept.margin, plan) if kept.is_needed else plan(problem)

    cases: list[Case] = []
    bounding: list[BoundingCase] = []
    for group in groups:
        frontiers = [
            frontier_of(problem_with(transfers_s), roughly=quick or place >= _NUM_THOROUGH)
            for place, transfers_s in enumerate(group.planned)
        ]
        reference_ps = max(one.baseline.time_ps for one in frontiers)
        cases += [Case(one, reference_ps) for one in frontiers]
        if group.others:
            switch_ps = frontiers[0].switch_latency_ps
            bounding.append(BoundingCase(problem_with(group.others), reference_ps, switch_latency_ps=switch_ps))
    for slow in request.slightly_slow:
        one = frontier_of(with_slow_ranks(problem_with(groups[0].planned[0]), [slow]))
        cases.append(Case(one, one.baseline.time_ps))
    if overlap_ps:
        one = frontier_of(between, overlap_ps=overlap_ps)
        cases.append(Case(one, one.baseline.time_ps, overlap_ps))
    frontier = on_time_in_all(cases[0], cases[1:], bounding)
    summary = summarize(frontier, knows_slow_ranks=not (request.slow_ranks or is_first), knows_intervals=not is_first)
    if len(cases) > 1:
        summary = replace(summary, slowest_case_ps=max(case.reference_ps - case.overlap_ps for case in cases))
    return PlannedRequest(
        frontier=frontier,
        summary=replace(
            summary,
            gained_ps=gained_ps,
            margin=kept.margin,
            noise=kept.noise,
            least_margin=request.least_margin,
            own_noise=kept.replay.noise if kept.replay is not None else 0.0,
            late_by=_late_by(frontier, kept.replay) if kept.replay is not None else (),
        ).with_extra(extra_ps),
        frontier_npz=frontier_npz(frontier if frontier is cases[0].frontier else as_played(frontier)),
        profile_csv=profile_csv(
            with_transfers(bare, groups[0].planned[0] | {(0, BETWEEN_ITERATIONS): request.extra_s}, spreads_s)
        ),
        is_first=is_first,
    )


def _kept_margin(request: PlanningRequest, problem: PlanningProblem, *, is_first: bool) -> NoiseMargin:
    """The margin for noise; a first plan has the one alone that iterations have shown to be needed."""
    if request.granularity != Granularity.INSTRUCTION:
        return NoiseMargin()
    if is_first:
        return NoiseMargin(margin=request.least_margin, noise=request.seen_noise)
    return margin_for(
        problem,
        switch_latency_ps=int(ps_from_s(request.switch_latency_s)),
        least=request.least_margin,
        seen_noise=request.seen_noise,
    )


def _problem(schedule: Schedule, request: PlanningRequest, profile: Profile) -> PlanningProblem:
    problem = make_problem(
        schedule,
        profile,
        blocking_uw_of_rank=uw_from_w(request.blocking_power_w).tolist(),
        tensor_parallel=request.tp_size,
    )
    return with_slow_ranks(problem, request.slow_ranks) if request.slow_ranks else problem


def _between_others(request: PlanningRequest, alone: PlanningProblem) -> tuple[PlanningProblem, int, int]:
    """As ``following_on``, and [ps] that iterations gain; 0 where full clocks show that ranks wait for one another."""
    if not request.full_s or request.slow_ranks or request.granularity != Granularity.INSTRUCTION:
        return alone, 0, 0
    between, overlap_ps = following_on(alone)
    alone_ps = replay_all_max(alone).time_ps
    gained_ps = alone_ps + overlap_ps - replay_all_max(between).time_ps
    seen_ps = int(ps_from_s(request.full_s - request.extra_s))
    is_between = gained_ps > _LEAST_GAIN * alone_ps and seen_ps < alone_ps - _GAINED * gained_ps
    return (between, overlap_ps, gained_ps) if is_between else (alone, 0, 0)


def _links(snapshots: Sequence[Snapshot]) -> TransferTimes:
    return slowest(chain.from_iterable(snapshots))


class _Pipelines(NamedTuple):
    """Transfers of the pipelines of a snapshot that plans must be on time with.

    Attributes:
        planned: Of those that get a frontier of their own, the slowest one's first; those behind ``_NUM_THOROUGH``
            roughly.
        others: On each link as slow as in any other pipeline; empty where there are none.
    """

    planned: list[TransferTimes]
    others: TransferTimes


def _transfers_that_matter(
    snapshots: Sequence[Snapshot], schedule_text: str, time_ps: Callable[[TransferTimes], int], *, most: int
) -> list[_Pipelines]:
    """By snapshot, the quickest first: transfers of pipelines that plans must be on time with.

    Those that matter to no plan are left out, since each is a node to plan: neither at full clocks nor, by
    ``least_change_s``, under a plan that has given away the time that hides them there. Where those of all pipelines
    together take no longer than the slowest one's, they are all in one.
    """
    bare_ps = time_ps({})
    least_s = least_change_s(schedule_text, bare_ps / PS_PER_S)
    found: list[_Pipelines] = []
    for snapshot in snapshots:
        together_s = slowest(snapshot)
        together_ps = time_ps(together_s)
        if together_ps <= _MATTERING * bare_ps and not have_moved((), snapshot, least_s):
            pipelines = _Pipelines([{}], {})
        else:
            likely, others = _likely(snapshot, most)
            pipelines = _Pipelines(sorted(likely, key=time_ps, reverse=True), others)
            if together_ps <= _MATTERING * time_ps(pipelines.planned[0]):
                pipelines = _Pipelines([together_s], {})
        if pipelines not in found:
            found.append(pipelines)
    return sorted(found, key=lambda pipelines: time_ps(pipelines.planned[0])) or [_Pipelines([{}], {})]


def _likely(snapshot: Snapshot, most: int) -> tuple[list[TransferTimes], TransferTimes]:
    """(of the pipelines that may be latest: those with the most transfers; as slow as any other).

    Those all of whose transfers are shorter than another's are neither.
    """
    found: list[TransferTimes] = []
    others: list[Transfers] = []
    for transfers in sorted(snapshot, key=lambda transfers: -sum(transfer_s for *_, transfer_s in transfers)):
        is_shorter = any(
            all(transfer_s <= other.get((stage, kind), 0.0) for stage, kind, transfer_s in transfers) for other in found
        )
        if not is_shorter and len(found) < most:
            found.append(slowest([transfers]))
        elif not is_shorter:
            others.append(transfers)
    return found, slowest(others)


def result_of(
    request: PlanningRequest, planned: PlannedRequest, *, encode: Callable[[PlannerMessage], bytes]
) -> PlanResult:
    """The answer to a request, once it is planned. ``encode`` as of ``build_plan``."""
    tables = plan_tables(
        planned.frontier,
        revision=request.revision,
        base_revision=request.base_revision,
        extra_ps=int(ps_from_s(request.extra_s)),
    )
    return PlanResult(
        request_id=request.request_id,
        revision=request.revision,
        summary=planned.summary,
        tables=tuple(encode(table) for table in tables),
        frontier_npz=planned.frontier_npz,
        profile_csv=planned.profile_csv,
        is_first=planned.is_first,
    )


def summarize(frontier: Frontier, *, knows_slow_ranks: bool = True, knows_intervals: bool = True) -> FrontierSummary:
    """The summary of a frontier that the planner's own process keeps.

    Args:
        frontier: As planned.
        knows_slow_ranks: Whether to find out how long an iteration takes with one rank that is slow.
        knows_intervals: Whether to find out where savings are likely to lie.
    """
    problem, baseline = frontier.problem, frontier.baseline
    durations_ps = baseline.end_ps - baseline.start_ps
    kinds = np.array([instruction.kind for instruction in problem.dag.instructions])
    saving_low, saving_high = _saving_bounds(frontier) if knows_intervals else ((), ())
    of_kinds_ps = np.array([durations_ps[kinds == kind].sum() for kind in Kind])
    return FrontierSummary(
        time_ps=tuple(frontier.time_ps.tolist()),
        total_uj=tuple(frontier.total_uj.tolist()),
        lower_bound_uj=tuple(np.rint(frontier.bound.total_uj(frontier.time_ps)).astype(np.int64).tolist()),
        baseline_time_ps=frontier.baseline.time_ps,
        baseline_uj=frontier.baseline.total_uj,
        total_blocking_uw=problem.total_blocking_uw,
        solve_seconds=frontier.solve_seconds,
        realise_seconds=frontier.realise_seconds,
        kind_shares=tuple((of_kinds_ps / of_kinds_ps.sum()).tolist()),
        slow_rank_ps=_with_slow_ranks_ps(problem) if knows_slow_ranks else (),
        saving_low=saving_low,
        saving_high=saving_high,
        is_by_phase=frontier.granularity == Granularity.PHASE,
        tail_ps=int(baseline.time_ps - baseline.end_ps[np.isin(kinds, list(Kind))].max()),
    )


def _saving_bounds(frontier: Frontier) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(num_points) ends of the intervals of savings: played for some plans, and between them in proportion."""
    played = _some_points(frontier)
    found = saving_intervals(
        frontier.problem,
        frontier.clock_indices[played],
        switch_latency_ps=frontier.switch_latency_ps,
        num_draws=_NUM_DRAWS,
    )
    if found is None:
        return (), ()
    savings = np.array([1 - frontier.execution(point).total_uj / frontier.baseline.total_uj for point in played])
    all_savings = 1 - frontier.total_uj / frontier.baseline.total_uj
    low, high = (
        all_savings + np.interp(frontier.time_ps, frontier.time_ps[played], np.array(ends) - savings)
        for ends in ([one.low for one in found], [one.high for one in found])
    )
    return tuple(low.tolist()), tuple(high.tolist())


def _late_by(frontier: Frontier, noisy: NoisyReplay) -> tuple[float, ...]:
    """(num_points) as of ``FrontierSummary``: played for some plans, and between them in proportion."""
    played = _some_points(frontier)
    late = [noisy.late_by(frontier.clock_indices[point]) for point in played]
    return tuple(np.interp(frontier.time_ps, frontier.time_ps[played], late).tolist())


def _some_points(frontier: Frontier) -> NDArray[np.int64]:
    return np.unique(np.rint(np.linspace(0, len(frontier.time_ps) - 1, _NUM_PLAYED)).astype(np.int64))


def _with_slow_ranks_ps(problem: PlanningProblem) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(
            replay_all_max(with_slow_ranks(problem, [SlowRank(pp_rank=pp_rank, factor=factor)])).time_ps
            for factor in SLOW_FACTORS
        )
        for pp_rank in range(len(problem.blocking_uw))
    )
