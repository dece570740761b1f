"""The store of facts: what is in it after commits, drops, damage and full disks."""

import errno
import logging
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from perseus_dist.fingerprint import Fingerprint, Workload
from perseus_dist.messages.from_agent import ProfileSamples, Sample
from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.facts.decisions import PaceChosen, StragglerKnown, SwitchDecided, TargetChosen
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import StragglerPlanReady, TableAhead, TableMade
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet, PricePolicySet, PriceProgress
from perseus_dist.planner.job.facts.runs import (
    BaselineMeasured,
    FingerprintKnown,
    JobEnded,
    JobRegistered,
    SavingCounted,
    ScheduleReceived,
)
from perseus_dist.planner.job.facts.sweeps import OF_STAGES, SamplesReceived, SweepBegun, SweepEnded
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.lifecycle import Phase, restore
from perseus_dist.planner.shapes.stage import StageWork
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row, row_of_fact
from perseus_dist.planner.store.migrations import SCHEMA_VERSION
from perseus_dist.planner.store.sqlite_facts import SqliteFacts
from perseus_dist.planner.store.store import NO_JOB, Store
from perseus_dist.planning.frontier.slow_rank import SlowRank


def baseline(time_s: float) -> BaselineMeasured:
    return BaselineMeasured(num_iterations=5, time_s=time_s, time_spread_s=0.01, energy_j=0.0, energy_spread_j=0.0)


SAMPLE = Sample(
    chunk=1,
    kind="B",
    clock_mhz=1410,
    time_s=0.1 + 0.2,
    energy_j=3.5,
    time_std_s=1e-9,
    energy_std_j=0.0,
    num_runs=7,
    window_s=2.0,
)
OF_VERSION_1: tuple[Fact, ...] = (
    JobRegistered(schedule_digest="ab", pp_size=4, dp_size=2, tp_size=1, token_sha256="", last_sweep_id=3),
    ScheduleReceived(text="0F0 0B0\n"),
    TargetChosen(target=Target(slowdown=1.1), by_operator=True),
    baseline(2.0),
    SweepBegun(
        sweep_id=4,
        series=3,
        first_iteration=17,
        iterations_per_clock=2,
        clocks_mhz=(1410, 1320),
        ranks=(0, 1),
        first_only=(2,),
        is_profile=True,
    ),
    SamplesReceived(
        rank=1,
        pp_rank=1,
        dp_rank=0,
        tp_rank=0,
        incarnation=2**64 - 1,
        series=3,
        clock_mhz=1410,
        samples=ProfileSamples(sequence=5, sweep_id=4, step=0, samples=(SAMPLE, SAMPLE), last=True),
    ),
    SweepEnded(series=3),
    TableMade(
        revision=2,
        summary=FrontierSummary(
            time_ps=(2**62, 2**62 + 1),
            total_uj=(5, 4),
            lower_bound_uj=(4, 4),
            baseline_time_ps=2**62,
            baseline_uj=9,
            total_blocking_uw=1,
        ),
        tables=(b"\x00table", b"", b"\xff"),
        frontier_npz=b"PK",
        profile_csv=b"stage",
    ),
    StragglerPlanReady(
        dp_rank=1,
        revision=3,
        base_revision=2,
        slow_ranks=(SlowRank(pp_rank=0, cap_mhz=1005), SlowRank(pp_rank=1, factor=1.25)),
        summary=FrontierSummary(
            time_ps=(2, 3),
            total_uj=(5, 4),
            lower_bound_uj=(4, 4),
            baseline_time_ps=2,
            baseline_uj=9,
            total_blocking_uw=1,
            kind_shares=(0.25, 0.75, 0.0, 0.0),
            tail_ps=1,
            slow_rank_ps=((1, 2), (3, 4)),
        ),
        tables=(b"own", b"\x00"),
    ),
    SwitchDecided(
        table_revision=2,
        switch_revision=9,
        effective_iteration=30,
        points=(1, -1),
        reason="because",
        own_revisions=(0, 3),
        t_prime_s=1.25,
    ),
    StragglerKnown(straggler_id="node/7 'x'", degree=1.25, dp_rank=1),
)
FINGERPRINT = Fingerprint(
    schedule_digest="ab",
    pp_size=4,
    dp_size=2,
    node_size=1,
    gpu_name="NVIDIA A100",
    gpu_memory_mib=81920,
    clocks_mhz=(1410, 1395),
    default_power_limit_w=400,
    power_limit_w=350,
    workload=Workload(framework="deepspeed", versions=("torch 2.13.0",), stage_parameters=(2**40, 1)),
)
OF_VERSION_2: tuple[Fact, ...] = (
    FingerprintKnown(rank=3, run_id="8c1f", fingerprint=FINGERPRINT),
    SavingCounted(saved_j=-12.5),
    JobEnded(reason="every rank's trainer has ended"),
)
OF_VERSION_3 = (*OF_VERSION_1[:-1], *OF_VERSION_2, OF_VERSION_1[-1])
OF_VERSION_4: tuple[Fact, ...] = (
    *OF_VERSION_3[:-1],
    SamplesReceived(
        rank=0,
        pp_rank=0,
        dp_rank=0,
        tp_rank=0,
        incarnation=0,
        series=OF_STAGES,
        clock_mhz=0,
        samples=ProfileSamples(sequence=1, sweep_id=0, step=0, samples=(SAMPLE,), last=True),
        work=StageWork(index=1, num_stages=4, parameters=2**40, layers=6, fingerprint=Fingerprint(gpu_name="A100")),
    ),
    PaceChosen(slowdown=1.0 + 2**-50, budget="hall"),
    OF_VERSION_3[-1],
)
OF_VERSION_6: tuple[Fact, ...] = (
    *OF_VERSION_4[:-2],
    PaceChosen(slowdown=1.0 + 2**-50, budget="", price="cheap"),
    OF_VERSION_4[-1],
)
OF_VERSION_7: tuple[Fact, ...] = (
    *OF_VERSION_6[:-1],
    TableAhead(
        digest="9f" * 32,
        summary=FrontierSummary(
            time_ps=(2**62,),
            total_uj=(5,),
            lower_bound_uj=(4,),
            baseline_time_ps=2**62,
            baseline_uj=6,
            total_blocking_uw=7,
        ),
        tables=(b"\x00\xff", b""),
        frontier_npz=b"PK",
        profile_csv=b"stage,instruction\n",
        is_first=True,
    ),
    OF_VERSION_6[-1],
)
FACTS = OF_VERSION_7
OWN_FACTS: tuple[Fact, ...] = (
    BudgetSet(
        name="hall",
        watts=1e6,
        jobs=("llama-*",),
        objective="max-min",
        guard_band=0.02,
        weights=(("llama-7b", 2.0),),
        max_slowdowns=(("*", 1.5),),
    ),
    LoadTargetSet(name="peak", budget="hall", start_s=1.5e9, end_s=1.6e9, watts=5e5, best_effort=True),
    PricePolicySet(name="cheap", jobs=("llama", "gpt"), signal="day.csv", deadline_s=1.5e9, iterations=10**9),
    PriceProgress(policy="cheap", job_id="llama", done=2**40, run_id="8c1f", iteration=7),
)
VERSION_1 = Path(__file__).parent / "data" / "planner_v1.sql"
"""What a planner of schema version 1 has stored: a job under its plan, and one with a fact of every kind of then."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "planner.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store(path)
    yield opened
    opened.close()


@pytest.mark.parametrize("fact", [*FACTS, *OWN_FACTS], ids=lambda fact: type(fact).__name__)
def test_a_fact_is_read_back_as_it_was_written(fact: Fact) -> None:
    assert fact_of_row(row_of_fact(fact)) == fact


@pytest.mark.parametrize(
    "row",
    [
        FactRow("job", "JobRegistered", "{", b""),
        FactRow("job", "NoSuchFact", "{}", b""),
        FactRow("job", "ScheduleReceived", '{"text": 5}', b""),
        FactRow("job", "ScheduleReceived", "{}", b""),
        FactRow("job", "ScheduleReceived", "[]", b""),
    ],
)
def test_a_row_that_says_something_else_is_refused(row: FactRow) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        fact_of_row(row)


def test_facts_come_back_in_the_order_of_storing(path: Path) -> None:
    store = Store(path)
    assert store.load() == {}
    store.commit("a", FACTS[:4]).result(PATIENCE_S)
    store.commit("b", FACTS).result(PATIENCE_S)
    for fact in FACTS[4:]:
        store.commit("a", [fact]).result(PATIENCE_S)
    store.close()
    again = Store(path)
    assert again.load() == {"a": list(FACTS), "b": list(FACTS)}
    again.close()


def test_the_planners_own_facts_are_of_no_job(path: Path) -> None:
    store = Store(path)
    store.commit("a", FACTS).result(PATIENCE_S)
    store.commit(NO_JOB, OWN_FACTS).result(PATIENCE_S)
    store.close()
    again = Store(path)
    assert (again.load(), again.load_own()) == ({"a": list(FACTS)}, list(OWN_FACTS))
    again.commit(NO_JOB, (), [fact.key for fact in OWN_FACTS[1:]]).result(PATIENCE_S)
    again.close()
    last = Store(path)
    assert last.load_own() == [OWN_FACTS[0]]
    last.close()


def old_database(path: Path) -> None:
    path.touch(mode=0o600)
    database = sqlite3.connect(path)
    database.executescript(VERSION_1.read_text())
    database.close()


def test_a_database_of_the_version_before_is_taken_over_with_all_its_facts(path: Path) -> None:
    old_database(path)
    store = Store(path)
    assert store.load()["every-kind"] == list(OF_VERSION_1)
    job = restore("job", store.load()["job"], Policy())
    assert job.phase is Phase.ENFORCING
    assert job.plan is not None
    assert (job.plan.revision, job.plan.tables, job.members.fingerprints) == (1, (b"table 0", b"table 1"), {})
    store.commit("job", OF_VERSION_2).result(PATIENCE_S)
    store.close()
    for _ in range(2):  # what is new is there, and what was there still is
        again = Store(path)
        assert again.load()["job"][-3:] == list(OF_VERSION_2)
        assert again.load()["every-kind"] == list(OF_VERSION_1)
        over = restore("job", again.load()["job"], Policy())
        assert (over.phase, over.measured.saving.saved_j) == (Phase.DONE, -12.5)
        again.close()
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,), "an older planner refuses it"
    database.close()


def test_only_the_owner_may_read_it(store: Store, path: Path) -> None:
    store.commit("a", FACTS).result(PATIENCE_S)
    assert {file.stat().st_mode & 0o077 for file in path.parent.iterdir()} == {0}


def test_a_fact_replaces_that_of_the_same_key_and_prefixes_drop(path: Path) -> None:
    store = Store(path)
    store.commit("a", FACTS)
    store.commit("a", [StragglerKnown(straggler_id="node", degree=2.0, dp_rank=0)])
    newer = baseline(3.0)
    store.commit("a", [newer], drop=[FACTS[-1].key, "samples/", "sweep/3/"])
    store.commit("b", FACTS)
    store.forget("b").result(PATIENCE_S)
    store.close()
    again = Store(path)
    facts = again.load()
    again.close()
    assert facts.keys() == {"a"}
    assert [fact.key for fact in facts["a"]] == [
        "job",
        "schedule",
        "target",
        "sweep/4/",
        "ended/3/",
        "table",
        "own/1/",
        "switch",
        "fingerprint/3/",
        "saved",
        "over",
        "pace",
        f"ahead/{'9f' * 32}/",
        "straggler/node/",
        "baseline",
    ]
    assert facts["a"][-1] == newer


@pytest.mark.parametrize(
    "damaged",
    [
        replace(OWN_FACTS[0], guard_band=2.0),  # type: ignore[arg-type]
        replace(OWN_FACTS[0], objective="none"),  # type: ignore[arg-type]
        replace(OWN_FACTS[1], end_s=1.0),  # type: ignore[arg-type]
        replace(OWN_FACTS[2], iterations=-5),  # type: ignore[arg-type]
        replace(OWN_FACTS[3], done=-1),  # type: ignore[arg-type]
    ],
)
def test_a_damaged_policy_is_left_out_with_one_line(
    damaged: Fact, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(path)
    store.commit("", OWN_FACTS).result(PATIENCE_S)
    store.commit("", [damaged]).result(PATIENCE_S)
    store.close()
    again = Store(path)
    others = [fact for fact in OWN_FACTS if fact.key != damaged.key]
    assert again.load_own() == again.load_own() == others
    again.close()
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert damaged.key in told


def test_a_store_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(None)
    store.commit("a", FACTS).result(PATIENCE_S)
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_second_planner_is_refused(store: Store, path: Path) -> None:
    store.commit("a", FACTS).result(PATIENCE_S)
    with pytest.raises(StoreError, match="another planner"):
        Store(path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="name a writable folder"):
        Store(tmp_path / "missing" / "planner.db")


def test_a_newer_schema_and_a_foreign_database_are_left_alone(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
        database.execute("INSERT INTO versions VALUES (99, '7.0.1')")
    database.close()
    newer = path.read_bytes()
    with pytest.raises(StoreError) as refused:
        Store(path)
    assert str(refused.value) == (
        f"{path}: saw schema version 99 (perseus-dist 7.0.1), expected 1 to {SCHEMA_VERSION}; use the perseus-dist "
        "that wrote it, or name another state folder"
    )
    assert path.read_bytes() == newer
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE photos (name TEXT)")
    database.close()
    with pytest.raises(StoreError, match="another program"):
        Store(path)


PLANS = (TableMade, TableAhead, StragglerPlanReady, SwitchDecided)


def hundred_jobs(path: Path) -> None:
    store = Store(path)
    for number in range(100):
        done = store.commit(f"job {number}", FACTS)
    done.result(30)
    store.close()


@pytest.mark.parametrize(
    ("damage", "least", "most"), [("not a database", 99, 100), ("overwritten page", 90, 100), ("damaged row", 99, 100)]
)
def test_of_a_damaged_database_what_can_be_read_goes_on(
    path: Path, damage: str, least: int, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    hundred_jobs(path)
    if damage == "damaged row":
        with sqlite3.connect(path) as database:
            database.execute("UPDATE facts SET body = 'x' WHERE id = 77")
        database.close()
    else:
        data = bytearray(path.read_bytes())
        begin = 0 if damage == "not a database" else len(data) // 2 // 4096 * 4096
        data[begin : begin + 4096] = b"\x5a" * 4096
        path.write_bytes(data)
    with caplog.at_level(logging.ERROR):
        again = Store(path)
    assert least <= len(again.load()) <= most
    again.commit("a", FACTS).result(PATIENCE_S)
    again.close()
    assert "damaged" in caplog.text
    (aside,) = path.parent.glob("planner.db.damaged-*")
    assert aside.name in caplog.text
    last = Store(path)
    assert list(last.load()) == [*again.load(), "a"]
    last.close()


@pytest.mark.parametrize(
    "step_of",
    [
        "shutil.copy2",
        "perseus_dist.planner.store.database.salvage",
        "perseus_dist.planner.store.database.write_facts",
        "pathlib.Path.replace",
    ],
)
def test_a_salvage_that_is_killed_half_way_is_done_again(
    path: Path, step_of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hundred_jobs(path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE facts SET body = 'x' WHERE id = 77")
    database.close()

    def killed(*_arguments: object, **_named: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(step_of, killed)
        with pytest.raises(SystemExit):
            Store(path)
    again = Store(path)
    assert len(again.load()) >= 99
    again.close()


def test_a_salvage_that_is_killed_before_its_last_step_loses_nothing_of_the_journal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = path.with_name("living.db")
    hundred_jobs(living)
    with closing(sqlite3.connect(living, isolation_level=None)) as database:
        database.execute("UPDATE facts SET job = 'newer ' || job")
        database.execute("UPDATE facts SET body = 'x' WHERE id = 77")
        for suffix in ("", "-wal"):  # as a planner leaves them that is killed
            shutil.copy(f"{living}{suffix}", f"{path}{suffix}")
    rename = Path.replace

    def killed(source: Path, target: Path) -> Path:
        if target == path:
            raise SystemExit
        return rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", killed)
        with pytest.raises(SystemExit):
            Store(path)
    again = Store(path)
    assert len(again.load()) >= 99
    assert all(job.startswith("newer ") for job in again.load())
    again.close()


def test_a_salvage_without_room_says_so_and_leaves_the_database_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hundred_jobs(path)
    path.write_bytes(path.read_bytes()[:-4096])
    damaged = path.read_bytes()

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copy2", full)
        with pytest.raises(StoreError, match="No space left on device"):
            Store(path)
    assert path.read_bytes() == damaged


def test_what_is_salvaged_belongs_to_its_owner_and_uses_no_revision_twice(path: Path) -> None:
    hundred_jobs(path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE facts SET body = 'x' WHERE job = 'job 3' AND kind = 'TargetChosen'")
        database.execute("UPDATE facts SET body = 'x' WHERE job = 'job 4' AND kind = 'JobRegistered'")
    database.close()
    store = Store(path)
    jobs = store.load()
    store.close()
    assert len(jobs) == 99
    assert "job 4" not in jobs
    registered = next(fact for fact in jobs["job 3"] if isinstance(fact, JobRegistered))
    assert (registered.held_revision, registered.held_switch_revision) == (3, 9)
    others = [fact for fact in FACTS if not isinstance(fact, (JobRegistered, *PLANS))]
    assert [fact for fact in jobs["job 5"] if not isinstance(fact, JobRegistered)] == others


def _limit(store: Store, num_pages: int) -> None:
    """As large as the disk."""
    assert isinstance(store._database, SqliteFacts)
    store._database.connection.execute(f"PRAGMA max_page_count = {num_pages}")


LARGE = ScheduleReceived(text="x" * 200_000)


def test_a_full_disk_is_told_to_whoever_commits_and_all_is_made_up_for_in_order_once_there_is_room(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(path)
    store.commit("a", FACTS).result(PATIENCE_S)
    _limit(store, 24)
    later = baseline(9.0)
    with caplog.at_level(logging.WARNING):
        failed = [store.commit("a", [LARGE]), store.commit("a", [later]), store.commit("b", [LARGE])]
        fits = store.commit("c", [FACTS[3]])
        for future in failed:
            with pytest.raises(StoreError, match="full"):
                future.result(PATIENCE_S)
        fits.result(PATIENCE_S)
        assert "make room" in store.trouble
        _limit(store, 4096)
        store.commit("a", [FACTS[2]]).result(PATIENCE_S)
        assert "make room" in store.trouble, "job b's is not made up for yet"
        store.commit("b", [FACTS[3]]).result(PATIENCE_S)
    assert store.trouble == ""
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    store.close()
    again = Store(path)
    facts = again.load()
    again.close()
    assert facts["a"][-3:] == [LARGE, later, FACTS[2]]
    assert facts["b"] == [LARGE, FACTS[3]]


def test_what_has_failed_is_tried_again_by_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_dist.planner.store.store.RETRY_PERIOD_S", 0.05)
    store = Store(path)
    _limit(store, 12)
    for number in range(3):
        facts: list[Fact] = [LARGE, StragglerKnown(straggler_id=str(number), degree=2.0, dp_rank=0)]
        with pytest.raises(StoreError):
            store.commit("a", facts).result(PATIENCE_S)
    _limit(store, 4096)
    while store.trouble:
        time.sleep(0.01)
    store.close()
    again = Store(path)
    assert len(again.load()["a"]) == 4
    again.close()


def test_a_table_knows_the_transfers_that_it_was_made_with() -> None:
    (table,) = (fact for fact in FACTS if isinstance(fact, TableMade))
    measured = replace(table, snapshots=((((0, "SEND_F", 0.005), (1, "SEND_B", 0.0)), ()), ((), ())))
    assert fact_of_row(row_of_fact(measured)) == measured
