"""Operators' commands find a job that embeds its planner by its name, on its node, as the user who runs it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from commands import run_command
from embedded_job import Job
from waiting import wait_until

from perseus_dist.simulator.machine import SimulatedMachine

AS_NOBODY = """\
import os, sys
import perseus_dist.cli.jobs.job_view
import perseus_dist.cli.jobs.target
import perseus_dist.rpc.v1.planner_pb2_grpc
from perseus_dist.cli.main import main
from perseus_dist.cli.parser import build_parser
build_parser()
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


def as_nobody(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Loads what it needs first: the other user may have no access to the interpreter's folders."""
    command = [sys.executable, "-P", "-c", AS_NOBODY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Job]]:
    """Starts a job by its name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PERSEUS_PLANNER", raising=False)
    with ExitStack() as stack:

        def start(name: str) -> Job:
            machine = stack.enter_context(SimulatedMachine("a100", count=2))
            return Job(tmp_path / name, machine, stack, name=name)

        yield start


def test_every_command_finds_the_job_by_its_name(started: Callable[[str], Job], tmp_path: Path) -> None:
    llama, gpt = started("llama"), started("gpt")
    wait_until(lambda: llama.told()["phase"] == gpt.told()["phase"] == "enforcing")

    listed = json.loads(run_command("jobs", "--json").stdout)["jobs"]
    assert sorted(job["job_id"] for job in listed) == ["gpt", "llama"]

    done = run_command("target", "llama", "--slowdown", "1.1", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["target"] == {"slowdown": 1.1}
    reported = run_command("straggler", "report", "llama", "--id", "rack7", "--pipeline", "0", "--degree", "1.2")
    assert reported.returncode == 0
    assert run_command("straggler", "clear", "llama", "--id", "rack7").returncode == 0
    fetched = run_command("fetch", "gpt", "--profile", str(tmp_path / "profile.csv"), "--json")
    assert fetched.returncode == 0
    assert (tmp_path / "profile.csv").read_text().startswith("stage,")
    taken = run_command("fetch", "gpt", "--frontier", str(tmp_path / "frontier.npz"))
    assert (taken.returncode, taken.stdout) == (2, "")
    assert "frontier.npz: saw .npz, but what is written is CSV; name a file that ends in .csv" in taken.stderr
    assert not (tmp_path / "frontier.npz").exists()
    targets = {job["job_id"]: job["target"] for job in json.loads(run_command("jobs", "--json").stdout)["jobs"]}
    assert targets == {"gpt": {"t_min": True}, "llama": {"slowdown": 1.1}}

    unknown = run_command("target", "bert", "--t-min")
    assert unknown.returncode == 2
    assert "there is no job bert" in unknown.stderr
    assert "gpt, llama" in unknown.stderr
    assert len(unknown.stderr.splitlines()) == 1

    # By its address, too, and without a token.
    address = json.loads((gpt.rendezvous / "perseus-planner-gpt.json").read_text())["address"]
    assert run_command("target", "gpt", "--t-min", "--planner", address).returncode == 0
    there = run_command("target", "llama", "--t-min", "--planner", address)
    assert (there.returncode, there.stderr.strip()) == (
        2,
        f"perseus-dist: {address}: there is no job llama; jobs there are: gpt",
    )

    # Watching goes on over a restart of the planner, and ends with the job.
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "perseus_dist", "watch", "gpt", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert json.loads(watching.stdout.readline())["job_id"] == "gpt"
        planner = gpt.pid_of_planner()
        assert planner is not None
        os.kill(planner, signal.SIGKILL)
        wait_until(lambda: gpt.pid_of_planner() not in (None, planner))
        while "the planner was restarted" not in (latest := watching.stdout.readline()):
            assert watching.poll() is None
        wait_until(lambda: gpt.told()["pipelines"][0]["attached_ranks"] == 2 and gpt.are_locked())
        for trainer in gpt.trainers:
            trainer.kill()
        statuses = [json.loads(line) for line in (latest, *watching.stdout)]
        assert statuses[-1]["job_id"] == "gpt"  # killed one by one, the job may end before its last status
        assert "its planner has ended" in watching.stderr.read()
        assert watching.wait() == 0

    assert [job["job_id"] for job in json.loads(run_command("jobs", "--json").stdout)["jobs"]] == ["llama"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a command as another user")
def test_another_user_does_not_get_in(started: Callable[[str], Job], monkeypatch: pytest.MonkeyPatch) -> None:
    llama = started("llama")
    wait_until(lambda: llama.told()["phase"] == "enforcing")
    address = json.loads((llama.rendezvous / "perseus-planner-llama.json").read_text())["address"]
    assert run_command("jobs", "--json").returncode == 0
    monkeypatch.setenv("HOME", "/nonexistent")
    by_name = as_nobody("target", "llama", "--t-min")
    assert by_name.returncode == 2
    assert by_name.stderr.startswith("perseus-dist: there is no job llama of yours")
    # The address, which any user can find out, is of no use without the token.
    by_address = as_nobody("target", "llama", "--t-min", "--planner", address)
    assert by_address.returncode == 2
    assert "wants a token" in by_address.stderr
    with TemporaryDirectory() as folder:  # any pytest that begins takes what is below its own from other users
        Path(folder).chmod(0o755)
        token = Path(folder) / "guess"
        token.write_text("guessed\n")
        guessed = as_nobody("target", "llama", "--t-min", "--planner", address, "--token-file", str(token))
    assert guessed.returncode == 2
    assert "another token's" in guessed.stderr
