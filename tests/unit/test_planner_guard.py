"""The guard: invented iteration times, and what it makes of them."""

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus_dist.planner.job.guard import Guard, GuardPolicy, Mode, Waiting

POLICY = GuardPolicy()
FREE, PLANNED, MIXED = Mode.FREE, Mode.PLANNED, Mode.MIXED


class World:
    """A job whose iterations take what a test says, and which follows the guard's probes."""

    def __init__(self, *, noise: float = 0.0, factor: float = 1.0, seed: int = 1) -> None:
        self.guard = Guard()
        self.number = 0
        self.probes: list[int] = []
        self.reasons: list[str] = []
        self.modes: list[Mode] = []
        self.times_s: list[float] = []
        self.waiting = Waiting.NONE
        self._noise, self._factor, self._random = noise, factor, random.Random(seed)

    def train(self, num: int, free_s: float, planned_s: float, mode: Mode | None = None) -> None:
        """Iterations under the plan in force; the mode is another one where it is given."""
        for _ in range(num):
            is_probe = bool(self.probes) and self.number in range(self.probes[-1], self.probes[-1] + 3)
            now = mode or (FREE if is_probe else PLANNED)
            time_s = (free_s if now is FREE else planned_s) * (1 + self._noise * self._random.gauss(0, 1))
            self.guard.take(self.number, time_s, now, lambda reference_s: self._factor * reference_s)
            self.modes.append(now)
            self.times_s.append(time_s)
            self.number += 1
            if self.guard.breach is None and (why := self.guard.wanted_probe(self.number, self.waiting)):
                self.probes.append(self.guard.order_probe(self.number + 1).start)
                self.reasons.append(why)

    def plan(self) -> None:
        """A plan comes into force with the next iteration."""
        self.guard.begin_plan(self.number)


def begun(*, free_s: float = 1.0, noise: float = 0.0, factor: float = 1.0) -> World:
    world = World(noise=noise, factor=factor)
    world.train(8, free_s, free_s, FREE)
    world.plan()
    return world


def test_others_may_wish_for_a_probe_however_often_plans_change() -> None:
    world = begun()
    for _ in range(4):
        world.train(1, 1.0, 1.2)
        assert world.guard.wanted_probe(world.number, Waiting.NONE) == ""
        assert world.guard.wanted_probe(world.number, Waiting.NONE, wish="to measure") == "to measure"
        world.plan()
    probed = world.guard.order_probe(world.number)
    for iteration in (probed.start, probed.stop, probed.stop + POLICY.min_spacing - 1):
        assert world.guard.wanted_probe(iteration, Waiting.NONE, wish="to measure") == ""
    assert world.guard.wanted_probe(probed.stop + POLICY.min_spacing, Waiting.NONE, wish="to measure") == "to measure"


def test_the_reference_is_the_newest_at_full_clocks() -> None:
    world = World()
    world.train(1, 9.0, 9.0, FREE)
    assert world.guard.reference_s is None  # clocks were on their way
    world.train(3, 1.0, 1.0, FREE)
    assert world.guard.reference_s == 1.0
    world.train(2, 5.0, 5.0, MIXED)
    world.train(1, 7.0, 7.0, FREE)
    assert world.guard.reference_s == 1.0
    world.train(2, 2.0, 2.0, FREE)
    assert world.guard.reference_s == 2.0


def test_probes_become_rare_where_all_is_well() -> None:
    world = begun()
    world.train(9000, 1.0, 1.0)
    gaps = [later - earlier for earlier, later in zip(world.probes, world.probes[1:], strict=False)]
    assert world.probes[0] - 8 in range(8, 11)
    assert [gap // 16 for gap in gaps[:5]] == [1, 2, 4, 8, 16]
    assert all(POLICY.max_gap <= gap <= POLICY.max_gap + 5 for gap in gaps[-3:])
    assert world.guard.breach is None
    assert world.guard.lost_s == 0.0
    assert world.guard.is_trusting


def test_steady_probes_cost_less_than_a_thousandth_of_the_energy() -> None:
    """Of a plan that saves a third: full clocks draw half as much again."""
    assert 0.5 * POLICY.num_probe_iterations / POLICY.max_gap <= 0.001


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_slow_plan_is_found_by_the_first_probe(factor: float) -> None:
    world = begun(factor=factor)
    world.train(15, 1.0, 1.05 * factor)
    breach = world.guard.breach
    assert breach is not None
    assert breach.reference_s == 1.0
    assert breach.allowed_s == pytest.approx(factor)
    assert breach.observed_s == pytest.approx(1.05 * factor)
    assert "s are allowed and 1.0000 s are taken at full clocks" in breach.sentence
    assert 0 < world.guard.lost_s < 15 * 0.05 * factor + 1e-9


def test_in_a_noisy_job_two_probes_must_agree() -> None:
    world = begun(noise=0.02)
    world.train(60, 1.0, 1.08)
    assert world.guard.breach is not None
    assert "the last probe found the plan slow" in world.reasons


def test_a_plan_that_is_as_slow_as_the_target_asks_is_none() -> None:
    world = begun(factor=1.2)
    world.train(500, 1.0, 1.2)
    assert world.guard.breach is None
    assert world.guard.lost_s == pytest.approx(0.0)


def test_whoever_waits_for_what_is_over_is_found_within_twenty_iterations() -> None:
    """All wait for a straggler, which recovers: nothing that is measured under the plan can tell."""
    world = begun()
    world.waiting = Waiting.BLIND
    world.train(100, 1.2, 1.2)
    assert world.guard.breach is None
    recovered = world.number
    while world.guard.breach is None:
        world.train(1, 1.0, 1.2)
    assert world.number - recovered <= POLICY.blind_gap + POLICY.num_probe_iterations + 2


def test_a_straggler_that_is_heard_of_is_left_alone() -> None:
    world = begun()
    world.train(2, 1.2, 1.2)
    world.guard._suspicion = ""  # the onset, which the detector answers with another plan
    world.plan()
    world.waiting = Waiting.SEEN
    world.train(60, 1.2, 1.2)
    assert world.probes == []


def test_a_straggler_is_not_the_plans_fault() -> None:
    """Iterations take longer, at full clocks as well."""
    world = begun()
    world.train(30, 1.0, 1.0)
    world.train(100, 1.3, 1.3)
    assert "iterations take 30.0 % longer than before" in world.reasons
    assert world.guard.breach is None
    assert world.guard.lost_s == pytest.approx(0.0)


def test_a_plan_that_becomes_slow_is_looked_at_at_once() -> None:
    world = begun()
    world.train(3000, 1.0, 1.0)
    slow = world.number
    world.train(14, 1.0, 1.1)
    assert world.probes[-1] - slow <= 6
    assert world.guard.breach is not None


def test_a_suspicion_is_looked_at_once_and_then_less_often() -> None:
    world = begun()
    world.train(1000, 1.0, 1.0)
    before = len(world.probes)
    for _ in range(100):
        world.guard.suspect("a rank is faster")
        world.train(5, 1.0, 1.0)
    assert world.reasons[before] == "a rank is faster"
    assert 5 <= len(world.probes) - before <= 12


def test_small_losses_add_up_to_the_budget() -> None:
    """Too small for a comparison to be sure of, and for ever."""
    world = begun()
    world.train(30, 1.0, 1.0)
    world.train(20_000, 1.0, 1.008)
    assert world.guard.breach is not None
    assert "lost" in world.guard.breach.sentence


def test_pauses_are_not_the_plans_fault() -> None:
    """A checkpoint every hundred iterations, which takes as long as fifty."""
    world = begun()
    for _ in range(100):
        world.train(99, 1.0, 1.0)
        world.train(1, 50.0, 50.0)
    assert world.guard.breach is None


def test_losses_within_the_budget_are_borne() -> None:
    world = begun()
    world.train(20_000, 1.0, 1.0045)
    assert world.guard.breach is None
    assert world.guard.lost_s == pytest.approx(0.0045 * 20_000, rel=0.1)


@settings(max_examples=40)
@given(noise=st.floats(0, 0.02), seed=st.integers(0, 10**6))
def test_noise_is_no_breach(noise: float, seed: int) -> None:
    world = World(noise=noise, seed=seed)
    world.train(8, 1.0, 1.0, FREE)
    world.plan()
    world.train(800, 1.0, 1.0)
    assert world.guard.breach is None


@settings(max_examples=40, deadline=None)
@given(
    noise=st.floats(0, 0.01),
    seed=st.integers(0, 10**6),
    parts=st.lists(st.tuples(st.integers(1, 60), st.floats(1.0, 1.5), st.floats(1.0, 1.5)), min_size=1, max_size=8),
)
def test_what_is_lost_is_bounded_by_any_history(
    noise: float, seed: int, parts: Iterable[tuple[int, float, float]]
) -> None:
    """Whatever the machines and the plan do: a plan that is clearly slow is given up within one gap."""
    world = World(noise=noise, seed=seed)
    world.waiting = Waiting.BLIND
    world.train(8, 1.0, 1.0, FREE)
    world.plan()
    for num, free_s, planned_s in parts:
        slow = 0
        for _ in range(num):
            world.train(1, free_s, planned_s)
            slow = slow + 1 if planned_s > 1.05 * free_s + 0.1 else 0
            if world.guard.breach is not None:
                world.plan()
                slow = 0
            assert slow <= POLICY.blind_gap + 2 * POLICY.num_probe_iterations + POLICY.max_spacing


def test_plans_that_change_all_the_time_are_probed_as_well() -> None:
    world = begun()
    for _ in range(40):
        world.train(7, 1.0, 1.05)
        world.plan()
    assert len(world.probes) >= 40 * 7 / (5 * POLICY.first_gap)
    assert world.guard.lost_s > 0


def test_how_often_a_plan_kept_the_promise_is_known() -> None:
    world = begun()
    world.train(6, 1.0, 1.0, PLANNED)
    world.train(2, 1.0, 1.1, PLANNED)
    assert world.guard.kept_share == 5 / 7, "the first iteration of a plan is not judged"
    world.plan()
    assert world.guard.kept_share == 5 / 7, "another point of it is no other plan"
    world.guard.forget_kept()
    assert world.guard.kept_share == 0


@pytest.mark.parametrize(
    ("times_s", "is_steady"),
    [([1.0, 1.001, 0.999], True), ([1.0, 1.0, 9.0, 1.0], True), ([1.0, 1.1, 1.1, 1.0], False), ([], True)],
    ids=["noise", "a pause", "two states", "nothing"],
)
def test_a_machine_that_comes_and_goes_is_not_steady(times_s: list[float], is_steady: bool) -> None:  # noqa: FBT001
    world = begun()
    for time_s in (2.0, *times_s):
        world.train(1, time_s, time_s, FREE)
    world.plan()
    world.train(1, 1.0, 1.0, PLANNED)
    for time_s in (2.0, *times_s):  # clocks are still on their way in the first
        world.train(1, time_s, time_s, FREE)
    assert world.guard.is_steady is is_steady


def test_training_that_goes_back_is_probed_again() -> None:
    world = begun()
    world.train(500, 1.0, 1.0)
    world.number = 10
    before = len(world.probes)
    world.train(800, 1.0, 1.0)
    assert len(world.probes) > before
    assert world.guard.breach is None


def test_nothing_is_judged_without_a_reference() -> None:
    world = World()
    world.plan()
    world.train(9, 1.0, 2.0)
    assert world.guard.lost_s == 0.0
    world.train(8, 1.0, 2.0)
    assert world.guard.breach is not None  # the first probe has brought one


def test_a_probe_is_open_until_the_plan_is_judged_by_it() -> None:
    world = begun()
    world.train(4, 1.0, 1.0)
    assert not world.guard.is_probing
    world.guard.order_probe(world.number)
    assert world.guard.is_probing
    world.train(2, 1.0, 1.0, FREE)
    assert world.guard.is_probing  # one of them counts, and there is nothing yet to compare with
    world.train(1, 1.0, 1.0, FREE)
    assert not world.guard.is_probing
    world.guard.order_probe(world.number)
    world.train(5, 1.0, 1.0, MIXED)
    assert not world.guard.is_probing  # it was not followed, and is over


def test_a_probe_is_ahead_up_to_the_iteration_behind_it() -> None:
    guard = Guard()
    assert not guard.is_first_probed(0)
    assert list(guard.order_probe(10)) == [10, 11, 12]
    assert [number for number in range(8, 16) if guard.is_probed(number)] == [10, 11, 12]
    assert [number for number in range(8, 16) if guard.is_first_probed(number)] == [10]
    assert [number for number in range(8, 16) if guard.is_probe_ahead(number)] == [8, 9, 10, 11, 12, 13]
    assert guard.num_probes == 1


def test_a_plan_is_clearly_slower_by_what_medians_say_beyond_their_doubt() -> None:
    world = begun()
    assert world.guard.clear_excess(lambda reference_s: reference_s) == 0.0, "nothing is known of the plan"
    world.train(8, 1.0, 1.05, PLANNED)
    assert world.guard.noise == 1e-4, "the least"
    doubt = POLICY.z * 1e-4 * math.sqrt(math.pi / 2 * (1 / 7 + 1 / 2))  # the first iteration is of both
    assert world.guard.clear_excess(lambda reference_s: reference_s) == pytest.approx(0.05 - doubt, rel=1e-6)
    assert world.guard.clear_excess(lambda reference_s: 1.05 * reference_s) == pytest.approx(-doubt, rel=1e-6)


def test_what_a_plan_has_lost_is_counted_by_the_newest_reference_once_a_probe_has_shown_it() -> None:
    world = begun()
    world.train(10, 1.0, 1.2, PLANNED)
    assert world.guard.lost_s == 0.0
    world.train(3, 1.1, 1.1, FREE)
    assert world.guard.lost_s == pytest.approx(10 * (1.2 - 1.1))
    world.train(3, 1.1, 1.1, FREE)
    assert world.guard.lost_s == pytest.approx(10 * (1.2 - 1.1)), "nothing is counted twice"


def test_noise_is_the_spread_of_one_iteration_from_the_next() -> None:
    world = World(noise=0.02)
    world.train(4, 1.0, 1.0, FREE)
    assert world.guard.noise == 0.01, "what is usual, as long as few pairs are known"
    assert not world.guard.is_noise_known
    world.train(61, 1.0, 1.0, FREE)
    assert world.guard.is_noise_known
    assert world.guard.noise == pytest.approx(0.02, rel=0.35)


@pytest.mark.parametrize(("before_s", "after_s", "is_faster"), [(1.0, 0.97, True), (1.0, 0.985, False)])
def test_iterations_at_full_clocks_become_faster_by_more_than_steady_ones_differ(
    before_s: float, after_s: float, *, is_faster: bool
) -> None:
    world = begun(free_s=before_s)
    world.train(4, before_s, before_s, FREE)
    world.train(7, after_s, after_s, FREE)
    assert not world.guard.has_become_faster, "the newest eight are not all so"
    world.train(1, after_s, after_s, FREE)
    assert world.guard.has_become_faster == is_faster
