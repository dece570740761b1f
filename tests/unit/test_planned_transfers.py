"""Which measured transfers are planned with: no pipeline is late under a plan because of the others."""

from dataclasses import replace

import numpy as np
import pytest
from plan_requests import request

from perseus_dist.planner.job.measured_transfers import Snapshot, Transfers, slowest
from perseus_dist.planner.worker.frontier_build import PlannedRequest, planned_request
from perseus_dist.planner.worker.measured_profile import profile_of_request, with_transfers
from perseus_dist.planner.worker.plan_request import Contribution, PlanningRequest
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    Schedule,
    format_schedule,
    interleaved,
    joint_exchanges,
    one_f_one_b,
)
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.units import UW_PER_W

UNKNOWN = 0.005  # of an iteration, that plans may be late by for transfers that they do not know
SCHEDULES = {
    "1f1b": one_f_one_b(pp=4, microbatches=48),
    "joint": joint_exchanges(interleaved(pp=4, microbatches=48, chunks=2)),
    "overlapped": replace(interleaved(pp=4, microbatches=48, chunks=2), exchange=Exchange.OVERLAPPED_BACKWARDS),
    "interleaved": interleaved(pp=4, microbatches=48, chunks=2),
}


def request_of(schedule: Schedule, snapshots: tuple[Snapshot, ...]) -> PlanningRequest:
    """The last pp_rank has more to do than the others, which therefore have time to give away."""
    pp, chunks = schedule.num_ranks, schedule.num_stages // schedule.num_ranks
    usual = request(pp=pp, microbatches=1)
    contributions = [
        Contribution(
            pp_rank=one.pp_rank,
            tp_rank=0,
            samples=tuple(
                replace(sample, chunk=chunk, time_s=sample.time_s * (1.15 if one.pp_rank == pp - 1 else 1))
                for chunk in range(chunks)
                for sample in one.samples
            ),
        )
        for one in usual.contributions
    ]
    return replace(
        usual, schedule_text=format_schedule(schedule), contributions=tuple(contributions), snapshots=snapshots
    )


def problem_of(asked: PlanningRequest, transfers: Transfers) -> PlanningProblem:
    schedule = parse_schedule(asked.schedule_text)
    profile = with_transfers(profile_of_request(schedule, asked), slowest([transfers]))
    return make_problem(schedule, profile, blocking_uw_of_rank=[80 * UW_PER_W] * schedule.num_ranks)


def lateness(asked: PlanningRequest, planned: PlannedRequest, snapshot: Snapshot) -> list[float]:
    """Of each pipeline under the plan for no slowdown, over the slowest at full clocks: share of an iteration."""
    frontier = planned.frontier
    plan = frontier.clock_indices[frontier.point_for_deadline(planned.summary.baseline_time_ps)]
    num_scheduled = frontier.problem.dag.num_scheduled
    problems = [problem_of(asked, transfers) for transfers in snapshot]
    full_ps = max(replay_all_max(problem).time_ps for problem in problems)
    found = []
    for problem in problems:
        clocks = np.zeros(problem.num_instructions, dtype=np.int32)
        clocks[:num_scheduled] = plan[:num_scheduled]
        found.append(replay(problem, clocks).time_ps / full_ps - 1)
    return found


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("transfer_ms", [0.2, 1, 3, 6])
def test_transfers_that_full_clocks_hide_make_no_plan_late(name: str, transfer_ms: float) -> None:
    """On a link away from the heaviest stage: 6 ms took 0.1 % at full clocks, and 4 % under a plan without them."""
    transfer_s = transfer_ms / 1e3
    snapshot = (((0, "SEND_F", transfer_s), (1, "SEND_B", transfer_s)),)
    asked = request_of(SCHEDULES[name], (snapshot,))
    planned = planned_request(asked, quick=True)
    assert max(lateness(asked, planned, snapshot)) <= UNKNOWN
    assert planned.frontier.total_uj[-1] < 0.99 * planned.frontier.baseline.total_uj


def test_transfers_that_matter_to_no_plan_are_no_nodes_to_plan() -> None:
    asked = request_of(SCHEDULES["1f1b"], ((((0, "SEND_F", 1e-4), (1, "SEND_B", 1e-4)),),))
    assert planned_request(asked, quick=True).frontier.problem.num_instructions == 4 * 96
