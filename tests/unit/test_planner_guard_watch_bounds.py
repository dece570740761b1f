"""The guard of a job at its limits: which ranks are slow, which iterations count, how long a hold lasts."""

import math
from collections.abc import Mapping, Sequence

import pytest

from perseus_dist.messages.from_agent import IterationReport, KindTime
from perseus_dist.messages.job_status import GuardFigures
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.guard import Waiting
from perseus_dist.planner.job.guard_watch import GuardWatch

A_LITTLE = 1e-6
STEP = 0.02  # by which noisy iterations differ, each from the one before
NOISE = 1.4826 * STEP / math.sqrt(2)


def tell(
    watch: GuardWatch,
    iteration: int,
    *ratios: float | Mapping[str, float],
    time_s: float = 1.0,
    point: int = 0,
    num_attached: int = 0,
    held_slow: int = -1,
) -> bool:
    """Ranks 0, 1, ... tell of an iteration, and what their instructions took over the profile's; 0 for unknown."""
    is_known = False
    for rank, ratio in enumerate(ratios):
        by_kind = ratio if isinstance(ratio, Mapping) else {"F": ratio} if ratio else {}
        one = IterationReport(
            iteration=iteration,
            time_s=time_s,
            pipeline_time_s=time_s,
            energy_j=1.0,
            table_revision=1,
            point=point,
            kind_times=tuple(
                KindTime(kind=kind, time_ratio=of_kind, requested_mhz=1000) for kind, of_kind in by_kind.items()
            ),
        )
        is_known |= watch.observe(
            rank,
            rank,
            one,
            is_planned=point == 0,
            num_attached=num_attached or len(ratios),
            is_held_slow=rank == held_slow,
            allowed=float,
        )
    return is_known


def begun(*, is_noisy: bool = False, num: int = 20, num_ranks: int = 2) -> GuardWatch:
    """Iterations at full clocks, with little or much noise, and then a plan from the next one on."""
    watch = GuardWatch()
    for iteration in range(num):
        tell(watch, iteration, *[0.0] * num_ranks, time_s=math.exp(STEP * (iteration % 2 * is_noisy)), point=NO_POINT)
    assert watch.guard.noise == pytest.approx(NOISE if is_noisy else 1e-4)
    watch.begin_plan(num, range(num_ranks))
    return watch


def planned(*ratios: float, is_noisy: bool = False, num: int = 3) -> GuardWatch:
    """The same, and as many iterations under the plan, in which ranks take what is given over the profile."""
    watch = begun(is_noisy=is_noisy, num_ranks=len(ratios))
    for iteration in range(20, 20 + num):
        tell(watch, iteration, *ratios, time_s=math.exp(STEP * (iteration % 2 * is_noisy)))
    return watch


def probed(watch: GuardWatch, first: int, *of_iterations: Sequence[float | Mapping[str, float]]) -> None:
    """A probe that begins there: what ranks take in its iterations."""
    for iteration, ratios in zip(watch.guard.order_probe(first), of_iterations, strict=False):
        tell(watch, iteration, *ratios, point=NO_POINT)


def test_operators_see_nothing_before_anything_is_known() -> None:
    assert GuardWatch().figures == GuardFigures(reference_s=0.0, lost_s=0.0, probes=0, falls=0)
    assert GuardWatch().instruction_excess == 0.0
    assert GuardWatch().is_off_profile is None
    assert not GuardWatch().is_slower_than_profile


def test_a_usual_ranks_excess_is_the_median_of_ranks_and_of_their_newest_three() -> None:
    assert planned(1.1, 1.2, 1.6).instruction_excess == pytest.approx(0.2)
    watch = begun(num_ranks=1)
    for iteration, ratio in enumerate((1.5, 1.4, 1.1, 1.2, 1.0), 20):
        tell(watch, iteration, ratio)
    assert watch.instruction_excess == pytest.approx(0.1)


@pytest.mark.parametrize(("is_noisy", "doubt"), [(False, 0.01), (True, 4 * NOISE)])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("share", [0.99, 1.01])
def test_a_profile_is_off_where_a_rank_takes_more_or_less_by_a_hundredth_or_noise(
    is_noisy: bool,  # noqa: FBT001
    doubt: float,
    sign: int,
    share: float,
) -> None:
    watch = planned(1.0, 1.0 + sign * share * doubt, is_noisy=is_noisy)
    assert watch.is_off_profile == (share > 1)
    assert watch.is_slower_than_profile == (share > 1 and sign > 0)


@pytest.mark.parametrize(("is_noisy", "clear"), [(False, 0.005), (True, 4 * NOISE)])
@pytest.mark.parametrize("usual", [0.9, 1.0, 1.2])
@pytest.mark.parametrize("share", [0.99, 1.01])
def test_a_rank_is_slower_than_usual_ones_by_a_two_hundredth_or_noise(
    is_noisy: bool,  # noqa: FBT001
    clear: float,
    usual: float,
    share: float,
) -> None:
    """No rank is slow that takes what the profile says, however fast others are."""
    excess = share * clear
    watch = planned(usual, usual, max(1.0, usual) * (1 + excess), is_noisy=is_noisy)
    assert watch.slower == ({2: pytest.approx(excess)} if share > 1 else {})


def test_a_ranks_ratios_are_known_from_five_iterations_on() -> None:
    watch = planned(1.0, 1.1, num=4)
    assert watch.time_ratios(1) is None
    assert watch.time_ratios(7) is None
    tell(watch, 24, 1.0, 1.3)
    assert watch.time_ratios(1) == (1.1, 1.1, 1.3)
    for iteration in range(25, 30):
        tell(watch, iteration, 1.0, 1.2)
    assert watch.time_ratios(1) == (1.2, 1.2, 1.2)


@pytest.mark.parametrize(
    ("at_full", "most"), [(1.0, 1.0), (1 + A_LITTLE, 1 + A_LITTLE), (1.02 - A_LITTLE, 1.02 - A_LITTLE), (1.02, 1.0)]
)
def test_what_a_probe_found_is_the_most_up_to_a_fiftieth_more(at_full: float, most: float) -> None:
    watch = begun()
    probed(watch, 20, [0.0, 0.0], [0.0, 0.0], [1.0, at_full])
    for iteration in range(23, 28):
        tell(watch, iteration, 1.0, 1.0)
    assert watch.time_ratios(1) == (1.0, 1.0, most)


def test_a_rank_that_no_probe_has_timed_takes_what_it_does_under_plans() -> None:
    assert planned(1.0, 0.99, num=5).time_ratios(1) == (0.99, 0.99, 0.99)


def test_a_ranks_ratio_is_the_mean_of_its_kinds() -> None:
    watch = begun()
    for iteration in range(20, 25):
        tell(watch, iteration, 1.0, {"F": 1.0, "B": 1.5})
    assert watch.time_ratios(1) == (1.25, 1.25, 1.25)


@pytest.mark.parametrize(("is_noisy", "doubt"), [(False, 0.01), (True, 4 * NOISE)])
@pytest.mark.parametrize("share", [0.99, 1.01])
def test_a_rank_that_is_held_slow_and_is_near_its_profile_is_suspicious(
    is_noisy: bool,  # noqa: FBT001
    doubt: float,
    share: float,
) -> None:
    for num in (2, 3):
        watch = begun(is_noisy=is_noisy)
        for iteration in range(20, 20 + num):
            tell(watch, iteration, 1.0, 1 + share * doubt, held_slow=1, time_s=math.exp(STEP * (iteration % 2)))
        said = watch.guard.wanted_probe(24, Waiting.SEEN)
        expected = "rank 1 is held to be slow and takes what the profile says" if share < 1 and num == 3 else ""
        assert (said if num == 3 else watch.guard._suspicion) == expected


@pytest.mark.parametrize(("is_noisy", "less"), [(False, 0.02), (True, 4 * NOISE)])
@pytest.mark.parametrize("share", [0.99, 1.01])
def test_a_rank_that_has_become_faster_is_suspicious_by_a_fiftieth_or_noise(
    is_noisy: bool,  # noqa: FBT001
    less: float,
    share: float,
) -> None:
    watch = planned(1.0, 1.5, is_noisy=is_noisy)
    for iteration in (23, 24):
        assert not watch.guard.wanted_probe(40, Waiting.SEEN)
        tell(watch, iteration, 1.0, 1.5 * (1 - share * less), time_s=math.exp(STEP * (iteration % 2 * is_noisy)))
    said = watch.guard.wanted_probe(40, Waiting.SEEN)
    assert said == (f"rank 1 is faster than it was by {100 * share * less:.1f} %" if share > 1 else "")


def test_what_is_just_at_a_limit_is_not_beyond_it() -> None:
    watch = begun()
    for iteration in range(20, 23):
        tell(watch, iteration, 1.0, 1.01, held_slow=1)
    assert not watch.guard.wanted_probe(40, Waiting.SEEN), "slower than the profile says by a hundredth"
    for iteration in range(23, 26):
        tell(watch, iteration, 0.98, 1.01)
    assert not watch.guard.wanted_probe(40, Waiting.SEEN), "faster than before by a fiftieth"
    least = 0.02 + 3 * watch.guard.noise
    for first in (26, 29):
        probed(watch, first, [0.0, 0.0], [1 - least, 1 + least], [1 - least, 1 + least])
    assert not watch.misstated


def test_a_rank_that_has_become_faster_is_compared_with_that_from_then_on() -> None:
    watch = planned(1.0, 1.5)
    for iteration in (23, 24):
        tell(watch, iteration, 1.0, 1.2)
    watch.guard._suspicion = ""  # as if it had been looked at
    for iteration in range(25, 30):
        tell(watch, iteration, 1.0, 1.21)
    assert not watch.guard.wanted_probe(40, Waiting.SEEN)
    for iteration in (30, 31):
        tell(watch, iteration, 1.0, 1.0)
    assert watch.guard.wanted_probe(40, Waiting.SEEN) == "rank 1 is faster than it was by 16.7 %"


@pytest.mark.parametrize(("is_noisy", "doubt"), [(False, 0.02 + 3e-4), (True, 0.02 + 3 * NOISE)])
@pytest.mark.parametrize("share", [0.99, 1.01])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_profile_misstates_a_rank_by_a_fiftieth_and_noise(
    is_noisy: bool,  # noqa: FBT001
    doubt: float,
    share: float,
    sign: int,
) -> None:
    watch, ratio = begun(is_noisy=is_noisy), 1 + sign * share * doubt
    for first in (20, 23):
        watch.guard.order_probe(first)
        for iteration in (first + 1, first + 2):
            tell(watch, iteration, 1.0, ratio, point=NO_POINT)
    assert watch.misstated == ({1: pytest.approx(ratio - 1)} if share > 1 else {})


def test_a_rank_is_misstated_by_two_iterations_that_are_shorter_or_by_all_of_four_that_are_longer() -> None:
    watch = begun()
    probed(watch, 20, [1.0, 0.9])
    assert not watch.misstated, "one"
    tell(watch, 21, 1.0, 0.9, point=NO_POINT)
    assert watch.misstated == {1: pytest.approx(-0.1)}
    watch = begun()
    probed(watch, 20, [0.0, 0.0], [1.0, 1.1], [1.0, 1.0])
    probed(watch, 23, [0.0, 0.0], [1.0, 1.1], [1.0, 1.2])
    probed(watch, 26, [0.0, 0.0], [1.0, 1.1])
    assert not watch.misstated, "one of four was not"
    tell(watch, 28, 1.0, 1.3, point=NO_POINT)
    assert watch.misstated == {1: pytest.approx(0.15)}
    tell(watch, 28, 1.0, 1.0, point=NO_POINT)
    assert not watch.misstated


def test_of_several_kinds_that_are_misstated_the_one_by_most_is_told() -> None:
    watch = begun()
    probed(watch, 20, [0.0, 0.0], [1.0, {"F": 0.9, "B": 0.7, "W": 1.0}], [1.0, {"F": 0.9, "B": 0.7, "W": 1.0}])
    assert watch.misstated == {1: pytest.approx(-0.3)}
    assert not begun().misstated


def test_what_is_measured_at_full_clocks_outside_of_a_probe_misstates_nobody() -> None:
    watch = begun()
    watch.guard.order_probe(20)
    for iteration in (23, 24):
        tell(watch, iteration, 1.0, 0.9, point=NO_POINT)
    for iteration in (20, 21):
        tell(watch, iteration, 1.0, 0.9, point=5)
    assert not watch.misstated
    assert watch.has_heard_all
