"""The hook across processes: what the agent is handed, and that neither side's end troubles the other.

The agent here is a script that is started exactly as the real one is, and writes down what it sees.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WAIT_S = 30

AGENT = """#!{python}
import json, os, select, sys, time
from perseus_dist.boundaries.rank_spec import AgentStart
from perseus_dist.boundaries.reader import BoundaryReader

start = AgentStart.from_json(sys.stdin.buffer.read())
reader = BoundaryReader(start.ring_fd, start.doorbell_fd)
seen = []
open("{folder}/agent_started.tmp", "w").write(str(os.getpid()))
os.rename("{folder}/agent_started.tmp", "{folder}/agent_started")  # whole from the moment on that it is there
ends = [start.trainer_pidfd, start.trainer_image_fd]
while not select.select(ends, [], [], 0)[0]:
    select.select([start.doorbell_fd, *ends], [], [])
    seen += [(b.event.name, b.kind, b.iteration) for b, _ in reader.read(time.monotonic_ns())]
result = {{
    "arguments": sys.argv[1:],
    "trainer_pid": start.trainer_pid,
    "schedule_length": len(start.spec.schedule),
    "rank": start.spec.rank,
    "own_session": os.getsid(0) == os.getpid(),
    "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
    "handed_fds": [*ends, start.ring_fd, start.doorbell_fd],
    "seen": seen,
    "lost": reader.lost,
}}
open("{folder}/result.tmp", "w").write(json.dumps(result))
os.rename("{folder}/result.tmp", "{folder}/result")
"""

TRAINER = """
import os, signal, subprocess, sys, time
from pathlib import Path
from perseus_dist.hooks import RankSpec, attach

folder = Path(sys.argv[1])
sys.executable = str(folder / "agent")
inheritable = os.open("/dev/null", os.O_RDONLY)
os.set_inheritable(inheritable, True)
spec = RankSpec(job_id="job", rank=5, pp_rank=0, dp_rank=0, tp_rank=0, pp_size=1, dp_size=1, tp_size=1,
                schedule="0F0 " * {schedule_tokens}, local_rank=0)
hook = attach(spec)
assert hook.enabled

def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.01)

def write_pid(name):
    (folder / f"{{name}}.tmp").write_text(str(os.getpid()))
    (folder / f"{{name}}.tmp").rename(folder / name)

wait_for("agent_started")
agent_pid = int((folder / "agent_started").read_text())
hook.iteration_begin(1)
{body}
"""


@pytest.fixture
def run_trainer(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    agent = tmp_path / "agent"
    agent.write_text(AGENT.format(python=sys.executable, folder=tmp_path))
    agent.chmod(0o755)

    def run(body: str, schedule_tokens: int = 1) -> subprocess.Popen[str]:
        script = TRAINER.format(body=body, schedule_tokens=schedule_tokens)
        # In a group of its own: a signal to another process than was meant ends no more than this one.
        return subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, process_group=0
        )

    return run


def result(folder: Path) -> dict[str, Any]:
    """What the agent wrote when the trainer had ended."""
    deadline = time.monotonic() + WAIT_S
    while not (folder / "result").exists():
        assert time.monotonic() < deadline, "the agent did not see the trainer's end"
        time.sleep(0.01)
    found: dict[str, Any] = json.loads((folder / "result").read_text())
    return found


def test_agent_is_handed_everything_and_nothing_else(
    run_trainer: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    with run_trainer("hook.begin('F')\nhook.end('F')\nhook.close()", schedule_tokens=300_000) as trainer:
        assert trainer.wait(WAIT_S) == 0
    agent = result(tmp_path)
    assert agent["arguments"] == ["-P", "-m", "perseus_dist.agent"]
    assert agent["rank"] == 5
    assert agent["trainer_pid"] == trainer.pid
    assert agent["schedule_length"] == 1_200_000
    assert agent["own_session"]
    # Standard streams, what it was handed, its mapping of the ring, and the folder that lists them.
    assert len(agent["fds"]) <= 3 + len(agent["handed_fds"]) + 2
    assert set(agent["handed_fds"]) <= set(agent["fds"])
    assert agent["seen"] == [["ITERATION_BEGIN", "", 1], ["BEGIN", "F", 1], ["END", "F", 1], ["CLOSE", "", 1]]
    assert agent["lost"] == 0


def test_killed_trainer_is_seen_although_a_forked_child_lives_on(
    run_trainer: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    body = """
if os.fork() == 0:
    assert not hook.enabled
    hook.begin("child")
    hook.close()
    write_pid("child")
    time.sleep(60)
    os._exit(0)
wait_for("child")
hook.begin("parent")
os.kill(os.getpid(), signal.SIGKILL)
"""
    with run_trainer(body) as trainer:
        try:
            assert trainer.wait(WAIT_S) == -signal.SIGKILL
            assert result(tmp_path)["seen"] == [["ITERATION_BEGIN", "", 1], ["BEGIN", "parent", 1]]
        finally:
            os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_trainer_that_runs_another_program_is_seen_although_a_forked_child_lives_on(
    run_trainer: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    body = """
if os.fork() == 0:
    write_pid("child")
    time.sleep(60)
    os._exit(0)
wait_for("child")
hook.begin("parent")
os.execvp("sh", ["sh", "-c", "ls -l /proc/$$/fd; exec sleep 60"])
"""
    with run_trainer(body) as trainer:
        try:
            assert result(tmp_path)["seen"] == [["ITERATION_BEGIN", "", 1], ["BEGIN", "parent", 1]]
            assert trainer.poll() is None
        finally:
            trainer.kill()
            os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
        assert trainer.stdout is not None
        assert "perseus" not in trainer.stdout.read()


def test_a_forked_child_keeps_files_that_have_numbers_of_ours(
    run_trainer: Callable[..., subprocess.Popen[str]],
) -> None:
    """Of a trainer that has closed whatever it did not know."""
    body = """
num_open = len(os.listdir("/proc/self/fd"))
os.closerange(3, 100)
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(num_open)]
pid = os.fork()
for fd in files:
    os.fstat(fd)
if pid == 0:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
os._exit(0)
"""
    with run_trainer(body) as trainer:
        assert trainer.communicate(timeout=WAIT_S)[0] == "7\n"


def test_trainer_goes_on_when_the_agent_is_killed(run_trainer: Callable[..., subprocess.Popen[str]]) -> None:
    body = """
os.kill(agent_pid, signal.SIGKILL)
for _ in range(100):
    for _ in range(1000):
        hook.begin("F")
        hook.end("F")
assert hook.enabled
hook.close()
print("trained")
"""
    with run_trainer(body) as trainer:
        assert trainer.communicate(timeout=WAIT_S)[0] == "trained\n"
        assert trainer.returncode == 0


def test_trainer_ends_without_closing_the_hook(
    run_trainer: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    with run_trainer("hook.begin('F')") as trainer:
        assert trainer.wait(WAIT_S) == 0
    assert result(tmp_path)["seen"] == [["ITERATION_BEGIN", "", 1], ["BEGIN", "F", 1]]
