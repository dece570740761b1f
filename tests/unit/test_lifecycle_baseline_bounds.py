"""The baseline at its limits: what it is made of, and which iterations are at full clocks."""

from dataclasses import replace

import pytest
from fleets import fleet_enforcing
from test_planner_lifecycle import Fleet

from perseus_dist.messages.terms import NO_ITERATION, NO_POINT
from perseus_dist.planner.job.facts.runs import BaselineMeasured
from perseus_dist.planner.job.facts.sweeps import SweepBegun
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.job.state.progress import Iteration
from perseus_dist.planner.lifecycle.baseline import (
    baseline_length,
    begin_saving,
    count_iteration,
    measured_baseline,
    record_baseline,
)
from perseus_dist.planner.lifecycle.events import Persist


def iteration(
    number: int,
    time_s: float = 1.0,
    energy_j: float | None = 100.0,
    *,
    followed: tuple[int, int] = (0, NO_POINT),
    is_live: bool = True,
) -> Iteration:
    """Of one pipeline, at full clocks or as it followed a plan."""
    return Iteration(
        number=number,
        num_parts=1,
        time_s=time_s,
        pipeline_time_s=time_s,
        energy_j=energy_j,
        is_released=followed[1] == NO_POINT,
        is_planned=followed[1] != NO_POINT,
        followed={0: followed},
        is_live=is_live,
    )


def warming_up() -> Job:
    fleet = Fleet()
    fleet.attach_all()
    return fleet.job


def baseline(time_s: float = 1.0, *, num: int = 4, spread_j: float = 0.0, is_probed: bool = False) -> BaselineMeasured:
    return BaselineMeasured(
        num_iterations=num,
        time_s=time_s,
        time_spread_s=0.0,
        energy_j=100.0,
        energy_spread_j=spread_j,
        is_probed=is_probed,
    )


# ---- which iterations count ------------------------------------------------------------------------------------------


def test_iterations_are_warm_up_first_and_then_the_baselines() -> None:
    job = warming_up()
    assert (job.policy.num_warmup_iterations, job.policy.num_baseline_iterations) == (3, 5)
    for number in range(8):
        count_iteration(job, iteration(number))
    assert job.measured.num_warm == 8
    assert [one.number for one in job.measured.baseline_iterations] == [3, 4, 5, 6, 7]
    job.measured.saving.end_window()
    full = job.measured.saving.full
    assert full is not None
    assert full.num_iterations == 5, "those of the warm-up say nothing of full clocks"
    assert full.meter_s == pytest.approx(0.2 * job.members.energy_period_s)


def test_what_was_not_seen_live_or_followed_a_plan_is_no_warm_up() -> None:
    job = warming_up()
    count_iteration(job, iteration(0, is_live=False))
    count_iteration(job, iteration(1, followed=(1, 2)))
    assert job.measured.num_warm == 0
    count_iteration(job, iteration(2))
    assert job.measured.num_warm == 1


def test_before_a_switch_each_iteration_counts_even_where_reports_of_others_were_lost() -> None:
    job = warming_up()
    for number in (0, 2, 9):
        count_iteration(job, iteration(number))
    assert job.measured.num_warm == 3


def test_the_figures_of_a_plan_are_of_iterations_that_followed_the_switch_in_force() -> None:
    job = fleet_enforcing().job
    assert job.switch is not None
    revision, point = job.switch.directives[0]
    for number, followed in enumerate(((revision, point), (revision, point + 1), (revision + 1, point), (0, NO_POINT))):
        count_iteration(job, iteration(100 + number, followed=followed))
    assert [one.number for one in job.measured.enforced] == [100]


def test_the_first_iteration_of_a_probe_does_not_count() -> None:
    job = fleet_enforcing().job
    job.measured.probed.clear()
    job.progress.released_number = NO_ITERATION
    job.enforcement.guard.swept_until = 0
    for number in (100, 101, 102, 104, 105):
        count_iteration(job, iteration(number))
    assert [one.number for one in job.measured.probed] == [101, 102, 105]


def test_under_the_plan_of_an_earlier_run_nothing_is_saved_before_the_first_switch() -> None:
    for missing in ("switch", "plan", ""):
        job = fleet_enforcing().job
        assert job.switch is not None
        followed = job.switch.directives[0]
        job.measured.saving.end_window()
        if missing == "switch":
            job.enforcement.switch = None
        elif missing == "plan":
            job.plan = None
        for number in range(100, 110):
            count_iteration(job, iteration(number, energy_j=60.0, followed=followed))
        assert (job.measured.saving.saved_j != 0) == (missing == "")
        job.measured.saving.end_window()
        assert job.measured.saving.full is not None
        assert job.measured.saving.full.energy_j == pytest.approx(100.0)


def is_full(job: Job, number: int) -> bool:
    """Whether an iteration without a plan is taken for one at full clocks."""
    job.measured.probed.clear()
    count_iteration(job, iteration(number))
    return bool(job.measured.probed)


def sweep(sweep_id: int, series: int, first_iteration: int, clocks_mhz: tuple[int, ...]) -> SweepBegun:
    """Holds each of its clocks for two iterations."""
    return SweepBegun(
        sweep_id=sweep_id,
        series=series,
        first_iteration=first_iteration,
        iterations_per_clock=2,
        clocks_mhz=clocks_mhz,
        ranks=(0, 1),
        first_only=(),
        is_profile=True,
    )


def job_after(*sweeps: SweepBegun, swept_until: int) -> Job:
    job = warming_up()
    job.measured.baseline, job.measured.num_warm = baseline(), 3
    job.profiling.sweeps = {one.sweep_id: one for one in sweeps}
    job.enforcement.guard.swept_until = swept_until
    return job


@pytest.mark.parametrize(
    ("number", "expected"),
    [(5, True), (11, True), (12, False), (15, False), (16, True), (19, True), (20, False), (30, False), (40, True)],
)
def test_an_iteration_of_a_sweep_is_at_full_clocks_before_the_first_lower_one_and_between_two_of_a_series(
    number: int, *, expected: bool
) -> None:
    """The first sweep of a series begins with the highest clock, which later ones need not."""
    job = job_after(
        sweep(1, 1, 2, (1400, 900)), sweep(3, 3, 10, (1400, 1200, 900)), sweep(4, 3, 20, (1400, 1000)), swept_until=40
    )
    assert is_full(job, number) == expected


@pytest.mark.parametrize(("number", "expected"), [(29, False), (30, True)])
def test_until_clocks_are_known_to_be_free_of_a_sweep_an_iteration_may_be_of_one(
    number: int, *, expected: bool
) -> None:
    assert is_full(job_after(swept_until=30), number) == expected


def test_a_sweep_of_the_highest_clock_alone_holds_no_lower_one() -> None:
    for clocks_mhz, expected in (((1400,), True), ((1400, 1300), False)):
        job = job_after(sweep(3, 3, 10, clocks_mhz), swept_until=40)
        assert [is_full(job, number) for number in (10, 12, 39)] == [True, expected, expected]


def test_a_job_that_is_not_warm_yet_runs_no_iteration_at_full_clocks() -> None:
    job = job_after(swept_until=0)
    for num_warm, expected in ((2, False), (3, True)):
        job.measured.num_warm = num_warm
        assert is_full(job, 50) == expected


# ---- the baseline of a run's begin -----------------------------------------------------------------------------------


def seen(*energies_j: float | None, time_s: float = 1.0) -> Job:
    job = warming_up()
    job.measured.baseline_iterations.extend(
        iteration(number, time_s, energy_j) for number, energy_j in enumerate(energies_j)
    )
    return job


@pytest.mark.parametrize(
    ("energies_j", "num", "energy_j"),
    [
        ((100.0,) * 4, None, 0.0),
        ((100.0,) * 5, 5, 100.0),
        ((50.0,) + (100.0,) * 5, 5, 100.0),
        ((None,) * 5, 5, 0.0),
        ((None,) + (100.0,) * 4, None, 0.0),
        ((100.0,) + (None,) * 4, None, 0.0),
        ((None,) * 5 + (100.0,) * 4, None, 0.0),
        ((None,) * 6 + (100.0,) * 4, 5, 100.0),
        ((100.0,) * 3 + (None,) * 7, 5, 0.0),
    ],
)
def test_a_baseline_is_of_the_newest_five_and_waits_for_energies_that_some_of_them_lack(
    energies_j: tuple[float | None, ...], num: int | None, energy_j: float
) -> None:
    found = measured_baseline(seen(*energies_j))
    assert (found.num_iterations if found else None) == num
    assert (found.energy_j if found else 0.0) == energy_j
    assert found is None or not found.is_probed


@pytest.mark.parametrize(
    ("period_s", "time_s", "length"),
    [
        (0.02, 1.0, 5),
        (0.02, 0.11, 6),
        (0.02, 0.055, 11),
        (0.1, 0.55, 6),
        (0.1, 0.61, 5),
        (0.02, 0.001, 50),
        (0.0, 1.0, 5),
    ],
)
def test_a_baseline_is_as_long_as_makes_a_counters_ticks_small_beside_its_energy(
    period_s: float, time_s: float, length: int
) -> None:
    job = seen(None, 100.0, time_s=time_s)
    job.members.energy_period_s = period_s
    assert baseline_length(job) == length
    assert baseline_length(seen(None, None, time_s=time_s)) == 5


def test_iterations_that_lasted_longer_than_usual_drew_more_and_are_left_out_of_the_energy() -> None:
    for last_s, energy_j in ((2.04, 120.0), (2.042, 100.0)):
        job = seen(100.0, 100.0, 100.0, 100.0, 200.0, time_s=2.0)
        job.measured.baseline_iterations[-1].time_s = last_s
        found = measured_baseline(job)
        assert found is not None
        assert found.energy_j == pytest.approx(energy_j)


def test_iterations_within_a_wide_spread_are_usual() -> None:
    job = seen(100.0, 100.0, 100.0, 150.0, 200.0)
    for one, time_s in zip(job.measured.baseline_iterations, (1.0, 1.0, 1.0, 1.04, 1.041), strict=True):
        one.time_s = time_s
    found = measured_baseline(job)
    assert found is not None
    assert found.time_spread_s == pytest.approx(0.04)
    assert found.energy_j == pytest.approx(112.5)


@pytest.mark.parametrize(("longest_s", "is_found"), [(105.0, True), (105.1, False)])
def test_times_may_lie_apart_by_a_share_of_what_they_are(longest_s: float, *, is_found: bool) -> None:
    job = seen(*(100.0,) * 5, time_s=100.0)
    for one in job.measured.baseline_iterations[3:]:
        one.time_s = longest_s
    assert (measured_baseline(job) is not None) == is_found
    job.measured.baseline_iterations *= job.policy.max_baseline_attempts
    assert measured_baseline(job) is not None, "the last one counts however wide it is"


def test_a_baseline_that_is_found_is_stored_and_shown_and_saving_is_counted_against_it() -> None:
    job = seen(*(100.0,) * 5)
    before = job.num_changes
    (stored,) = record_baseline(job)
    assert stored == Persist(facts=(job.measured.baseline,))  # type: ignore[arg-type]
    assert job.num_changes == before + 1
    full = job.measured.saving.full
    assert full is not None
    assert (full.time_s, full.energy_j, full.num_iterations, full.weight) == (1.0, 100.0, 5, 25.0)
    assert full.meter_s == pytest.approx(0.2 * job.members.energy_period_s)
    assert record_baseline(job) == []


def test_a_baseline_replaces_nothing_that_is_known_of_full_clocks_and_without_energy_says_nothing_of_them() -> None:
    job = seen(*(100.0,) * 5)
    job.measured.saving.begin(known := FullClocks(time_s=2.0, energy_j=9.0, num_iterations=1))
    record_baseline(job)
    assert job.measured.saving.full is known
    job = warming_up()
    begin_saving(job, replace(baseline(), energy_j=0.0))
    assert job.measured.saving.full is None
    begin_saving(job, replace(baseline(), energy_j=0.5))
    assert job.measured.saving.full is not None
