"""Whatever lies in the current folder, no process of this package runs it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from embedded_job import Job
from waiting import wait_until

from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import run_virtual
from perseus_dist.simulator.machine import SimulatedMachine

SHADOWED = (
    *("pickle", "logging", "json", "socket", "subprocess", "asyncio", "random", "typing", "dataclasses", "struct"),
    *("signal", "threading", "pathlib", "tempfile", "sqlite3", "ssl", "secrets", "queue", "multiprocessing", "ctypes"),
    *("numpy", "grpc", "google", "pynvml", "networkx", "perseus_dist", "concurrent", "inspect", "runpy", "site"),
)
POOL = """\
import os
from perseus_dist.simulation.chaos.campaign import spawned_pool
if __name__ == "__main__":
    with spawned_pool(2) as pool:
        assert os.getpid() not in set(pool.map(abs, [1, 2]))
    assert "PYTHONSAFEPATH" not in os.environ
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "foreign"
    folder.mkdir()
    (tmp_path / "ran").mkdir()
    for name in SHADOWED:
        marker = tmp_path / "ran" / name
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\nraise RuntimeError({name!r})\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    yield folder
    assert [path.name for path in (tmp_path / "ran").iterdir()] == []


def test_the_shadows_are_in_the_way(folder: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", "import pickle"], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 1
    (tmp_path / "ran" / "pickle").unlink()


@pytest.mark.stress
def test_the_whole_loop_runs_nothing_from_the_current_folder(folder: Path, tmp_path: Path) -> None:
    """Trainers, agents, clock daemon, planner and planning worker, in wall-clock time, from a saved profile."""
    profile = tmp_path / "profile.csv"
    schedule = one_f_one_b(pp=2, microbatches=2)
    seen = SimulatedJob(schedule=schedule, num_pipelines=1, num_iterations=40, imbalance=0.1)
    run_virtual(seen, "a100", profile_csv=profile)
    command = ["simulate", "--schedule", "1f1b", "--pp", "2", "--dp", "1", "--microbatches", "2", "--iterations", "45"]
    command += ["--profile", str(profile)]
    command += ["--log-dir", str(tmp_path / "logs"), "--json"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "perseus_dist", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_an_embedded_planner_and_a_lease_process_run_nothing_from_it(folder: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=2))
        job = Job(tmp_path, machine, stack, working_folder=folder)
        wait_until(job.are_locked)
        for trainer in job.trainers:
            assert Path(f"/proc/{trainer.pid}/cwd").readlink() == folder
            trainer.kill()
        wait_until(lambda: not job.rendezvous.exists())


def test_processes_of_a_campaign_run_nothing_from_it(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    done = subprocess.run(
        [sys.executable, "-P", str(script)], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
