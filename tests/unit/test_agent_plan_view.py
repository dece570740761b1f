"""Tables of all pipelines, and of one pipeline beside them."""

from array import array
from dataclasses import replace

from perseus_dist.agent.following.plan_view import PlanView
from perseus_dist.messages.from_planner import PlanTable, Switch

DIGEST = "0f" * 32


def table(revision: int, base_revision: int = 0) -> PlanTable:
    """Its clock says which one it is."""
    return PlanTable(
        revision=revision,
        num_points=1,
        num_instructions=2,
        clocks_mhz=array("H", (1000 + revision,) * 2).tobytes(),
        times_s=(1.0,),
        energies_j=(1.0,),
        expected=(),
        switch_latency_s=0.0,
        schedule_digest=DIGEST,
        base_revision=base_revision,
    )


def view(*tables: PlanTable) -> PlanView:
    plan = PlanView(num_instructions=2, schedule_digest=DIGEST, clocks_mhz=())
    for one in tables:
        plan.apply_table(one, 0)
    return plan


def follow(plan: PlanView, table_revision: int, *, switch_revision: int = 1, iteration: int = 5) -> int | None:
    """The next iteration's clock once the planner names that table; None where it is not held."""
    plan.apply_switch(
        Switch(table_revision=table_revision, point=0, effective_iteration=0, switch_revision=switch_revision),
        iteration,
    )
    clocks_mhz = plan.row(iteration + 1).clocks_mhz
    return None if clocks_mhz is None else clocks_mhz[0]


def holds(*tables: PlanTable) -> list[int]:
    """Revisions that can be followed once these tables have come."""
    return [one.revision for one in tables if follow(view(*tables), one.revision) == 1000 + one.revision]


def test_a_table_of_ones_own_is_held_beside_its_base() -> None:
    assert holds(table(3), table(4, 3)) == [3, 4]
    plan = view(table(3), table(4, 3))
    assert plan.table_revision == 3
    assert plan.newest_table == table(3)


def test_the_newest_of_ones_own_replaces_the_one_before() -> None:
    assert holds(table(3), table(4, 3), table(6, 3)) == [3, 6]
    assert holds(table(3), table(6, 3), table(4, 3)) == [3, 6]
    assert holds(table(3), table(4, 3), table(3), table(4, 3)) == [3, 4, 3, 4]  # told again after a break


def test_one_past_the_last_point_is_the_highest_clock_all_the_time() -> None:
    plan = PlanView(num_instructions=2, schedule_digest=DIGEST, clocks_mhz=(1410, 1003))
    plan.apply_table(table(3), 0)
    plan.apply_switch(Switch(table_revision=3, point=1, effective_iteration=0, switch_revision=1), 5)
    row = plan.row(6)
    assert (row.table_revision, row.point, row.clocks_mhz) == (3, 1, (1410, 1410))
    plan.apply_switch(Switch(table_revision=3, point=2, effective_iteration=0, switch_revision=2), 6)
    assert plan.row(7).clocks_mhz is None
    assert "which has 1 points" in plan.trouble


def test_a_rank_that_may_set_no_clock_is_released_at_full_clocks() -> None:
    plan = view(table(3))
    plan.apply_switch(Switch(table_revision=3, point=1, effective_iteration=0, switch_revision=1), 5)
    assert plan.row(6).clocks_mhz is None


def test_a_newer_shared_table_ends_those_that_went_with_an_older_one() -> None:
    assert holds(table(3), table(4, 3), table(5)) == [5]
    assert holds(table(3), table(4, 3), table(5), table(6, 5)) == [5, 6]


def test_a_table_of_ones_own_without_its_base_is_not_taken_and_told() -> None:
    assert holds(table(3), table(5, 4)) == [3]
    assert holds(table(4, 3)) == []
    plan = view(table(3), table(5), table(6, 3))
    assert plan.trouble == "table 6 goes with table 3, the newest that this rank holds is table 5"
    plan.apply_table(table(7, 5), 0)
    assert plan.trouble == ""
    assert follow(plan, 7) == 1007


def test_what_is_in_force_goes_on_whatever_comes() -> None:
    plan = view(table(3), table(4, 3))
    assert follow(plan, 4) == 1004
    for one in (table(6, 3), table(7), table(8, 7)):
        plan.apply_table(one, 7)
        assert plan.row(8).clocks_mhz == (1004, 1004)
        # Told again, as after a break, it still can be followed.
        assert follow(plan, 4, iteration=7) == 1004
    assert follow(plan, 8, switch_revision=2, iteration=7) == 1008


def test_a_switch_waits_for_a_table_of_ones_own() -> None:
    plan = view(table(3))
    assert follow(plan, 4) is None
    plan.apply_table(table(4, 3), 8)
    assert plan.row(9).clocks_mhz == (1004, 1004)


def test_another_bound_of_the_switch_in_force_counts_from_the_next_iteration_on() -> None:
    plan = view(table(3))
    loose = Switch(table_revision=3, point=0, effective_iteration=4, switch_revision=2, deadline_s=9.0)
    plan.apply_switch(loose, 5)
    plan.apply_switch(replace(loose, deadline_s=1.25), 7)
    rows = [plan.row(iteration) for iteration in (7, 8)]
    assert [row.deadline_s for row in rows] == [9.0, 1.25]
    assert rows[0] == replace(rows[1], deadline_s=9.0), "the same clocks"


def test_another_bound_of_a_switch_to_come_leaves_it_its_iteration() -> None:
    plan = view(table(3))
    assert follow(plan, 3) == 1003
    later = Switch(table_revision=3, point=0, effective_iteration=9, switch_revision=2, deadline_s=9.0)
    plan.apply_switch(later, 5)
    plan.apply_switch(replace(later, deadline_s=1.25), 6)
    assert [plan.row(iteration).deadline_s for iteration in (6, 8, 9)] == [0.0, 0.0, 1.25]
