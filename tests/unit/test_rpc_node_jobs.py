"""Entries of jobs that embed their planner, and what is removed of those that were killed."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perseus_dist.cli.jobs import planner_client
from perseus_dist.cli.jobs.planner_client import PlannerCallError, find_planner, find_planners
from perseus_dist.rpc import node_jobs
from perseus_dist.rpc.node_jobs import address_file, hold_rendezvous, register_job, running_jobs, sweep_dead_jobs

OWNER = """\
import sys
from pathlib import Path
from perseus_dist.rpc.node_jobs import address_file, hold_rendezvous, register_job
folder, job, token = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
assert hold_rendezvous(folder) is not None
register_job(job, folder)
path = address_file(folder, job)
path.write_text('{"address": "127.0.0.1:%s", "token": "%s", "pid": 1}' % (token, token))
state = folder / "planner-0123abcd-abcdefgh"
state.mkdir()
for name in ("planner.sqlite", "planner.sqlite-wal", "planner.sqlite-shm"):
    (state / name).write_text("facts")
print("ready", flush=True)
sys.stdin.read()
"""


class Owner:
    """A process that holds a rendezvous, as the agent of rank 0 does."""

    def __init__(self, folder: Path, job: str, token: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", OWNER, str(folder), job, token],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self.process.stdout.close()
        self.process.stdin.close()


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("PERSEUS_PLANNER", raising=False)
    monkeypatch.delenv("PERSEUS_TOKEN_FILE", raising=False)


def args(job: str = "", **other: object) -> argparse.Namespace:
    fields = {
        "job": job,
        "planner": None,
        "token_file": None,
        "tls": False,
        "tls_ca": None,
        "tls_cert": None,
        "tls_key": None,
    }
    return argparse.Namespace(**{**fields, **other})


def test_a_job_is_found_by_its_name_while_its_owner_lives(tmp_path: Path) -> None:
    owners = [Owner(tmp_path / name, name, token) for name, token in (("a", "1001"), ("b", "1002"))]
    assert [job.job_id for job in running_jobs()] == ["a", "b"]
    found = find_planner(args("b"))
    assert (found.address, found.token, found.is_embedded) == ("127.0.0.1:1002", "1002", True)
    assert [planner.address for planner in find_planners(args())] == [
        planner_client.DEFAULT_PLANNER,
        "127.0.0.1:1001",
        "127.0.0.1:1002",
    ]
    # An address that the user names wins over names, and brings the token of the planner that listens there.
    assert find_planner(args("b", planner="127.0.0.1:1001")).token == "1001"
    assert find_planner(args("b", planner="127.0.0.1:7")).token == ""
    owners[1].kill()
    assert [job.job_id for job in running_jobs()] == ["a"]
    assert find_planner(args("b")).address == planner_client.DEFAULT_PLANNER
    owners[0].kill()


def test_two_jobs_of_one_name_and_one_that_starts_are_told_in_a_sentence(tmp_path: Path) -> None:
    owners = [Owner(tmp_path / token, "gpt", token) for token in ("1001", "1002")]
    with pytest.raises(PlannerCallError, match=r"2 jobs of this name run .* at .*:1001, .*:1002"):
        find_planner(args("gpt"))
    owners.pop().kill()
    address_file(tmp_path / "1001", "gpt").unlink()
    with pytest.raises(PlannerCallError, match="its planner is starting; try again"):
        find_planner(args("gpt"))
    owners.pop().kill()


def test_a_sweep_removes_what_a_killed_job_left_and_nothing_else(tmp_path: Path) -> None:
    killed, living, shared = (tmp_path / name for name in ("killed", "living", "shared"))
    owners = [Owner(folder, folder.name, "1") for folder in (killed, living, shared)]
    (shared / "mine.txt").write_text("of the user")
    (shared / "planner-notes.txt").write_text("of the user")
    (shared / "planner-0123abcd-abcdefgh" / "mine.txt").write_text("of the user")
    owners[0].kill()
    owners[2].kill()
    sweep_dead_jobs()
    assert not killed.exists()
    assert address_file(living, "living").exists()
    assert (living / "planner-0123abcd-abcdefgh" / "planner.sqlite").exists()
    assert sorted(str(path.relative_to(shared)) for path in shared.rglob("*")) == [
        "mine.txt",
        "planner-0123abcd-abcdefgh",
        "planner-0123abcd-abcdefgh/mine.txt",
        "planner-notes.txt",
    ]
    entries = list((tmp_path / "state" / "perseus-dist" / "jobs").iterdir())
    assert [json.loads(entry.read_text())["job"] for entry in entries] == ["living"]
    owners[1].kill()
    sweep_dead_jobs()
    assert not living.exists()


def test_two_sweeps_at_once_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each folder the other one has removed the first file, and an entry of a folder that neither can see."""
    for name in ("first", "second"):
        Owner(tmp_path / name, name, "1").kill()
    entries = tmp_path / "state" / "perseus-dist" / "jobs"
    unseen = register_job("unseen", tmp_path / "gone")
    unseen.rename(unseen.with_name(f"{node_jobs._boot_id()}-.json"))  # the first one
    listdir, is_held = os.listdir, node_jobs._is_held

    def remove_first(folder: int | Path) -> list[str]:
        names = listdir(folder)
        if isinstance(folder, int) and names[0].startswith("planner.sqlite"):
            os.unlink(names[0], dir_fd=folder)
        return names

    def remove_entry(folder: Path) -> bool:
        if folder.name == "gone":
            for entry in entries.glob("*-.json"):
                entry.unlink()
        return is_held(folder)

    monkeypatch.setattr(os, "listdir", remove_first)
    monkeypatch.setattr(node_jobs, "_is_held", remove_entry)
    sweep_dead_jobs()
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert list(entries.iterdir()) == []


def test_a_sweep_follows_no_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "planner.sqlite").write_text("of another planner")
    rendezvous = tmp_path / "rendezvous"
    rendezvous.mkdir()
    (rendezvous / "planner-0123abcd-abcdefgh").symlink_to(precious)
    register_job("linked", rendezvous)
    (tmp_path / "perseus-abcdefgh").symlink_to(precious)
    sweep_dead_jobs()
    assert (precious / "planner.sqlite").exists()


def test_a_folder_that_no_agent_has_locked_yet_stays_for_a_while(tmp_path: Path) -> None:
    young, old, foreign = (tmp_path / f"perseus-{name}" for name in ("youngabc", "oldoldol", "mine"))
    for folder in (young, old, foreign):
        folder.mkdir()
        if folder is not young:
            os.utime(folder, (1, 1))
    sweep_dead_jobs()
    assert (young.exists(), old.exists(), foreign.exists()) == (True, False, True)


def test_folders_of_another_user_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Owner(tmp_path / "theirs", "theirs", "1").kill()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        sweep_dead_jobs()
        assert running_jobs() == []
    assert address_file(tmp_path / "theirs", "theirs").exists()


def test_entries_of_an_earlier_boot_are_removed_and_those_of_other_nodes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendezvous = tmp_path / "rendezvous"
    rendezvous.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(node_jobs, "_boot_id", lambda: "earlier")
        before = register_job("before", rendezvous)
        elsewhere = register_job("elsewhere", rendezvous)
    elsewhere.write_text(elsewhere.read_text().replace(os.uname().nodename, "another-node"))
    (before.parent / "torn.json").write_text('{"job":')
    sweep_dead_jobs()
    assert (before.exists(), elsewhere.exists()) == (False, True)
    assert running_jobs() == []


def test_an_entry_whose_folder_is_gone_where_it_would_be_seen_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "rendezvous"
    Owner(folder, "gpt", "1").kill()
    shutil.rmtree(folder)
    sweep_dead_jobs()
    assert list((tmp_path / "state" / "perseus-dist" / "jobs").iterdir()) == []


@pytest.mark.parametrize("older", ["not", "on this machine", "where mounts are unknown"])
def test_an_entry_whose_folder_is_perhaps_gone_stays(
    older: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of an older version; and of a folder below one that is closed to this process, or on a mount that fails."""
    entry = register_job("gpt", tmp_path / "rendezvous")
    if older != "not":
        if older == "where mounts are unknown":
            monkeypatch.setattr(node_jobs, "_mounts", str)
        document = json.loads(entry.read_text())
        del document["mounts"]
        entry.write_text(json.dumps(document))
    else:
        lstat = Path.lstat

        def refused_lstat(path: Path) -> os.stat_result:
            if path.name == "rendezvous":
                raise PermissionError(13, "Permission denied")
            return lstat(path)

        monkeypatch.setattr(Path, "lstat", refused_lstat)
    sweep_dead_jobs()
    assert entry.exists()


@pytest.mark.parametrize(
    "elsewhere",
    [{"_mounts": "2-3-4"}, {"_boot_id": "another's"}, {"_mounts": ""}],
    ids=["private folders", "another machine", "unknown"],
)
def test_an_entry_whose_folder_another_container_has_stays_for_a_month(
    elsewhere: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm gives each job its own /tmp; containers of several machines may also have one host name."""
    with monkeypatch.context() as patch:
        for name, value in elsewhere.items():
            patch.setattr(node_jobs, name, lambda value=value: value)
        entry = register_job("gpt", tmp_path / "in-another-namespace")
    sweep_dead_jobs()
    assert entry.exists()
    assert running_jobs() == []
    month_ago_s = entry.stat().st_mtime - 31 * 86_400
    os.utime(entry, (month_ago_s, month_ago_s))
    sweep_dead_jobs()
    assert not entry.exists()


def test_a_folder_that_cannot_be_looked_at_stops_no_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, killed = tmp_path / "closed", tmp_path / "killed"
    for number, folder in enumerate((closed, killed)):
        Owner(folder, folder.name, "1").kill()
        entry = max((tmp_path / "state" / "perseus-dist" / "jobs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        entry.rename(entry.with_name(f"{node_jobs._boot_id()}-{number}.json"))
    is_dir, opened = Path.is_dir, os.open

    def refused_is_dir(path: Path) -> bool:
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return is_dir(path)

    def refused_open(path: str | Path, *others: int, **named: int) -> int:
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return opened(path, *others, **named)

    monkeypatch.setattr(Path, "is_dir", refused_is_dir)
    monkeypatch.setattr(os, "open", refused_open)
    assert running_jobs() == []
    sweep_dead_jobs()
    assert not killed.exists()


def test_a_rendezvous_that_is_swept_just_now_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "rendezvous"
    descriptor = hold_rendezvous(folder)
    assert descriptor is not None
    second = hold_rendezvous(folder)  # the lock is shared
    assert second is not None
    os.close(second)
    os.close(descriptor)
    folder.rmdir()
    again = hold_rendezvous(folder)
    assert again is not None
    assert os.path.samestat(os.fstat(again), folder.stat())
    os.close(again)


def test_without_a_home_nothing_is_found_and_nothing_breaks(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    assert running_jobs() == []
    sweep_dead_jobs()
    with pytest.raises(OSError, match="Not a directory"):
        register_job("gpt", tmp_path)
