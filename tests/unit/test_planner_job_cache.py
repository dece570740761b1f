"""The file that keeps a job's profile and plans for its next start."""

import ctypes
import logging
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from test_planner_lifecycle import Fleet
from test_planner_runs import GPU, WORKLOAD, Runs
from waiting import PATIENCE_S, wait_until

from perseus_dist.fingerprint import Fingerprint, Workload, family_key, profile_key
from perseus_dist.planner.lifecycle.lifecycle import Phase, restore
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.store import job_cache
from perseus_dist.planner.store.database import read_serialized
from perseus_dist.planner.store.job_cache import JobCache, _is_ours
from perseus_dist.planner.store.store import Store

NAME = "01234567-0123456789abcdef.job"
OF_OTHER_SHAPE = "01234567-aaaaaaaaaaaaaaaa.job"
OTHER_USER = 65533
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / NAME


@contextmanager
def stored(path: Path, job_id: str = "job", database: Path | None = None) -> Iterator[Store]:
    """A planner's store with a cache; at the end the cache is written."""
    cache = JobCache(path, job_id)
    store = Store(database, cache)
    yield store
    store.close()
    cache.close()


def keep(path: Path, fleet: Fleet) -> None:
    """All facts of a job, as its planner commits them."""
    with stored(path) as store:
        store.commit("job", list(fleet.facts.values())).result(PATIENCE_S)


def begin_again(path: Path, fleet: Fleet, job_id: str = "another name") -> None:
    """A planner that knows the cache alone."""
    with stored(path, job_id) as store:
        facts = store.load().get(job_id, [])
    fleet.facts = {fact.key: fact for fact in facts}
    fleet.job = restore("job", facts, fleet.policy) if facts else fleet.job
    fleet.now_s = 5.0
    fleet.stream_of.clear()


def test_the_next_start_begins_with_profile_and_plan_and_nothing_of_the_run(path: Path) -> None:
    fleet = Runs().first()
    fleet.iterate(5)
    keep(path, fleet)
    begin_again(path, fleet)
    assert {"job", "table", "samples"} <= fleet.kinds()
    assert fleet.kinds().isdisjoint({"baseline", "switch", "saved", "over", "target", "straggler", "own"})
    fleet.begin_next_run()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    fleet.iterate(1)
    assert fleet.phase() is Phase.ENFORCING
    assert fleet.switch(0) is not None
    assert fleet.sweep(0) is None, "nothing is measured again"
    assert job_status(fleet.job).saved_j == 0


def test_a_sweep_that_a_start_has_begun_is_finished_by_the_next(path: Path) -> None:
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    while len([key for key in fleet.facts if key.startswith("samples/")]) < 3:
        fleet.iterate()
    num_kept = len([key for key in fleet.facts if key.startswith("samples/")])
    keep(path, fleet)
    begin_again(path, fleet)
    fleet.begin_next_run()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    while fleet.phase() is not Phase.PLANNING:
        fleet.iterate()
        assert fleet.iteration < 100
    assert len([key for key in fleet.facts if key.startswith("samples/")]) > num_kept
    sweep = fleet.sweep(0)
    assert sweep is not None
    assert len(sweep.clocks_mhz) < 7, "what was measured by the first start is not measured again"


def test_what_is_dropped_is_dropped_from_the_file(path: Path) -> None:
    fleet = Runs().first()
    with stored(path) as store:
        store.commit("job", list(fleet.facts.values()))
        store.commit("job", [], drop=["table", "samples/1/1/"]).result(PATIENCE_S)
    with stored(path) as store:
        kept = [fact.key for fact in store.load()["job"]]
    assert "table" not in kept
    assert not [key for key in kept if key.startswith("samples/1/1/")]
    assert [key for key in kept if key.startswith("samples/1/0/")]


def test_a_planner_that_was_killed_goes_on_with_its_own_database(path: Path, tmp_path: Path) -> None:
    fleet = Runs().first()
    keep(path, fleet)
    with stored(path, database=tmp_path / "planner.sqlite") as store:
        store.commit("job", [], drop=["table"]).result(PATIENCE_S)
    path.unlink()
    with stored(path, database=tmp_path / "planner.sqlite") as store:
        assert "table" not in {fact.key for fact in store.load()["job"]}
    assert path.exists(), "what it holds is cached again"


def test_nothing_is_written_before_there_is_a_measurement(path: Path) -> None:
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    keep(path, fleet)
    assert not path.exists()


def test_it_is_written_while_the_job_runs(path: Path) -> None:
    cache = JobCache(path, "job")
    store = Store(None, cache)
    store.commit("job", list(Runs().first().facts.values()))
    wait_until(path.exists)
    store.close()
    cache.close()


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "foreign", "future"])
def test_a_file_of_no_use_is_replaced(path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    fleet = Runs().first()
    keep(path, fleet)
    whole = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(whole[: len(whole) // 2])
        case "text":
            path.write_text("stage,kind\n" * 1000)
        case "empty":
            path.write_bytes(b"")
        case "foreign":
            path.write_bytes(_changed(whole, "PRAGMA application_id = 1"))
        case "future":
            path.write_bytes(_changed(whole, "PRAGMA user_version = 99"))
    with caplog.at_level(logging.WARNING), stored(path, "next") as store:
        assert store.load() == {}
        store.commit("next", list(fleet.facts.values())).result(PATIENCE_S)
    assert "is not used, and will be replaced" in caplog.text
    with stored(path, "last") as store:
        assert "table" in {fact.key for fact in store.load()["last"]}


def _changed(data: bytes, statement: str) -> bytes:
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.deserialize(data)
    database.execute(statement)
    changed: bytes = database.serialize()
    database.close()
    return changed


def test_a_file_that_others_can_write_is_not_believed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(path, Runs().first())
    path.chmod(0o666)
    with caplog.at_level(logging.WARNING), stored(path) as store:
        assert store.load() == {}
    assert "others can write it" in caplog.text


def test_a_folder_that_cannot_be_written_to_costs_one_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.write_text("a file")
    with caplog.at_level(logging.WARNING):
        keep(path, Runs().first())
    assert caplog.text.count("the job's next start will profile again") == 1


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can write to, as pytest's are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@AS_ROOT
def test_a_folder_that_is_closed_to_the_user_costs_two_lines(shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As ``~/.cache`` is where a container's user has root's home folder, or a folder that a colleague has made."""
    path = shared / "private" / NAME
    path.parent.mkdir(mode=0o700)
    with caplog.at_level(logging.WARNING), as_user(OTHER_USER):
        keep(path, Runs().first())
        with stored(path) as store:
            assert store.load() == {}
    assert f"{path} is not used: Permission denied" in caplog.text
    assert "PERSEUS_CACHE names another folder" in caplog.text


@AS_ROOT
def test_nothing_of_another_user_is_used_or_waited_for(shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, pipe = shared / NAME, shared / OF_OTHER_SHAPE
    with as_user(OTHER_USER):
        keep(path, Runs().first())
        os.mkfifo(pipe, 0o644)
    for each in (path, pipe):
        with caplog.at_level(logging.WARNING), stored(each) as store:
            assert store.load() == {}
        assert f"{each} is not used: it is another user's" in caplog.text


@AS_ROOT
def test_what_a_file_system_gives_to_nobody_is_ours(shared: Path) -> None:
    """NFS squashes root: so does a process whose files are another user's."""
    libc = ctypes.CDLL(None)
    libc.setfsuid(OTHER_USER)
    try:
        keep(shared / NAME, Runs().first())
        assert (shared / NAME).stat().st_uid == OTHER_USER != os.geteuid()
        with stored(shared / NAME) as store:
            assert "table" in {fact.key for fact in store.load()["job"]}
    finally:
        libc.setfsuid(0)


def test_rights_count_where_the_file_system_keeps_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SMB lets everybody write every file, those that are made for their owner alone among them."""
    keep(path, Runs().first())
    path.chmod(0o666)
    assert not _is_ours(path.stat(), path.parent)

    def everybody(descriptor: int) -> os.stat_result:
        os.fchmod(descriptor, 0o777)
        return os.stat(descriptor)

    monkeypatch.setattr(os, "fstat", everybody)
    assert _is_ours(path.stat(), path.parent)


def test_a_file_that_could_not_be_written_is_written_once_it_can(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without news of the job, which has none once it is under its plan."""
    monkeypatch.setattr(job_cache, "PERIOD_S", 0.01)
    monkeypatch.setattr(job_cache, "RETRY_PERIOD_S", 0.01)
    path.parent.write_text("a file")
    cache = JobCache(path, "job")
    store = Store(None, cache)
    with caplog.at_level(logging.WARNING):
        store.commit("job", list(Runs().first().facts.values()))
        wait_until(lambda: "the job's next start will profile again" in caplog.text)
        path.parent.unlink()
        wait_until(path.exists)
        wait_until(lambda: f"{path} can be written again" in caplog.text)
    store.close()
    cache.close()


@AS_ROOT
def test_a_full_disk_leaves_the_file_as_it_was(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fleet = Runs().first()
    path.parent.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(path.parent)], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        keep(path, fleet)
        whole = path.read_bytes()
        with pytest.raises(OSError, match="No space left"):
            path.with_name("others").write_bytes(bytes(2 << 20))
        with caplog.at_level(logging.WARNING):
            keep(path, fleet)
        assert "cannot be written (No space left on device)" in caplog.text
        assert path.read_bytes() == whole
        assert {file.name for file in path.parent.iterdir()} == {NAME, "others"}
    finally:
        subprocess.run(["umount", str(path.parent)], check=True)


def test_of_many_files_the_oldest_goes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_cache, "MAX_FILES", 3)
    path.parent.mkdir()
    (path.parent / "notes.txt").touch()
    for number in range(4):
        file = path.with_name(f"89abcdef-{number:016x}.job")
        file.touch()
        os.utime(file, (number, number))
    unfinished = [path.with_name(f".{NAME}.{number}.tmp") for number in (7, 8)]
    for file in unfinished:
        file.touch()
    os.utime(unfinished[0], (0, 0))
    keep(path, Runs().first())
    names = {file.name for file in path.parent.iterdir()}
    kept = [f"89abcdef-{number:016x}.job" for number in (2, 3)]
    assert names == {NAME, *kept, "notes.txt", unfinished[1].name}, "the other process may still write that one"


@AS_ROOT
def test_other_users_files_are_neither_counted_nor_removed(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_cache, "MAX_FILES", 1)
    old, theirs = shared / OF_OTHER_SHAPE, shared / "89abcdef-0000000000000000.job"
    for file in (old, theirs):
        file.touch()
        os.utime(file, (0, 0))
    os.chown(theirs, OTHER_USER, OTHER_USER)
    keep(shared / NAME, Runs().first())
    assert {file.name for file in shared.iterdir()} == {NAME, theirs.name}


def test_a_job_that_was_never_here_in_its_shape_takes_up_the_newest_other_one(path: Path) -> None:
    keep(path, Runs().first())
    for name, age_s in (("01234567-bbbbbbbbbbbbbbbb.job", 50), ("89abcdef-aaaaaaaaaaaaaaaa.job", -50)):
        (path.with_name(name)).write_bytes(b"of an older shape, and of other work")
        os.utime(path.with_name(name), (path.stat().st_mtime - age_s,) * 2)
    kept = path.read_bytes()
    fleet = Runs()
    begin_again(path.with_name(OF_OTHER_SHAPE), fleet)
    assert fleet.job.plan is not None
    assert path.read_bytes() == kept
    assert path.with_name(OF_OTHER_SHAPE).exists(), "what it goes on to is of its own shape"


def test_of_other_shapes_one_that_is_damaged_is_passed_over(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(path, Runs().first())
    newer = path.with_name("01234567-bbbbbbbbbbbbbbbb.job")
    newer.write_bytes(path.read_bytes()[:100])
    os.utime(newer, (path.stat().st_mtime + 9,) * 2)
    with caplog.at_level(logging.WARNING), stored(path.with_name(OF_OTHER_SHAPE)) as store:
        assert "table" in {fact.key for fact in store.load()["job"]}
    assert f"{newer} is not used" in caplog.text


def test_shapes_of_one_work_share_a_family() -> None:
    known = Fingerprint(
        schedule_digest="a",
        pp_size=4,
        dp_size=4,
        gpu_name="A100",
        workload=Workload(microbatch_size=4, stage_parameters=(24,), stage_layers=(6,)),
    )
    smaller = replace(known, dp_size=3, schedule_digest="b")
    split = replace(known, pp_size=3, workload=replace(known.workload, stage_parameters=(32,), stage_layers=(8,)))
    others = (replace(known, gpu_name="A40"), replace(known, workload=replace(known.workload, microbatch_size=8)))
    assert {family_key(one) for one in (known, smaller, split)} == {family_key(known)}
    assert len({family_key(one) for one in (known, *others)}) == 3
    assert len({profile_key(one) for one in (known, smaller, split, *others)}) == 5


def test_the_key_is_of_all_that_a_profile_depends_on() -> None:
    known = Fingerprint(
        schedule_digest="a", pp_size=2, dp_size=1, gpu_name="A100", workload=Workload(microbatch_size=4)
    )
    assert profile_key(known) == profile_key(replace(known, schedule_digest="b"))
    others = [
        replace(known, gpu_name="A40"),
        replace(known, dp_size=2),
        replace(known, workload=Workload(microbatch_size=8)),
    ]
    more = (profile_key(known, b"stage"), profile_key(known, uid=1000), profile_key(known, uid=1001))
    assert len({profile_key(known), *more, *map(profile_key, others)}) == 7


def keys_in(path: Path) -> set[str]:
    return {fact.key for facts in read_serialized(path, path.read_bytes()).values() for fact in facts}


def test_of_two_jobs_of_the_same_work_the_one_that_measured_less_leaves_the_file(path: Path) -> None:
    facts = list(Runs().first().facts.values())
    partial = [fact for fact in facts if not fact.key.startswith(("table", "samples/1/1/"))]
    with stored(path, "late") as late:
        late.load()
        with stored(path, "whole") as whole:
            whole.commit("whole", facts).result(PATIENCE_S)
        before = path.read_bytes()
        late.commit("late", partial).result(PATIENCE_S)
    assert path.read_bytes() == before
    with stored(path, "late") as late:
        late.commit("late", facts).result(PATIENCE_S)
    assert path.read_bytes() != before, "as much: the newest stays"


WRITER = """
import sys
import time
from pathlib import Path
from perseus_dist.planner.store import job_cache
from perseus_dist.planner.store.database import read_serialized
from perseus_dist.planner.store.fact_rows import row_of_fact

job_cache.PERIOD_S = 0.0
path, source, without = Path(sys.argv[1]), Path(sys.argv[2]), tuple(sys.argv[3:])
(facts,) = read_serialized(source, source.read_bytes()).values()
rows = [row_of_fact(fact) for fact in facts if not fact.key.startswith(without or "-")]
cache = job_cache.JobCache(path, "job")
print("begun", flush=True)
while True:
    for row in rows:
        cache.note("job", [row], ())
        time.sleep(0.001)
"""


@contextmanager
def writer(path: Path, source: Path, *without: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that notes the facts of a job again and again, but for some."""
    command = [sys.executable, "-c", WRITER, str(path), str(source), *without]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_two_writers_one_of_which_is_killed_leave_the_whole_profile(path: Path, tmp_path: Path) -> None:
    source = tmp_path / "source" / NAME
    keep(source, Runs().first())
    with writer(path, source, "table", "samples/1/1/"):
        wait_until(path.exists)
        with writer(path, source) as whole:
            wait_until(lambda: keys_in(path) == keys_in(source))
            for _ in range(20):
                assert keys_in(path) == keys_in(source)
                time.sleep(0.01)
            whole.kill()
        for _ in range(20):
            assert keys_in(path) == keys_in(source)
            time.sleep(0.01)
