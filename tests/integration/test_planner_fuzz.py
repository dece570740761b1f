"""Some thousands of hostile messages over real gRPC: every answer is in the contract, and memory stays bounded.

``PERSEUS_NUM_RPCS=100000`` makes the full count of calls.
"""

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from waiting import PATIENCE_S

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.service.rpc_guard import RpcGuard
from perseus_dist.planner.service.server import make_server
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.worker.planning_worker import PlanningWorker
from perseus_dist.rpc.connection import ATTACH, SERVICE, authorization
from perseus_dist.rpc.v1 import planner_pb2 as pb

NUM_RPCS = int(os.environ.get("PERSEUS_NUM_RPCS", "3000"))  # half of them streams of several messages
AT_ONCE = 50
WHOLE_PATIENCE_S = PATIENCE_S + NUM_RPCS / 25
KILOBYTES_PER_RUN = 200_000
ALLOWED_OF_STREAMS = {"OK", "INVALID_ARGUMENT"}
ALLOWED_OF_CALLS = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"}

DIGEST = "0f" * 32
ATTACH_MESSAGE = pb.AgentMessage(
    attach=pb.Attach(
        rank=pb.Rank(job_id="job", pp_size=2, dp_size=2, tp_size=1, schedule_digest=DIGEST),
        gpu=pb.Gpu(uuid="GPU-1", name="A100", clocks_mhz=[1410, 1395], control="clockd"),
        incarnation=7,
    )
)
LATER_MESSAGES = (
    pb.AgentMessage(schedule=pb.ScheduleText(text="0F0 0B0\n1F0 1B0\n")),
    pb.AgentMessage(
        samples=pb.ProfileSamples(
            sequence=1,
            samples=[pb.Sample(kind="F", clock_mhz=1410, time_s=0.1, energy_j=20, num_runs=4, window_s=2, stage=-1)],
            last=True,
        )
    ),
    pb.AgentMessage(
        telemetry=pb.Telemetry(
            sequence=1,
            iterations=[pb.IterationReport(iteration=4, time_s=2, pipeline_time_s=2, energy_j=700, energy_known=True)],
            control="clockd",
        )
    ),
    pb.AgentMessage(
        drift=pb.Drift(sequence=1, kind="F", clock_mhz=1410, profile_time_s=0.1, measured_time_s=0.2, num_runs=3)
    ),
    pb.AgentMessage(switch_seen=pb.SwitchSeen(table_revision=3, switch_revision=9)),
    pb.AgentMessage(goodbye=pb.Goodbye(reason="finished")),
)
CALLS = (
    ("ListJobs", pb.ListJobsRequest()),
    ("GetFrontier", pb.GetFrontierRequest(job_id="job")),
    ("GetProfile", pb.GetProfileRequest(job_id="job")),
    ("SetTarget", pb.SetTargetRequest(job_id="job", target=pb.Target(slowdown=1.1))),
    (
        "ReportStraggler",
        pb.ReportStragglerRequest(job_id="job", straggler=pb.StragglerReport(id="a", degree=1.2, dp_rank=1)),
    ),
    ("ClearStraggler", pb.ClearStragglerRequest(job_id="job", id="a")),
    ("GetPolicy", pb.GetPolicyRequest()),
    (
        "SetBudget",
        pb.SetBudgetRequest(
            budget=pb.Budget(
                name="a",
                watts=1e4,
                jobs=["j*"],
                objective="max-min",
                guard_band=0.1,
                weights=[pb.PatternValue(pattern="*", value=2)],
                max_slowdowns=[pb.PatternValue(pattern="job", value=1.5)],
            )
        ),
    ),
    (
        "SetLoadTarget",
        pb.SetLoadTargetRequest(
            load_target=pb.LoadTarget(name="b", budget="a", start_s=1, end_s=1e11, watts=5e3, best_effort=True)
        ),
    ),
    ("ClearLoadTarget", pb.ClearLoadTargetRequest(budget="a", name="b")),
    ("ClearBudget", pb.ClearBudgetRequest(name="a")),
    (
        "SetPricePolicy",
        pb.SetPricePolicyRequest(
            policy=pb.PricePolicy(name="a", jobs=["job"], signal="day.csv", deadline_s=4e9, iterations=99)
        ),
    ),
    ("ClearPricePolicy", pb.ClearPricePolicyRequest(name="a")),
)


def mutated(chance: random.Random, data: bytes) -> bytes:
    """A valid message with bytes changed, removed, inserted or nothing at all."""
    changed = bytearray(data)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(3):
            case 0:
                changed[at : at + 1] = chance.randbytes(1)
            case 1:
                del changed[at : at + chance.randrange(1, 9)]
            case _:
                changed[at:at] = chance.randbytes(chance.randrange(1, 9))
    return bytes(changed)


async def stream(channel: grpc.aio.Channel, chance: random.Random) -> str:
    """One hostile agent; gives the status that its stream ended in."""
    attach = pb.AgentMessage.FromString(ATTACH_MESSAGE.SerializeToString())
    attach.attach.rank.rank = chance.randrange(4)
    attach.attach.rank.pp_rank, attach.attach.rank.dp_rank = attach.attach.rank.rank % 2, attach.attach.rank.rank // 2
    call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(ATTACH)()
    messages = [attach, *(chance.choice(LATER_MESSAGES) for _ in range(3))]
    hostile = chance.randrange(len(messages) + 1)
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the planner has ended it already
        for index, message in enumerate(messages):
            data = message.SerializeToString()
            await call.write(mutated(chance, data) if index == hostile else data)
        await call.done_writing()
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while await call.read() is not grpc.aio.EOF:  # a status comes after all messages are read
            pass
    if await call.details() == "Internal error from Core":  # what our side makes of a write after the end
        return "INVALID_ARGUMENT"
    return (await call.code()).name


async def ask(channel: grpc.aio.Channel, chance: random.Random) -> str:
    """One hostile call; gives its status."""
    method, request = chance.choice(CALLS)
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{method}")
    try:
        await call(mutated(chance, request.SerializeToString()), metadata=authorization("operator"), timeout=PATIENCE_S)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


def resident_kilobytes() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


@pytest.mark.stress
def test_hostile_messages_over_the_wire() -> None:
    async def test() -> None:
        async with asyncio.timeout(WHOLE_PATIENCE_S):
            await hostile_messages()

    asyncio.run(test())


async def hostile_messages() -> None:
    store, worker, counters = Store(None), PlanningWorker(), Counters()
    jobs = Jobs(store, worker, Policy(), counters)
    gate = RpcGuard(access=Access("operator"), needs_token=False, counters=counters)
    server = make_server(jobs, gate)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    chance = random.Random(4)
    streams: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            before = 0
            for _ in range(NUM_RPCS // (2 * AT_ONCE)):
                streams.update(await asyncio.gather(*(stream(channel, chance) for _ in range(AT_ONCE))))
                calls.update(await asyncio.gather(*(ask(channel, chance) for _ in range(AT_ONCE))))
                before = before or resident_kilobytes()
            assert resident_kilobytes() - before < KILOBYTES_PER_RUN
            assert await ask(channel, random.Random(0)) in ALLOWED_OF_CALLS
    finally:
        await server.stop(None)
        jobs.close()
        await worker.close()
        store.close()
    assert set(counters.refused) <= (ALLOWED_OF_STREAMS | ALLOWED_OF_CALLS | {"CANCELLED"}), counters.refused
    assert set(streams) <= ALLOWED_OF_STREAMS, streams
    assert set(calls) <= ALLOWED_OF_CALLS, calls
    assert min(streams.values()) > 100
    assert min(calls["OK"], calls["INVALID_ARGUMENT"]) > 100
    assert jobs.num_streams == 0
