"""The self-check at its limits: from which difference on something is said, and which part of it is which."""

import math
from dataclasses import replace

import pytest

from perseus_dist.planner.job.self_check import (
    LIMIT,
    Comparison,
    Parts,
    SelfCheck,
    SelfCheckWatch,
    constant_s,
    self_check,
)

A_LITTLE = 1e-9
NOTHING = Parts()


def compared(predicted_s: float, measured_s: float, num_iterations: int = 16) -> Comparison:
    return Comparison(predicted_s=predicted_s, measured_s=measured_s, num_iterations=num_iterations)


def off_by(error: float, *, doubt: float = 0.0, parts: Parts = NOTHING) -> SelfCheck:
    """Of a plan that takes longer by this share."""
    return SelfCheck(plan=compared(1.0, 1.0 + error), parts=parts, doubt=doubt)


def test_what_is_not_known_has_no_degree_and_no_error() -> None:
    unknown = Comparison(predicted_s=0.0, measured_s=2.0, predicted_j=0.0, measured_j=2.0)
    assert (unknown.time_degree, unknown.energy_degree, unknown.error) == (0.0, 0.0, 0.0)
    assert Comparison(predicted_s=2.0, measured_s=0.0).error == 0.0
    known = Comparison(predicted_s=A_LITTLE, measured_s=3 * A_LITTLE, predicted_j=A_LITTLE, measured_j=2 * A_LITTLE)
    assert (known.time_degree, known.energy_degree, known.error) == (3.0, 2.0, 2.0)
    assert SelfCheck().error == 0.0
    assert not SelfCheck().is_off


def test_the_doubt_of_a_median_falls_with_the_root_of_its_iterations_and_is_boundless_without_any() -> None:
    assert compared(1.0, 1.0, 1).doubt(0.01) == pytest.approx(0.04 * math.sqrt(math.pi / 2))
    assert compared(1.0, 1.0, 100).doubt(0.01) == pytest.approx(0.004 * math.sqrt(math.pi / 2))
    assert compared(1.0, 1.0, 0).doubt(0.01) == math.inf


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("doubt", [0.0, 0.02])
def test_a_difference_is_told_beyond_the_limit_and_its_doubt(sign: int, doubt: float) -> None:
    assert not off_by(sign * (LIMIT + doubt - A_LITTLE), doubt=doubt).is_off
    assert off_by(sign * (LIMIT + doubt + A_LITTLE), doubt=doubt).is_off


def test_a_difference_of_just_the_limit_and_its_doubt_is_not_told() -> None:
    error = 1 / 64
    doubt = error - LIMIT
    assert error - doubt == LIMIT
    assert not off_by(error, doubt=doubt).is_off


def test_the_doubt_of_two_comparisons_is_that_of_both() -> None:
    full, plan = compared(1.0, 1.0, 9), compared(1.0, 1.0, 16)
    root = 0.04 * math.sqrt(math.pi / 2)
    alone = (self_check(full, None, noise=0.01, instructions=0.0), self_check(None, plan, noise=0.01, instructions=0.0))
    assert [one.doubt for one in alone] == pytest.approx([root / 3, root / 4])
    both = self_check(full, plan, noise=0.01, instructions=0.0)
    assert both.doubt == pytest.approx(root * math.hypot(1 / 3, 1 / 4))


@pytest.mark.parametrize(
    ("full_s", "plan_s", "instructions", "varying_s", "parts"),
    [
        # Of a plan of 2 s and full clocks of 1 s: shares of the 2 s.
        (1.5, 2.5, 0.0, 0.0, Parts(between=0.25)),
        (1.5, 2.5, 0.125, 0.0, Parts(instructions=0.125, between=0.125)),
        (1.5, 2.5, 0.5, 0.0, Parts(instructions=0.25)),
        (1.5, 2.5, 0.125, 0.125, Parts(instructions=0.125, transfers=0.0625, between=0.0625)),
        (1.5, 2.5, 0.125, 1.0, Parts(instructions=0.125, transfers=0.125)),
        (1.5, 3.5, 0.5, 0.0, Parts(instructions=0.25, clocks=0.25, unknown=0.25)),
        (1.5, 3.5, 0.25, 0.0, Parts(instructions=0.25, unknown=0.5)),
        (1.5, 2.0, 0.0, 0.0, Parts(between=0.25, unknown=-0.25)),
        (0.5, 1.5, -0.125, 0.0, Parts(instructions=-0.125, between=-0.125)),
        (0.5, 2.0, 0.125, 0.0, Parts(between=-0.25, clocks=0.125, unknown=0.125)),
        (0.5, 1.5, 0.125, 0.5, Parts(between=-0.25)),
        (1.0, 1.5, -0.25, 0.0, Parts(unknown=-0.25)),
        (1.0, 2.5, 0.125, 0.0, Parts(clocks=0.125, unknown=0.125)),
    ],
)
def test_a_plans_difference_is_made_of_its_parts(
    full_s: float, plan_s: float, instructions: float, varying_s: float, parts: Parts
) -> None:
    found = self_check(
        compared(1.0, full_s),
        compared(2.0, plan_s),
        noise=0.0,
        instructions=instructions,
        varying_transfers_s=varying_s,
    )
    assert found.parts == parts


def test_without_a_plan_the_difference_is_that_of_full_clocks() -> None:
    full = compared(2.0, 3.0)
    found = self_check(full, None, noise=0.0, instructions=0.125, varying_transfers_s=0.25)
    assert found.parts == Parts(instructions=0.125, transfers=0.125, between=0.25)
    slower = self_check(full, None, noise=0.0, instructions=0.75)
    assert slower.parts == Parts(instructions=0.5), "no plan's clocks explain more than there is"
    assert found.error == 0.5
    assert found.sentence.startswith("iterations at full clocks take 50.0 % longer than predicted, 3.0000 s instead of")
    assert " at full clocks; " not in found.sentence, "once is enough"


def test_without_full_clocks_all_of_a_plans_difference_may_be_its_clocks() -> None:
    found = self_check(None, compared(2.0, 3.0), noise=0.0, instructions=0.125)
    assert found.parts == Parts(clocks=0.125, unknown=0.375)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("doubt", "least"), [(0.0, 0.001), (0.001, 0.001), (0.25, 0.25)])
def test_a_part_is_told_from_a_thousandth_on_or_from_what_noise_makes(doubt: float, least: float, sign: int) -> None:
    for part in ("instructions", "transfers", "between", "clocks", "unknown"):
        for share, is_told in ((least, True), (least - A_LITTLE, False)):
            sentence = off_by(0.5, doubt=doubt, parts=replace(NOTHING, **{part: sign * share})).sentence
            assert (f"{100 * sign * least:+.1f} % " in sentence) == is_told, part
            assert sentence.endswith(f"; noise explains up to {100 * doubt:.1f} %")


def test_iterations_that_are_shorter_are_said_to_be() -> None:
    assert "take 50.0 % shorter than predicted" in off_by(-0.5).sentence
    assert "take 50.0 % longer than predicted" in off_by(0.5).sentence
    both = replace(off_by(0.5), full=compared(1.0, 0.75))
    assert "1.5000 s instead of 1.0000 s, -25.0 % at full clocks; no part of this stands out" in both.sentence


def test_a_check_has_moved_by_the_part_that_has_moved_most() -> None:
    before = off_by(0.5, parts=Parts(clocks=0.25, unknown=0.25))
    assert before.moved_from(before) == 0.0
    assert off_by(0.5, parts=Parts(clocks=0.375, unknown=0.125)).moved_from(before) == 0.125
    assert off_by(0.5, parts=Parts(clocks=0.125, unknown=0.25)).moved_from(before) == 0.125
    assert off_by(0.0, parts=Parts(clocks=0.125, unknown=0.25)).moved_from(before) == 0.5


@pytest.mark.parametrize(("step", "is_told"), [(0.005 - A_LITTLE, False), (0.005 + A_LITTLE, True)])
def test_a_sentence_is_said_anew_where_figures_have_moved_by_a_two_hundredth(step: float, is_told: bool) -> None:  # noqa: FBT001
    watch = SelfCheckWatch()
    assert watch.update(off_by(0.1))
    said = watch.sentence
    assert not watch.update(off_by(0.1 + step)), "it is in the log already"
    assert (watch.sentence != said) == is_told
    assert watch.latest == off_by(0.1 + step)


def test_a_sentence_is_said_anew_where_a_part_has_moved_by_just_a_two_hundredth() -> None:
    watch = SelfCheckWatch()
    watch.update(off_by(0.1))
    said = watch.sentence
    watch.update(off_by(0.1, parts=Parts(clocks=0.005)))
    assert watch.sentence != said


@pytest.mark.parametrize(("error", "is_kept"), [(LIMIT + A_LITTLE, True), (LIMIT - A_LITTLE, False), (-0.009, False)])
def test_a_sentence_is_kept_while_the_difference_is_beyond_the_limit_however_noisy(error: float, is_kept: bool) -> None:  # noqa: FBT001
    watch = SelfCheckWatch()
    watch.update(off_by(0.1))
    assert not watch.update(off_by(error, doubt=0.5))
    assert bool(watch.sentence) == is_kept


@pytest.mark.parametrize(
    ("full_s", "plan_s", "instructions", "found_s"),
    [
        (1.5, None, 0.0, 0.5),
        (1.5, None, 0.125, 0.375),
        (1.5, None, 0.75, 0.0),
        (1.5, None, -0.125, 0.5),
        (0.5, None, -0.125, -0.375),
        (1.5, 2.5, 0.125, 0.25),  # a quarter of a second of the plan's half is in its instructions
        (1.5, 2.25, 0.0, 0.25),
        (1.25, 2.5, 0.0, 0.25),
        (0.75, 1.5, 0.0, -0.25),
        (1.5, 1.5, 0.0, 0.0),
        (1.5, 2.0, 0.0, 0.0),
    ],
)
def test_a_constant_is_what_no_instructions_explain(
    full_s: float, plan_s: float | None, instructions: float, found_s: float
) -> None:
    plan = compared(2.0, plan_s) if plan_s is not None else None
    assert constant_s(compared(1.0, full_s), plan, instructions=instructions) == found_s
