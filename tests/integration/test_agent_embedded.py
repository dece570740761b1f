"""A job without a planner gets one from its rank 0, which all its ranks find, and which may die as any process may."""

import json
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from embedded_job import Job
from processes import has_ended
from waiting import wait_until

from perseus_dist.cli import main
from perseus_dist.runlog.accounting.record_files import records_in
from perseus_dist.simulator.machine import SimulatedMachine


@pytest.fixture(autouse=True)
def _broken_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of a job reads settings: neither a file that is broken nor a variable of the planner's matters."""
    (tmp_path / "perseus.toml").write_text("[planner\n")
    monkeypatch.setenv("PERSEUS_CONFIG", str(tmp_path / "perseus.toml"))
    monkeypatch.setenv("PERSEUS_PLANNER_METRICS_PORT", "broken")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=2))
        yield Job(tmp_path, machine, stack)


def test_a_planner_that_is_killed_comes_back_with_its_plan_and_goes_with_the_job(job: Job) -> None:
    wait_until(job.are_locked)
    planner = job.pid_of_planner()
    assert planner is not None
    assert b"--stragglers\0show\0" in Path(f"/proc/{planner}/cmdline").read_bytes()
    assert stat.S_IMODE((job.rendezvous / "perseus-planner-job.json").stat().st_mode) == 0o600
    wait_until(lambda: job.told()["phase"] == "enforcing" and job.told()["enforced"]["num_iterations"] >= 5)
    revision = job.told()["table_revision"]
    os.kill(planner, signal.SIGKILL)
    wait_until(job.are_unlocked)
    wait_until(job.are_locked)
    assert job.pid_of_planner() not in (None, planner)
    wait_until(lambda: job.told()["phases"][-1]["phase"] == "enforcing")
    # It remembers: nothing is measured or planned again.
    phases = [phase["phase"] for phase in job.told()["phases"]]
    assert "profiling" not in phases
    assert phases.count("planning") <= 1
    assert job.told()["table_revision"] >= revision  # it may plan again for noise, on a busy machine
    for rank in range(2):
        assert job.said(rank).count("the job's planner is gone: clocks released until it is back") == 1
    assert "the job's planner has ended with status -9: starting it again" in job.said(0)
    assert "planner" not in job.said(1).replace("the job's planner is gone", "")

    for trainer in job.trainers:
        trainer.kill()
    wait_until(job.are_unlocked)
    wait_until(lambda: job.told()["ended_at"])
    assert job.told()["phase"] == "done"
    assert (job.report / "frontier.csv").exists()
    assert (job.report / "profile.csv").exists()
    for rank in range(2):
        header, *iterations = (
            json.loads(line) for line in (job.report / f"timeline-{rank}.jsonl").read_text().splitlines()
        )
        assert (header["rank"], header["simulated"], header["gpu"]["control"]) == (rank, True, "direct")
        assert [iteration["planned_clocks_mhz"] is None for iteration in iterations] == [True] * 3 + [False] * 5
    wait_until(lambda: not job.rendezvous.exists())


def test_when_rank_0s_agent_is_killed_its_planner_and_all_clocks_go_and_come_back(job: Job) -> None:
    wait_until(job.are_locked)
    planner = job.pid_of_planner()
    assert planner is not None
    os.kill(job.agent_of(0), signal.SIGKILL)
    wait_until(job.are_unlocked)
    wait_until(lambda: has_ended(planner))
    wait_until(lambda: job.pid_of_planner() not in (None, planner))
    wait_until(job.are_locked)
    assert job.said(1).count("the job's planner is gone") == 1
    assert "was killed by signal 9: starting it again" in job.said(0)
    assert len(list(job.rendezvous.glob("planner-*"))) == 1
    assert all(trainer.poll() is None for trainer in job.trainers)
    for trainer in job.trainers:
        trainer.kill()
    wait_until(job.are_unlocked)
    wait_until(lambda: not job.rendezvous.exists())


def test_what_a_killed_job_left_is_swept_by_the_next_start(job: Job, tmp_path: Path) -> None:
    wait_until(job.are_locked)
    planner = job.pid_of_planner()
    assert planner is not None
    agent = job.agent_of(0)
    for trainer in job.trainers:
        trainer.send_signal(signal.SIGSTOP)  # or it would start its agent again
    os.kill(agent, signal.SIGSTOP)  # or it would start the planner again
    os.kill(planner, signal.SIGKILL)
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: has_ended(planner))
    for trainer in job.trainers:
        trainer.kill()
    left = sorted(path.name for path in job.rendezvous.rglob("*"))
    assert "perseus-planner-job.json" in left
    assert "planner.sqlite" in left
    entries = tmp_path / "state" / "perseus-dist" / "jobs"
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=2))
        after = Job(tmp_path / "after", machine, stack, name="after")
        wait_until(lambda: after.pid_of_planner() is not None)
        assert not job.rendezvous.exists()
        assert [json.loads(entry.read_text())["job"] for entry in entries.iterdir()] == ["after"]
        for trainer in after.trainers:
            trainer.kill()
        wait_until(lambda: not list(entries.iterdir()))


def test_a_job_that_ends_in_good_order_says_nothing_of_its_planner(tmp_path: Path) -> None:
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=2))
        job = Job(tmp_path, machine, stack, num_iterations=60)
        wait_until(job.are_locked)
        wait_until(lambda: all(trainer.poll() == 0 for trainer in job.trainers))
        wait_until(lambda: not job.rendezvous.exists())
        assert job.told()["phase"] == "done"
        assert job.said(1) == ""
        assert "planner" not in job.said(0)


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "malformed"])
def test_a_job_whose_profile_cannot_be_used_is_measured(is_there: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Before, rank 0's agent ended for good, and the planner that it embeds with it."""
    named = tmp_path / "named.csv"
    if is_there:
        named.write_text("no profile\n")
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=2))
        job = Job(tmp_path, machine, stack, named_profile=named)
        wait_until(lambda: job.told()["phase"] == "profiling")
        assert job.said(0).count("is not used, the job is measured anew") == 1
        assert str(named) in job.said(0)
        assert str(named) not in job.said(1)
        for trainer in job.trainers:
            trainer.kill()
        wait_until(lambda: not job.rendezvous.exists())


def test_the_record_of_a_job_that_was_killed_whole_is_there_after_the_next_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=2))
        job = Job(tmp_path, machine, stack, run_id="first")
        ranks = [job.report / f"rank-{rank}.jsonl" for rank in range(2)]
        wait_until(lambda: all(path.exists() and path.read_text().count("\n") >= 8 for path in ranks))
        assert main(["accounting", "--finish", str(job.report)]) == 2
        assert "its job still trains" in capsys.readouterr().err
        job.kill_all()
        num_iterations = min(path.read_text().count("\n") for path in ranks)
        again = Job(tmp_path, machine, stack, run_id="second", number=1)
        wait_until(lambda: again.told().get("run_id") == "second")
        (record,) = records_in(job.report)
        assert not record.is_complete
        assert record.num_iterations >= num_iterations
        assert record.energy_j is not None
        assert all(gpu.energy_j for gpu in record.gpus)
        for trainer in again.trainers:
            trainer.kill()
        wait_until(lambda: again.told()["ended_at"])
