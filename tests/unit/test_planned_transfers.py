"""Which measured transfers are planned with: no pipeline is late under a plan because of the others."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_requests import request

from perseus_dist.messages.from_agent import Sample
from perseus_dist.planner.job.measured_transfers import Snapshot, Transfers, slowest
from perseus_dist.planner.worker.frontier_build import PlannedRequest, planned_request
from perseus_dist.planner.worker.measured_profile import profile_of_request, with_transfers
from perseus_dist.planner.worker.plan_request import Contribution, PlanningRequest
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    Schedule,
    format_schedule,
    gpipe,
    interleaved,
    joint_exchanges,
    one_f_one_b,
)
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.units import UW_PER_W, ps_from_s

# Of an iteration, that plans may be late by: for transfers that they do not know; for others, where those of all
# pipelines are planned with together, and where several cases are.
UNKNOWN, KNOWN = 0.005, 0.001 + 0.0005
SCHEDULES = {
    "1f1b": one_f_one_b(pp=4, microbatches=48),
    "gpipe": replace(gpipe(pp=4, microbatches=48), exchange=Exchange.DEFERRED),
    "deferred": replace(one_f_one_b(pp=4, microbatches=48), exchange=Exchange.DEFERRED),
    "joint": joint_exchanges(interleaved(pp=4, microbatches=48, chunks=2)),
    "overlapped": replace(interleaved(pp=4, microbatches=48, chunks=2), exchange=Exchange.OVERLAPPED_BACKWARDS),
    "posted": replace(interleaved(pp=4, microbatches=48, chunks=2), exchange=Exchange.POSTED),
    "interleaved": interleaved(pp=4, microbatches=48, chunks=2),
}


def request_of(schedule: Schedule, snapshots: tuple[Snapshot, ...], *, latency_s: float = 0.0) -> PlanningRequest:
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
        usual,
        schedule_text=format_schedule(schedule),
        contributions=tuple(contributions),
        snapshots=snapshots,
        switch_latency_s=latency_s,
    )


def problem_of(asked: PlanningRequest, transfers: Transfers) -> PlanningProblem:
    schedule = parse_schedule(asked.schedule_text)
    profile = with_transfers(profile_of_request(schedule, asked), slowest([transfers]))
    return make_problem(schedule, profile, blocking_uw_of_rank=[80 * UW_PER_W] * schedule.num_ranks)


def lateness(asked: PlanningRequest, planned: PlannedRequest, snapshot: Snapshot, slowdown: float = 1.0) -> list[float]:
    """Of each pipeline under the plan for a slowdown, over the slowest at full clocks: share of an iteration."""
    frontier = planned.frontier
    plan = frontier.clock_indices[frontier.point_for_deadline(round(slowdown * planned.summary.baseline_time_ps))]
    num_scheduled = frontier.problem.dag.num_scheduled
    problems = [problem_of(asked, transfers) for transfers in snapshot]
    full_ps = max(replay_all_max(problem).time_ps for problem in problems)
    found = []
    for problem in problems:
        clocks = np.zeros(problem.num_instructions, dtype=np.int32)
        clocks[:num_scheduled] = plan[:num_scheduled]
        latency_ps = int(ps_from_s(asked.switch_latency_s))
        found.append(replay(problem, clocks, switch_latency_ps=latency_ps).time_ps / full_ps - 1)
    return found


def slow_link(link: int, transfer_s: float) -> Transfers:
    return ((link, "SEND_F", transfer_s), (link + 1, "SEND_B", transfer_s))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("transfer_ms", [0.2, 1, 3, 6])
def test_transfers_that_full_clocks_hide_make_no_plan_late(name: str, transfer_ms: float) -> None:
    """On a link away from the heaviest stage: 6 ms took 0.1 % at full clocks, and 4 % under a plan without them."""
    snapshot = (slow_link(0, transfer_ms / 1e3),)
    asked = request_of(SCHEDULES[name], (snapshot,))
    planned = planned_request(asked, quick=True)
    assert max(lateness(asked, planned, snapshot)) <= UNKNOWN
    assert planned.frontier.total_uj[-1] < 0.99 * planned.frontier.baseline.total_uj


def test_transfers_that_matter_to_no_plan_are_no_nodes_to_plan() -> None:
    asked = request_of(SCHEDULES["1f1b"], ((slow_link(0, 1e-4),),))
    assert planned_request(asked, quick=True).frontier.problem.num_instructions == 4 * 96


def test_measured_spreads_of_transfers_are_in_the_profile_and_widen_the_interval() -> None:
    asked = request_of(SCHEDULES["1f1b"], ((slow_link(0, 0.006) + slow_link(1, 0.006),),))
    spreads = ((0, "SEND_F", 0.012), (1, "SEND_B", 0.012))
    planned, spread = (planned_request(replace(asked, transfer_spreads=one), quick=True) for one in ((), spreads))
    assert b"time_p90" not in planned.profile_csv
    rows = list(csv.DictReader(io.StringIO(spread.profile_csv.decode())))
    p90_s = {row["stage"] + row["instruction"]: float(row["time_p90"]) for row in rows if row["time_p90"]}
    assert p90_s == {"0send_f": pytest.approx(0.018), "1send_b": pytest.approx(0.018)}
    at_t_min = planned.frontier.point_for_deadline(planned.summary.baseline_time_ps)
    widths = [one.summary.saving_high[at_t_min] - one.summary.saving_low[at_t_min] for one in (planned, spread)]
    assert widths[1] > widths[0]
    assert spread.frontier.time_ps.tolist() == planned.frontier.time_ps.tolist()  # plans are the same


def test_a_saved_profile_keeps_how_its_transfers_spread() -> None:
    asked = request_of(SCHEDULES["1f1b"], ())
    kept = Sample(
        chunk=0,
        kind="SEND_F",
        clock_mhz=0,
        time_s=0.006,
        energy_j=0.0,
        time_std_s=0.0,
        energy_std_j=0.0,
        num_runs=1,
        window_s=0.0,
        stage=1,
        time_p90_s=0.018,
    )
    first, *others = asked.contributions
    first = replace(first, samples=(*first.samples, kept))
    planned = planned_request(replace(asked, contributions=(first, *others)), quick=True)
    assert b"1,send_f,0,0.006,0.0,1,0.0,0.0,,0.018" in planned.profile_csv


def saving(planned: PlannedRequest, slowdown: float) -> float:
    frontier = planned.frontier
    point = frontier.point_for_deadline(round(slowdown * planned.summary.baseline_time_ps))
    return float(1 - frontier.total_uj[point] / frontier.baseline.total_uj)


@pytest.mark.parametrize(
    ("num_pipelines", "latency_s"),
    [(6, 0.006), (11, 0.0), *(pytest.param(*one, marks=pytest.mark.stress) for one in ((6, 0.0), (11, 0.006)))],
)
def test_pipelines_each_with_slow_links_of_its_own(num_pipelines: int, latency_s: float) -> None:
    """Of six, two were left out without a word, and 4.8 % later than the slowest at full clocks."""
    pairs = [(link,) for link in range(6)] + [(link, link + 2) for link in range(5)]
    drawn = [[one for link in links for one in slow_link(link, 0.02 / len(links))] for links in pairs[:num_pipelines]]
    snapshot = tuple(map(tuple, drawn))
    asked = request_of(one_f_one_b(pp=8, microbatches=12), (snapshot,), latency_s=latency_s)
    planned = planned_request(asked, quick=True)
    assert max(lateness(asked, planned, snapshot)) <= KNOWN
    assert saving(planned, 1.0) > 0.01


@pytest.mark.stress
def test_pipelines_each_with_a_slow_link_of_its_own_under_plans_by_phase() -> None:
    """Those that get no frontier leave nothing to save at no slowdown; beyond, plans count with their time there."""
    snapshot = tuple(slow_link(link, 0.02) for link in range(5))
    asked = request_of(one_f_one_b(pp=6, microbatches=3), (snapshot,))
    planned = planned_request(replace(asked, granularity=Granularity.PHASE), quick=True)
    assert max(lateness(asked, planned, snapshot)) <= KNOWN
    assert max(lateness(asked, planned, snapshot, slowdown=1.3)) <= 0.3 + KNOWN
    assert saving(planned, 1.3) > 0.05


PIPELINE = st.dictionaries(
    st.tuples(st.integers(0, 4), st.sampled_from("FB")), st.sampled_from((0.0, 0.001, 0.005, 0.02, 0.05)), max_size=4
)


def transfers_of(drawn: dict[tuple[int, str], float]) -> Transfers:
    return tuple((link + (way == "B"), f"SEND_{way}", transfer_s) for (link, way), transfer_s in drawn.items())


@pytest.mark.parametrize("num_examples", [5, pytest.param(25, marks=pytest.mark.soak)])
def test_no_pipeline_is_later_than_the_slowest_at_full_clocks(num_examples: int) -> None:
    @settings(max_examples=num_examples)
    @given(
        snapshots=st.lists(st.lists(PIPELINE, min_size=1, max_size=12), min_size=1, max_size=2),
        exchange=st.sampled_from((Exchange.BATCHED, Exchange.SERIAL)),
        latency_s=st.sampled_from((0.0, 0.006)),
    )
    def holds(snapshots: list[list[dict[tuple[int, str], float]]], exchange: Exchange, latency_s: float) -> None:
        schedule = replace(one_f_one_b(pp=6, microbatches=8), exchange=exchange)
        measured = tuple(tuple(map(transfers_of, snapshot)) for snapshot in snapshots)
        asked = request_of(schedule, measured, latency_s=latency_s)
        planned = planned_request(asked, quick=True)
        for snapshot in measured:
            assert max(lateness(asked, planned, snapshot)) <= KNOWN

    holds()
