"""The profile against the job at its limits: what speaks for measuring it again, and what does not yet."""

import math
from dataclasses import replace

import pytest
from fleets import fleet_enforcing
from test_planner_lifecycle import S, summary
from test_planner_metrics import verdict
from test_sweep_steps_bounds import least_share

from perseus_dist.messages.from_agent import IterationReport, KindTime
from perseus_dist.planner.job.facts.decisions import StragglerKnown
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.lifecycle.profile_check import (
    doubt,
    is_too_slow,
    may_be_misstated,
    misstated,
    step_in_sweep,
)

COOLING = StragglerKnown(straggler_id="cooling", degree=1.5, dp_rank=1)


def job_of_profile(
    modelled_s: float, *, full_s: float = 1.0, reference_s: float = 1.0, num_iterations: int = 100
) -> Job:
    """Under a plan of a profile that says so of an iteration at full clocks; so many of them took ``full_s``."""
    job = fleet_enforcing().job
    assert job.plan is not None
    made = replace(summary(), baseline_time_ps=round(modelled_s * S))
    job.plan = replace(job.plan, summary=made, extra_s=0.0)
    job.measured.saving.begin(FullClocks(time_s=full_s, energy_j=100.0, num_iterations=num_iterations, weight=16.0))
    job.enforcement.guard.guard.reference_s = reference_s
    assert job.enforcement.guard.guard.noise == 1e-4, "no iteration took another time than the one before"
    return job


def job_with_csv(*rows: str, has_runs: bool = True) -> Job:
    """Under a plan of a profile that was swept just now."""
    job = fleet_enforcing().job
    assert job.plan is not None
    columns = "stage,instruction,frequency,time" + (",samples" if has_runs else "")
    job.plan = replace(job.plan, profile_csv="\n".join([columns, *rows, ""]).encode())
    job.profiling.is_unchecked = True
    return job


def rows_of_step(share: float, *, runs: str = ",1000000000", instruction: str = "forward") -> tuple[str, str]:
    """Of a stage at two clocks, the lower of which takes longer than it can by this share, in logarithms."""
    time_s = 1.4 * math.exp(share) if share > 0 else math.exp(share)
    return f"1,{instruction},1400,1.0{runs}", f"1,{instruction},1000,{time_s!r}{runs}"


# ---- iterations at full clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("modelled_s", "is_doubtful"), [(1.0, False), (1.01, False), (1.02, True), (0.5, False)])
def test_a_profile_is_doubtful_where_iterations_at_full_clocks_are_clearly_shorter_than_it_says(
    modelled_s: float, *, is_doubtful: bool
) -> None:
    assert bool(doubt(job_of_profile(modelled_s))) == is_doubtful


@pytest.mark.parametrize(("num_iterations", "beyond"), [(1, 3e-4), (9, 1e-4), (100, 3e-5)])
def test_more_iterations_leave_less_of_noise_that_may_have_made_them_short(num_iterations: int, beyond: float) -> None:
    for share, is_doubtful in ((1.01 + beyond, False), (1.01 + 1.01 * beyond, True)):
        job = job_of_profile(share, reference_s=0.9, num_iterations=num_iterations)
        assert bool(doubt(job)) == is_doubtful, share


@pytest.mark.parametrize(("reference_s", "is_doubtful"), [(1.0, False), (1.001, False), (0.999, True), (0.9, True)])
def test_the_newest_probe_must_agree_that_iterations_are_shorter_than_the_profile_says(
    reference_s: float, *, is_doubtful: bool
) -> None:
    assert bool(doubt(job_of_profile(1.01, full_s=0.9, reference_s=reference_s))) == is_doubtful


@pytest.mark.parametrize(
    "missing", ["plan", "full clocks", "measured ones", "reference", "another sweep", "no straggler", "nothing"]
)
def test_a_profile_is_not_doubted_before_all_is_known_nor_again_nor_beside_a_straggler(missing: str) -> None:
    job = job_of_profile(1.2, num_iterations=0 if missing == "measured ones" else 100)
    if missing == "plan":
        job.plan = None
    elif missing == "full clocks":
        job.measured.saving.full = None
    elif missing == "reference":
        job.enforcement.guard.guard.reference_s = None
    elif missing == "another sweep":
        job.profiling.reprofiled_at_s = 0.0
    elif missing == "no straggler":
        job.stragglers["cooling"] = COOLING
    assert bool(doubt(job)) == (missing == "nothing")


def test_what_was_learnt_or_gained_beside_the_profile_is_not_part_of_it() -> None:
    job = job_of_profile(1.2)
    assert job.plan is not None
    assert "take 1.0000 s, and 1.2000 s by the profile" in doubt(job)
    job.plan = replace(job.plan, extra_s=0.1)
    assert "and 1.1000 s by the profile" in doubt(job)
    job.plan = replace(job.plan, summary=replace(job.plan.summary, gained_ps=round(0.05 * S)))
    assert "and 1.0500 s by the profile" in doubt(job)
    job.plan = replace(job.plan, extra_s=0.15)
    assert doubt(job) == ""


@pytest.mark.parametrize(
    ("modelled_s", "reference_s", "is_slow"),
    [(1.0103, 1.0, False), (1.0104, 1.0, True), (2.0204, 2.0, False), (2.0208, 2.0, True), (1.0, 1.0, False)],
)
def test_a_profile_is_too_slow_where_it_says_clearly_more_than_full_clocks_take_now(
    modelled_s: float, reference_s: float, *, is_slow: bool
) -> None:
    assert is_too_slow(job_of_profile(modelled_s, reference_s=reference_s)) == is_slow


def test_without_a_plan_or_a_reference_no_profile_is_too_slow() -> None:
    job = job_of_profile(1.2)
    job.enforcement.guard.guard.reference_s = None
    assert not is_too_slow(job)
    job = job_of_profile(1.2)
    job.plan = None
    assert not is_too_slow(job)


# ---- steps within a sweep --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "direction"), [(0.2, "longer"), (-0.2, "shorter")])
def test_a_step_in_a_sweep_is_told_with_its_stage_its_clock_and_its_direction(share: float, direction: str) -> None:
    job = job_with_csv(*rows_of_step(share))
    beyond = 0.2 - least_share(is_longer=share > 0)
    assert f"computations of stage 1 at 1000 MHz take {100 * beyond:.1f} % {direction} than" in step_in_sweep(job)
    assert job.profiling.num_step_sweeps == 1
    assert step_in_sweep(job) == "", "each sweep is looked at once"
    assert job.profiling.num_step_sweeps == 1


@pytest.mark.parametrize(("num_before", "is_told"), [(0, True), (1, True), (2, False), (3, False)])
def test_where_the_second_sweep_has_a_step_as_well_the_profile_is_taken_as_it_is(
    num_before: int, *, is_told: bool
) -> None:
    job = job_with_csv(*rows_of_step(0.2))
    job.profiling.num_step_sweeps = num_before
    assert bool(step_in_sweep(job)) == is_told
    assert not job.profiling.is_unchecked
    assert job.profiling.num_step_sweeps == num_before + is_told


@pytest.mark.parametrize("missing", ["plan", "sweep", "rank"])
def test_a_sweep_is_looked_at_for_steps_once_its_plan_is_there_and_all_ranks_are(missing: str) -> None:
    job = job_with_csv(*rows_of_step(0.2))
    if missing == "plan":
        job.plan = None
    elif missing == "sweep":
        job.profiling.is_unchecked = False
    else:
        job.members.rank_of_stream.popitem()
    before = job.profiling.is_unchecked
    assert step_in_sweep(job) == ""
    assert job.profiling.is_unchecked == before


def test_what_is_no_computation_or_has_no_step_speaks_for_no_sweep() -> None:
    assert step_in_sweep(job_with_csv(*rows_of_step(0.2, instruction="optimizer"))) == ""
    job = job_with_csv("1,forward,1400,1.0,9", "1,forward,1000,1.4,9")
    assert step_in_sweep(job) == ""
    assert job.profiling.num_step_sweeps == 0


@pytest.mark.parametrize("is_longer", [True, False])
def test_a_measurement_whose_runs_are_not_known_counts_as_one(*, is_longer: bool) -> None:
    one, two = (least_share(is_longer=is_longer, num_runs=(num, num)) for num in (1, 2))
    assert one > two
    sign = 1 if is_longer else -1
    beyond, between = sign * (one + 0.001), sign * (one + two) / 2
    for share, runs, is_step in ((beyond, "", 1), (between, "", 0), (beyond, ",1.0", 1), (between, ",1.0", 0)):
        assert bool(step_in_sweep(job_with_csv(*rows_of_step(share, runs=runs), has_runs=bool(runs)))) == bool(is_step)
    assert step_in_sweep(job_with_csv(*rows_of_step(between, runs=","))) == "", "an empty cell"
    assert step_in_sweep(job_with_csv(*rows_of_step(between, runs=",2.0"))) != ""


# ---- computations in probes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({0: -0.05, 2: -0.04}, {0: -0.05}),
        ({0: -0.04, 2: -0.05}, {0: -0.05}),
        ({0: 0.03, 2: 0.06}, {0: 0.06}),
        ({0: 0.03, 2: -0.06}, {}),
        ({0: 0.0, 2: -0.06}, {}),
        ({0: 0.0, 2: 0.06}, {}),
        ({0: -0.05}, {}),
        ({0: -0.05, 1: -0.05, 3: -0.06}, {1: -0.06}),
        ({0: 0.05, 1: -0.05, 2: 0.04, 3: -0.06}, {0: 0.05, 1: -0.06}),
        ({}, {}),
    ],
)
def test_a_stage_is_misstated_where_all_its_replicas_say_so_the_same_way(
    shares: dict[int, float], expected: dict[int, float]
) -> None:
    job = fleet_enforcing(dp=2).job
    job.enforcement.guard.misstated.update(shares)
    assert misstated(job) == expected


@pytest.mark.parametrize("known", ["a sweep for the same", "a verdict", "a report"])
def test_a_stage_that_is_slow_is_not_swept_where_that_has_happened_or_a_straggler_is_known(known: str) -> None:
    job = fleet_enforcing(dp=2).job
    job.enforcement.guard.misstated.update({0: 0.05, 2: 0.05, 1: -0.05, 3: -0.05})
    assert misstated(job) == {0: 0.05, 1: -0.05}
    if known == "a sweep for the same":
        job.profiling.num_misstated_sweeps = 1
    elif known == "a verdict":
        job.detection.verdicts = (verdict(0, 1.05, is_acted_upon=False),)
    else:
        job.stragglers["cooling"] = COOLING
    assert misstated(job) == {1: -0.05}


@pytest.mark.parametrize(("num_before", "may_be"), [(0, True), (1, True), (2, False), (3, False)])
def test_stages_are_swept_twice_at_most_because_they_were_slow_as_they_were_measured(
    num_before: int, *, may_be: bool
) -> None:
    job = fleet_enforcing().job
    job.enforcement.guard.misstated[0] = -0.05
    job.profiling.num_misstated_sweeps = num_before
    assert may_be_misstated(job) == may_be
    assert bool(misstated(job)) == may_be


def test_no_stage_is_misstated_before_all_ranks_have_told_of_the_probe() -> None:
    job = fleet_enforcing().job
    guard = job.enforcement.guard
    told = []
    for number in guard.guard.order_probe(job.progress.iteration):
        for rank in (0, 1):
            kind_times = (KindTime(kind="F", time_ratio=0.9, requested_mhz=1400),)
            report = IterationReport(
                iteration=number, time_s=1.0, pipeline_time_s=1.0, energy_j=None, kind_times=kind_times
            )
            guard.observe(rank, 0, report, is_planned=False, num_attached=2, allowed=float)
            told.append(misstated(job))
    both = {0: pytest.approx(-0.1), 1: pytest.approx(-0.1)}
    assert told == [{}, {}, {}, both, {}, both], "of two iterations at least, each of which both have told of"
