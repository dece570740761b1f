"""What a power cap costs: predicted by the clock that is read, and bounded by what the capped rank's times say."""

from collections import deque
from dataclasses import replace

import pytest

from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.stragglers.stragglers import _as_measured
from perseus_dist.straggler.verdicts.causes import Cause
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict

PREDICTED = Verdict(
    rank=3,
    pp_rank=1,
    dp_rank=1,
    degree=Degree(value=1.18, low=1.12, high=1.24),
    pipeline_degree=None,
    cause=Cause.POWER_CAP,
    since_s=0.0,
    is_whole_pipeline=False,
    is_predicted=True,
    is_flapping=False,
    is_acted_upon=True,
    at_s=9.0,
)
BESIDE = replace(PREDICTED, rank=0, pp_rank=0, dp_rank=0, cause=Cause.SLOW_COMPUTE, is_predicted=False)


def job_whose_rank_takes(*ratios: float, before: Verdict | None = None) -> Job:
    job = Job(job_id="llama", policy=Policy(), phase=Phase.ENFORCING, reason="")
    job.enforcement.guard.ratios[3] = deque(ratios, maxlen=5)
    job.detection.verdicts = () if before is None else (BESIDE, before)
    return job


def test_a_prediction_is_no_more_than_the_newest_times() -> None:
    job = job_whose_rank_takes(1.06, 1.08, 1.07, 1.08, 1.07)
    beside, measured = _as_measured(job, (BESIDE, PREDICTED))
    assert beside == BESIDE
    assert measured.degree == Degree(value=1.08, low=1.08, high=1.08)
    assert not measured.is_predicted
    assert replace(measured, degree=PREDICTED.degree, is_predicted=True) == PREDICTED


@pytest.mark.parametrize(
    ("ratios", "change"),
    [
        ((1.08,) * 4, {}),  # too few
        ((1.08, 1.08, 1.0, 1.08, 1.08), {}),  # one that did not meet the cap: the others may tell of what is to come
        ((1.08,) * 5, {"cause": Cause.THERMAL}),
        ((1.08,) * 5, {"is_predicted": False}),
        ((1.3,) * 5, {"is_predicted": False}),
    ],
)
def test_what_times_cannot_bound_stays(ratios: tuple[float, ...], change: dict[str, object]) -> None:
    verdict = replace(PREDICTED, **change)  # type: ignore[arg-type]
    assert _as_measured(job_whose_rank_takes(*ratios), (verdict,)) == (verdict,)


def test_times_above_the_prediction_raise_nothing() -> None:
    (measured,) = _as_measured(job_whose_rank_takes(*(1.3,) * 5), (PREDICTED,))
    assert measured.degree == PREDICTED.degree
    assert not measured.is_predicted


def test_a_degree_that_was_measured_moves_in_steps() -> None:
    """Under plans that wait for it the rank meets its cap no more: a verdict that comes and goes would flap."""
    before = replace(PREDICTED, degree=Degree(value=1.08, low=1.08, high=1.08), is_predicted=False)
    (kept,) = _as_measured(job_whose_rank_takes(1.0, 1.07, 1.075, 1.07, 1.07, before=before), (PREDICTED,))
    assert kept == before
    (less,) = _as_measured(job_whose_rank_takes(*(1.05,) * 5, before=before), (PREDICTED,))
    assert less.degree.value == 1.05
    (none,) = _as_measured(job_whose_rank_takes(*(0.99,) * 5, before=before), (PREDICTED,))
    assert none.degree == Degree(value=1.0, low=1.0, high=1.0)
    assert not none.is_predicted


def test_what_was_measured_of_another_place_says_nothing() -> None:
    before = replace(PREDICTED, rank=2, pp_rank=0, degree=Degree(value=1.08, low=1.08, high=1.08), is_predicted=False)
    job = job_whose_rank_takes(1.0, 1.07, 1.075, 1.07, 1.07, before=before)
    assert _as_measured(job, (PREDICTED,)) == (PREDICTED,)
