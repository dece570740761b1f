"""Real agents beside stand-in trainers on simulated GPUs; the planner is the test."""

import json
import os
import queue
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, TypeVar

import grpc
import pytest
from builders import make_spec
from processes import has_ended
from waiting import PATIENCE_S, wait_until

from perseus_dist.agent.following.rank_program import schedule_digest
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.messages.from_agent import (
    AgentMessage,
    Attach,
    Goodbye,
    IterationReport,
    ProfileSamples,
    ScheduleText,
    SwitchSeen,
    Telemetry,
)
from perseus_dist.messages.from_planner import (
    Attached,
    PlannerMessage,
    PlanTable,
    ProfileAck,
    ScheduleWanted,
    Sweep,
    Switch,
)
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE
from perseus_dist.rpc.codec import decode_agent_message, encode_planner_message
from perseus_dist.rpc.connection import SERVICE
from perseus_dist.simulation.trainers.trainer_config import InstructionTime, TrainerConfig
from perseus_dist.simulator.machine import SimulatedMachine

NUM_KILLS = int(os.environ.get("PERSEUS_NUM_KILLS", "48"))
SCHEDULE = "0F0 0F1 0B0 0F2 0B1 0B2\n"
SECONDS = {"F": 0.030, "B": 0.055}
ATTACHED = Attached(phase="registering", table_revision=0, acked_samples=0)

Message = TypeVar("Message", bound=AgentMessage)


class ScriptedPlanner:
    """A gRPC service that greets every agent, then says what the test puts into ``to_say``, and keeps what it hears."""

    def __init__(self) -> None:
        self.greeting: tuple[PlannerMessage, ...] = (ATTACHED,)
        self.heard: queue.Queue[AgentMessage] = queue.Queue()
        self.to_say: queue.Queue[PlannerMessage] = queue.Queue()
        self.address = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        self._is_stopping = False
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._attach)
        self._server = grpc.server(ThreadPoolExecutor(32))
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Attach": handler})])
        port = self._server.add_insecure_port(self.address)
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._server.stop(None).wait(5)

    def hear(self, kind: type[Message]) -> Message:
        """The next message of a kind; others on the way are let go."""
        until = time.monotonic() + PATIENCE_S
        while True:
            message = self.heard.get(timeout=max(0.01, until - time.monotonic()))
            if isinstance(message, kind):
                return message

    def _attach(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        is_over = threading.Event()

        def listen() -> None:
            with suppress(Exception):  # grpc raises a bare Exception when the stream breaks
                for data in requests:
                    self.heard.put(decode_agent_message(data))
            is_over.set()

        threading.Thread(target=listen, daemon=True).start()
        yield from map(encode_planner_message, self.greeting)
        while not is_over.is_set() and not self._is_stopping and context.is_active():
            with suppress(queue.Empty):
                yield encode_planner_message(self.to_say.get(timeout=0.05))


@pytest.fixture(autouse=True)
def lease_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated GPUs of other tests may have the same UUIDs."""
    monkeypatch.setenv("PERSEUS_LEASE_DIR", str(tmp_path))


@pytest.fixture
def planner() -> Iterator[ScriptedPlanner]:
    scripted = ScriptedPlanner()
    yield scripted
    scripted.stop()


def _spec(machine: SimulatedMachine, gpu: int, planner: str | None, options: dict[str, str]) -> RankSpec:
    return make_spec(
        job_id=f"job{gpu}",
        schedule=SCHEDULE,
        local_rank=gpu,
        gpu_uuid=machine.gpus[gpu].uuid,
        planner=planner,
        control="direct",
        options=options,
    )


@contextmanager
def trainer(
    machine: SimulatedMachine,
    *,
    gpu: int = 0,
    planner: str | None = None,
    device_ordered: bool = False,
    iterations: int = 10_000,
    options: dict[str, str] | None = None,
    report: Path | None = None,
) -> Iterator["subprocess.Popen[str]"]:
    spec = replace(_spec(machine, gpu, planner, options or {}), report=None if report is None else str(report))
    times = tuple(InstructionTime(stage=0, kind=kind, seconds=seconds) for kind, seconds in SECONDS.items())
    config = TrainerConfig(
        spec=spec,
        gpu=gpu,
        times=times,
        num_iterations=iterations,
        device_ordered=device_ordered,
        first_semaphore=gpu,
        optimizer_s=0.01,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "perseus_dist.simulation.trainers.trainer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **machine.environment(cuda=device_ordered)},
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(config.to_json())
    process.stdin.close()
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def table(clocks: tuple[int, ...]) -> PlanTable:
    return PlanTable(
        revision=1,
        num_points=1,
        num_instructions=6,
        clocks_mhz=array("H", clocks).tobytes(),
        times_s=(1.0,),
        energies_j=(1.0,),
        expected=(),
        switch_latency_s=0.012,
        schedule_digest=schedule_digest(SCHEDULE),
    )


ENFORCED = (ATTACHED, table((1200,) * 6), Switch(table_revision=1, point=0, effective_iteration=0, switch_revision=1))


def is_locked(machine: SimulatedMachine, gpu: int = 0) -> bool:
    return machine.gpus[gpu].state().locked_mhz == (1200, 1200)


def agents_of(trainer_pid: int) -> Iterator[int]:
    """The pids of the agents that a trainer has started."""
    for task in Path(f"/proc/{trainer_pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with suppress(OSError):
                if b"perseus_dist.agent" in Path(f"/proc/{child}/cmdline").read_bytes():
                    yield int(child)


def agent_of(trainer_pid: int) -> int:
    agent = next(agents_of(trainer_pid), None)
    assert agent is not None, f"no agent among the children of {trainer_pid}"
    return agent


@pytest.mark.parametrize("device_ordered", [False, True], ids=["host order", "device order"])
def test_a_sweep_measures_what_the_simulator_says(planner: ScriptedPlanner, device_ordered: bool) -> None:  # noqa: FBT001
    with (
        SimulatedMachine("a100") as machine,
        trainer(machine, planner=planner.address, device_ordered=device_ordered),
    ):
        attach = planner.hear(Attach)
        assert attach.gpu.control == "direct"
        assert attach.gpu.energy_period_s == pytest.approx(0.02, rel=0.2)
        planner.to_say.put(ScheduleWanted())
        assert planner.hear(ScheduleText).text == SCHEDULE
        clocks = (1410, 1200)
        first = max(2, attach.iteration + 2)
        planner.to_say.put(Sweep(sweep_id=1, first_iteration=first, iterations_per_clock=8, clocks_mhz=clocks))
        for step, clock in enumerate(clocks):
            told = planner.hear(ProfileSamples)
            planner.to_say.put(ProfileAck(sequence=told.sequence))
            assert (told.sequence, told.step, told.last) == (step + 1, step, True)
            computations = [sample for sample in told.samples if sample.kind != CLOCK_CHANGE]
            assert {sample.kind for sample in computations} == {"F", "B"}
            for sample in computations:
                kernel = "forward" if sample.kind == "F" else "backward"
                time_s = machine.preset.kernel_time_s(kernel, SECONDS[sample.kind], clock)
                energy_j = time_s * machine.preset.kernel_power_w(kernel, clock)
                assert sample.clock_mhz == clock
                # In host order the host's own lateness is measured too, and this machine may be busy.
                assert sample.time_s == pytest.approx(time_s, rel=0.02 if device_ordered else 0.2)
                assert sample.energy_j == pytest.approx(energy_j, rel=0.03 if device_ordered else 0.2)


def test_clocks_outlive_the_planner_and_nothing_else(planner: ScriptedPlanner) -> None:
    planner.greeting = ENFORCED
    with SimulatedMachine("a100") as machine:
        with trainer(machine, planner=planner.address) as process:
            assert planner.hear(SwitchSeen).switch_revision == 1
            wait_until(lambda: is_locked(machine))
            planner.stop()
            time.sleep(0.5)
            assert is_locked(machine)
            planner.start()
            wait_until(lambda: not planner.heard.empty() and planner.hear(Attach))
            assert is_locked(machine)
            agent = agent_of(process.pid)
            os.kill(agent, signal.SIGTERM)
            assert planner.hear(Goodbye).reason == "asked to end"
            wait_until(lambda: has_ended(agent))
            assert machine.gpus[0].state().is_unlocked
            assert process.poll() is None
        assert machine.gpus[0].state().is_unlocked


def test_a_job_that_ends_says_so_and_unlocks(planner: ScriptedPlanner, tmp_path: Path) -> None:
    planner.greeting = ENFORCED
    with (
        SimulatedMachine("a100") as machine,
        trainer(machine, planner=planner.address, device_ordered=True, iterations=12, report=tmp_path) as process,
    ):
        wait_until(lambda: any(agents_of(process.pid)))
        process.send_signal(signal.SIGSTOP)  # or a late agent would see the last iterations alone
        planner.hear(Attach)
        process.send_signal(signal.SIGCONT)
        reports: list[IterationReport] = []
        while len(reports) < 12:
            reports += planner.hear(Telemetry).iterations
        assert planner.hear(Goodbye).reason == "finished"
        assert process.wait(PATIENCE_S) == 0
        wait_until(lambda: machine.gpus[0].state().is_unlocked)  # the agent ends after its trainer
    assert [report.iteration for report in reports] == list(range(12))
    known = [report for report in reports if report.energy_j is not None]
    assert len(known) > 6
    assert reports[-2].point == 0
    lines = (tmp_path / "rank-0.jsonl").read_text().splitlines()
    live = [report for report in reports if report.is_live]  # the trainer did not wait for its agent; more or fewer
    assert live
    assert all(report.time_s > 0.1 for report in live)
    assert list(map(json.loads, lines)) == json.loads(json.dumps(list(map(asdict, live))))


def test_training_goes_on_without_a_planner(planner: ScriptedPlanner) -> None:
    planner.stop()
    with SimulatedMachine("a100") as machine, trainer(machine, planner=planner.address, iterations=8) as process:
        assert process.wait(PATIENCE_S) == 0
        assert machine.gpus[0].state().num_sets == 0


def test_an_agent_tells_what_it_found_as_it_started(planner: ScriptedPlanner) -> None:
    with SimulatedMachine("a100", count=2) as machine:
        machine.gpus[0].set_power_limit_w(250.0)
        with trainer(machine, planner=planner.address):
            capped = planner.hear(Attach)
        with trainer(machine, planner=planner.address, gpu=1):
            sound = planner.hear(Attach)
    (finding,) = capped.findings
    assert finding.what == "power cap 250 W, below the default of 500 W"
    assert finding.remedy
    assert sound.findings == ()


def test_training_goes_on_whatever_happens_to_the_driver(planner: ScriptedPlanner) -> None:
    planner.greeting = ENFORCED
    with SimulatedMachine("a100", count=2) as machine:
        machine.set_driver_loaded(False)
        with trainer(machine, iterations=8, gpu=1) as process:
            assert process.wait(PATIENCE_S) == 0
        machine.set_driver_loaded(True)
        with trainer(machine, planner=planner.address) as process:
            wait_until(lambda: is_locked(machine))
            agent = agent_of(process.pid)
            machine.set_driver_loaded(False)
            wait_until(lambda: planner.hear(Telemetry).trouble)
            machine.set_driver_loaded(True)
            wait_until(lambda: is_locked(machine))
            assert not has_ended(agent)
            assert process.poll() is None
        wait_until(lambda: machine.gpus[0].state().is_unlocked)


def test_a_stopped_trainer_and_a_killed_agent_lose_the_clock(planner: ScriptedPlanner) -> None:
    planner.greeting = ENFORCED
    with (
        SimulatedMachine("a100") as machine,
        trainer(machine, planner=planner.address, options={"lease_s": "1.0"}) as process,
    ):
        wait_until(lambda: is_locked(machine))
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: machine.gpus[0].state().is_unlocked)
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: is_locked(machine))
        os.kill(agent_of(process.pid), signal.SIGKILL)
        wait_until(lambda: machine.gpus[0].state().is_unlocked)
        assert process.poll() is None


def test_an_agent_killed_together_with_its_lease_process_is_replaced(planner: ScriptedPlanner, tmp_path: Path) -> None:
    planner.greeting = ENFORCED
    with (
        SimulatedMachine("a100") as machine,
        trainer(machine, planner=planner.address, report=tmp_path) as process,
    ):
        lease_file = machine.state_path.with_name("leases") / f"{machine.gpus[0].uuid}.lease"
        wait_until(lambda: is_locked(machine) and planner.hear(Telemetry).iterations)
        num_resets, agent = machine.gpus[0].state().num_resets, agent_of(process.pid)
        written = len((tmp_path / "rank-0.jsonl").read_text().splitlines())
        for pid in (agent, json.loads(lease_file.read_text())["pid"]):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: machine.gpus[0].state().num_resets > num_resets)
        wait_until(lambda: is_locked(machine))
        assert process.poll() is None
        assert agent_of(process.pid) != agent
        wait_until(lambda: planner.hear(Telemetry).iterations)
        lines = (tmp_path / "rank-0.jsonl").read_text().splitlines()
        iterations = [json.loads(line)["iteration"] for line in lines]
        assert len(lines) > written
        assert iterations == sorted(set(iterations))
    wait_until(lambda: machine.gpus[0].state().is_unlocked)


def is_followed(trainer_pid: int, agent_pid: int) -> bool:
    """Whether another agent has been started in place of one that was killed."""
    try:
        return agent_of(trainer_pid) != agent_pid
    except (AssertionError, OSError):
        return False


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.4])
def test_a_trainer_that_ends_just_after_its_agent_was_killed_leaves_no_clock_locked(
    planner: ScriptedPlanner, after_s: float
) -> None:
    """The agent that follows finds no trainer any more, and a clock that is locked."""
    planner.greeting = ENFORCED
    with SimulatedMachine("a100") as machine:
        with trainer(machine, planner=planner.address) as process:
            lease_file = machine.state_path.with_name("leases") / f"{machine.gpus[0].uuid}.lease"
            wait_until(lambda: is_locked(machine))
            agent = agent_of(process.pid)
            for pid in (agent, json.loads(lease_file.read_text())["pid"]):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: is_followed(process.pid, agent))  # where nobody is left, nobody can unlock
            time.sleep(after_s)
            process.kill()
        wait_until(lambda: machine.gpus[0].state().is_unlocked)


# A trainer that costs little: boundaries by the clock on the wall, and no GPU work. Opens as many files as it is told,
# and starts itself anew in its own process when it is told.
_LIGHT_TRAINER = """
import itertools, json, os, signal, sys, time
from perseus_dist.hooks import attach
from perseus_dist.boundaries.rank_spec import RankSpec
signal.signal(signal.SIGUSR1, lambda *_: os.execv(sys.executable, sys.orig_argv))
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(int(sys.argv[1]))]
spec = RankSpec.from_fields(json.loads(sys.argv[2]))
hook = attach(spec)
for iteration in itertools.count():
    hook.iteration_begin(iteration)
    for token in spec.schedule.split():
        hook.begin(token[1], 0, int(token[2]))
        time.sleep(0.01)
        hook.end(token[1], 0, int(token[2]))
    hook.iteration_end(iteration)
"""


@pytest.mark.stress
def test_killed_trainers_leave_no_clock_locked(planner: ScriptedPlanner) -> None:
    planner.greeting = ENFORCED
    rng = random.Random(5)
    with SimulatedMachine("a100", count=8) as machine, ThreadPoolExecutor(8) as pool:

        def kill_trainers(gpu: int) -> int:
            with TemporaryFile() as log:
                for _ in range(NUM_KILLS // 8):
                    _kill_trainer(machine, gpu, planner.address, rng.uniform(0, 0.05), log)
            return NUM_KILLS // 8

        assert sum(pool.map(kill_trainers, range(8))) == NUM_KILLS


def test_a_trainer_with_many_open_files_has_an_agent_too(planner: ScriptedPlanner) -> None:
    """Descriptors that it inherits are beyond those that ``select`` can take."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200:
        pytest.skip("no more than 1200 descriptors may be open")
    planner.greeting = ENFORCED
    with SimulatedMachine("a100") as machine, TemporaryFile() as log:
        _kill_trainer(machine, 0, planner.address, 0.0, log, num_files=1100)


def test_a_trainer_that_executes_itself_has_an_agent_that_sets_clocks(planner: ScriptedPlanner) -> None:
    """Its process goes on, the program that the first agent belongs to does not."""
    planner.greeting = ENFORCED
    with SimulatedMachine("a100") as machine, TemporaryFile() as log:
        process = _light_trainer(machine, 0, planner.address, log)
        try:
            wait_until(lambda: is_locked(machine))
            agent, num_resets = agent_of(process.pid), machine.gpus[0].state().num_resets
            process.send_signal(signal.SIGUSR1)
            wait_until(lambda: machine.gpus[0].state().num_resets > num_resets)
            wait_until(lambda: has_ended(agent))
            wait_until(lambda: is_locked(machine))
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()
        wait_until(lambda: machine.gpus[0].state().is_unlocked)


def _light_trainer(
    machine: SimulatedMachine, gpu: int, planner: str, log: BinaryIO, *, num_files: int = 0
) -> "subprocess.Popen[bytes]":
    spec = json.dumps(asdict(_spec(machine, gpu, planner, {})))
    return subprocess.Popen(
        [sys.executable, "-c", _LIGHT_TRAINER, str(num_files), spec],
        env={**os.environ, **machine.environment()},
        stderr=log,
    )


def _kill_trainer(
    machine: SimulatedMachine, gpu: int, planner: str, after_s: float, log: BinaryIO, *, num_files: int = 0
) -> None:
    """Start a trainer, kill it once its clock is locked, and wait until the clock is free."""
    process = _light_trainer(machine, gpu, planner, log, num_files=num_files)
    try:
        wait_until(lambda: is_locked(machine, gpu))
        time.sleep(after_s)
    except AssertionError:
        log.seek(0)
        pytest.fail(f"never locked; its agent said: {log.read().decode()}")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: machine.gpus[gpu].state().is_unlocked)
