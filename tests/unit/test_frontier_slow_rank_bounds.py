"""Slow ranks, and iterations that follow one another, at the limits of each rule and worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from small_pipelines import MS, Points, small_curve, small_problem

from perseus_dist.planning.frontier.following_on import following_on
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.frontier.slow_rank import SlowRank, slowed, with_slow_ranks
from perseus_dist.planning.profile.cost_curve import CostCurve

THREE: Points = {1000: (10, 9000), 800: (12, 6000), 500: (16, 5000)}


def capped_ms(points: Points, cap_mhz: int) -> float:
    """What a forward takes at a cap."""
    capped = slowed(small_curve(0, "F", points), SlowRank(pp_rank=0, cap_mhz=cap_mhz), blocking_uw=0)
    return float(capped.durations_ps[0] / MS)


@pytest.mark.parametrize(
    ("cap_mhz", "time_ms"),
    [
        (499, 16 + 4 / 0.75e-3 * (1 / 499 - 1 / 500)),  # as from 800 MHz to 500: 4 ms for 0.75 of a thousandth
        (450, 16 + 4 / 0.75e-3 * (1 / 450 - 1 / 500)),
        (300, 16 + 6 / 1e-3 * (1 / 300 - 1 / 500)),  # as from 1000 MHz, which is nearer to as far above
        (100, 16 + 6 / 1e-3 * (1 / 100 - 1 / 500)),
    ],
)
def test_below_the_lowest_clock_time_grows_as_above_it_as_far(cap_mhz: int, time_ms: float) -> None:
    assert capped_ms(THREE, cap_mhz) == pytest.approx(time_ms, rel=1e-8)


def test_below_the_lowest_clock_time_grows_no_faster_than_clocks_fall() -> None:
    """From 800 MHz to 500 it doubled, of which the clock explains 8 in 5: 1.1 times 22 ms at 10 / 11 of the clock."""
    assert capped_ms({1000: (10, 9000), 800: (11, 6000), 500: (22, 5000)}, 250) == pytest.approx(44)
    assert capped_ms({1000: (10, 9000), 800: (11, 6000), 500: (22, 5000)}, 450) == pytest.approx(22 * 500 / 450)


def test_below_a_lowest_clock_that_is_no_slower_time_stays() -> None:
    assert capped_ms({1000: (10, 9000), 500: (9, 5000)}, 400) == 9


def test_of_a_computation_with_one_clock_time_grows_as_the_clock_falls() -> None:
    assert [capped_ms({1000: (10, 9000)}, cap_mhz) for cap_mhz in (1200, 1000, 500)] == [10, 10, 20]


def test_energy_below_the_lowest_clock_is_drawn_at_the_same_power() -> None:
    for cap_mhz, energy_uj in ((1000, 9000), (900, 7500), (650, 5500), (500, 5000), (400, 6250), (250, 10_000)):
        capped = slowed(small_curve(0, "F", THREE), SlowRank(pp_rank=0, cap_mhz=cap_mhz), blocking_uw=0)
        assert capped.energies_uj.tolist() == [energy_uj]


@pytest.mark.parametrize(("factor", "time_ms"), [(0.0, 12), (1.19, 11.9), (1.2, 12), (1.21, 12)])
def test_what_was_measured_is_the_most_that_a_cap_costs(factor: float, time_ms: float) -> None:
    slow = SlowRank(pp_rank=0, cap_mhz=800, factor=factor)
    assert slowed(small_curve(0, "F", THREE), slow, blocking_uw=0).durations_ps.tolist() == [time_ms * MS]


def known() -> CostCurve:
    """With all that a profile can say of a curve."""
    curve = small_curve(0, "F", THREE, time_errors=(0.01, 0.02, 0.03), spread=0.04)
    return replace(curve, latencies_ps=np.array([1, 2, 3]), latencies_p90_ps=np.array([4, 5, 6]))


@pytest.mark.parametrize(
    ("slow", "num_clocks"), [(SlowRank(pp_rank=0, cap_mhz=600), 1), (SlowRank(pp_rank=0, factor=2), 3)]
)
def test_what_is_known_of_the_clocks_that_remain_is_kept(slow: SlowRank, num_clocks: int) -> None:
    found = slowed(known(), slow, blocking_uw=0)
    assert found.latencies_ps is not None
    assert found.latencies_p90_ps is not None
    assert found.doubt is not None
    assert len(found.clocks_mhz) == num_clocks
    assert found.latencies_ps.tolist() == [1, 2, 3][:num_clocks]
    assert found.latencies_p90_ps.tolist() == [4, 5, 6][:num_clocks]
    assert found.doubt.time_share.tolist() == [0.01, 0.02, 0.03][:num_clocks]
    assert found.spread == 0.04


def test_what_is_not_known_stays_so() -> None:
    found = slowed(small_curve(0, "F", THREE), SlowRank(pp_rank=0, factor=2), blocking_uw=0)
    assert (found.latencies_ps, found.latencies_p90_ps, found.doubt, found.spread) == (None, None, None, 0.0)


def test_effective_energy_of_a_slow_rank_is_without_what_its_gpus_draw_waiting() -> None:
    curves = [small_curve(stage, kind, THREE, blocking_uw=100_000) for stage in (0, 1) for kind in "FB"]
    of = small_problem("0F0 0B0\n1F0 1B0", curves, blocking_uw=100_000)
    slow = with_slow_ranks(of, [SlowRank(pp_rank=1, factor=2.0)])
    assert [curve.effective_uj[0] for curve in slow.curves] == [8000, 8000, 16_000, 16_000]
    assert replay_all_max(slow).time_ps == 60 * MS
    assert with_slow_ranks(of, []).curves == of.curves


ZBV = "0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1\n1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1"


def lengths(problem: PlanningProblem, kind: str) -> dict[int, float]:
    """[ms] of the constants of a kind, by stage."""
    return {curve.stage: float(curve.durations_ps[0] / MS) for curve in problem.curves if curve.kind == kind}


def zbv(blocking_uw: int = 0) -> PlanningProblem:
    """Two ranks of two stages: the first holds the first stage and the last, and the second works between."""
    curves = [
        small_curve(stage, kind, {1000: (10, 9000)}, blocking_uw=blocking_uw) for stage in range(4) for kind in "FB"
    ]
    return small_problem(ZBV, curves, blocking_uw=blocking_uw)


def test_a_rank_that_begins_later_and_ends_earlier_changes_nothing() -> None:
    of = zbv()
    assert following_on(of) == (of, 0)


def backwards_first(first_ms: float = 10) -> PlanningProblem:
    """Stage 1 stands on the first rank, so that rank 0 begins 10 ms later than rank 1 and ends 10 ms earlier."""
    curves = [
        small_curve(0, kind, {1000: (first_ms, 9000), 500: (2 * first_ms, 5000)}, blocking_uw=100_000) for kind in "FB"
    ]
    curves += [small_curve(1, kind, {1000: (10, 9000)}, blocking_uw=100_000) for kind in "FB"]
    return small_problem("1F0 1B0\n0F0 0B0", curves, blocking_uw=100_000)


def test_one_microbatch_fills_every_iteration() -> None:
    """40 ms, and the next begins when the last instruction has ended."""
    of = backwards_first()
    assert following_on(of) == (of, 0)


TORCH_ZBV = (
    "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3\n"
    "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3\n"
)


def between() -> tuple[PlanningProblem, PlanningProblem, int]:
    """Of 1 ms each: the second rank begins 1 ms later, and ends later by some of that."""
    curves = [small_curve(stage, kind, {1000: (1, 900)}, blocking_uw=100_000) for stage in range(4) for kind in "FIW"]
    of = small_problem(TORCH_ZBV, curves, blocking_uw=100_000)
    return (of, *following_on(of))


def test_the_rank_that_ends_last_begins_as_much_later_and_the_first_has_as_long_behind() -> None:
    of, after, overlap_ps = between()
    assert overlap_ps > 0
    alone_ps = replay_all_max(of).time_ps
    period_ps = replay_all_max(after).time_ps - overlap_ps
    assert period_ps < alone_ps
    lead, lag = lengths(after, "lead"), lengths(after, "lag")
    assert set(lead.values()) == set(lag.values()) == {overlap_ps / MS}
    assert len(lead) == len(lag) == 1
    assert {*lead, *lag} == {0, 1}, "by the first stage of each rank"


def test_the_waiting_is_no_work_and_changes_no_clock() -> None:
    of, after, overlap_ps = between()
    assert after.num_instructions == of.num_instructions + 2
    for curve in after.curves[len(of.curves) :]:
        assert curve.clocks_mhz.tolist() == [0]
        assert curve.energies_uj.tolist() == [round(0.1 * overlap_ps / MS * 1000)]
        assert curve.effective_uj.tolist() == [0]
    assert after.dag.num_scheduled == of.dag.num_scheduled
    assert len(after.dag.previous_on_rank) == after.num_instructions
    assert (after.dag.previous_on_rank[-2:] < 0).all()


def test_each_rank_has_its_constant_before_the_first_and_behind_the_last_of_its_instructions() -> None:
    of, after, overlap_ps = between()
    played = replay_all_max(after)
    names = [str(one) for one in after.dag.instructions]
    num_scheduled = of.dag.num_scheduled
    late = after.dag.pp_rank[num_scheduled:].tolist()
    kinds = [after.dag.instructions[at].kind for at in range(num_scheduled, len(names))]
    by_kind = dict(zip(kinds, late, strict=True))
    of_lead = np.flatnonzero(after.dag.pp_rank[:num_scheduled] == by_kind["lead"])
    of_lag = np.flatnonzero(after.dag.pp_rank[:num_scheduled] == by_kind["lag"])
    assert played.start_ps[num_scheduled + kinds.index("lead")] == 0
    assert played.start_ps[of_lead].min() >= overlap_ps
    assert played.start_ps[num_scheduled + kinds.index("lag")] == played.end_ps[of_lag].max()
    assert played.end_ps[of_lead].max() - played.end_ps[of_lag].max() == overlap_ps, "as it began"
