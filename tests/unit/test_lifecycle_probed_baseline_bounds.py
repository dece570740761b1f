"""The baseline against probes at its limits: what replaces it, what makes it better, and when joules are stored."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from test_lifecycle_baseline_bounds import baseline, iteration, warming_up

from perseus_dist.planner.job.facts.runs import BaselineMeasured, SavingCounted
from perseus_dist.planner.job.guard import Mode
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.lifecycle.baseline import record_baseline, store_saving
from perseus_dist.planner.lifecycle.events import Log, Persist

NOISE = 0.01  # of a guard that knows no better


def probed(before: BaselineMeasured | None, *times_s: float, noise: float = NOISE) -> Job:
    """With this baseline, and iterations of probes that took so long."""
    job = warming_up()
    job.measured.baseline = before
    job.measured.probed.extend(iteration(number, time_s) for number, time_s in enumerate(times_s))
    job.members.energy_period_s = 0.0
    guard = job.enforcement.guard.guard
    if noise != NOISE:
        times = (1.0, math.exp(noise / 1.4826 * math.sqrt(2)))
        for number in range(6):
            guard.take(number, times[number % 2], Mode.FREE, float)
    assert guard.noise == pytest.approx(noise)
    return job


# ---- the baseline of probes ------------------------------------------------------------------------------------------


def after(job: Job) -> BaselineMeasured | None:
    record_baseline(job)
    return job.measured.baseline


@pytest.mark.parametrize(
    ("times_s", "num", "time_s"),
    [
        ((1.0,), None, 0.0),
        ((1.0, 1.02), 2, 1.01),
        ((1.0, 1.021), None, 0.0),
        ((1.0, 1.021, 1.0, 5.0), 2, 1.0),
        ((), None, 0.0),
    ],
)
def test_without_a_baseline_of_its_begin_a_run_takes_the_fastest_iterations_of_probes_that_look_alike(
    times_s: Sequence[float], num: int | None, time_s: float
) -> None:
    found = after(probed(None, *times_s))
    assert (found.num_iterations if found else None) == num
    if found is not None:
        assert found.time_s == pytest.approx(time_s)
        assert found.is_probed


@pytest.mark.parametrize(
    ("times_s", "noise", "limit"),
    [
        ((1.0,) * 4, NOISE, 1 - 0.005 - 3 * NOISE * math.sqrt(1 / 4 + 1 / 4)),
        ((1.0,) * 2, NOISE, 1 - 0.005 - 3 * NOISE * math.sqrt(1 / 2 + 1 / 4)),
        ((1.0,) * 4, 0.05, 1 - 0.005 - 3 * 0.02 * math.sqrt(1 / 4 + 1 / 4)),
        (
            (1.0, 1.0, 1.5, 1.5),
            NOISE,
            1 - 0.005 - 3 * NOISE * math.sqrt(1 / 2 + 1 / 4) - NOISE * math.sqrt(2 * math.log(2)),
        ),
        (
            (1.0, 1.0, 1.5, 1.5),
            0.03,
            1 - 0.005 - 3 * 0.03 * math.sqrt(1 / 2 + 1 / 4) - 0.03 * math.sqrt(2 * math.log(2)),
        ),
    ],
    ids=["four", "two", "a GPU that comes and goes is no noise of all", "two of four", "noisy ones"],
)
def test_a_baseline_is_replaced_by_one_that_is_faster_than_noise_explains(
    times_s: tuple[float, ...], noise: float, limit: float
) -> None:
    """The fastest few of many are faster than the others by noise alone."""
    for before_s, is_replaced in ((1.0 / limit * 1.0005, True), (1.0 / limit * 0.9995, False)):
        before = baseline(before_s, num=4)
        found = after(probed(before, *times_s, noise=noise))
        assert (found is not before) == is_replaced
        assert found is not None
        assert found.time_s == (1.0 if is_replaced else before_s)


def test_a_faster_baseline_is_told_with_both_times() -> None:
    job = probed(baseline(1.5), 1.0, 1.0)
    before = job.num_changes
    log, stored = record_baseline(job)
    assert log == Log(sentence="the baseline is 1.0000 s in 2 iterations of probes instead of 1.5000 s")
    assert isinstance(stored, Persist)
    assert stored.facts == (job.measured.baseline,)
    assert job.num_changes == before + 1


@pytest.mark.parametrize(
    ("time_s", "num_before", "is_probed", "is_replaced"),
    [
        (1.0, 2, True, True),
        (1.019, 2, True, True),
        (0.981, 2, True, True),
        (1.021, 2, True, False),
        (1.0, 2, False, False),
        (1.0, 3, True, False),
        (1.0, 4, True, False),
    ],
)
def test_more_iterations_of_probes_that_take_the_same_make_a_baseline_of_probes_better(
    time_s: float, num_before: int, *, is_probed: bool, is_replaced: bool
) -> None:
    for unit_s in (1.0, 2.0):
        before = baseline(unit_s, num=num_before, is_probed=is_probed)
        assert (after(probed(before, *[unit_s * time_s] * 3)) is not before) == is_replaced


# ---- rough energies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spread_j", "period_s", "is_longer"),
    [
        (2.0, 0.0, False),
        (2.01, 0.0, True),
        (0.0, 0.133, False),
        (0.0, 0.134, True),
        (0.0, 0.0, False),
        (2.01, 0.1, True),
    ],
)
def test_energies_that_lie_apart_or_that_ticks_make_rough_are_replaced_by_those_of_more_iterations(
    spread_j: float, period_s: float, *, is_longer: bool
) -> None:
    before = baseline(2.0, num=4, spread_j=spread_j)
    job = probed(before)
    job.members.energy_period_s = 2 * period_s
    job.measured.saving.begin(FullClocks(time_s=2.0, energy_j=106.0, num_iterations=8, weight=64.0))
    effects = record_baseline(job)
    if is_longer:
        assert job.measured.baseline == replace(before, num_iterations=8, energy_j=106.0)
        assert effects == [Persist(facts=(job.measured.baseline,))]
    else:
        assert effects == []


@pytest.mark.parametrize(
    ("num", "weight", "time_s", "is_taken"),
    [
        (8, 64.0, 1.0, True),
        (7, 49.0, 1.0, False),
        (8, 0.0, 1.0, False),
        (8, 64.0, 1.0049, True),
        (8, 64.0, 1.0051, False),
        (8, 64.0, 0.9949, False),
        (8, 0.5, 0.9951, True),
    ],
)
def test_rough_energies_are_replaced_by_twice_as_many_that_were_measured_and_took_the_same(
    num: int, weight: float, time_s: float, *, is_taken: bool
) -> None:
    for unit_s in (1.0, 2.0):
        job = probed(baseline(unit_s, num=4, spread_j=50.0))
        full = FullClocks(time_s=unit_s * time_s, energy_j=106.0, num_iterations=num, weight=weight)
        job.measured.saving.begin(full)
        found = after(job)
        assert found is not None
        assert (found.energy_j, found.time_s) == (106.0 if is_taken else 100.0, unit_s)


def test_rough_energies_stay_where_nothing_is_known_of_full_clocks() -> None:
    job = probed(baseline(spread_j=50.0))
    assert record_baseline(job) == []


# ---- joules saved ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ago_s", "at_once", "is_due"), [(2.0, False, True), (1.99, False, False), (1.99, True, True)])
def test_joules_saved_are_stored_after_a_period_or_at_once_at_an_end(
    ago_s: float, *, at_once: bool, is_due: bool
) -> None:
    job = warming_up()
    job.measured.stored_saved_at_s = 100.0 - ago_s
    job.measured.saving.counted_j, job.measured.saving.counted_doubt_j = 7.0, 2.0
    effects = store_saving(job, 100.0, at_once=at_once)
    assert bool(effects) == is_due
    if is_due:
        (stored,) = effects
        assert isinstance(stored, Persist)
        (fact,) = stored.facts
        assert isinstance(fact, SavingCounted)
        assert (fact.saved_j, fact.doubt_j) == (7.0, 2.0)
        assert job.measured.stored_saved_at_s == 100.0
        assert store_saving(job, 200.0, at_once=True) == [], "nothing was saved since"
