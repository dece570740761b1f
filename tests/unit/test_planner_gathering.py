"""A replica that has just taken the policies lets no job draw more until all that they cover have come to it."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from memory_leases import LEASE_S
from replica_history import WorldDatabase
from test_planner_ownership import SlowClaims, fact
from virtual_loop import World

from perseus_dist.planner.job.facts.policies import BudgetSet
from perseus_dist.planner.runtime.ownership.gathering import Gathering
from perseus_dist.planner.store.lease_table import Claimed, LeaseError

COVERED = tuple(f"train-{number}" for number in range(3))
FREE = tuple(f"job-{number}" for number in range(1000))
MOST_S = 60.0


def of_a_dead_replica(world: World, jobs: Iterable[str], patterns: tuple[str, ...] = ("train-*",)) -> WorldDatabase:
    """The policies and jobs are those of a replica whose leases lapse soon."""
    database = WorldDatabase(world)
    dead = database.register("dead")
    for job_id in jobs:
        database.leases[job_id] = (dead.number, 1)
        database.facts[job_id] = [fact(1)]
    database.leases[""] = (dead.number, 1)
    database.facts[""] = [BudgetSet(name="hall", watts=1e6, jobs=patterns)]
    return database


def come_to_faster(world: World, replicas: "list[SlowClaims]", job_id: str) -> SlowClaims:
    """Let time pass until the keeper lets a job become faster; the keeper."""
    while world.now_s < MOST_S:
        world.run_until(world.now_s + 0.05)
        for replica in replicas:
            if "" in replica.jobs and replica.ownership.may_pace(job_id, draws_more=True):
                return replica
    raise AssertionError(f"no job may become faster in {MOST_S:g} s")


def test_no_job_becomes_faster_until_all_that_the_policies_cover_are_here() -> None:
    """Those that are not taken up yet draw power, and the new keeper knows nothing of them."""
    world = World()
    jobs = FREE[:100]
    database = of_a_dead_replica(world, jobs, patterns=())
    replica, other = (SlowClaims(world, database.register(name), 0.3) for name in ("here", "there"))
    seen: set[tuple[bool, bool]] = set()
    while len(seen) < 3 and world.now_s < MOST_S:
        world.run_until(world.now_s + 0.05)
        keeper, rest = (replica, other) if "" in replica.ownership.epochs else (other, replica)
        assert not any(rest.ownership.may_pace(job_id, draws_more=False) for job_id in rest.jobs)
        if "" in keeper.jobs:
            assert keeper.ownership.may_pace(jobs[0], draws_more=False)
            may_speed_up, are_all_here = keeper.ownership.may_pace(jobs[0], draws_more=True), len(keeper.jobs) == 101
            assert are_all_here or not may_speed_up
            seen.add((may_speed_up, are_all_here))
    assert (False, False) in seen
    assert (True, True) in seen
    world.close()


@pytest.mark.parametrize("wait_s", [0.05, 0.3])
def test_no_job_becomes_faster_while_jobs_without_an_owner_are_too_many_for_a_survey(wait_s: float) -> None:
    """A survey lists 256 of them, of which a policy may cover none."""
    world = World()
    database = of_a_dead_replica(world, (*FREE, *COVERED))
    replicas = [SlowClaims(world, database.register(name), wait_s) for name in ("here", "there")]
    keeper = come_to_faster(world, replicas, COVERED[0])
    assert keeper.jobs.keys() >= set(COVERED)
    assert world.now_s < 10.0
    world.close()


def kept_by_another(world: World, wait_s: float) -> tuple[SlowClaims, SlowClaims]:
    """The new keeper, and a replica that has the last of the covered jobs, and whose calls take so long."""
    database = of_a_dead_replica(world, COVERED[:-1])
    other = SlowClaims(world, database.register("there"), wait_s)
    database.leases[COVERED[-1]] = (other.number, 2)
    database.facts[COVERED[-1]] = [fact(2)]
    other.ownership.epochs[COVERED[-1]] = 2
    other.jobs[COVERED[-1]] = [fact(2)]
    return SlowClaims(world, database.register("here"), 0.02), other


@pytest.mark.parametrize("wait_s", [0.02, 2.0, 4.0, 10.0])
def test_no_job_becomes_faster_while_another_replica_has_one_that_the_policies_cover(wait_s: float) -> None:
    """Its release waits behind a claim, perhaps, which waits for locks."""
    world = World()
    keeper = come_to_faster(world, [*kept_by_another(world, wait_s)], COVERED[0])
    assert keeper.jobs.keys() >= set(COVERED)
    assert world.now_s < LEASE_S + 3 * wait_s + 6.0
    world.close()


@pytest.mark.parametrize("fails_at", ["taking it up", "each release"])
def test_a_job_that_never_comes_holds_the_others_for_a_while_only(
    fails_at: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken_over_by(take_over: Callable[[str, Claimed], None]) -> Callable[[str, Claimed], None]:
        def fail(job_id: str, claimed: Claimed) -> None:
            if job_id == COVERED[0]:
                raise RuntimeError("a defect")
            take_over(job_id, claimed)

        return fail

    world = World()
    here, there = kept_by_another(world, 0.02 if fails_at == "taking it up" else 1000.0)
    missing = COVERED[-1]
    if fails_at == "taking it up":
        missing = COVERED[0]
        for replica in (here, there):
            monkeypatch.setattr(replica, "take_over", taken_over_by(replica.take_over))
    keeper = come_to_faster(world, [here, there], COVERED[1])
    assert 20 * LEASE_S < world.now_s < 20 * LEASE_S + 10.0
    assert keeper.jobs.keys() - {""} == {*COVERED} - {missing}
    (told,) = (record.message for record in caplog.records if record.name.endswith("ownership.gathering"))
    assert f"1 jobs that they cover have not come in 40 s, and are not counted: {missing}" in told
    world.close()


def test_a_claim_that_fails_each_time_holds_the_others_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What may have been claimed is claimed first at each look."""
    world = World()
    here, there = kept_by_another(world, 0.02)
    for replica in (here, there):

        def fail(jobs: Collection[str], claim: Any = replica.leases.claim, **options: Any) -> Any:
            if COVERED[0] in jobs:
                raise LeaseError("it cannot be taken at the moment")
            return claim(jobs, **options)

        monkeypatch.setattr(replica.leases, "claim", fail)
    keeper = come_to_faster(world, [here, there], COVERED[-1])
    assert 20 * LEASE_S < world.now_s < 20 * LEASE_S + 10.0
    assert COVERED[0] not in keeper.jobs
    told = [record.message for record in caplog.records if record.name.endswith("ownership.lease_calls")]
    assert told == ["leases cannot be taken: it cannot be taken at the moment"]
    world.close()


def test_gathering_ends_once_nothing_is_missing_of_what_was_there_a_lease_after_the_policies_were_taken() -> None:
    gathering = Gathering(2.0)
    gathering.begin(100.0)
    gathering.note([], 101.9, 102.5)
    assert not gathering.is_over, "another replica may not know of it yet, and begin a job"
    gathering.note(["a"], 102.0, 102.1)
    assert not gathering.is_over
    gathering.note([], 102.0, 102.2)
    assert gathering.is_over
    gathering.begin(200.0)
    assert not gathering.is_over


def test_gathering_goes_on_as_long_as_jobs_come(caplog: pytest.LogCaptureFixture) -> None:
    gathering = Gathering(2.0)
    gathering.begin(100.0)
    missing = [f"job-{number:02}" for number in range(12)]
    gathering.note(missing, 150.0, 190.0)  # the first look has taken long
    gathering.note([*missing, "new"], 220.0, 229.9)
    assert not gathering.is_over
    gathering.note(missing[1:], 229.0, 229.95)
    gathering.note(missing[1:], 260.0, 269.9)
    assert not gathering.is_over
    assert not caplog.records
    gathering.note(missing[1:], 269.9, 269.95)
    assert gathering.is_over
    assert "11 jobs that they cover have not come in 40 s" in caplog.text
    assert caplog.text.strip().endswith(": job-01, job-02, job-03, job-04, job-05, job-06, job-07, job-08, ...")
