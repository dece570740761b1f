"""Schedules, profiles and values at limits: what occupies a pp_rank, what is gathered, which rows are believed."""

import pytest
from test_samples import row
from test_samples_bounds import times

from perseus_dist.planning.profile.samples import undisturbed
from perseus_dist.planning.schedule.calls.deferred import deferred_programs
from perseus_dist.planning.schedule.calls.posted import _stages_coming
from perseus_dist.planning.schedule.dag import BETWEEN, build_dag
from perseus_dist.planning.schedule.instruction import (
    BETWEEN_ITERATIONS,
    NO_MICROBATCH,
    SEND_BACKWARD,
    SEND_FORWARD,
    Instruction,
    Kind,
)
from perseus_dist.planning.schedule.schedule import Schedule, gpipe, interleaved, one_f_one_b
from perseus_dist.planning.value_equality import ValueEquality

SENDS = frozenset({(0, SEND_FORWARD), (1, SEND_BACKWARD)})
APART = frozenset({(0, BETWEEN_ITERATIONS)})


class Held(ValueEquality):
    def __init__(self, held: int) -> None:
        self.held = held


class HeldElsewhere(Held):
    pass


def test_values_of_two_classes_are_not_equal_whatever_they_hold() -> None:
    assert Held(1) == Held(1)
    assert Held(1) != HeldElsewhere(1)
    assert HeldElsewhere(1) != Held(1)


@pytest.mark.parametrize(
    ("timed", "num_apart"),
    [(frozenset(), 0), (SENDS, 0), (APART, 1), (SENDS | APART, 1)],
    ids=["nothing else takes time", "sends", "between iterations", "both"],
)
def test_where_sends_block_all_but_time_between_iterations_occupies_a_pp_rank(
    timed: frozenset[tuple[int, str]], num_apart: int
) -> None:
    dag = build_dag(one_f_one_b(pp=2, microbatches=2), timed)
    assert dag.on_rank.tolist() == [one != BETWEEN for one in dag.instructions]
    assert dag.on_rank.sum() == len(dag.instructions) - num_apart


def test_transfers_that_a_link_carries_occupy_no_pp_rank() -> None:
    dag = build_dag(interleaved(pp=2, microbatches=2, chunks=2), SENDS | APART)
    assert dag.on_rank.tolist() == [one.kind in {*Kind} for one in dag.instructions]


def test_stages_that_compute_in_one_action_with_the_third_are_gathered_with_it() -> None:
    """Three at a time, as torch's pipelining gathers them."""
    forwards = [(Instruction(stage, Kind.FORWARD, 0),) for stage in (5, 0, 1, 4)]
    joint = (Instruction(2, Kind.FORWARD, 0), Instruction(3, Kind.BACKWARD, 0))
    assert _stages_coming([*forwards[:3], joint]) == [[5, 0, 1], [0, 1, 2, 3], [1, 2, 3], [2, 3]]
    assert _stages_coming([*forwards, joint]) == [[5, 0, 1], [0, 1, 4], [1, 4, 2, 3], [4, 2, 3], [2, 3]]


def test_a_schedule_without_microbatches_or_of_several_stages_a_pp_rank_makes_no_deferred_calls() -> None:
    constant = tuple((Instruction(pp_rank, "STEP", NO_MICROBATCH),) for pp_rank in range(2))
    assert deferred_programs(Schedule(ranks=constant)) is None
    assert deferred_programs(interleaved(pp=2, microbatches=2, chunks=2)) is None
    assert deferred_programs(gpipe(pp=2, microbatches=1)) is not None


def test_two_rows_of_another_energy_that_are_hardly_faster_are_not_believed() -> None:
    """They agree, but one percent is what replicas that are well differ by."""
    odd = [row(0.99)._replace(energy_j=2.0) for _ in range(2)]
    assert times(undisturbed([*[row(1.0)] * 5, *odd])) == [1.0] * 5
    fast = [row(0.97)._replace(energy_j=2.0) for _ in range(2)]
    assert times(undisturbed([*[row(1.0)] * 5, *fast])) == [0.97] * 2
