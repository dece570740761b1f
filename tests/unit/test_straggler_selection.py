"""What pipelines should do, from verdicts and reports."""

import math

import pytest

from perseus_dist.straggler.layout import StragglerError
from perseus_dist.straggler.selection import ReportedStraggler, Selection, select
from perseus_dist.straggler.verdicts.causes import Cause
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict

TARGET_S, BASELINE_S = 2.1, 2.0


def degree(value: float, half_s: float = 0.01) -> Degree:
    return Degree(value=value, low=value - half_s, high=value + half_s)


def verdict(
    dp_rank: int, of_rank: Degree, of_pipeline: Degree | None = None, *, is_acted_upon: bool = True, pp_rank: int = 0
) -> Verdict:
    return Verdict(
        rank=2 * dp_rank + pp_rank,
        pp_rank=pp_rank,
        dp_rank=dp_rank,
        degree=of_rank,
        pipeline_degree=of_pipeline,
        cause=Cause.SLOW_COMPUTE,
        since_s=1.0,
        is_whole_pipeline=False,
        is_predicted=False,
        is_flapping=False,
        is_acted_upon=is_acted_upon,
        at_s=2.0,
    )


def chosen(*verdicts: Verdict, reported: tuple[ReportedStraggler, ...] = ()) -> Selection:
    return select(verdicts, reported, dp_size=4, target_time_s=TARGET_S, baseline_time_s=BASELINE_S)


def waiting(selection: Selection) -> list[int]:
    return [choice.dp_rank for choice in selection.pipelines if choice.is_waiting]


def test_nobody_straggles() -> None:
    selection = chosen()
    assert (selection.t_prime_s, selection.degree, waiting(selection)) == (None, 1.0, [])
    assert {choice.plan_time_s for choice in selection.pipelines} == {TARGET_S}
    assert selection.sentence == "no pipeline makes the others wait"


def test_all_others_wait_until_the_lower_end() -> None:
    selection = chosen(verdict(1, degree(1.2)))
    assert waiting(selection) == [0, 2, 3]
    assert selection.t_prime_s == pytest.approx(1.19 * TARGET_S)
    assert selection.degree == pytest.approx(1.19 * TARGET_S / BASELINE_S)
    assert selection.pipelines[1].plan_time_s == TARGET_S
    assert selection.pipelines[0].plan_time_s == selection.t_prime_s
    assert selection.sentence.startswith(
        "3 of 4 pipelines wait until 2.499000 s: rank 2 (stage 0, pipeline 1) is slower"
    )


def test_what_is_not_acted_upon_makes_nobody_wait_but_is_reckoned_with() -> None:
    small = verdict(2, degree(1.02), is_acted_upon=False)
    assert chosen(small).t_prime_s is None
    selection = chosen(small, verdict(1, degree(1.2)))
    assert selection.pipelines[2].plan_time_s == pytest.approx(1.19 * TARGET_S / 1.03)


def test_several_stragglers_and_each_ends_by_the_slowest() -> None:
    selection = chosen(verdict(1, degree(1.2)), verdict(2, degree(1.1)), verdict(1, degree(1.3), pp_rank=1))
    assert selection.t_prime_s == pytest.approx(1.29 * TARGET_S)
    assert waiting(selection) == [0, 2, 3]
    assert selection.pipelines[2].time_s == pytest.approx(1.09 * TARGET_S)
    assert selection.pipelines[2].plan_time_s * 1.11 == pytest.approx(selection.t_prime_s)


def test_two_alike_do_not_wait_for_each_other() -> None:
    selection = chosen(verdict(1, degree(1.2)), verdict(2, degree(1.2)))
    assert waiting(selection) == [0, 3]


@pytest.mark.parametrize(
    ("of_pipeline", "low"),
    [
        (None, 1.19),  # not known
        (degree(1.2, 0.15), 1.19),  # known too badly to say anything
        (degree(1.08), 1.07),  # the stage had time to spare
        (degree(1.25), 1.24),  # more than this rank is slow
        (degree(0.99), 1.0),  # nobody has to wait for it at all
    ],
)
def test_a_pipelines_own_time_bounds_what_its_rank_costs(of_pipeline: Degree | None, low: float) -> None:
    selection = chosen(verdict(1, degree(1.2), of_pipeline))
    assert (selection.t_prime_s or TARGET_S) == pytest.approx(low * TARGET_S)


def test_what_was_reported_wins_until_it_is_cleared() -> None:
    found = verdict(1, degree(1.2))
    slower = ReportedStraggler(straggler_id="a", dp_rank=1, degree=1.5)
    none = ReportedStraggler(straggler_id="b", dp_rank=1, degree=1.0)
    assert chosen(found, reported=(slower,)).t_prime_s == pytest.approx(1.5 * BASELINE_S)
    assert "pipeline 1 was reported to take 1.5 times as long" in chosen(found, reported=(slower,)).sentence
    assert chosen(found, reported=(none, slower)).t_prime_s == pytest.approx(1.5 * BASELINE_S)
    assert chosen(found, reported=(none,)).t_prime_s is None
    assert chosen(found).t_prime_s == pytest.approx(1.19 * TARGET_S)


def test_a_target_as_slow_as_the_straggler_that_was_reported() -> None:
    report = ReportedStraggler(straggler_id="a", dp_rank=0, degree=1.05)
    assert chosen(reported=(report,)).t_prime_s is None
    another = ReportedStraggler(straggler_id="b", dp_rank=3, degree=1.06)
    assert waiting(chosen(reported=(report, another))) == [0, 1, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.99, -1.0])
def test_reports_that_cannot_be(bad: float) -> None:
    with pytest.raises(StragglerError, match="saw straggler 'a' with degree"):
        chosen(reported=(ReportedStraggler(straggler_id="a", dp_rank=0, degree=bad),))


@pytest.mark.parametrize("dp_rank", [-1, 4])
def test_pipelines_that_do_not_exist(dp_rank: int) -> None:
    with pytest.raises(StragglerError, match=f"saw pipeline {dp_rank}, expected 0 to 3"):
        chosen(reported=(ReportedStraggler(straggler_id="a", dp_rank=dp_rank, degree=1.1),))


@pytest.mark.parametrize(("target_s", "baseline_s"), [(0.0, 1.0), (math.nan, 1.0), (1.0, math.inf), (1.0, -1.0)])
def test_times_that_cannot_be(target_s: float, baseline_s: float) -> None:
    with pytest.raises(StragglerError, match="give finite times above 0"):
        select([], [], dp_size=1, target_time_s=target_s, baseline_time_s=baseline_s)


def test_degrees_that_cannot_be() -> None:
    for low, value, high in ((1.2, 1.1, 1.3), (1.0, math.nan, 1.1), (0.0, 1.0, 1.1), (1.0, 1.1, math.inf)):
        with pytest.raises(StragglerError, match="low <= value <= high"):
            Degree(value=value, low=low, high=high)


def test_what_follows_gradient_synchronisation_is_not_slowed_by_a_straggler_but_reported_with_it() -> None:
    def t_prime_s(*verdicts: Verdict, reported: tuple[ReportedStraggler, ...] = ()) -> float | None:
        selection = select(
            verdicts, reported, dp_size=2, target_time_s=TARGET_S, baseline_time_s=BASELINE_S, tail_s=0.3
        )
        return selection.t_prime_s

    assert t_prime_s(verdict(1, degree(1.2))) == pytest.approx(0.3 + 1.19 * (TARGET_S - 0.3))
    reported = (ReportedStraggler(straggler_id="a", dp_rank=1, degree=1.3),)
    assert t_prime_s(reported=reported) == pytest.approx(1.3 * BASELINE_S)


def test_a_stage_with_time_to_spare_costs_its_pipeline_less_than_its_own_degree() -> None:
    def t_prime_s(*verdicts: Verdict) -> float:
        selection = select(
            verdicts,
            (),
            dp_size=2,
            target_time_s=TARGET_S,
            baseline_time_s=BASELINE_S,
            pipeline_cost=lambda pp_rank, degree: degree - 0.1 if pp_rank == 0 else degree,
        )
        return (selection.t_prime_s or TARGET_S) / TARGET_S

    assert t_prime_s(verdict(1, degree(1.2), pp_rank=1)) == pytest.approx(1.19)
    assert t_prime_s(verdict(1, degree(1.2))) == pytest.approx(1.09)
    assert t_prime_s(verdict(1, degree(1.2), degree(1.15))) == pytest.approx(1.14)  # measured to be more
    assert t_prime_s(verdict(1, degree(1.2), degree(1.05))) == pytest.approx(1.04)  # measured to be less
