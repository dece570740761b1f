"""The guard at its limits: the iteration from which it looks, the time from which a plan is slow, the loss it bears.

Most policies here leave noise out (``z`` is 0), and times are such that sums of them are exact.
"""

import math
from dataclasses import replace

import pytest

from perseus_dist.planner.job.guard import Breach, Guard, GuardPolicy, Mode, Waiting

USUAL = GuardPolicy()
EXACT = replace(USUAL, z=0.0, sure_z=0.0, tolerance=0.125, budget_share=0.0, budget_iterations=1e9)
FREE, PLANNED, MIXED = Mode.FREE, Mode.PLANNED, Mode.MIXED
A_LITTLE = 1e-6
LEAST_NOISE = 1e-4


class Training:
    """Iterations one after the other, at times and in modes that a test says."""

    def __init__(self, policy: GuardPolicy = EXACT, *, factor: float = 1.0) -> None:
        self.guard = Guard(policy=policy)
        self.number = 0
        self._factor = factor

    def take(self, mode: Mode, *times_s: float) -> Guard:
        """The next iterations."""
        for time_s in times_s:
            self.guard.take(self.number, time_s, mode, self.allowed_s)
            self.number += 1
        return self.guard

    def allowed_s(self, reference_s: float) -> float:
        """[s] that the target allows."""
        return self._factor * reference_s

    def plan(self, *planned_s: float, free_s: float = 1.0) -> "Training":
        """A reference, a plan from then on, and iterations under it, the first of which is not settled."""
        self.take(FREE, *[free_s] * 4)
        self.guard.begin_plan(self.number)
        self.take(PLANNED, *planned_s)
        return self

    def probe(self, *times_s: float) -> Guard:
        """A probe that is followed at once: the first iteration is not settled."""
        self.guard.order_probe(self.number)
        return self.take(FREE, *times_s)

    def wanted(self, after: int = 0, waiting: Waiting = Waiting.NONE) -> str:
        """Why a probe is wanted so many iterations from now."""
        return self.guard.wanted_probe(self.number + after, waiting)


def least_after(training: Training, waiting: Waiting = Waiting.NONE) -> int:
    """Iterations from now until a probe is wanted."""
    return next(after for after in range(5000) if training.wanted(after, waiting))


def test_only_iterations_that_follow_one_of_their_mode_are_a_reference() -> None:
    guard = Training().take(FREE, 1.0)
    guard.take(2, 1.0, FREE, float)
    assert guard.reference_s is None, "one was not reported between them"
    guard.take(3, 3.0, FREE, float)
    assert guard.reference_s == 3.0
    guard.take(4, 4.0, MIXED, float)
    guard.take(5, 5.0, FREE, float)
    assert guard.reference_s == 3.0


def test_the_reference_and_what_is_judged_before_the_first_switch_are_medians_of_the_newest_eight() -> None:
    training = Training()
    training.take(PLANNED, *[float(number) for number in range(11, 21)])
    assert training.take(FREE, *[float(number) for number in range(1, 11)]).reference_s == 6.5
    assert training.guard.breach is not None
    assert training.guard.breach.observed_s == 16.5


@pytest.mark.parametrize(("num_free", "num_measured"), [(2, 0), (3, 1), (4, 2)])
def test_iterations_are_counted_as_measured_behind_the_first_two_at_full_clocks(
    num_free: int, num_measured: int
) -> None:
    assert Training().take(FREE, *[1.0] * num_free).num_measured == num_measured


@pytest.mark.parametrize(("num_pairs", "noise"), [(3, 0.01), (4, LEAST_NOISE)])
def test_noise_is_known_from_four_pairs_on(num_pairs: int, noise: float) -> None:
    assert Training().take(FREE, *[2.0] * (2 + num_pairs - 1)).noise == noise


def test_mixed_iterations_and_changes_of_mode_say_nothing_of_noise() -> None:
    training = Training()
    training.take(MIXED, *[1.0, 2.0] * 10)
    for mode in (FREE, PLANNED) * 10:
        training.take(mode, 1.0 if mode is FREE else 2.0)
    assert training.guard.noise == 0.01, "as usual"


def test_noise_is_the_root_of_half_the_spread_of_differences() -> None:
    step = 0.05
    training = Training()
    training.take(PLANNED, *[2.0, 2.0 * math.exp(step)] * 10)
    assert training.guard.noise == pytest.approx(1.4826 * step / math.sqrt(2))


@pytest.mark.parametrize(("ends_at", "is_probing"), [(-1, True), (0, True), (1, False)])
def test_a_probe_that_did_not_take_place_is_over_behind_the_iteration_after_it(
    ends_at: int,
    is_probing: bool,  # noqa: FBT001
) -> None:
    training = Training().plan(1.0, 1.0)
    stop = training.guard.order_probe(training.number + 1).stop
    training.take(MIXED, *[1.0] * (stop + ends_at - training.number + 1))
    assert training.number - 1 == stop + ends_at
    assert training.guard.is_probing == is_probing


@pytest.mark.parametrize(("back_to", "is_probed"), [(7, False), (6, False), (8, True)])
def test_a_probe_is_not_waited_for_where_training_goes_on_from_the_newest_iteration_or_earlier(
    back_to: int,
    is_probed: bool,  # noqa: FBT001
) -> None:
    training = Training().plan(1.0, 1.0, 1.0, 1.0)
    assert training.number - 1 == 7
    training.guard.order_probe(10)
    training.guard.take(back_to, 1.0, PLANNED, float)
    assert training.guard.is_probed(10) == is_probed
    assert not training.guard.is_probed(0), "no other one instead"


def test_a_plan_counts_from_where_training_goes_back_to() -> None:
    training = Training(replace(EXACT, max_gap=8)).plan(*[1.0] * 3)
    assert training.guard.first_iteration == 4
    training.number = 2
    training.take(PLANNED, 1.0, 1.0, 1.0)
    assert training.guard.first_iteration == 2
    assert training.wanted(5) == "8 iterations have passed", "since iteration 2"


@pytest.mark.parametrize(("first", "lost_s"), [(4, 1.5), (5, 1.0), (6, 0.5)])
def test_iterations_are_the_plans_from_its_first_one_on(first: int, lost_s: float) -> None:
    training = Training()
    training.take(FREE, *[1.0] * 4)
    training.guard.begin_plan(first)
    training.take(PLANNED, *[1.5] * 3)
    assert training.probe(1.0, 1.0, 1.0).lost_s == lost_s


def test_the_first_of_several_suspicions_is_told() -> None:
    training = Training().plan(*[1.0] * 6)
    training.guard.suspect("a rank is faster")
    training.guard.suspect("a rank is slower")
    assert training.wanted() == "a rank is faster"


@pytest.mark.parametrize(("num_settled", "is_wanted"), [(1, False), (2, True)])
def test_no_probe_is_wanted_of_a_plan_that_two_iterations_do_not_show(num_settled: int, is_wanted: bool) -> None:  # noqa: FBT001
    training = Training().plan(*[1.0] * (1 + num_settled))
    training.guard.suspect("a rank is faster")
    assert bool(training.wanted(100)) == is_wanted


@pytest.mark.parametrize("mode", [FREE, MIXED])
def test_no_probe_is_wanted_while_ranks_do_not_all_follow_the_plan(mode: Mode) -> None:
    training = Training().plan(*[1.0] * 6)
    assert training.wanted(100)
    training.take(mode, 1.0)
    assert not training.wanted(100)


def test_a_suspicion_waits_for_the_least_spacing_and_nothing_else_for_less_than_the_first_gap() -> None:
    training = Training().plan(*[1.0] * 3)
    assert least_after(training) == USUAL.first_gap - 3
    training.guard.suspect("a rank is faster")
    assert least_after(training) == USUAL.min_spacing - 3


def test_without_a_spacing_a_suspicion_is_looked_at_right_behind_a_probe() -> None:
    training = Training(replace(EXACT, min_spacing=0)).plan(1.0, 1.0, 1.0)
    training.guard.suspect("a rank is faster")
    probed = training.guard.order_probe(training.number)
    assert training.guard.wanted_probe(probed.stop - 1, Waiting.NONE) == ""
    assert training.guard.wanted_probe(probed.stop, Waiting.NONE) == "a rank is faster"


@pytest.mark.parametrize(
    ("waiting", "gap"),
    [(Waiting.NONE, 32), (Waiting.SEEN, USUAL.waiting_gap), (Waiting.BLIND, USUAL.blind_gap)],
    ids=str,
)
def test_gaps_between_probes_go_by_what_is_waited_for(waiting: Waiting, gap: int) -> None:
    training = Training().plan(*[1.0] * 8)
    for _ in range(2):
        training.probe(1.0, 1.0, 1.0)
        training.take(PLANNED, 1.0, 1.0, 1.0)
    assert least_after(training, waiting) == gap - 3, "two probes that found nothing: twice twice the first gap"
    assert training.wanted(gap - 3, waiting) == f"{gap} iterations have passed"


def test_a_gap_that_is_longer_than_that_of_waiting_stays() -> None:
    training = Training(replace(EXACT, first_gap=100, blind_gap=300)).plan(*[1.0] * 3)
    assert least_after(training, Waiting.SEEN) == least_after(training, Waiting.BLIND) == 100 - 3


def test_probes_become_rarer_up_to_the_longest_gap_and_suspicions_up_to_the_longest_spacing() -> None:
    training = Training(replace(EXACT, max_gap=20, max_spacing=10)).plan(*[1.0] * 8)
    gaps, spacings = [], []
    for _ in range(4):
        training.guard.suspect("a rank is faster")
        training.probe(1.0, 1.0, 1.0)
        training.take(PLANNED, 1.0, 1.0, 1.0)
        gaps.append(least_after(training) + 3)
        training.guard.suspect("a rank is faster")
        spacings.append(least_after(training) + 3)
    assert gaps == [16, 20, 20, 20]
    assert spacings == [8, 10, 10, 10]


def test_probes_that_nobody_suspected_leave_the_spacing_of_suspicions() -> None:
    training = Training().plan(*[1.0] * 8)
    training.probe(1.0, 1.0, 1.0)
    training.take(PLANNED, 1.0, 1.0, 1.0)
    training.guard.suspect("a rank is faster")
    assert least_after(training) == USUAL.min_spacing - 3


@pytest.mark.parametrize(("num_plans", "counts_anew"), [(1, True), (2, True), (3, False), (4, False)])
def test_gaps_begin_anew_with_a_plan_unless_three_in_a_row_were_replaced_before_a_probe(
    num_plans: int,
    counts_anew: bool,  # noqa: FBT001
) -> None:
    training = Training(replace(EXACT, first_gap=1000)).plan(1.0)
    for _ in range(num_plans):
        training.take(PLANNED, 1.0)
        training.guard.begin_plan(training.number)
    begun_at = training.number
    training.take(PLANNED, 1.0, 1.0, 1.0)
    reference = begun_at if counts_anew else 4 + 3
    assert least_after(training) == reference + 1000 - training.number


def test_plans_that_were_probed_or_never_followed_are_not_counted_as_unseen() -> None:
    training = Training(replace(EXACT, first_gap=1000)).plan(1.0, 1.0)
    for number in range(6):
        training.guard.begin_plan(training.number)
        if number % 2:
            training.take(PLANNED, 1.0, 1.0)
            training.probe(1.0, 1.0, 1.0)
    training.guard.begin_plan(training.number)
    training.take(PLANNED, 1.0, 1.0, 1.0)
    assert least_after(training) == 1000 - 3


@pytest.mark.parametrize("sure", [0.0, math.inf], ids=["at once", "twice"])
@pytest.mark.parametrize(("beyond", "is_slow"), [(0.0, False), (A_LITTLE, True)])
def test_a_plan_is_slow_beyond_the_tolerance_by_one_sure_probe_or_two(
    beyond: float, sure: float, *, is_slow: bool
) -> None:
    training = Training(replace(EXACT, sure_z=sure)).plan(*[1.125 + beyond] * 8)
    training.probe(1.0, 1.0, 1.0)
    assert (training.guard.breach is not None) == (is_slow and not sure)
    training.take(PLANNED, *[1.125 + beyond] * 8)
    assert (training.wanted() == "the last probe found the plan slow") == (is_slow and bool(sure))
    training.probe(1.0, 1.0, 1.0)
    assert (training.guard.breach is not None) == is_slow


def test_a_slow_probe_of_the_plan_before_does_not_count_for_the_next() -> None:
    training = Training(replace(EXACT, sure_z=math.inf)).plan(*[1.5] * 8)
    training.probe(1.0, 1.0, 1.0)
    training.guard.begin_plan(training.number)
    training.take(PLANNED, *[1.5] * 8)
    assert training.probe(1.0, 1.0, 1.0).breach is None


@pytest.mark.parametrize("num_free", [2, 5])
@pytest.mark.parametrize("num_planned", [2, 5])
@pytest.mark.parametrize("share", [0.99, 1.01])
def test_what_noise_may_make_of_few_iterations_is_no_breach(num_planned: int, num_free: int, share: float) -> None:
    """So many standard errors of both medians beyond the tolerance."""
    doubt = 3000 * LEAST_NOISE * math.sqrt(math.pi / 2 * (1 / num_planned + 1 / num_free))
    policy = replace(EXACT, sure_z=3000.0, num_probe_iterations=num_free + 1)
    training = Training(policy).plan(*[1.125 + share * doubt] * (num_planned + 1))
    assert training.guard.noise == LEAST_NOISE
    assert (training.probe(*[1.0] * (num_free + 1)).breach is not None) == (share > 1)


def test_a_breach_has_the_figures_of_its_comparison() -> None:
    training = Training(factor=2.0).plan(*[3.0] * 8, free_s=1.0)
    assert training.probe(1.0, 1.0, 1.0).breach == Breach(
        reference_s=1.0, allowed_s=2.0, observed_s=3.0, lost_s=8.0, is_on_time_again=False
    )


@pytest.mark.parametrize(
    ("newest_s", "is_on_time"),
    [
        ((1.125, 1.125), True),
        ((1.125, 1.125 + A_LITTLE), False),
        ((1.125 + A_LITTLE, 1.125), False),
        ((9.0, 1.125, 1.0), True),
    ],
)
def test_a_slow_plan_is_on_time_again_by_its_newest_two(newest_s: tuple[float, ...], is_on_time: bool) -> None:  # noqa: FBT001
    breach = Training().plan(*[1.5] * (1 + 8 - len(newest_s)), *newest_s).probe(1.0, 1.0, 1.0).breach
    assert breach is not None
    assert breach.is_on_time_again == is_on_time
