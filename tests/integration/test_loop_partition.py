"""A network that falls silent between an agent and the planner: clocks stay planned, and nothing measured is lost."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
from processes import agents_of, has_ended
from waiting import PATIENCE_S, wait_until

from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.planning.profile.profile_csv import read_rows
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.connection import authorization
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.trainers.trainer_config import TrainerConfig
from perseus_dist.simulation.wall_run import SupervisedPlanner
from perseus_dist.simulator.gpu_preset import Timing
from perseus_dist.simulator.machine import SimulatedMachine

NUM_MICROBATCHES = 2
JOB = SimulatedJob(
    schedule=one_f_one_b(pp=2, microbatches=NUM_MICROBATCHES),
    num_pipelines=1,
    num_iterations=100_000,
    imbalance=0.3,
)


class Proxy:
    """Between an agent and the planner. Connections that were open when it fell silent never work again.

    A silent connection takes every byte and gives none, neither end hears of the other's end: a cable that was pulled.
    """

    def __init__(self, planner: str) -> None:
        host, port = planner.split(":")
        self._planner = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[Line] = []
        self._is_silent = False
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Fall silent."""
        self._is_silent = True
        for line in self._lines:
            line.is_silent = True

    def mend(self) -> None:
        """Forward the connections that are made from now on."""
        self._is_silent = False

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for end in [end for line in self._lines for end in line.ends]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in [self._listener, *(end for line in self._lines for end in line.ends)]:
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                agent, _ = self._listener.accept()
                line = Line((agent, socket.create_connection(self._planner)), is_silent=self._is_silent)
                self._lines.append(line)
                for source, sink in (line.ends, line.ends[::-1]):
                    self._threads.append(threading.Thread(target=line.pump, args=(source, sink)))
                    self._threads[-1].start()


@dataclass
class Line:
    """One connection."""

    ends: tuple[socket.socket, socket.socket]
    is_silent: bool

    def pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.is_silent:
                    sink.sendall(data)
        with suppress(OSError):
            if not self.is_silent:
                sink.shutdown(socket.SHUT_WR)


@dataclass(frozen=True)
class Operator:
    """Asks the planner, past the proxy."""

    planner: PlannerStub
    token: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return authorization(self.token)

    def status(self) -> pb.JobStatus:
        jobs = self.planner.ListJobs(pb.ListJobsRequest(), metadata=self.metadata, timeout=PATIENCE_S).jobs
        return jobs[0] if jobs else pb.JobStatus()

    def set_slowdown(self, slowdown: float) -> None:
        request = pb.SetTargetRequest(job_id=JOB.job_id, target=pb.Target(slowdown=slowdown))
        self.planner.SetTarget(request, metadata=self.metadata, timeout=PATIENCE_S)

    def profile(self) -> str:
        request = pb.GetProfileRequest(job_id=JOB.job_id)
        csv: str = self.planner.GetProfile(request, metadata=self.metadata, timeout=PATIENCE_S).csv
        return csv


def highest_clock_mhz(machine: SimulatedMachine) -> int:
    """Of GPU 0, during more than one iteration."""
    seen_mhz = []
    for _ in range(75):
        seen_mhz.append(machine.gpu(0).state().clock_mhz)
        time.sleep(0.02)
    return max(seen_mhz)


@contextmanager
def trainer(config: TrainerConfig, environ: dict[str, str], log_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A trainer; its agent has ended too at the end."""
    command = [sys.executable, "-m", "perseus_dist.simulation.trainers.trainer"]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log)
    assert process.stdin is not None
    process.stdin.write(config.to_json().encode())
    process.stdin.close()
    try:
        yield process
    finally:
        agents = agents_of(process.pid)
        process.kill()
        process.wait()
        wait_until(lambda: all(map(has_ended, agents)))


@pytest.mark.parametrize(
    "is_sweep_paused",
    [
        pytest.param(False, id="short", marks=pytest.mark.soak),
        pytest.param(True, id="until the sweep is paused", marks=pytest.mark.stress),
    ],
)
def test_a_silent_network_loses_no_sample_and_no_switch(*, is_sweep_paused: bool, tmp_path: Path) -> None:
    with ExitStack() as stack:
        # A counter that is published often makes short windows.
        machine = stack.enter_context(SimulatedMachine("a100", count=2, timing=Timing(energy_period_s=0.01)))
        environ = {**os.environ, **machine.environment(cuda=True), "PERSEUS_LOG": "debug"}
        clockd = stack.enter_context(ClockdProcess(tmp_path, environ))
        planner_log, agent_log, other_log = (tmp_path / f"{name}.log" for name in ("planner", "rank0", "rank1"))
        planner = SupervisedPlanner(tmp_path, clockd.environ)
        stack.callback(planner.end)
        proxy = stack.enter_context(closing(Proxy(planner.address)))
        uuids = tuple(gpu.uuid for gpu in machine.gpus)
        behind, other = JOB.trainers(uuids, planner=planner.address)
        behind = replace(behind, spec=replace(behind.spec, planner=proxy.address))
        trainers = [
            stack.enter_context(trainer(config, clockd.environ, path))
            for config, path in ((behind, agent_log), (other, other_log))
        ]
        channel = stack.enter_context(grpc.insecure_channel(planner.address))
        operator = Operator(PlannerStub(channel), planner.operator_token)  # type: ignore[no-untyped-call]

        def clocks_set_mhz() -> list[int]:
            return [call.hi for call in machine.calls() if call.gpu == 0 and "Set" in call.function]

        def stay_silent_until_noticed() -> None:
            num_told = agent_log.read_text().count("training goes on")
            wait_until(lambda: agent_log.read_text().count("training goes on") > num_told)
            assert all(process.poll() is None for process in trainers)

        wait_until(lambda: operator.status().profiled_clocks >= 2)
        assert operator.status().phase == "profiling"
        num_set = len(clocks_set_mhz())
        proxy.cut()
        stay_silent_until_noticed()
        assert len(clocks_set_mhz()) > num_set  # its sweep went on
        if is_sweep_paused:
            wait_until(lambda: "waits for ranks 0 to come back" in planner_log.read_text())
        silent_mhz = set(clocks_set_mhz()[num_set - 2 :])  # samples of the clock before may have been on their way
        proxy.mend()
        wait_until(lambda: operator.status().phase == "enforcing")
        (tmp_path / "profile.csv").write_text(operator.profile())
        rows = [row for row in read_rows(tmp_path / "profile.csv") if row.kind != CLOCK_CHANGE]
        clocks_mhz = {
            key: [row.clock_mhz for row in rows if (row.stage, row.kind) == key]
            for key in {(row.stage, row.kind) for row in rows}
        }
        assert len(clocks_mhz) == 4
        fewest = min(clocks_mhz.values(), key=len)  # the other rank goes on until the silence is noticed
        assert all(clocks[: len(fewest)] == fewest for clocks in clocks_mhz.values()), clocks_mhz
        # Of a round that asks again for what a computation was missed at they are twice as many.
        ordered = max(map(int, re.findall(r"(\d+) iterations each", other_log.read_text())))
        # Another sweep follows a paused one. It measures nothing again but the highest clock, which each begins with,
        # and those that the silent rank was at.
        assert all(row.samples > 0 for row in rows)
        most = NUM_MICROBATCHES * ordered
        again_mhz = {row.clock_mhz for row in rows if row.stage == 0 and row.samples > most}
        # On a busy machine computations are missed at others, too: the planner says which it has measured again.
        missed = re.findall(r"measures ([\d, ]+) MHz, too", planner_log.read_text())
        missed_mhz = {int(clock_mhz) for text in missed for clock_mhz in text.split(",")}
        assert again_mhz <= {max(row.clock_mhz for row in rows), *silent_mhz, *missed_mhz}

        wait_until(lambda: f"switch {operator.status().switch_revision}:" in agent_log.read_text())
        proxy.cut()
        before = operator.status()
        operator.set_slowdown(1.25)
        revision = operator.status().switch_revision
        assert revision > before.switch_revision
        wait_until(lambda: f"switch {revision}:" in other_log.read_text())
        num_set = len(clocks_set_mhz())
        stay_silent_until_noticed()
        in_silence_mhz = clocks_set_mhz()[num_set:]
        assert len(in_silence_mhz) > 3  # the plan of before, which changes clocks in every iteration
        assert f"switch {revision}:" not in agent_log.read_text()
        proxy.mend()
        wait_until(lambda: f"switch {revision}:" in agent_log.read_text())
        wait_until(lambda: highest_clock_mhz(machine) < max(in_silence_mhz))
        after = operator.status()
        assert (after.phase, after.pipelines[0].attached_ranks) == ("enforcing", 2)
        assert after.table_revision == before.table_revision
    assert all(gpu.state().is_unlocked for gpu in machine.gpus)
