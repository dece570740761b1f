"""A planning request carried out: profile, frontier, tables, files. Runs in the planning worker."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from perseus_dist.messages.from_planner import PlannerMessage
from perseus_dist.planner.job.frontier_summary import SLOW_FACTORS, FrontierSummary
from perseus_dist.planner.job.measured_transfers import Transfers, slowest
from perseus_dist.planner.worker.measured_profile import profile_csv, profile_of_request, with_transfers
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planner.worker.plan_table import plan_tables
from perseus_dist.planning.frontier.frontier import (
    NUM_POINTS_TO_T_STAR,
    NUM_QUICK_POINTS,
    Frontier,
    plan_first,
    plan_frontier,
)
from perseus_dist.planning.frontier.frontier_file import frontier_npz
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.frontier.slow_rank import SlowRank, with_slow_ranks
from perseus_dist.planning.profile.profile import Profile
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.units import deadline_ps_from_s, ps_from_s, uw_from_w

_MATTERING = 1.001  # of the time of an iteration
_NUM_LIKELY = 4  # pipelines that are looked at


def build_plan(request: PlanningRequest, *, encode: Callable[[PlannerMessage], bytes]) -> PlanResult:
    """Plan.

    Args:
        request: What.
        encode: Of a message, for the wire: ``rpc.codec.encode_planner_message``.

    Raises:
        PerseusError: The samples make no profile that fits the schedule.
    """
    return result_of(request, planned_request(request), encode=encode)


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


def planned_request(request: PlanningRequest, *, quick: bool = False) -> PlannedRequest:
    """Frontier and profile, whichever revision they get.

    Args:
        request: What.
        quick: Whether a rough plan will do, made in a tenth of the time; every plan is on time all the same.

    Raises:
        PerseusError: The samples make no profile that fits the schedule.
    """
    schedule = parse_schedule(request.schedule_text)
    problem_of = partial(
        make_problem,
        schedule,
        blocking_uw_of_rank=uw_from_w(request.blocking_power_w).tolist(),
        tensor_parallel=request.tp_size,
    )
    profile = profile_of_request(schedule, request)
    if request.transfers:
        profile = _with_transfers_that_matter(profile, request.transfers, problem_of)
    problem = problem_of(profile)
    if request.slow_ranks:
        problem = with_slow_ranks(problem, request.slow_ranks)
    all_max_ps = replay_all_max(problem).time_ps
    latency_ps = int(ps_from_s(request.switch_latency_s))
    deadlines_ps = [
        *(deadline_ps_from_s(deadline_s) for deadline_s in request.deadlines_s),
        *(round(slowdown * all_max_ps) for slowdown in request.slowdowns),
    ]
    is_first = request.is_first and problem.num_instructions > request.whole_up_to
    if is_first:
        frontier = plan_first(problem, switch_latency_ps=latency_ps, deadlines_ps=deadlines_ps)
    else:
        frontier = plan_frontier(
            problem,
            num_points=NUM_QUICK_POINTS if quick else NUM_POINTS_TO_T_STAR,
            thorough=not quick,
            switch_latency_ps=latency_ps,
            deadlines_ps=deadlines_ps,
        )
    return PlannedRequest(
        frontier=frontier,
        summary=summarize(frontier, knows_slow_ranks=not (request.slow_ranks or is_first)),
        frontier_npz=frontier_npz(frontier),
        profile_csv=profile_csv(profile),
        is_first=is_first,
    )


def _with_transfers_that_matter(
    profile: Profile, pipelines: Sequence[Transfers], problem_of: Callable[[Profile], PlanningProblem]
) -> Profile:
    """With the transfers of the pipeline that they make slowest, and with all others' where that costs no time.

    Without any where an iteration takes as long, since each is a node to plan.
    """

    def time_ps(one: Profile) -> int:
        return replay_all_max(problem_of(one)).time_ps

    longest = slowest(pipelines)
    known = with_transfers(profile, longest)
    known_ps = time_ps(known)
    bare = with_transfers(profile, dict.fromkeys(longest, 0.0))
    if known_ps <= _MATTERING * time_ps(bare):
        return bare
    likely = sorted(pipelines, key=lambda transfers: -sum(transfer_s for *_, transfer_s in transfers))[:_NUM_LIKELY]
    latest = max((with_transfers(bare, slowest([transfers])) for transfers in likely), key=time_ps)
    return known if known_ps <= _MATTERING * time_ps(latest) else latest


def result_of(
    request: PlanningRequest, planned: PlannedRequest, *, encode: Callable[[PlannerMessage], bytes]
) -> PlanResult:
    """The answer to a request, once it is planned. ``encode`` as of ``build_plan``."""
    tables = plan_tables(planned.frontier, revision=request.revision, base_revision=request.base_revision)
    return PlanResult(
        request_id=request.request_id,
        revision=request.revision,
        summary=planned.summary,
        tables=tuple(encode(table) for table in tables),
        frontier_npz=planned.frontier_npz,
        profile_csv=planned.profile_csv,
        is_first=planned.is_first,
    )


def summarize(frontier: Frontier, *, knows_slow_ranks: bool = True) -> FrontierSummary:
    """The summary of a frontier that the planner's own process keeps.

    Args:
        frontier: As planned.
        knows_slow_ranks: Whether to find out how long an iteration takes with one rank that is slow.
    """
    problem, baseline = frontier.problem, frontier.baseline
    durations_ps = baseline.end_ps - baseline.start_ps
    kinds = np.array([instruction.kind for instruction in problem.dag.instructions])
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
        tail_ps=int(baseline.time_ps - baseline.end_ps[np.isin(kinds, list(Kind))].max()),
    )


def _with_slow_ranks_ps(problem: PlanningProblem) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(
            replay_all_max(with_slow_ranks(problem, [SlowRank(pp_rank=pp_rank, factor=factor)])).time_ps
            for factor in SLOW_FACTORS
        )
        for pp_rank in range(len(problem.blocking_uw))
    )
