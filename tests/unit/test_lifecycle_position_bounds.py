"""Where training stands and what the job wants, as ranks that attach say it."""

import pytest
from fleets import fleet_enforcing
from test_lifecycle_baseline_bounds import iteration
from test_planner_lifecycle import Fleet

from perseus_dist.messages.terms import NO_ITERATION, Target
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.lifecycle.events import TargetSet

# ---- the position of training ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "is_alone", "incarnation", "expected"),
    [
        (5, False, 1001, 5),
        (0, False, 1001, 0),
        (-1, False, 9, 0),
        (-2, False, 9, -2),
        (-2, False, 1001, 0),
        (-1, True, 1001, -1),
        (-2, True, 1001, -2),
        (3, True, 1001, 3),
    ],
)
def test_training_is_where_the_newest_rank_is_unless_an_agent_that_is_known_or_nearly_there_is_behind(
    changed: int, incarnation: int, expected: int, *, is_alone: bool
) -> None:
    fleet = fleet_enforcing()
    job = fleet.job
    fleet.detach(1)
    if is_alone:
        fleet.detach(0)
    now, timelines = job.progress.iteration, job.measured.timelines
    at_s = job.progress.iteration_at_s
    fleet.now_s += 50.0
    fleet.attach(1, incarnation=incarnation, iteration=now + changed)
    assert job.progress.iteration == now + expected
    has_moved = expected != 0 or is_alone
    assert job.progress.iteration_at_s == (fleet.now_s if has_moved else at_s)
    assert (job.measured.timelines is not timelines) == (expected == -2)


def test_what_was_told_of_iterations_that_come_again_is_forgotten() -> None:
    fleet = fleet_enforcing()
    job = fleet.job
    job.measured.run_times[20] = {}
    job.progress.unfinished[20] = job.progress.pipelines[0].unfinished[20] = iteration(20)
    fleet.detach(1)
    fleet.attach(1, incarnation=9, iteration=3)
    assert not job.measured.run_times
    assert not job.progress.unfinished
    assert not job.progress.pipelines[0].unfinished
    assert job.progress.pipelines[0].iteration == NO_ITERATION


def test_a_rank_that_has_seen_no_iteration_says_where_training_is_where_it_is_alone() -> None:
    fleet = fleet_enforcing()
    fleet.detach(1)
    fleet.attach(1, incarnation=9, iteration=NO_ITERATION)
    assert fleet.job.progress.iteration == fleet.iteration
    fleet.detach(1)
    fleet.detach(0)
    fleet.attach(1, incarnation=10, iteration=NO_ITERATION)
    assert fleet.job.progress.iteration == NO_ITERATION


# ---- the target ------------------------------------------------------------------------------------------------------


def test_the_first_rank_to_say_what_the_job_wants_decides_and_an_operator_overrules_all() -> None:
    fleet = Fleet()
    job = fleet.job
    fleet.attach(0)
    assert job.chosen_target is None
    fleet.attach(1, target=Target(slowdown=1.2))
    assert job.chosen_target == TargetChosen(target=Target(slowdown=1.2), by_operator=False)
    fleet.detach(1)
    fleet.attach(1, target=Target(slowdown=1.3))
    assert job.target.slowdown == 1.2, "another rank is attached"
    fleet.detach(0)
    fleet.detach(1)
    fleet.attach(1, target=Target(slowdown=1.4))
    assert job.target.slowdown == 1.4, "it is the first of a new run"
    fleet.detach(1)
    fleet.attach(1)
    assert job.target.slowdown == 1.4, "it wants nothing else"
    fleet.tell(TargetSet(target=Target(slowdown=1.5)))
    fleet.detach(1)
    fleet.attach(1, target=Target(slowdown=1.6))
    assert job.target.slowdown == 1.5
