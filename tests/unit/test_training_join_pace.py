"""Members that a process makes one after the other: when each of them joins."""

import pytest

from perseus_dist.training.rank.join_pace import JoinPace


def waits(*iterations: int) -> list[int]:
    """Of members that train for so many iterations."""
    pace, found = JoinPace(), []
    for num_iterations in iterations:
        found.append(pace.next_wait())
        for _ in range(num_iterations):
            pace.count_iteration()
    return found


def test_a_schedule_made_anew_for_each_step_starts_one_agent() -> None:
    assert [wait < 1 for wait in waits(*[1] * 2000)] == [True] + [False] * 1999


@pytest.mark.parametrize(
    ("iterations", "expected"),
    [
        ((100, 100, 100), [0, 0, 0]),
        ((3, 3, 3, 3), [0, 2, 4, 8]),
        ((3, 3, 100, 3), [0, 2, 4, 0]),
        ((0, 0, 5, 0, 100), [0, 0, 0, 2, 2]),
    ],
    ids=["that lasts", "that changes soon", "that lasts at last", "that never trained"],
)
def test_a_member_joins_at_once_unless_the_one_before_was_given_up_soon(
    iterations: tuple[int, ...], expected: list[int]
) -> None:
    assert waits(*iterations) == expected


def test_a_member_that_the_script_gives_up_by_itself_delays_none() -> None:
    pace = JoinPace()
    pace.count_iteration()
    pace.forget()
    assert pace.next_wait() == 0


def test_waits_are_bounded() -> None:
    assert max(waits(*[1] * 50)) == 1024
