"""Steps of a profile at the limit of what noise and clocks explain."""

import math

import pytest

from perseus_dist.planning.profile.sweep_steps import ClockTime, SweepStep, largest_step

NUM_RUNS = 10**9  # of so many none is noisy


def between(
    ratio: float, *, num_runs: tuple[int, int] = (NUM_RUNS, NUM_RUNS), clock_mhz: int = 1000
) -> SweepStep | None:
    """Of one kind at two clocks, the lower of which takes so many times as long."""
    return largest_step(
        {
            (2, "forward"): [
                ClockTime(clock_mhz=1400, time_s=2.0, num_runs=num_runs[0]),
                ClockTime(clock_mhz=clock_mhz, time_s=2.0 * ratio, num_runs=num_runs[1]),
            ]
        }
    )


def least_share(*, is_longer: bool, num_runs: tuple[int, int] = (NUM_RUNS, NUM_RUNS)) -> float:
    """[log] what a time must be beyond what the clock explains, to be a step: by halving."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        ratio = 1.4 * math.exp(middle) if is_longer else math.exp(-middle)
        low, high = (low, middle) if between(ratio, num_runs=num_runs) is not None else (middle, high)
    return high


def test_what_a_clock_may_cost_is_its_ratio_and_a_lower_clock_is_no_faster() -> None:
    assert between(1.4) is None
    assert between(1.0) is None
    least = least_share(is_longer=True)
    assert 0 < least < 0.1
    assert least_share(is_longer=False) == pytest.approx(least)


def test_fewer_runs_leave_more_in_doubt_by_the_root_of_both() -> None:
    quiet = least_share(is_longer=True)
    one, four = (least_share(is_longer=True, num_runs=(num, num)) - quiet for num in (1, 4))
    assert one == pytest.approx(2 * four, rel=0.01)
    above, below = (least_share(is_longer=True, num_runs=nums) - quiet for nums in ((1, NUM_RUNS), (NUM_RUNS, 1)))
    assert above == pytest.approx(below, rel=0.01)
    assert one == pytest.approx(math.sqrt(2) * above, rel=0.01)
    assert least_share(is_longer=True, num_runs=(0, 0)) - quiet == pytest.approx(one, rel=0.01)


@pytest.mark.parametrize("beyond", [0.05, 0.2])
def test_a_step_is_told_without_what_may_be_noise(beyond: float) -> None:
    least = least_share(is_longer=True)
    longer, shorter = between(1.4 * math.exp(least + beyond)), between(math.exp(-least - beyond))
    assert longer is not None
    assert shorter is not None
    assert (longer.stage, longer.clock_mhz) == (2, 1000)
    assert (longer.share, shorter.share) == pytest.approx((beyond, -beyond), abs=1e-6)


def test_of_several_steps_the_largest_either_way_is_told_and_of_one_stage_what_all_kinds_share() -> None:
    def two_steps(first: float, second: float) -> list[ClockTime]:
        times_s = (1.0, first, first * second)
        return [
            ClockTime(clock_mhz=clock_mhz, time_s=time_s, num_runs=NUM_RUNS)
            for clock_mhz, time_s in zip((1400, 1399, 1398), times_s, strict=True)
        ]

    found = largest_step({(0, "forward"): two_steps(1.2, 0.7)})
    assert found is not None
    assert (found.clock_mhz, found.share < 0) == (1398, True)
    alone = largest_step({(0, "forward"): two_steps(1.2, 1.0)})
    both = largest_step({(0, "forward"): two_steps(1.2, 1.0), (0, "backward"): two_steps(1.4, 1.0)})
    assert alone is not None
    assert both == alone
    faster = largest_step({(0, "forward"): two_steps(0.7, 1.0), (0, "backward"): two_steps(0.8, 1.0)})
    assert faster == largest_step({(0, "forward"): two_steps(0.8, 1.0)})
    assert largest_step({(0, "forward"): two_steps(1.2, 1.0), (0, "backward"): two_steps(0.8, 1.0)}) is None
    other = largest_step({(0, "forward"): two_steps(1.0, 1.0), (1, "forward"): two_steps(1.2, 1.0)})
    assert other is not None
    assert other.stage == 1
