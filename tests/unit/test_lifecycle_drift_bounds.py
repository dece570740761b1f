"""Drift at its limits: how far, how long and on whom times must have left the profile before something is done."""

from dataclasses import replace

import pytest
from fleets import fleet_enforcing
from test_planner_metrics import verdict

from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.drift import answer_drift
from perseus_dist.straggler.verdicts.verdict import Verdict

NOW_S = 10_000.0
FAR = 0.2
SETTLED_S = 5.0


def drifting(shares: dict[int, float], *, dp: int = 1, since_s: float = SETTLED_S, num_kept: int = 0) -> Job:
    """Under a plan that kept the promise in so many iterations, until times of these ranks left the profile."""
    fleet = fleet_enforcing(dp=dp)
    fleet.iterate(num_kept)
    assert fleet.phase() is Phase.ENFORCING
    fleet.job.enforcement.drifts.update(shares)
    fleet.job.enforcement.drift_since_s = NOW_S - since_s
    return fleet.job


def passing(shares: dict[int, float], *, dp: int = 1) -> Job:
    """The same under a plan that is on time."""
    job = drifting(shares, dp=dp, num_kept=4)
    assert job.enforcement.guard.is_passing
    return job


def straggler(pp_rank: int, dp_rank: int, *, is_whole_pipeline: bool = False) -> Verdict:
    found = verdict(0, 1.2, is_acted_upon=False)
    return replace(found, pp_rank=pp_rank, dp_rank=dp_rank, is_whole_pipeline=is_whole_pipeline)


def swept(job: Job) -> tuple[int, ...]:
    """Ranks that are measured again."""
    return job.profiling.sweep.ordered.ranks if job.profiling.sweep is not None else ()


def fall(job: Job) -> str:
    """What was said of the plan that was dropped; empty where none was."""
    told = [event.sentence for event in job.history.events(NOW_S) if event.kind == "fall"]
    assert len(told) == job.enforcement.guard.num_falls <= 1
    return told[0] if told else ""


@pytest.mark.parametrize(
    ("shares", "since_s", "is_dropped"),
    [
        ({0: FAR, 1: FAR}, 0.0, True),
        ({0: FAR}, 0.0, False),
        ({0: FAR}, SETTLED_S - 0.01, False),
        ({0: FAR}, SETTLED_S, True),
        ({0: 0.05, 1: 0.05}, 0.0, False),
        ({0: 0.0501, 1: 0.0501}, 0.0, True),
        ({0: -0.0501, 1: -0.0501}, 0.0, True),
        ({0: 0.0501, 1: 0.0499}, 0.0, False),
        ({}, SETTLED_S, False),
    ],
)
def test_a_profile_that_is_far_wrong_drops_the_plan_at_once_where_two_ranks_say_so_and_later_where_one_does(
    shares: dict[int, float], since_s: float, *, is_dropped: bool
) -> None:
    job = drifting(shares, since_s=since_s)
    assert bool(answer_drift(job, NOW_S)) == is_dropped
    assert bool(fall(job)) == is_dropped
    assert job.phase is (Phase.REPROFILING if is_dropped else Phase.ENFORCING)


@pytest.mark.parametrize(("share", "is_dropped"), [(0.04, False), (0.05, False), (-0.04, False), (0.06, True)])
def test_a_profile_that_is_a_little_wrong_is_measured_again_once_others_could_have_joined(
    share: float, *, is_dropped: bool
) -> None:
    assert answer_drift(drifting({1: share}, since_s=SETTLED_S - 0.01), NOW_S) == []
    job = drifting({1: share})
    assert answer_drift(job, NOW_S) != []
    assert job.phase is Phase.REPROFILING
    assert bool(fall(job)) == is_dropped
    assert swept(job) == ((0, 1) if is_dropped else (1,))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({0: 0.04}, ()),
        ({0: 0.04, 1: 0.04}, ()),
        ({0: 0.04, 2: 0.04}, (0, 2)),
        ({0: 0.04, 2: 0.04, 3: 0.04}, (0, 2)),
        ({0: 0.04, 2: -0.04, 1: 0.04, 3: 0.04}, (0, 1, 2, 3)),
        ({0: FAR}, ()),
        ({0: FAR, 3: FAR}, ()),
    ],
)
def test_a_stage_is_measured_again_where_all_its_replicas_have_left_the_profile(
    shares: dict[int, float], expected: tuple[int, ...]
) -> None:
    job = drifting(shares, dp=2)
    answer_drift(job, NOW_S)
    assert swept(job) == expected


def test_where_one_replica_is_far_off_and_the_other_a_little_the_plan_stays_until_the_sweep() -> None:
    job = drifting({0: FAR, 2: 0.04}, dp=2)
    answer_drift(job, NOW_S)
    assert swept(job) == (0, 2)
    assert fall(job) == ""


def test_a_rank_that_is_not_of_the_job_any_more_has_not_left_the_profile() -> None:
    job = drifting({0: 0.04, 9: 0.04}, dp=2)
    answer_drift(job, NOW_S)
    assert swept(job) == ()


@pytest.mark.parametrize(("ago_s", "is_measured"), [(600.0, True), (599.9, False), (0.0, False), (None, True)])
@pytest.mark.parametrize("share", [0.04, FAR])
def test_a_profile_that_has_just_been_measured_is_not_measured_again_so_soon(
    share: float, ago_s: float | None, *, is_measured: bool
) -> None:
    job = drifting({0: share})
    job.profiling.reprofiled_at_s = None if ago_s is None else NOW_S - ago_s
    answer_drift(job, NOW_S)
    is_dropped = share == FAR
    assert bool(fall(job)) == is_dropped
    expected = Phase.REPROFILING if is_measured else Phase.RELEASED if is_dropped else Phase.ENFORCING
    assert job.phase is expected
    if expected is Phase.RELEASED:
        assert not job.enforcement.drifts, "they have been answered"


# ---- plans that were on time -----------------------------------------------------------------------------------------


def test_under_a_plan_that_was_on_time_what_is_far_off_releases_clocks_and_is_measured_where_it_lasts() -> None:
    job = passing({0: FAR})
    answer_drift(job, NOW_S)
    assert (job.phase, swept(job)) == (Phase.RELEASED, ())
    assert not job.enforcement.guard.is_profile_wrong
    assert job.enforcement.dropped == {0: FAR}
    assert job.enforcement.dropped_reference_s == 1.0
    for rank, is_lasting in ((0, True), (1, False)):
        job = passing({0: FAR})
        job.enforcement.lasting_drifts.add(rank)
        answer_drift(job, NOW_S)
        assert (job.phase is Phase.REPROFILING) == is_lasting


@pytest.mark.parametrize(
    ("dropped", "reference_s", "was_steady", "is_lasting"),
    [
        ({0: 0.06}, 2.0, True, True),
        ({0: 0.031}, 4.0, True, True),
        ({0: 0.089}, 4.0, True, True),
        ({0: 0.03}, 2.0, True, False),
        ({0: 0.091}, 2.0, True, False),
        ({0: -0.06}, 2.0, True, False),
        ({0: 0.06}, 2.0, False, False),
        ({1: 0.9}, 2.0, True, True),
        ({1: 0.9}, 2.0198, True, True),
        ({1: 0.9}, 1.9804, True, True),
        ({1: 0.9}, 2.0204, True, False),
        ({1: 0.9}, 1.98, True, False),
        ({1: 0.9}, None, True, False),
        ({1: 0.9}, 2.0, False, False),
        ({0: 0.9, 1: 0.06}, 2.0, True, False),
    ],
)
def test_what_is_as_at_the_last_drop_lasts(
    dropped: dict[int, float], reference_s: float | None, *, was_steady: bool, is_lasting: bool
) -> None:
    """As far off as then, or another stage off while iterations at full clocks take as long, as for a slow node."""
    job = passing({0: 0.06})
    job.enforcement.guard.guard.reference_s = 2.0
    job.enforcement.dropped.update(dropped)
    job.enforcement.dropped_reference_s = reference_s
    job.enforcement.guard.was_steady = was_steady
    answer_drift(job, NOW_S)
    assert (job.phase is Phase.REPROFILING) == is_lasting


def test_without_a_reference_now_no_other_stage_is_as_slow_as_at_the_last_drop() -> None:
    job = passing({0: FAR})
    job.enforcement.guard.guard.reference_s = None
    job.enforcement.dropped[1] = FAR
    job.enforcement.dropped_reference_s = 1.0
    answer_drift(job, NOW_S)
    assert job.phase is Phase.RELEASED


def test_a_profile_that_is_known_to_be_wrong_for_long_may_be_measured_though_it_is_new() -> None:
    for is_lasting in (False, True):
        job = passing({0: FAR})
        job.profiling.reprofiled_at_s = NOW_S
        if is_lasting:
            job.enforcement.lasting_drifts.add(0)
        answer_drift(job, NOW_S)
        assert job.phase is Phase.RELEASED
        assert job.enforcement.guard.is_profile_wrong == is_lasting


@pytest.mark.parametrize(
    ("shares", "num_before", "num_after"),
    [
        ({0: -FAR}, 0, 1),
        ({0: -FAR, 1: -FAR}, 1, 2),
        ({0: -FAR}, 2, 2),
        ({0: FAR}, 0, 0),
        ({0: -FAR, 1: FAR}, 0, 0),
        ({0: -FAR, 1: 0.04}, 0, 1),
    ],
)
def test_what_has_become_faster_was_slow_as_it_was_measured_and_is_measured_again_twice_at_most(
    shares: dict[int, float], num_before: int, num_after: int
) -> None:
    job = passing(shares)
    job.profiling.num_misstated_sweeps = num_before
    answer_drift(job, NOW_S)
    assert job.profiling.num_misstated_sweeps == num_after
    assert (job.phase is Phase.REPROFILING) == (num_after > num_before)


def test_a_sweep_that_is_due_anyway_is_none_for_what_was_slow_as_it_was_measured() -> None:
    job = drifting({0: -FAR})
    answer_drift(job, NOW_S)
    assert job.phase is Phase.REPROFILING
    assert job.profiling.num_misstated_sweeps == 0


# ---- what is said and swept ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ({0: 0.75}, "times of pp_rank 0 have left the profile by 75 % on 1 ranks: the plan is dropped"),
        ({0: 0.2, 1: -0.3}, "times of pp_rank 0, 1 have left the profile by 30 % on 2 ranks: the plan is dropped"),
        ({0: 0.2, 1: 0.04}, "times of pp_rank 0 have left the profile by 20 % on 1 ranks: the plan is dropped"),
    ],
)
def test_the_sentence_tells_the_stages_the_ranks_and_the_most(shares: dict[int, float], sentence: str) -> None:
    job = drifting(shares)
    answer_drift(job, NOW_S)
    assert fall(job) == sentence
    assert job.reason == f"{sentence}, and the profile swept again"


def test_of_two_replicas_the_one_that_is_farther_off_is_told() -> None:
    for shares in ({0: 0.1, 2: -0.3}, {0: -0.3, 2: 0.1}):
        job = drifting(shares, dp=2)
        answer_drift(job, NOW_S)
        assert "of pp_rank 0 have left the profile by 30 % on 2 ranks" in fall(job)


def test_with_one_stage_all_are_swept_but_those_of_stragglers() -> None:
    job = drifting({0: FAR})
    answer_drift(job, NOW_S)
    assert swept(job) == (0, 1)
    job = drifting({0: FAR})
    job.detection.verdicts = (straggler(1, 0),)
    answer_drift(job, NOW_S)
    assert swept(job) == (0,)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (straggler(0, 0), {1, 2, 3}),
        (straggler(0, 1), {0, 1, 3}),
        (straggler(1, 0), {0, 2, 3}),
        (straggler(1, 0, is_whole_pipeline=True), {2, 3}),
    ],
)
def test_a_straggler_has_left_the_profile_of_its_stage_which_is_as_true_as_ever(
    found: Verdict, expected: set[int]
) -> None:
    job = drifting(dict.fromkeys(range(4), 0.04), dp=2, since_s=0.0)
    job.detection.verdicts = (found,)
    assert answer_drift(job, NOW_S) == []
    assert job.enforcement.drifts.keys() == expected


def test_a_straggler_that_is_on_time_is_none_of_those_that_have_left_the_profile() -> None:
    job = drifting({0: 0.04, 2: 0.04}, dp=2)
    job.detection.verdicts = (straggler(1, 0),)
    answer_drift(job, NOW_S)
    assert swept(job) == (0, 2)
