"""Pipelines with a rank that cannot be as fast as its likes, against values worked out by hand."""

import numpy as np
import pytest

from perseus_dist.planner.worker.frontier_build import summarize
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.frontier.slow_rank import SlowRank, slowed, with_slow_ranks
from perseus_dist.planning.profile.cost_curve import CostCurve, curve_of_choices
from perseus_dist.planning.profile.profile import Measurements, Profile
from perseus_dist.planning.schedule.schedule_text import parse_schedule

MS = 10**9  # picoseconds
SCHEDULE = parse_schedule("0F0 0F1 0B0 0B1 0STEP\n1LOAD0 1F0 1B0 1LOAD1 1F1 1B1 1STEP")


def curve() -> CostCurve:
    """1000, 800 and 500 MHz: 10, 12 and 20 ms; 9, 6 and 5 mJ."""
    return curve_of_choices(
        stage=1,
        kind="F",
        clocks_mhz=np.array([1000, 800, 500]),
        durations_ps=np.array([10, 12, 20]) * MS,
        energies_uj=np.array([9000, 6000, 5000]),
        blocking_uw=100_000,
    )


def problem() -> PlanningProblem:
    def measured(*times_s: float) -> Measurements:
        times = np.array([times_s])
        return Measurements(
            clocks_mhz=np.array([1000, 800, 500][: len(times_s)]),
            gpus=("",),
            times_s=times,
            energies_j=0.3 / (1 + 100 * times),
            num_samples=np.ones_like(times),
            time_std_s=np.full_like(times, np.nan),
            energy_std_j=np.full_like(times, np.nan),
        )

    of_kind = {"F": measured(0.01, 0.012, 0.02), "B": measured(0.02, 0.024, 0.04)}
    constants = {"LOAD": measured(0.001), "STEP": measured(0.005)}
    wanted = {(i.stage, i.kind) for order in SCHEDULE.ranks for i in order}
    profile = Profile(source="made up", measurements={key: (of_kind | constants)[key[1]] for key in sorted(wanted)})
    return make_problem(SCHEDULE, profile, blocking_uw_of_rank=[1_000_000, 1_000_000])


@pytest.mark.parametrize(
    ("cap_mhz", "time_ms", "energy_uj"),
    [
        (1200, 10, 9000),  # no cap at all
        (1000, 10, 9000),
        (900, 11, 7500),  # half way between two clocks
        (800, 12, 6000),
        (600, 17.3333, 5333),
        (500, 20, 5000),
        (250, 40, 10000),  # half of the lowest clock: twice as long, at the same power
    ],
)
def test_a_capped_computation_takes_what_the_profile_says_at_the_cap(
    cap_mhz: int, time_ms: float, energy_uj: int
) -> None:
    capped = slowed(curve(), SlowRank(pp_rank=1, cap_mhz=cap_mhz), blocking_uw=100_000)
    assert capped.clocks_mhz.tolist() == [1000], "what is asked for, so that the end of the cap is seen"
    assert capped.durations_ps[0] / MS == pytest.approx(time_ms, abs=1e-3)
    assert capped.energies_uj.tolist() == [energy_uj]
    assert capped.effective_uj[0] == pytest.approx(energy_uj - 100 * time_ms, abs=1)
    assert (capped.stage, capped.kind) == (1, "F")


@pytest.mark.parametrize("cap_mhz", [1350, 1200, 900, 600])
def test_below_the_lowest_clock_time_goes_on_as_it_did_above(cap_mhz: int) -> None:
    """A part that no clock changes, 4 of 10 ms: in proportion to the clock it would take 1 to 40 % more."""
    clocks_mhz = np.arange(1980, 1439, -60)
    ms = 4 + 6 * 1980 / clocks_mhz
    whole = curve_of_choices(
        stage=0,
        kind="F",
        clocks_mhz=clocks_mhz,
        durations_ps=np.rint(ms * MS).astype(np.int64),
        energies_uj=np.linspace(9000, 5000, len(ms)).astype(np.int64),
        blocking_uw=100_000,
    )
    capped = slowed(whole, SlowRank(pp_rank=0, cap_mhz=cap_mhz), blocking_uw=100_000)
    assert capped.durations_ps[0] / MS == pytest.approx(4 + 6 * 1980 / cap_mhz, rel=1e-6)


@pytest.mark.parametrize(("factor", "time_ms"), [(1.1, 11.0), (1.4, 12.0)])
def test_what_was_measured_bounds_what_a_power_cap_costs(factor: float, time_ms: float) -> None:
    """A power cap lets some computations run faster than the clock that was read."""
    capped = slowed(curve(), SlowRank(pp_rank=1, cap_mhz=800, factor=factor), blocking_uw=100_000)
    assert capped.durations_ps[0] / MS == pytest.approx(time_ms, abs=1e-3)


def test_a_slow_computation_keeps_its_clocks_and_its_power() -> None:
    slow = slowed(curve(), SlowRank(pp_rank=1, factor=1.5), blocking_uw=100_000)
    assert slow.clocks_mhz.tolist() == [1000, 800, 500]
    assert (slow.durations_ps // MS).tolist() == [15, 18, 30]
    assert slow.energies_uj.tolist() == [13500, 9000, 7500]
    assert slow.effective_uj.tolist() == [12000, 7200, 4500]


def test_only_the_computations_of_slow_ranks_are_slower() -> None:
    usual = problem()
    slow = with_slow_ranks(usual, [SlowRank(pp_rank=1, factor=2.0)])
    for before, after in zip(usual.curves, slow.curves, strict=True):
        scale = 2 if before.stage == 1 and before.kind in "FB" else 1
        assert (after.durations_ps == scale * before.durations_ps).all()
    # 0F0, then stage 1 runs LOAD 1F0 1B0 LOAD 1F1 1B1, computations at twice the time, then 0B1 and the step.
    assert replay_all_max(usual).time_ps == (10 + 1 + 30 + 1 + 30 + 20 + 5) * MS
    assert replay_all_max(slow).time_ps == (10 + 1 + 60 + 1 + 60 + 20 + 5) * MS
    both = with_slow_ranks(usual, [SlowRank(pp_rank=1, factor=2.0), SlowRank(pp_rank=0, cap_mhz=500)])
    assert replay_all_max(both).time_ps == (20 + 1 + 60 + 1 + 60 + 40 + 5) * MS


def test_the_other_ranks_of_the_pipeline_save_what_the_slow_one_leaves_them() -> None:
    slow = with_slow_ranks(problem(), [SlowRank(pp_rank=1, cap_mhz=500)])
    frontier = plan_frontier(slow)
    point = frontier.point_for_deadline(frontier.baseline.time_ps)
    assert frontier.time_ps[point] <= frontier.baseline.time_ps
    assert frontier.total_uj[point] < frontier.baseline.total_uj
    clocks_mhz = slow.clocks_mhz(frontier.clock_indices[point])
    of_slow = [clocks_mhz[n] for n, i in enumerate(slow.dag.instructions) if i.stage == 1 and not i.is_constant]
    of_other = [clocks_mhz[n] for n, i in enumerate(slow.dag.instructions) if i.stage == 0 and not i.is_constant]
    assert set(of_slow) == {1000}
    assert min(of_other) < 1000


def test_a_summary_knows_what_slow_ranks_and_what_follows_the_last_computation_cost() -> None:
    summary = summarize(plan_frontier(problem()))
    assert summary.tail_ps == 5 * MS
    assert summary.kind_shares == pytest.approx((1 / 3, 2 / 3, 0, 0, 0))
    assert summary.baseline_time_ps == 97 * MS
    assert [round(time_ps / MS) for time_ps in summary.slow_rank_ps[1]] == [97, 103, 112, 127, 157]
    for degree, least_ms in ((1.0, 97), (1.2, 109), (1.6, 133), (3.0, 217)):  # 60 ms of stage 1 are on the longest path
        assert summary.pipeline_degree(1, degree) == pytest.approx((least_ms - 5) / (97 - 5))
    for degree in np.linspace(1, 3, 41).tolist():
        slow = with_slow_ranks(problem(), [SlowRank(pp_rank=0, factor=degree)])
        exact = (replay_all_max(slow).time_ps - 5 * MS) / (92 * MS)
        assert exact - 0.1 < summary.pipeline_degree(0, degree) <= exact + 1e-9
    own = summarize(plan_frontier(problem()), knows_slow_ranks=False)
    assert own.pipeline_degree(0, 1.3) == 1.3
