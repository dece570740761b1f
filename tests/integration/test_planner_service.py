"""The service over real gRPC on loopback: what it accepts, how it refuses, who may open what."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import grpc
import pytest
from builders import make_rank
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from waiting import PATIENCE_S

from perseus_dist.messages.from_agent import Attach, Goodbye, ProfileSamples, Sample, ScheduleText, Telemetry
from perseus_dist.messages.from_planner import Attached, PlannerMessage, ProfileAck, Refused, ScheduleWanted
from perseus_dist.messages.terms import Gpu
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.runtime import outbox
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.outbox import Ending
from perseus_dist.planner.service import attach_service
from perseus_dist.planner.service.rpc_guard import RpcGuard
from perseus_dist.planner.service.server import make_server
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.worker.planning_worker import PlanningWorker
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b
from perseus_dist.rpc.codec import decode_planner_message, encode_agent_message
from perseus_dist.rpc.connection import ATTACH, SERVICE, authorization
from perseus_dist.rpc.limits import MAX_AGENT_MESSAGE_BYTES
from perseus_dist.rpc.v1 import planner_pb2 as pb

SCHEDULE = one_f_one_b(pp=2, microbatches=2)
GPU = Gpu(
    uuid="GPU-1",
    name="A100",
    driver_version="570",
    clocks_mhz=(1410, 1200),
    control="clockd",
)
RANK = make_rank(pp_size=2, schedule_digest=SCHEDULE.digest())
ATTACH_0 = Attach(rank=RANK, gpu=GPU, incarnation=7)
ATTACH_1 = Attach(rank=replace(RANK, rank=1, pp_rank=1), gpu=GPU, incarnation=8)
UNARY_METHODS = (
    "ListJobs",
    "GetFrontier",
    "GetProfile",
    "SetTarget",
    "ReportStraggler",
    "ClearStraggler",
)

Call = grpc.aio.StreamStreamCall[bytes, Any]


@dataclass(frozen=True, slots=True)
class Service:
    """A service in this process, and a channel to it."""

    jobs: Jobs
    channel: grpc.aio.Channel

    def attach(self, token: str = "") -> Call:
        return self.channel.stream_stream(ATTACH)(metadata=authorization(token))

    async def ask(self, method: str, data: bytes, token: str = "") -> bytes:
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(f"/{SERVICE}/{method}")
        return await ask(data, metadata=authorization(token), timeout=PATIENCE_S)

    def watch(self, data: bytes) -> "grpc.aio.UnaryStreamCall[bytes, Any]":
        watch: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self.channel.unary_stream(f"/{SERVICE}/WatchJob")
        return watch(data)

    async def job_ids(self, token: str = "") -> list[str]:
        listed = pb.ListJobsResponse.FromString(await self.ask("ListJobs", b"", token))
        return [job.job_id for job in listed.jobs]


@asynccontextmanager
async def service(*, needs_token: bool = False) -> AsyncIterator[Service]:
    store, worker, counters = Store(None), PlanningWorker(), Counters()
    jobs = Jobs(store, worker, Policy(), counters)
    server = make_server(
        jobs,
        RpcGuard(
            access=Access("operator"),
            needs_token=needs_token,
            counters=counters,
        ),
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    options = (("grpc.max_send_message_length", -1),)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            yield Service(jobs, channel)
    finally:
        await server.stop(None)
        jobs.close()
        await worker.close()
        store.close()


def run(test: Callable[[Service], Awaitable[None]], *, needs_token: bool = False) -> None:
    async def main() -> None:
        async with (
            service(needs_token=needs_token) as running,
            asyncio.timeout(PATIENCE_S),
        ):
            await test(running)

    asyncio.run(main())


async def heard(call: Call) -> PlannerMessage | None:
    data = await call.read()
    return decode_planner_message(data) if isinstance(data, bytes) else None


async def next_status(watch: "grpc.aio.UnaryStreamCall[bytes, Any]") -> pb.JobStatus:
    data = await watch.read()
    assert isinstance(data, bytes)
    return pb.JobStatus.FromString(data)


async def refusal(awaited: Awaitable[object]) -> tuple[str, list[str]]:
    """The status that a call ends with, and the fields that it names."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await awaited
    return status_of(refused.value)


async def ending(call: Call) -> tuple[str, list[str]]:
    """The same of a stream that ends without another message."""
    return await refusal(call.read())


def status_of(error: grpc.aio.AioRpcError) -> tuple[str, list[str]]:
    status = rpc_status.from_call(cast("grpc.Call", error))
    fields = []
    for detail in status.details if status else ():
        bad_request = error_details_pb2.BadRequest()
        assert detail.Unpack(bad_request)
        fields += [violation.field for violation in bad_request.field_violations]
    return error.code().name, fields


def test_a_rank_that_attaches_is_answered_and_listed() -> None:
    async def test(planner: Service) -> None:
        call = planner.attach()
        await call.write(encode_agent_message(ATTACH_0))
        assert isinstance(await heard(call), Attached)
        assert await heard(call) == ScheduleWanted()
        await call.write(encode_agent_message(ScheduleText(text=format_schedule(SCHEDULE))))
        await call.write(encode_agent_message(Telemetry(sequence=1)))
        await call.write(encode_agent_message(Goodbye(reason="finished")))
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
        listed = pb.ListJobsResponse.FromString(await planner.ask("ListJobs", b""))
        assert [(job.job_id, job.num_ranks, job.messages) for job in listed.jobs] == [("job", 2, 3)]
        assert planner.jobs.counters.received["Telemetry"] == 1

    run(test)


def test_what_is_no_attach_ends_a_stream_with_invalid_argument() -> None:
    async def test(planner: Service) -> None:
        for first, field in (
            (encode_agent_message(Telemetry(sequence=1)), "message"),
            (b"\xff\xff", ""),
            (b"", "message"),
            (
                pb.AgentMessage(attach=pb.Attach()).SerializeToString(),
                "attach.rank.pp_size",
            ),
        ):
            call = planner.attach()
            await call.write(first)
            code, fields = await ending(call)
            assert code == "INVALID_ARGUMENT"
            assert fields[0] == field
        assert planner.jobs.all() == []

    run(test)


def test_a_later_message_that_breaks_the_contract_ends_the_stream_and_detaches_the_rank() -> None:
    async def test(planner: Service) -> None:
        for bad in (b"\xff", encode_agent_message(ATTACH_0)):
            call = planner.attach()
            await call.write(encode_agent_message(ATTACH_0))
            assert isinstance(await heard(call), Attached)
            assert await heard(call) == ScheduleWanted()
            await call.write(bad)
            assert (await ending(call))[0] == "INVALID_ARGUMENT"
            assert planner.jobs.num_streams == 0
            assert planner.jobs.all()[0].job.num_attached == 0

    run(test)


@pytest.mark.parametrize("num_bytes", [MAX_AGENT_MESSAGE_BYTES + 1, 64 << 20])
def test_an_oversize_message_is_resource_exhausted(num_bytes: int) -> None:
    async def test(planner: Service) -> None:
        call = planner.attach()
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # how far the bytes get is chance
            await call.write(bytes(num_bytes))
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await refusal(planner.ask("SetTarget", bytes(num_bytes))))[0] == "RESOURCE_EXHAUSTED"

    run(test)


def test_bytes_that_no_method_can_decode_are_invalid_argument() -> None:
    async def test(planner: Service) -> None:
        for method in UNARY_METHODS:
            assert await refusal(planner.ask(method, b"\xff\xff")) == (
                "INVALID_ARGUMENT",
                [""],
            )
        assert await refusal(planner.watch(b"\xff").read()) == (
            "INVALID_ARGUMENT",
            [""],
        )

    run(test)


def test_operators_requests_are_checked_field_by_field() -> None:
    async def test(planner: Service) -> None:
        nan = float("nan")
        straggler = pb.StragglerReport(id="a b", degree=nan, dp_rank=-1)
        for method, request, fields in (
            ("SetTarget", pb.SetTargetRequest(job_id="/"), ["target", "job_id"]),
            (
                "SetTarget",
                pb.SetTargetRequest(job_id="j", target=pb.Target(slowdown=nan)),
                ["target.slowdown"],
            ),
            (
                "ReportStraggler",
                pb.ReportStragglerRequest(job_id="j", straggler=straggler),
                ["straggler.degree", "straggler.id", "straggler.dp_rank"],
            ),
            ("ClearStraggler", pb.ClearStragglerRequest(job_id="j"), ["id"]),
            ("GetFrontier", pb.GetFrontierRequest(job_id=""), ["job_id"]),
        ):
            assert await refusal(planner.ask(method, request.SerializeToString())) == (
                "INVALID_ARGUMENT",
                fields,
            )

    run(test)


def test_jobs_that_are_not_there_or_not_ready_are_refused_in_a_sentence() -> None:
    async def test(planner: Service) -> None:
        request = pb.GetFrontierRequest(job_id="job").SerializeToString()
        for method in ("GetFrontier", "GetProfile"):
            assert (await refusal(planner.ask(method, request)))[0] == "NOT_FOUND"
        call = planner.attach()
        await call.write(encode_agent_message(ATTACH_0))
        assert isinstance(await heard(call), Attached)
        for method in ("GetFrontier", "GetProfile"):
            with pytest.raises(grpc.aio.AioRpcError, match="job job has no plan yet: it is registering"):
                await planner.ask(method, request)
        clear = pb.ClearStragglerRequest(job_id="job", id="never-reported").SerializeToString()
        assert (await refusal(planner.ask("ClearStraggler", clear)))[0] == "FAILED_PRECONDITION"
        target = pb.SetTargetRequest(job_id="job", target=pb.Target(slowdown=1.1)).SerializeToString()
        status = pb.JobStatus.FromString(await planner.ask("SetTarget", target))
        assert status.target.slowdown == 1.1

    run(test)


def test_the_profile_is_what_has_been_measured_as_long_as_there_is_no_plan() -> None:
    def sample(stage: int, kind: str) -> Sample:
        return Sample(
            chunk=0,
            kind=kind,
            clock_mhz=1410,
            time_s=0.5,
            energy_j=100.0,
            time_std_s=0.0,
            energy_std_j=0.0,
            num_runs=2,
            window_s=2.0,
            stage=stage,
        )

    async def test(planner: Service) -> None:
        request = pb.GetProfileRequest(job_id="job").SerializeToString()
        call = planner.attach()
        await call.write(encode_agent_message(replace(ATTACH_0, has_profile=True)))
        assert isinstance(await heard(call), Attached)
        assert isinstance(await heard(call), ScheduleWanted)
        await call.write(encode_agent_message(ScheduleText(text=format_schedule(SCHEDULE))))
        for sequence, stage in ((1, 0), (2, 1)):
            rows = tuple(sample(stage, kind) for kind in "FB")
            message = ProfileSamples(
                sequence=sequence, sweep_id=0, step=0, samples=rows, blocking_power_w=80.0, last=stage == 1
            )
            await call.write(encode_agent_message(message))
            assert await heard(call) == ProfileAck(sequence=sequence)
            if stage == 0:
                with pytest.raises(grpc.aio.AioRpcError, match="stage 1 backward, stage 1 forward not measured"):
                    await planner.ask("GetProfile", request)
        profile = pb.GetProfileResponse.FromString(await planner.ask("GetProfile", request))
        assert profile.csv.count(",1410,0.5,100.0,2,") == 4
        assert profile.blocking_power_w == 80.0

    run(test)


def test_a_duplicate_rank_is_refused_and_the_first_stays() -> None:
    async def test(planner: Service) -> None:
        first, second = planner.attach(), planner.attach()
        await first.write(encode_agent_message(ATTACH_0))
        assert isinstance(await heard(first), Attached)
        await second.write(encode_agent_message(replace(ATTACH_0, incarnation=99)))
        refused = await heard(second)
        assert isinstance(refused, Refused)
        assert refused.retry
        assert await second.code() is grpc.StatusCode.OK
        assert planner.jobs.all()[0].job.num_attached == 1

    run(test)


def test_a_job_belongs_to_the_token_that_registered_it() -> None:
    async def test(planner: Service) -> None:
        mine, other = planner.attach("mine"), planner.attach("other")
        await mine.write(encode_agent_message(ATTACH_0))
        assert isinstance(await heard(mine), Attached)
        for token in ("other", ""):
            intruder = planner.attach(token)
            await intruder.write(encode_agent_message(ATTACH_1))
            assert (await ending(intruder))[0] == "PERMISSION_DENIED"
            target = pb.SetTargetRequest(job_id="job", target=pb.Target(t_min=True)).SerializeToString()
            assert (await refusal(planner.ask("SetTarget", target, token)))[0] == "PERMISSION_DENIED"
            assert await planner.job_ids(token) == []
        other_rank = replace(ATTACH_0, rank=replace(RANK, job_id="another"))
        await other.write(encode_agent_message(other_rank))
        assert isinstance(await heard(other), Attached)
        assert await planner.job_ids("mine") == ["job"]
        assert await planner.job_ids("other") == ["another"]
        assert await planner.job_ids("operator") == ["another", "job"]

    run(test)


def test_a_planner_that_wants_tokens_hears_nobody_without() -> None:
    async def test(planner: Service) -> None:
        call = planner.attach()
        assert (await ending(call))[0] == "UNAUTHENTICATED"
        assert (await refusal(planner.ask("ListJobs", b"")))[0] == "UNAUTHENTICATED"
        assert await planner.job_ids("anyone") == []

    run(test, needs_token=True)


def test_a_stream_that_never_attaches_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach_service, "ATTACH_TIMEOUT_S", 0.1)

    async def test(planner: Service) -> None:
        assert (await ending(planner.attach()))[0] == "DEADLINE_EXCEEDED"

    run(test)


def test_an_agent_that_does_not_read_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING", 4)

    async def test(planner: Service) -> None:
        call = planner.attach()
        await call.write(encode_agent_message(ATTACH_0))
        assert isinstance(await heard(call), Attached)
        (stuck,) = planner.jobs._outboxes.values()
        for _ in range(30):  # more than the windows of HTTP/2 take
            stuck.put(bytes(1 << 20))
            await asyncio.sleep(0)
        while planner.jobs.num_streams:
            await asyncio.sleep(0.01)
        assert planner.jobs.all()[0].job.num_attached == 0
        assert planner.jobs.counters.refused["UNAVAILABLE"] == 1

    run(test)


def test_streams_that_the_planner_ends_tell_agents_to_come_back() -> None:
    async def test(planner: Service) -> None:
        call = planner.attach()
        await call.write(encode_agent_message(ATTACH_0))
        assert isinstance(await heard(call), Attached)
        assert await heard(call) == ScheduleWanted()
        planner.jobs.end_streams(Ending(reason="the planner restarts; attach again"))
        with pytest.raises(grpc.aio.AioRpcError, match="the planner restarts") as ended:
            await call.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE

    run(test)


def test_a_watcher_sees_every_change_until_the_job_is_forgotten() -> None:
    async def test(planner: Service) -> None:
        call = planner.attach()
        await call.write(encode_agent_message(ATTACH_0))
        assert isinstance(await heard(call), Attached)
        watch = planner.watch(pb.WatchJobRequest(job_id="job").SerializeToString())
        first = await next_status(watch)
        assert (first.phase, first.pipelines[0].attached_ranks) == ("registering", 1)
        call.cancel()
        second = await next_status(watch)
        assert second.pipelines[0].attached_ranks == 0
        planner.jobs._actors.clear()
        assert await watch.read() is grpc.aio.EOF

    run(test)


def test_a_defect_in_one_call_is_internal_and_the_next_call_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(planner: Service) -> None:
        call = planner.attach()
        await call.write(encode_agent_message(ATTACH_0))
        assert isinstance(await heard(call), Attached)
        job = planner.jobs.all()[0].job
        pipelines, job.progress.pipelines = job.progress.pipelines, None  # type: ignore[assignment]
        assert (await refusal(planner.ask("ListJobs", b"")))[0] == "INTERNAL"
        job.progress.pipelines = pipelines
        assert await planner.job_ids() == ["job"]

    run(test)
    assert "a call failed" in caplog.text


def test_one_owners_jobs_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_dist.planner.runtime.jobs.MAX_JOBS_OF_OWNER", 2)

    async def test(planner: Service) -> None:
        async def attach(job_id: str, token: str) -> Call:
            call = planner.attach(token)
            await call.write(encode_agent_message(replace(ATTACH_0, rank=replace(RANK, job_id=job_id))))
            return call

        for job_id in ("a", "b"):
            assert isinstance(await heard(await attach(job_id, "mine")), Attached)
        assert await ending(await attach("c", "mine")) == ("RESOURCE_EXHAUSTED", [])
        assert isinstance(await heard(await attach("a", "mine")), Attached)  # it is there already
        assert isinstance(await heard(await attach("c", "other")), Attached)
        assert isinstance(await heard(await attach("d", "operator")), Attached)
        assert sorted(await planner.job_ids("operator")) == ["a", "b", "c", "d"]

    run(test)


def test_a_list_shows_what_has_changed_of_a_job_without_ranks() -> None:
    async def test(planner: Service) -> None:
        call = planner.attach()
        await call.write(encode_agent_message(ATTACH_0))
        assert isinstance(await heard(call), Attached)
        call.cancel()
        targets = []
        for slowdown in (1.1, 1.2):
            request = pb.SetTargetRequest(job_id="job", target=pb.Target(slowdown=slowdown))
            await planner.ask("SetTarget", request.SerializeToString())
            for _ in range(2):
                (job,) = pb.ListJobsResponse.FromString(await planner.ask("ListJobs", b"")).jobs
                targets.append(job.target.slowdown)
        assert targets == [1.1, 1.1, 1.2, 1.2]

    run(test)
