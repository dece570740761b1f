"""Transfers at their limits: which of them a plan is made with, when it is made again, and what counts as a change."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fleets import fleet_enforcing, fleet_planning

from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.measured_transfers import Snapshot, slowest
from perseus_dist.planner.lifecycle.transfers import (
    are_of_long_ago,
    are_unconfirmed,
    are_unknown_to_request,
    snapshots_to_plan,
    transfers_are_new,
    transfers_have_moved,
)

NOW_S = 1000.0


def snapshot(*links_ms: float) -> Snapshot:
    """Of one pipeline, links from stage 0 on."""
    return (tuple((stage, "SEND_F", link_ms / 1e3) for stage, link_ms in enumerate(links_ms)),)


def job_with(*links_ms: float, planned_ms: Sequence[float] = ()) -> Job:
    """Under a plan that knows these transfers, with these snapshots; 2.5 ms matter to its iterations of 1 s."""
    job = fleet_enforcing().job
    assert job.plan is not None
    job.enforcement.guard.guard.reference_s = 1.0
    job.plan = replace(job.plan, snapshots=tuple(map(snapshot, planned_ms)))
    job.measured.snapshots.extend(map(snapshot, links_ms))
    return job


def planned_ms(job: Job) -> list[float]:
    """[ms] of the first link, by snapshot that a plan would be made with."""
    return [round(1e3 * slowest(one).get((0, "SEND_F"), 0.0), 3) for one in snapshots_to_plan(job)]


# ---- what a plan is made with ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("links_ms", "known_ms", "num_agreeing", "wanted_ms"),
    [
        ((10.0, 20.0), (), 2, [20.0, 10.0]),
        ((10.0, 20.0, 30.0), (), 2, [30.0, 20.0]),
        ((10.0, 20.0, 30.0), (), 3, [30.0, 20.0, 10.0]),
        ((10.0, 20.0, 30.0, 40.0), (), 4, [40.0, 30.0, 20.0]),
        ((10.0, 20.0), (50.0,), 2, [20.0, 10.0]),
        ((10.0,), (50.0,), 2, [10.0, 50.0]),
        ((10.0,), (50.0,), 1, [10.0]),
        ((10.0, 12.0), (), 2, [12.0]),
        ((10.0, 12.6), (), 2, [12.6, 10.0]),
    ],
)
def test_a_plan_is_made_with_the_newest_snapshots_that_differ_and_older_ones_while_there_are_too_few(
    links_ms: tuple[float, ...], known_ms: tuple[float, ...], num_agreeing: int, wanted_ms: list[float]
) -> None:
    job = job_with(*links_ms, planned_ms=known_ms)
    job.measured.num_agreeing = num_agreeing
    assert planned_ms(job) == wanted_ms


def test_before_it_is_known_what_iterations_take_the_newest_snapshot_alone_is_planned_with() -> None:
    job = job_with(10.0, 20.0)
    job.enforcement.guard.guard.reference_s = None
    assert planned_ms(job) == [20.0]
    job.measured.snapshots.clear()
    assert planned_ms(job) == []


# ---- planning again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("link_ms", "is_new"), [(10.0, False), (12.4, False), (12.6, True), (7.4, True), (7.6, False)])
def test_a_transfer_that_has_changed_by_what_matters_is_new_to_the_plan(link_ms: float, *, is_new: bool) -> None:
    job = job_with(link_ms, planned_ms=(10.0,))
    assert bool(transfers_are_new(job)) == is_new
    assert bool(transfers_have_moved(job, NOW_S)) == is_new


def test_where_nothing_is_known_no_transfer_is_new() -> None:
    job = job_with(20.0, planned_ms=(10.0,))
    plan, reference_s = job.plan, job.enforcement.guard.guard.reference_s
    for change in ("plan", "reference", "snapshots"):
        job.plan = None if change == "plan" else plan
        job.enforcement.guard.guard.reference_s = None if change == "reference" else reference_s
        if change == "snapshots":
            job.measured.snapshots.clear()
        assert transfers_are_new(job) == ""
        assert transfers_have_moved(job, NOW_S) == ""


def test_the_sentence_tells_what_transfers_take_and_took() -> None:
    job = job_with(20.04, planned_ms=(10.0, 5.0))
    assert transfers_are_new(job) == (
        "transfers between stages take up to 5.0 ms or 10.0 ms or 20.0 ms, and up to 5.0 ms or 10.0 ms by the plan: "
        "planning again"
    )
    assert "up to 0.0 ms by the plan" in transfers_are_new(job_with(20.0))
    assert "up to 5.0 ms by the plan" in transfers_are_new(job_with(20.0, planned_ms=(5.01, 5.04))), "all the same"


@pytest.mark.parametrize(
    ("since_s", "is_urgent", "is_due"), [(30.0, False, True), (29.9, False, False), (29.9, True, True)]
)
def test_transfers_that_the_plan_does_not_know_are_planned_with_after_a_while_or_at_once_where_it_is_urgent(
    since_s: float, *, is_urgent: bool, is_due: bool
) -> None:
    job = job_with(20.0, 20.0, planned_ms=(10.0,))
    job.planning.moved_at_s = NOW_S - since_s
    job.planning.transfers_at_s = NOW_S  # of a plan for another reason, which puts none off
    assert bool(transfers_have_moved(job, NOW_S, is_urgent=is_urgent)) == is_due


@pytest.mark.parametrize(
    ("since_s", "is_urgent", "is_due"), [(30.0, False, True), (29.9, False, False), (29.9, True, True)]
)
def test_transfers_that_the_plan_knows_and_that_are_over_cost_no_energy_after_a_while(
    since_s: float, *, is_urgent: bool, is_due: bool
) -> None:
    job = job_with(10.0, 10.0, planned_ms=(10.0, 20.0))
    job.planning.transfers_at_s = NOW_S - since_s
    found = transfers_have_moved(job, NOW_S, is_urgent=is_urgent)
    assert found == ("transfers between stages take up to 10.0 ms, for long: planning without others" if is_due else "")


@pytest.mark.parametrize("missing", ["", "reference", "snapshots", "probe"])
def test_what_is_over_is_not_known_before_a_probe_that_is_ahead_has_told_more(missing: str) -> None:
    job = job_with(10.0, 10.0, planned_ms=(10.0, 20.0))
    if missing == "reference":
        job.enforcement.guard.guard.reference_s = None
    elif missing == "snapshots":
        job.measured.snapshots.clear()
    elif missing == "probe":
        job.enforcement.guard.guard.order_probe(job.progress.iteration)
    assert bool(transfers_have_moved(job, NOW_S)) == (missing == "")


@pytest.mark.parametrize(("ago", "is_long"), [(16, False), (17, True)])
def test_transfers_are_of_long_ago_after_a_number_of_iterations_where_a_probe_can_tell(
    ago: int, *, is_long: bool
) -> None:
    job = job_with(10.0)
    job.measured.snapshot_iteration = job.progress.iteration - ago
    assert are_of_long_ago(job) == is_long
    job.holds_probes = True
    assert not are_of_long_ago(job)


@pytest.mark.parametrize(
    ("known_ms", "behind", "is_unconfirmed"),
    [
        ((10.0,), 1, True),
        ((10.0,), 0, False),
        ((2.4,), 1, False),
        ((2.6,), 1, True),
        ((10.0, 0.0), 1, False),
        ((), 1, False),
    ],
)
def test_transfers_that_were_not_measured_since_the_plan_is_in_force_may_be_over(
    known_ms: tuple[float, ...], behind: int, *, is_unconfirmed: bool
) -> None:
    job = job_with(planned_ms=known_ms)
    assert job.switch is not None
    job.measured.snapshot_iteration = job.switch.effective_iteration - behind
    assert are_unconfirmed(job) == is_unconfirmed
    for missing in ("reference", "switch", "plan"):
        if missing == "reference":
            job.enforcement.guard.guard.reference_s = None
        elif missing == "switch":
            job.enforcement.switch = None
        else:
            job.plan = None
        assert not are_unconfirmed(job)


@pytest.mark.parametrize(
    ("change", "is_unknown"),
    [("", True), ("answered", False), ("restarted", False), ("no baseline", False), ("none", False), ("known", False)],
)
def test_a_request_that_does_not_know_the_newest_transfers_is_begun_anew_once(change: str, *, is_unknown: bool) -> None:
    fleet = fleet_planning()
    job = fleet.job
    job.measured.snapshots.extend([snapshot(10.0), snapshot(20.0)])
    if change == "answered":
        job.planning.pending = None
    elif change == "restarted":
        job.planning.is_restarted = True
    elif change == "no baseline":
        job.measured.baseline = None
    elif change == "none":
        job.measured.snapshots.clear()
    elif change == "known":
        job.planning.snapshots = (snapshot(18.0),)
    why = are_unknown_to_request(job)
    assert bool(why) == is_unknown
    if is_unknown:
        assert why.startswith("transfers between stages take up to 20.0 ms, and up to 0.0 ms by the plan")
