"""GPUs that do not do as they are told, nobody left to unlock them, and GPUs that nobody may tell anything."""

import os
import queue
import signal
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from builders import make_spec
from processes import agents_of, has_ended
from waiting import PATIENCE_S, wait_until

from perseus_dist.agent.following.rank_program import schedule_digest
from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.messages.from_agent import AgentMessage, Telemetry
from perseus_dist.messages.from_planner import Attached, PlannerMessage, PlanTable, Switch
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.codec import decode_agent_message, encode_planner_message
from perseus_dist.rpc.connection import SERVICE, authorization
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.trainers.trainer_config import InstructionTime, TrainerConfig
from perseus_dist.simulation.wall_run import SupervisedPlanner
from perseus_dist.simulator.fault import Fault
from perseus_dist.simulator.machine import SimulatedMachine

SCHEDULE = "0F0 0B0 0F1 0B1\n"
CLOCKS_MHZ = (1050, 900, 1050, 900)  # which the power limit allows
CAPPED_MHZ = 705
POWER_LIMIT_W = 350.0
PLAN: tuple[PlannerMessage, ...] = (
    Attached(phase="enforcing", table_revision=1, acked_samples=0),
    PlanTable(
        revision=1,
        num_points=1,
        num_instructions=len(CLOCKS_MHZ),
        clocks_mhz=array("H", CLOCKS_MHZ).tobytes(),
        times_s=(1.0,),
        energies_j=(1.0,),
        expected=(),
        switch_latency_s=0.012,
        schedule_digest=schedule_digest(SCHEDULE),
    ),
    Switch(table_revision=1, point=0, effective_iteration=0, switch_revision=1),
)


@contextmanager
def planner_with_a_plan(heard: "queue.Queue[AgentMessage]") -> Iterator[str]:
    """The address of one that tells every agent the plan at once, and keeps what it hears."""
    is_over = threading.Event()

    def attach(requests: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        yield from (encode_planner_message(message) for message in PLAN)
        with suppress(Exception):  # grpc raises a bare Exception when the stream breaks
            for data in requests:
                heard.put(decode_agent_message(data))
        is_over.wait()

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(attach)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Attach": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        is_over.set()
        server.stop(None).wait(5)


@contextmanager
def trainer(config: TrainerConfig, environ: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A trainer; its agent has ended too at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "perseus_dist.simulation.trainers.trainer"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(config.to_json().encode())
    process.stdin.close()
    agents: list[int] = []
    try:
        yield process
    finally:
        if process.poll() is None:
            agents = agents_of(process.pid)
            process.kill()
        process.wait()
        wait_until(lambda: all(map(has_ended, agents)))


def test_clocks_that_are_not_reached_are_counted_and_a_crash_of_all_keepers_is_made_good(tmp_path: Path) -> None:
    heard: queue.Queue[AgentMessage] = queue.Queue()

    def num_missed() -> int:
        """By the next report."""
        while not heard.empty():
            heard.get()
        while not isinstance(message := heard.get(timeout=PATIENCE_S), Telemetry):
            pass
        return message.missed_clocks

    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100"))
        gpu = machine.gpu(0)
        gpu.set_power_limit_w(POWER_LIMIT_W)
        clockd = stack.enter_context(ClockdProcess(tmp_path, {**os.environ, **machine.environment(cuda=True)}))
        spec = make_spec(schedule=SCHEDULE, gpu_uuid=gpu.uuid, planner=stack.enter_context(planner_with_a_plan(heard)))
        times = tuple(InstructionTime(stage=0, kind=kind, seconds=0.15) for kind in "FB")
        config = TrainerConfig(spec=spec, gpu=0, times=times, num_iterations=100_000)
        process = stack.enter_context(trainer(config, clockd.environ))

        def runs_at(clock_mhz: int) -> Callable[[], bool]:
            return lambda: gpu.state().clock_mhz == clock_mhz and gpu.state().locked_mhz == (clock_mhz, clock_mhz)

        wait_until(runs_at(1050))
        wait_until(runs_at(900))
        before = num_missed()
        machine.inject(Fault(function="nvmlDeviceSetGpuLockedClocks", is_ignored=True))
        wait_until(lambda: num_missed() >= before + 3)
        machine.clear_faults()
        wait_until(runs_at(1050))
        before = num_missed()
        gpu.set_thermal_cap(CAPPED_MHZ)
        wait_until(lambda: num_missed() >= before + 3)
        assert gpu.state().clock_mhz <= CAPPED_MHZ
        gpu.set_thermal_cap(None)
        wait_until(runs_at(1050))
        wait_until(runs_at(900))
        assert process.poll() is None
        assert gpu.state().power_limit_w == POWER_LIMIT_W

        (agent,) = agents_of(process.pid)
        clockd.kill()
        os.kill(agent, signal.SIGKILL)
        wait_until(lambda: has_ended(agent))
        assert gpu.state().locked_mhz is not None
        num_completed, num_resets = gpu.state().num_completed, gpu.state().num_resets
        clockd.start()
        assert gpu.state().num_resets > num_resets
        wait_until(lambda: gpu.state().num_completed > num_completed + 20)
        wait_until(runs_at(1050))  # under the agent that the trainer has started since
        assert process.poll() is None
        process.kill()
        wait_until(lambda: gpu.state().is_unlocked)
        assert gpu.state().power_limit_w == POWER_LIMIT_W
        assert {call.function for call in machine.calls()} == {
            "nvmlDeviceSetGpuLockedClocks",
            "nvmlDeviceResetGpuLockedClocks",
        }


@pytest.mark.parametrize(
    ("control", "num_iterations", "reason"),
    [
        pytest.param(
            "observe",
            36,
            "no rank can set clocks: asked to observe only",
            id="by choice",
            marks=pytest.mark.stress,
        ),
        pytest.param(
            "auto",
            60,
            "no rank can set clocks: direct has ended the lease: nvmlDeviceSetGpuLockedClocks: ",
            id="without rights",
            marks=pytest.mark.stress,
        ),
    ],
)
def test_a_job_that_may_not_set_clocks_is_watched_and_runs_through(
    tmp_path: Path, control: str, num_iterations: int, reason: str
) -> None:
    job = SimulatedJob(
        schedule=one_f_one_b(pp=2, microbatches=1), num_pipelines=1, num_iterations=num_iterations, imbalance=0.2
    )
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=2, unprivileged=True))
        environ = {
            **os.environ,
            **machine.environment(cuda=True),
            "PERSEUS_CLOCKD_SOCKET": str(tmp_path / "nothing"),
            "PERSEUS_LEASE_DIR": str(tmp_path / "leases"),
        }
        planner = SupervisedPlanner(tmp_path, environ)
        stack.callback(planner.end)
        channel = stack.enter_context(grpc.insecure_channel(planner.address))
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]
        metadata = authorization(planner.operator_token)
        uuids = tuple(gpu.uuid for gpu in machine.gpus)
        configs = job.trainers(uuids, planner=planner.address)
        trainers = [
            stack.enter_context(trainer(replace(config, spec=replace(config.spec, control=control)), environ))
            for config in configs
        ]
        seen: dict[str, pb.JobStatus] = {}

        def is_done() -> bool:
            jobs = stub.ListJobs(pb.ListJobsRequest(), metadata=metadata, timeout=PATIENCE_S).jobs
            seen.update({status.phase: status for status in jobs})
            return "done" in seen

        wait_until(is_done)
        assert [process.wait(PATIENCE_S) for process in trainers] == [0, 0]
        assert all(gpu.state().num_sets == 0 for gpu in machine.gpus)
        assert "Traceback" not in (tmp_path / "planner.log").read_text()
        assert "observing" in seen
        watched = seen["observing"]
        assert reason in watched.reason
        assert watched.baseline.num_iterations >= 5
        assert watched.baseline.time_s > 0
        assert watched.baseline.energy_j > 0
        assert watched.table_revision == watched.switch_revision == 0
