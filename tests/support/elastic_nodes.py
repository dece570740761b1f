"""Jobs that lose a node and get it back, by ``torchrun``'s own elasticity: two network namespaces are the nodes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import megatron_loops
from deepspeed_loops import deepspeed_run_in
from two_nodes import Node, two_nodes
from waiting import wait_for, wait_until

import perseus_dist
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.facts.plans import TableAhead
from perseus_dist.planner.store.database import read_serialized
from perseus_dist.runlog.file_names import JOB_FILE
from perseus_dist.runlog.files import read_run
from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.megatron_run import MegatronRun
from perseus_dist.training.options import PerseusOptions

RANK_MAIN = Path(perseus_dist.__file__).parent / "deepspeed" / "rank_main.py"
GPUS_PER_NODE = 2
PORT = 29_400
NUM_FOLLOWED = 4  # iterations under the plan, before the next thing happens
NUM_AHEAD = 2  # plans for one pipeline: with the whole batch, and with as many microbatches as before
AHEAD_PATIENCE_S = 120.0  # planning ahead takes idle processors alone
PATIENCE_S = 300.0
NUM_STEPS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The job in one of its shapes, until it was under a plan.

    Attributes:
        dp_size: Pipelines.
        first_seen: The iteration from which on all ranks' agents were there.
        first_planned: The first that all ranks followed a plan in.
        phases: Of the planner, in their order.
        num_ahead: Plans that were made ahead before it began.
    """

    dp_size: int
    first_seen: int
    first_planned: int
    phases: tuple[str, ...]
    num_ahead: int = 0

    @property
    def is_swept(self) -> bool:
        """Whether clocks were measured for it."""
        return "profiling" in self.phases


class ElasticJob:
    """A job of one or two nodes.

    Args:
        run: Of as many ranks as both nodes have together; torchrun launches it.
        nodes: With ``GPUS_PER_NODE`` GPUs each. The first keeps the rendezvous.
    """

    def __init__(self, run: MegatronRun | DeepSpeedRun, nodes: Sequence[Node]) -> None:
        self._run = run
        self._nodes = nodes
        self._launchers: dict[int, subprocess.Popen[bytes]] = {}
        self._names: set[str] = set()  # of jobs that were seen

    def start(self, number: int) -> None:
        """Start a node's launcher. Its line is the same on all nodes but for their own addresses."""
        node, run = self._nodes[number], self._run
        torchrun = [sys.executable, "-P", "-m", "torch.distributed.run"]
        torchrun += ["--nnodes", "1:2", "--nproc_per_node", str(GPUS_PER_NODE), "--max_restarts", "5"]
        torchrun += ["--rdzv_backend", "c10d", "--rdzv_endpoint", f"{self._nodes[0].address}:{PORT}"]
        settings = f"is_host={int(number == 0)},last_call_timeout=2,keep_alive_interval=1"
        torchrun += ["--rdzv_id", "job", "--rdzv_conf", settings, "--local_addr", node.address]
        environment = run.environment(node.machine) | {
            "PERSEUS_CACHE": str(run.folder / "cache"),
            "GLOO_SOCKET_IFNAME": node.interface,
            # What gloo leaves in a store that outlives an attempt has the next one look for the node that is gone.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        with (run.folder / f"node-{number}.log").open("ab") as log:
            self._launchers[number] = subprocess.Popen(
                node.inside([*torchrun, *_program(run)]),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self, number: int) -> None:
        """The launcher and the trainers of a node at once; what holds its clocks sees that they are gone."""
        for pid in self._pids(number):
            self._kill_if(pid, words=[str(self._run.script)])
        launcher = self._launchers.pop(number, None)
        if launcher is not None:
            launcher.wait()

    def start_anew(self, run: MegatronRun | DeepSpeedRun) -> None:
        """Start another job in the place of this one, which ends as a whole."""
        for number in [*self._launchers]:
            self.kill(number)
        wait_until(lambda: all(node.are_unlocked() for node in self._nodes))
        self._run = run
        for number in range(len(self._nodes)):
            self.start(number)

    @property
    def run(self) -> MegatronRun | DeepSpeedRun:
        """The job that runs."""
        return self._run

    def kill_rank(self, number: int, local_rank: int) -> None:
        """One trainer of a node."""
        is_killed = [
            self._kill_if(pid, words=[str(self._run.script)], variables=[f"LOCAL_RANK={local_rank}"])
            for pid in self._pids(number)
        ]
        assert any(is_killed)

    def plans_ahead(self) -> int:
        """Plans in the job's cache for shapes that it does not have."""
        files = sorted((self._run.folder / "cache").glob("*.job"), key=lambda path: path.stat().st_mtime)
        if not files:
            return 0
        facts = next(iter(read_serialized(files[-1], files[-1].read_bytes()).values()), [])
        return sum(isinstance(fact, TableAhead) for fact in facts)

    def train_until_planned_ahead(self) -> None:
        """For ``AHEAD_PATIENCE_S`` at most: where processors are never idle, such plans are not made."""
        until_s = time.monotonic() + AHEAD_PATIENCE_S
        while self.plans_ahead() < NUM_AHEAD and time.monotonic() < until_s:
            time.sleep(1)

    def planned_attempt(self, dp_size: int) -> Attempt:
        """Wait until the next attempt, of so many pipelines, follows a plan on all its ranks."""

        def is_new() -> bool:
            job = self._told()
            return bool(job) and job["job_id"] not in self._names and job["dp_size"] == dp_size

        wait_for(is_new, PATIENCE_S)
        found = wait_for(lambda: self._attempt(dp_size), PATIENCE_S)
        assert found is not None
        self._names.add(self._told()["job_id"])
        return found

    def end(self) -> None:
        """Kill all that is left."""
        for number in range(len(self._nodes)):
            self.kill(number)
        wait_until(lambda: all(node.are_unlocked() for node in self._nodes))

    def _pids(self, number: int) -> list[int]:
        command = ["ip", "netns", "pids", self._nodes[number].name]
        return [int(pid) for pid in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]

    @staticmethod
    def _kill_if(pid: int, *, words: Sequence[str], variables: Sequence[str] = ()) -> bool:
        """Whether the process had all of these on its command line and in its environment."""
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if {*map(str.encode, words)} <= {*command} and {*map(str.encode, variables)} <= {*environment}:
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def _told(self) -> Mapping[str, Any]:
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self._run.folder / JOB_FILE).read_text())
            return found
        return {}

    def _attempt(self, dp_size: int) -> Attempt | None:
        """The newest, once a few iterations were under its plan."""
        files = read_run(self._run.folder)
        if files.job.phase != "enforcing" or len(files.iterations) < files.job.num_ranks:
            return None
        reports = [*files.iterations.values()]
        if not all(reports):
            return None
        followed = [{report.iteration for report in of_rank if report.point != NO_POINT} for of_rank in reports]
        planned = set.intersection(*followed)
        if len(planned) < NUM_FOLLOWED:
            return None
        return Attempt(
            dp_size=dp_size,
            first_seen=max(of_rank[0].iteration for of_rank in reports),
            first_planned=min(planned),
            phases=tuple(phase.phase for phase in files.job.phases),
        )


def megatron(folder: Path) -> MegatronRun:
    """The batch is the job's: with half the pipelines, each has twice the microbatches."""
    return megatron_loops.run_in(folder, "PP2 x DP2", num_steps=NUM_STEPS)


def deepspeed(folder: Path) -> DeepSpeedRun:
    """The batch is each pipeline's."""
    return replace(deepspeed_run_in(folder, num_steps=NUM_STEPS), num_pipelines=2)


def history(job: ElasticJob) -> dict[str, Attempt]:
    """What happens to a job, and the attempt that follows."""
    attempts = {}
    job.start(0)
    job.start(1)
    attempts["first start"] = job.planned_attempt(2)
    job.kill_rank(0, 1)
    attempts["a trainer dies"] = job.planned_attempt(2)
    job.train_until_planned_ahead()
    num_ahead = job.plans_ahead()
    job.kill(1)
    attempts["a node is lost"] = replace(job.planned_attempt(1), num_ahead=num_ahead)
    job.start(1)
    attempts["the node is back"] = job.planned_attempt(2)
    job.start_anew(with_larger_batch(job.run))
    attempts["a larger batch"] = job.planned_attempt(2)
    return attempts


def with_larger_batch(run: MegatronRun | DeepSpeedRun) -> MegatronRun | DeepSpeedRun:
    """The same script with half as many microbatches more."""
    if isinstance(run, MegatronRun):
        layout = run.layout
        return replace(run, layout=replace(layout, num_microbatches=layout.num_microbatches * 3 // 2))
    config = json.loads(run.config.read_text())
    config["gradient_accumulation_steps"] = config["gradient_accumulation_steps"] * 3 // 2
    path = run.folder / "larger.json"
    path.write_text(json.dumps(config))
    return replace(run, config=path)


def _program(run: MegatronRun | DeepSpeedRun) -> list[str]:
    """What torchrun is to run."""
    command = run.command(with_perseus=True)
    program = command[command.index("--master_port") + 2 :]
    if isinstance(run, MegatronRun):
        return program
    options = PerseusOptions(report=str(run.folder)).to_text()  # as DeepSpeed's launcher starts a rank
    return [str(RANK_MAIN), "--perseus-options", options, "script", *program]


@contextmanager
def elastic_job(run: MegatronRun | DeepSpeedRun) -> Iterator[ElasticJob]:
    """A job whose nodes are yet to start; whatever is left at the end is killed."""
    shutil.rmtree(run.folder / "cache", ignore_errors=True)
    with two_nodes(num_gpus=GPUS_PER_NODE) as nodes:
        job = ElasticJob(run, nodes)
        try:
            yield job
        finally:
            job.end()
