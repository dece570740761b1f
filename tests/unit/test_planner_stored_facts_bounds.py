"""More bounds of stored facts: rows of a profile, transfers of links, and numbers that other facts bound."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from test_stored_fact_bounds import (
    FACTS,
    NUM_POINTS,
    SAMPLES,
    SPEC,
    SUMMARY,
    SWITCH,
    changed,
    is_taken_up,
    of_kind,
    summarised,
)

from perseus_dist.planner.job.facts.plans import TableMade
from perseus_dist.planner.job.facts.runs import FingerprintKnown
from perseus_dist.planner.job.facts.sweeps import SweepBegun
from perseus_dist.planner.job.stored_facts import StoredFactError, check_facts

table, sweep = changed(TableMade), changed(SweepBegun)


@pytest.mark.parametrize(
    ("stage", "transfer_s", "is_taken"), [(0, 0.0, True), (5, 2.0, True), (-1, 2.0, False), (5, -1e-9, False)]
)
def test_a_link_has_a_stage_and_takes_no_less_than_nothing(stage: int, transfer_s: float, *, is_taken: bool) -> None:
    good = (1, "SEND_F", 0.5)
    for of_pipeline in (((stage, "SEND_F", transfer_s),), (good, (stage, "SEND_F", transfer_s))):
        for snapshots in (((of_pipeline,),), ((), ((good,), of_pipeline))):
            assert is_taken_up(table(snapshots=snapshots)) == is_taken


def test_no_two_plans_of_a_table_take_the_same_time_nor_less_than_those_before() -> None:
    first, second, third, *others = SUMMARY.time_ps
    assert len(others) == NUM_POINTS - 3
    assert is_taken_up(summarised(time_ps=(first, first + 1, third, *others)))
    for times_ps in ((first, first, third), (first, third, second), (second, first, third)):
        assert not is_taken_up(summarised(time_ps=(*times_ps, *others)))


def test_points_of_a_table_that_is_not_stored_are_bounded_by_no_other_table() -> None:
    points = (NUM_POINTS + 5, 0)
    assert of_kind(TableMade).revision == SWITCH.table_revision
    assert not is_taken_up(replace(SWITCH, points=points))
    assert is_taken_up(replace(SWITCH, points=points, table_revision=SWITCH.table_revision + 7))
    assert is_taken_up(replace(SWITCH, points=points, own_revisions=(SWITCH.table_revision + 7, 0)))
    assert not is_taken_up(replace(SWITCH, points=points, own_revisions=(0, SWITCH.table_revision + 7)))


HEADER = "stage,instruction,time,energy"


@pytest.mark.parametrize(
    ("rows", "is_profile"),
    [
        ((), True),
        ((HEADER,), True),
        (("of another planner",), True),
        ((HEADER, "0,forward,0.0,1"), True),
        ((HEADER, "0,forward,0.5,1", "3,backward,0.5,1"), True),
        ((HEADER, "-1,forward,0.5,1"), False),
        ((HEADER, "0,forward,-0.5,1"), False),
        ((HEADER, "0,,0.5,1"), False),
        ((HEADER, "0,forward,0.5,1", "0,forward,-0.5,1"), False),
        ((HEADER, "0,forward,0.5,1", "0"), False),
        ((HEADER, "0,forward,much,1"), False),
        (("stage,instruction,energy", "0,forward,0.5"), False),
    ],
)
def test_a_profile_has_a_stage_an_instruction_and_a_time_in_each_row(rows: Sequence[str], *, is_profile: bool) -> None:
    assert is_taken_up(table(profile_csv="\n".join(rows).encode())) == is_profile


def test_a_profile_is_text() -> None:
    assert not is_taken_up(table(profile_csv=b"\xff\xfe\n"))


@pytest.mark.parametrize(("num", "is_taken"), [(0, True), (3, False), (4, True), (5, False)])
def test_a_sweep_has_clocks_of_each_rank_or_of_none(num: int, *, is_taken: bool) -> None:
    assert len(of_kind(SweepBegun).ranks) == 4
    assert is_taken_up(sweep(clocks_of_ranks=((1400,),) * num)) == is_taken


@pytest.mark.parametrize(
    ("field", "value", "is_taken"),
    [("rank", 7, True), ("rank", 8, False), ("tp_rank", 1, True), ("tp_rank", 2, False)],
)
def test_samples_are_of_a_rank_of_the_job_whose_stages_several_share(field: str, value: Any, *, is_taken: bool) -> None:
    """Two stages, two pipelines and two ranks in each stage."""
    facts = [replace(SPEC, tp_size=2), *(one for one in FACTS if isinstance(one, FingerprintKnown))]
    facts.append(replace(SAMPLES, **{field: value}))
    if is_taken:
        check_facts([*facts, of_kind(SweepBegun)])
    else:
        with pytest.raises(StoredFactError, match="is damaged"):
            check_facts([*facts, of_kind(SweepBegun)])
