"""Which plan an iteration followed, and that each state and each level is kept once, as itself."""

import pytest

from perseus_dist.planner.job.saving.followed import UNKNOWN, Followed, FollowedPlans
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.job.saving.kept import NONE, at, copies, distinct, index_of, keep_level, restore_level
from perseus_dist.planner.job.saving.level import Level

PLAN, AGAIN, NEXT = Followed(key="t_min"), Followed(key="t_min", rate_j=200.0), Followed(key="next")
FULL_CLOCKS, T_MIN = {0: (1, 0)}, {0: (1, 7)}
FULL = FullClocks(time_s=2.0, energy_j=1000.0, num_iterations=5, weight=25.0)


def test_a_plan_that_is_ordered_again_and_again_drives_no_other_one_out() -> None:
    plans = FollowedPlans()
    plans.begin(0, FULL_CLOCKS, None)
    for number in range(10, 50):
        plans.begin(number, T_MIN, PLAN)
    assert plans.at(5, FULL_CLOCKS) is None
    assert plans.at(10, T_MIN) == PLAN


@pytest.mark.parametrize(("num_plans", "is_known"), [(15, True), (16, False)])
def test_the_latest_sixteen_plans_are_known(num_plans: int, *, is_known: bool) -> None:
    plans = FollowedPlans()
    plans.begin(0, T_MIN, PLAN)
    for number in range(1, num_plans + 1):
        plans.begin(number, {0: (2, number)}, NEXT)
    assert plans.at(0, T_MIN) is (PLAN if is_known else UNKNOWN)


@pytest.mark.parametrize(
    ("number", "plan"),
    [(9, AGAIN), (10, PLAN), (19, PLAN), (20, AGAIN)],
    ids=["before both, when the newest was ordered too late", "first", "last", "first of the next"],
)
def test_an_iteration_followed_the_newest_plan_that_had_begun_by_then(number: int, plan: Followed) -> None:
    plans = FollowedPlans()
    plans.begin(10, T_MIN, PLAN)
    plans.begin(20, T_MIN, AGAIN)
    plans.begin(30, FULL_CLOCKS, None)
    assert plans.at(number, T_MIN) == plan


def test_plans_are_told_apart_by_what_they_save_as_well_as_by_their_directives() -> None:
    plans = FollowedPlans()
    plans.begin(10, T_MIN, PLAN)
    plans.begin(20, FULL_CLOCKS, PLAN)
    plans.begin(30, FULL_CLOCKS, AGAIN)
    assert [plans.at(number, FULL_CLOCKS) for number in (20, 30)] == [PLAN, AGAIN]


def test_states_that_are_equal_are_kept_as_several() -> None:
    twin, *states = copies([FULL, FULL])
    states = distinct([twin, None, *states, twin, None])
    assert len(states) == 2
    assert [index_of(state, states) for state in (twin, states[1], FULL, None)] == [0, 1, NONE, NONE]
    assert at(states, 1) is states[1]
    assert at(states, 0) is twin
    assert at(states, NONE) is None


def test_a_level_is_kept_with_its_state_or_without_one() -> None:
    states = copies([FULL, FULL])
    for state in (states[1], None):
        level = Level(plan=PLAN, time_s=2.0, energy_j=900.0, count=7, state=state, num_settled=3, settled_j=5.0)
        restored = restore_level(keep_level(level, states), states)
        assert restored.state is state
        assert (restored.count, restored.num_settled, restored.settled_j) == (7, 3, 5.0)
        assert restored.saved_j == level.saved_j
