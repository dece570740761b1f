"""Who may make which call on whose job: every method, for every identity, over gRPC with client certificates."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from waiting import PATIENCE_S

from perseus_dist.messages.from_agent import Attach
from perseus_dist.messages.terms import Gpu, Rank, Target
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.audit import AuditRecord
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.tls import ServerTls, server_credentials
from perseus_dist.planner.job.facts.policies import BudgetSet, PricePolicySet
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.events import TargetSet
from perseus_dist.planner.runtime import operator_calls
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.operator_calls import OperatorCalls
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.planner.service.rpc_guard import RpcGuard
from perseus_dist.planner.service.server import make_server
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.worker.planning_worker import PlanningWorkers
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.codec import encode_agent_message
from perseus_dist.rpc.connection import (
    ATTACH,
    NODE_STREAM,
    SERVICE,
    ClientTls,
    authorization,
    channel_credentials,
)
from perseus_dist.rpc.node_wire import Ended, Opened, decode_node_reply, encode_node_message
from perseus_dist.rpc.v1 import planner_pb2 as pb

JOB = "llama-7b"
OPEN, DENIED, NO_TOKEN, HIDDEN = "open", "PERMISSION_DENIED", "UNAUTHENTICATED", "hidden"
VIEWS = ("GetFrontier", "GetProfile", "WatchJob")
CHANGES = ("SetTarget", "ReportStraggler", "ClearStraggler", "Attach")
BUDGETS = ("SetBudget", "SetLoadTarget", "ClearLoadTarget", "ClearBudget", "SetPricePolicy", "ClearPricePolicy")
ADMINISTRATION = ("CreateToken", "ListTokens", "RevokeToken", "ReadAudit")
METHODS = tuple(method.name for method in pb.DESCRIPTOR.services_by_name["Planner"].methods)  # whatever they are

LASTING = BudgetSet(name="lasting", watts=0.0, jobs=("llama-*",))
HALL = BudgetSet(name="hall", watts=1e5, jobs=("llama-*",))
CHEAP = PricePolicySet(name="cheap", jobs=(JOB,), signal="day.csv", deadline_s=time.time() + 1e5, iterations=9)

REQUESTS: dict[str, bytes] = {
    "ListJobs": b"",
    "GetFrontier": pb.GetFrontierRequest(job_id=JOB).SerializeToString(),
    "GetProfile": pb.GetProfileRequest(job_id=JOB).SerializeToString(),
    "SetTarget": pb.SetTargetRequest(job_id=JOB, target=pb.Target(slowdown=1.25)).SerializeToString(),
    "ReportStraggler": pb.ReportStragglerRequest(
        job_id=JOB, straggler=pb.StragglerReport(id="rack7", dp_rank=0, degree=1.2)
    ).SerializeToString(),
    "ClearStraggler": pb.ClearStragglerRequest(job_id=JOB, id="rack7").SerializeToString(),
    "GetPolicy": b"",
    "SetBudget": pb.SetBudgetRequest(
        budget=pb.Budget(name="hall", watts=1e5, jobs=["llama-*"], objective="total")
    ).SerializeToString(),
    "SetLoadTarget": pb.SetLoadTargetRequest(
        load_target=pb.LoadTarget(name="peak", budget="lasting", start_s=1e9, end_s=1e11, watts=5e4, best_effort=True)
    ).SerializeToString(),
    "ClearLoadTarget": pb.ClearLoadTargetRequest(budget="lasting", name="peak").SerializeToString(),
    "ClearBudget": pb.ClearBudgetRequest(name="hall").SerializeToString(),
    "SetPricePolicy": pb.SetPricePolicyRequest(
        policy=pb.PricePolicy(name="cheap", jobs=[JOB], signal="day.csv", deadline_s=CHEAP.deadline_s, iterations=9)
    ).SerializeToString(),
    "ClearPricePolicy": pb.ClearPricePolicyRequest(name="cheap").SerializeToString(),
    "CreateToken": pb.CreateTokenRequest(name="made", role="view").SerializeToString(),
    "ListTokens": b"",
    "RevokeToken": pb.RevokeTokenRequest(name="spare").SerializeToString(),
    "ReadAudit": pb.ReadAuditRequest(limit=10).SerializeToString(),
}


def allowed(
    list_jobs: str, views: str, changes: str, budgets: str, administration: str, *, relayed: str | None = None
) -> Mapping[str, str]:
    """``relayed``: an agent of the job by way of a node relay with this certificate, where it is not as directly."""
    return {
        "NodeStream": relayed or changes,
        "ListJobs": list_jobs,
        **dict.fromkeys(VIEWS, views),
        **dict.fromkeys(CHANGES, changes),
        **dict.fromkeys(BUDGETS, budgets),
        "GetPolicy": list_jobs,
        **dict.fromkeys(ADMINISTRATION, administration),
    }


EVERYTHING = allowed(OPEN, OPEN, OPEN, OPEN, OPEN)
JOBS_ALONE = allowed(OPEN, OPEN, OPEN, OPEN, DENIED)
OWN_JOBS_ALONE = allowed(OPEN, OPEN, OPEN, DENIED, DENIED)
LOOKING_ALONE = allowed(OPEN, OPEN, DENIED, DENIED, DENIED)
NOTHING = allowed(HIDDEN, DENIED, DENIED, DENIED, DENIED)
REFUSED = allowed(NO_TOKEN, NO_TOKEN, NO_TOKEN, NO_TOKEN, NO_TOKEN)

# As docs/operations.md has it.
MATRIX: dict[str, Mapping[str, str]] = {
    "operator": EVERYTHING,
    "admin": EVERYTHING,
    "operate": JOBS_ALONE,
    "operate-llama": JOBS_ALONE,
    "operate-gpt": NOTHING,
    "view": LOOKING_ALONE,
    "view-gpt": NOTHING,
    "owner": OWN_JOBS_ALONE,
    "stranger": NOTHING,
    "expired": REFUSED,
    "revoked": REFUSED,
    "without": REFUSED,
    # A certificate is its relay's, and counts for no agent behind it.
    "certificate-admin": {**EVERYTHING, "NodeStream": NO_TOKEN},
    "certificate-operate": {**JOBS_ALONE, "NodeStream": NO_TOKEN},
    "certificate-view": {**LOOKING_ALONE, "NodeStream": NO_TOKEN},
    "certificate-unknown": REFUSED,
}
IDENTITIES = {
    "operator": "operator",
    "owner": "job token ",
    "stranger": "job token ",
    "expired": "unknown",
    "revoked": "unknown",
    "without": "unknown",
    "certificate-unknown": "unknown",
}


@dataclass(slots=True)
class Served:
    """A planner with a job, and everybody's way to it."""

    access: Access
    jobs: Jobs
    address: str
    folder: Path
    ca: trustme.CA
    tokens: dict[str, str]

    def channel(self, who: str) -> grpc.aio.Channel:
        leaf = self.ca.issue_cert(f"{who}.example", common_name=who)
        cert, key = self.folder / f"{who}.pem", self.folder / f"{who}.key"
        leaf.private_key_pem.write_to_path(key)
        leaf.cert_chain_pems[0].write_to_path(cert)
        tls = ClientTls(ca=self.folder / "ca.pem", cert=cert, key=key)
        options = (("grpc.use_local_subchannel_pool", 1),)
        return grpc.aio.secure_channel(self.address, channel_credentials(tls), options=options)

    def records(self) -> list[AuditRecord]:
        return self.access.audit.read(after_id=0, since_s=0.0, job="", limit=1000)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Served]:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    leaf = ca.issue_cert("localhost")
    leaf.private_key_pem.write_to_path(folder / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    now_s = [1e9]
    access = Access("operator", folder / "access.sqlite", lambda: now_s[0])
    tokens = {"operator": "operator", "owner": "the job's", "stranger": "another job's", "without": ""}
    operator = Caller(token_sha256="", is_operator=True)

    def create(name: str, role: Role, *, job: str = "", certificate: str = "", valid_for_s: float = 1e6) -> None:
        jobs = (job,) if job else ()
        grant, tokens[name] = access.draft(
            operator, name=name, role=role, jobs=jobs, certificate=certificate, valid_for_s=valid_for_s
        )
        access.add(operator, grant)

    for role in Role:
        create(role.word, role)
        create(f"certificate-{role.word}", role, certificate=f"certificate-{role.word}")
    create("operate-llama", Role.OPERATE, job="llama-*")
    create("operate-gpt", Role.OPERATE, job="gpt")
    create("view-gpt", Role.VIEW, job="gpt")
    create("expired", Role.ADMIN, valid_for_s=1.0)
    create("revoked", Role.ADMIN)
    create("spare", Role.VIEW)
    access.revoke(operator, "revoked")
    now_s[0] += 60.0

    store, worker = Store(None), PlanningWorkers()
    (folder / "day.csv").write_text("timestamp,duration,value\n2026-11-24T00:00:00+00:00,60,0.1\n")
    jobs = Jobs(store, worker, Policy(), Counters(), SignalFiles(folder))
    await jobs.budgets.set_price(CHEAP)
    for budget in (LASTING, HALL):
        await jobs.budgets.set(budget)
    server = make_server(jobs, RpcGuard(access=access, needs_token=True, counters=jobs.counters))
    tls = ServerTls(cert=folder / "cert.pem", key=folder / "key.pem", client_ca=folder / "ca.pem")
    port = server.add_secure_port("localhost:0", server_credentials(tls))
    await server.start()
    running = Served(access, jobs, f"localhost:{port}", folder, ca, tokens)
    try:
        yield running
    finally:
        await server.stop(None)
        jobs.close()
        await worker.close()
        store.close()
        access.close()


def attach_message(incarnation: int, rank: int = 0) -> bytes:
    of_job = Rank(
        job_id=JOB,
        rank=rank,
        pp_rank=0,
        dp_rank=0,
        tp_rank=0,
        pp_size=1,
        dp_size=1,
        tp_size=1,
        schedule_digest=one_f_one_b(pp=1, microbatches=2).digest(),
    )
    gpu = Gpu(uuid="GPU-1", name="A100", driver_version="570", clocks_mhz=(1410, 1200), control="clockd")
    return encode_agent_message(Attach(rank=of_job, gpu=gpu, incarnation=incarnation, has_profile=False))


def unary(channel: grpc.aio.Channel, method: str) -> "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]":
    asked: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{method}")
    return asked


def watching(channel: grpc.aio.Channel, token: str) -> "grpc.aio.UnaryStreamCall[bytes, Any]":
    watched: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(f"/{SERVICE}/WatchJob")
    request = pb.WatchJobRequest(job_id=JOB).SerializeToString()
    return watched(request, metadata=authorization(token), timeout=PATIENCE_S)


async def ended(watch: "grpc.aio.UnaryStreamCall[bytes, Any]") -> None:
    while await watch.read() is not grpc.aio.EOF:
        pass


async def relayed(channel: grpc.aio.Channel, token: str, *, own_token: str = "") -> str:
    """What becomes of an agent whose relay has this channel, and maybe a token of its own."""
    streaming: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(NODE_STREAM)
    stream = streaming(metadata=authorization(own_token), timeout=PATIENCE_S)
    await stream.write(encode_node_message([(1, Opened(token)), (1, attach_message(5))]))
    answer = await stream.read()
    assert isinstance(answer, bytes)
    ((channels, frame), *_) = decode_node_reply(answer)
    stream.cancel()
    assert channels == (1,)
    if not isinstance(frame, Ended):
        return OPEN
    (name,) = (status.name for status in grpc.StatusCode if status.value[0] == frame.code)
    return name


async def call(channel: grpc.aio.Channel, method: str, token: str) -> str:
    metadata = authorization(token)
    try:
        if method == "NodeStream":
            return await relayed(channel, token)
        if method == "Attach":
            attach: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(ATTACH)
            stream = attach(metadata=metadata, timeout=PATIENCE_S)
            await stream.write(attach_message(5))
            assert await stream.read() is not grpc.aio.EOF
            await stream.done_writing()
        elif method == "WatchJob":
            watch = watching(channel, token)
            assert await watch.read() is not grpc.aio.EOF
            watch.cancel()
        else:
            answer = await unary(channel, method)(REQUESTS[method], metadata=metadata, timeout=PATIENCE_S)
            if method == "ListJobs" and not pb.ListJobsResponse.FromString(answer).jobs:
                return HIDDEN
            if method == "GetPolicy" and not pb.PolicyStatus.FromString(answer).budgets:
                return HIDDEN
    except grpc.aio.AioRpcError as error:  # without a plan there is nothing to give, yet it is open
        name = error.code().name
        return OPEN if name in ("FAILED_PRECONDITION", "NOT_FOUND", "ALREADY_EXISTS") else name
    return OPEN


def test_every_call_of_every_identity_is_as_documented_and_recorded(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as running, asyncio.timeout(PATIENCE_S):
            async with running.channel("owner") as channel:
                assert await call(channel, "Attach", running.tokens["owner"]) == OPEN
            assert [(record.action, record.job) for record in running.records()][-1:] == [("StartJob", JOB)]
            for who, expected in MATRIX.items():
                await running.jobs.budgets.set(HALL)
                await running.jobs.budgets.set_price(CHEAP)
                async with running.channel(who) as channel:
                    found = {method: await call(channel, method, running.tokens.get(who, "")) for method in METHODS}
                assert found == expected, who

    asyncio.run(test())


@pytest.mark.parametrize("who", MATRIX)
def test_every_refusal_and_change_is_recorded(tmp_path: Path, who: str) -> None:
    async def test() -> None:
        async with served(tmp_path) as running, asyncio.timeout(PATIENCE_S):
            async with running.channel("owner") as channel:
                assert await call(channel, "Attach", running.tokens["owner"]) == OPEN
            known = len(running.records())
            async with running.channel(who) as channel:
                for method in METHODS:
                    await call(channel, method, running.tokens.get(who, ""))
            records = running.records()[known:]
            identity = IDENTITIES.get(who, f"certificate {who}" if who.startswith("certificate") else f"token {who}")
            assert all(
                record.identity.startswith(identity) or (record.action, record.identity) == ("Attach", "unknown")
                for record in records
            )
            assert all(record.peer.startswith("ipv") for record in records)
            refused = {record.action for record in records if record.outcome != "done"}
            done = {record.action for record in records if record.outcome == "done"}
            expected = {method for method, found in MATRIX[who].items() if found in (DENIED, NO_TOKEN)}
            assert refused == {"Attach" if method == "NodeStream" else method for method in expected}
            changes = {"SetTarget", "ReportStraggler", "ClearStraggler", *BUDGETS, "CreateToken", "RevokeToken"}
            assert done == {method for method, found in MATRIX[who].items() if found == OPEN} & changes

    asyncio.run(test())


@pytest.mark.parametrize("who", ["operator", "certificate-admin", "stranger"])
def test_a_node_relay_has_no_rights_that_its_agents_could_use(tmp_path: Path, who: str) -> None:
    """Neither its certificate nor a token that it gives itself counts: that of each agent does."""

    async def test() -> None:
        async with served(tmp_path) as running, asyncio.timeout(PATIENCE_S), running.channel(who) as channel:
            own_token = running.tokens[who]
            assert await relayed(channel, running.tokens["owner"], own_token=own_token) == OPEN
            assert await relayed(channel, "", own_token=own_token) == NO_TOKEN
            assert await relayed(channel, running.tokens["stranger"], own_token=own_token) == DENIED
            assert await relayed(channel, running.tokens["revoked"], own_token=own_token) == NO_TOKEN

    asyncio.run(test())


def test_a_change_is_recorded_with_what_was_before(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as running, asyncio.timeout(PATIENCE_S):
            async with running.channel("operate") as channel:
                token = running.tokens["operate"]
                for method in ("Attach", "SetTarget", "ReportStraggler", "ClearStraggler"):
                    assert await call(channel, method, token) == OPEN
            changes = [(r.action, r.before, r.after) for r in running.records() if r.identity == "token operate"]
            straggler = "straggler rack7: dp_rank 0, degree 1.2"
            assert changes == [
                ("StartJob", "", ""),
                ("SetTarget", "t_min", "slowdown=1.25"),
                ("ReportStraggler", "no straggler rack7", straggler),
                ("ClearStraggler", straggler, "no straggler rack7"),
            ]

    asyncio.run(test())


def test_a_budget_is_recorded_with_what_was_before(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as running, asyncio.timeout(PATIENCE_S):
            async with running.channel("operate-llama") as channel:
                token = running.tokens["operate-llama"]
                for method in BUDGETS:
                    assert await call(channel, method, token) == OPEN
                wider = pb.Budget(name="lasting", watts=5, jobs=["llama-*", "gpt"], objective="total")
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await unary(channel, "SetBudget")(
                        pb.SetBudgetRequest(budget=wider).SerializeToString(), metadata=authorization(token)
                    )
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            found = [(r.action, r.before, r.after) for r in running.records() if r.identity == "token operate-llama"]
            budget = "budget hall: 100000 W for llama-*, total, guard band 0"
            span = "from 2001-09-09T01:46:40+00:00 to 5138-11-16T09:46:40+00:00"
            target = f"load target peak of budget lasting: 50000 W {span}, best effort"
            deadline = datetime.fromtimestamp(CHEAP.deadline_s, UTC).isoformat()
            cheap = f"price policy cheap: 9 iterations of {JOB} by {deadline}, signal day.csv"
            assert found == [
                ("SetBudget", budget, budget),
                ("SetLoadTarget", "none", target),
                ("ClearLoadTarget", target, "none"),
                ("ClearBudget", budget, "none"),
                ("SetPricePolicy", cheap, cheap),
                ("ClearPricePolicy", cheap, "none"),
                ("SetBudget", "", ""),
            ]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("budget", "field"),
    [
        (pb.Budget(name="", objective="total"), "budget.name"),
        (pb.Budget(name="a", objective="fair"), "budget.objective"),
        (pb.Budget(name="a", objective="total", watts=-1), "budget.watts"),
        (pb.Budget(name="a", objective="total", watts=float("nan")), "budget.watts"),
        (pb.Budget(name="a", objective="total", guard_band=1), "budget.guard_band"),
        (pb.Budget(name="a", objective="total", jobs=["a,b"]), "budget.jobs[0]"),
        (pb.Budget(name="a", objective="total", jobs=["x"] * 65), "budget.jobs"),
        (pb.Budget(name="a", objective="total", weights=[pb.PatternValue(pattern="*")]), "budget.weights[0].value"),
        (
            pb.Budget(name="a", objective="total", max_slowdowns=[pb.PatternValue(pattern="*", value=0.9)]),
            "budget.max_slowdowns[0].value",
        ),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(tmp_path: Path, budget: pb.Budget, field: str) -> None:
    async def test() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            served(tmp_path) as running,
            running.channel("operator") as channel,
        ):
            request = pb.SetBudgetRequest(budget=budget).SerializeToString()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await unary(channel, "SetBudget")(request, metadata=authorization("operator"))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert (refused.value.details() or "").startswith(f"{field}: ")
            assert [state.budget.name for state in running.jobs.budgets.states] == ["hall", "lasting"]

    asyncio.run(test())


PRICE: dict[str, Any] = {
    "name": "a",
    "jobs": ["x"],
    "signal": "day.csv",
    "deadline_s": CHEAP.deadline_s,
    "iterations": 9,
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": ""}, "policy.name: "),
        ({"jobs": []}, "policy.jobs: "),
        ({"jobs": ["x", "x"]}, "policy.jobs: "),
        ({"jobs": ["x*"]}, "policy.jobs[0]: "),
        ({"signal": "../day.csv"}, "policy.signal: "),
        ({"iterations": 0}, "policy.iterations: "),
        ({"deadline_s": float("nan")}, "policy.deadline_s: "),
        ({"deadline_s": 1e9}, "the deadline has passed already"),
        ({"deadline_s": 9e9}, "the deadline is far away"),
        (
            {"signal": "night.csv"},
            "signal night.csv cannot be read: No such file or directory; there are access.sqlite, ",
        ),
        ({"signal": "ca.pem"}, "signal ca.pem cannot be read: saw columns "),
        ({"jobs": [JOB]}, f"job {JOB} is under the price policy cheap already; clear that one first"),
    ],
)
def test_a_price_policy_that_makes_no_sense_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    async def test() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            served(tmp_path) as running,
            running.channel("operator") as channel,
        ):
            request = pb.SetPricePolicyRequest(policy=pb.PricePolicy(**PRICE | changed)).SerializeToString()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await unary(channel, "SetPricePolicy")(request, metadata=authorization("operator"))
            assert (refused.value.details() or "").startswith(said)
            assert [state.policy for state in running.jobs.budgets.prices.states] == [CHEAP]

    asyncio.run(test())


def test_a_change_is_recorded_though_its_caller_leaves(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            served(tmp_path) as running,
            running.channel("owner") as owner,
        ):
            assert await call(owner, "Attach", running.tokens["owner"]) == OPEN
            actor = running.jobs.get(JOB)
            assert actor is not None
            calls = OperatorCalls(running.jobs, running.access.audit)
            caller = Caller(token_sha256="", is_operator=True)
            changing = asyncio.create_task(calls.change(caller, JOB, TargetSet(target=Target(slowdown=1.5))))
            while actor.job.target != Target(slowdown=1.5):
                await asyncio.sleep(0)
            changing.cancel()
            while running.records()[-1].action != "SetTarget":
                await asyncio.sleep(0.01)
            assert running.records()[-1].after == "slowdown=1.5"

    asyncio.run(test())


def test_a_change_that_is_not_answered_in_time_is_no_failure_of_the_planner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            served(tmp_path) as running,
            running.channel("owner") as owner,
        ):
            assert await call(owner, "Attach", running.tokens["owner"]) == OPEN
            actor = running.jobs.get(JOB)
            assert actor is not None
            monkeypatch.setattr(actor, "begin", lambda _: asyncio.get_running_loop().create_future())
            monkeypatch.setattr(operator_calls, "ANSWER_TIMEOUT_S", 0.01)
            known = len(running.records())
            assert await call(owner, "SetTarget", running.tokens["owner"]) == "DEADLINE_EXCEEDED"
            assert len(running.records()) == known  # it may still come
            assert "a call failed" not in caplog.text

    asyncio.run(test())


def test_a_job_that_was_refused_has_not_started(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            served(tmp_path) as running,
            running.channel("owner") as channel,
        ):
            known = len(running.records())
            attach: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(ATTACH)
            stream = attach(metadata=authorization("any token"), timeout=PATIENCE_S)
            await stream.write(attach_message(7, rank=5))
            while await stream.read() is not grpc.aio.EOF:
                pass
            assert running.jobs.get(JOB) is None
            assert len(running.records()) == known

    asyncio.run(test())


def test_those_who_watch_are_let_go_when_their_right_is_revoked(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            served(tmp_path) as running,
            running.channel("owner") as owner,
            running.channel("view") as channel,
        ):
            assert await call(owner, "Attach", running.tokens["owner"]) == OPEN
            watch = watching(channel, running.tokens["view"])
            assert await watch.read() is not grpc.aio.EOF
            running.access.revoke(Caller(token_sha256="", is_operator=True), "view")
            assert await call(owner, "SetTarget", running.tokens["owner"]) == OPEN
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ended(watch)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED

    asyncio.run(test())


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.CreateTokenRequest(name="", role="view"), "name"),
        (pb.CreateTokenRequest(name="operator", role="view"), "name"),
        (pb.CreateTokenRequest(name="a", role="root"), "role"),
        (pb.CreateTokenRequest(name="a", role="admin", jobs=["llama"]), "jobs"),
        (pb.CreateTokenRequest(name="a", role="view", jobs=["a,b"]), "jobs[0]"),
        (pb.CreateTokenRequest(name="a", role="view", jobs=["x"] * 65), "jobs"),
        (pb.CreateTokenRequest(name="a", role="view", certificate="x\n"), "certificate"),
        (pb.CreateTokenRequest(name="a", role="view", valid_for_s=float("nan")), "valid_for_s"),
        (pb.CreateTokenRequest(name="a", role="view", valid_for_s=-1), "valid_for_s"),
    ],
)
def test_a_right_that_makes_no_sense_is_refused(tmp_path: Path, request_: pb.CreateTokenRequest, field: str) -> None:
    async def test() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            served(tmp_path) as running,
            running.channel("operator") as channel,
        ):
            known = running.access.grants()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await unary(channel, "CreateToken")(request_.SerializeToString(), metadata=authorization("operator"))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert (refused.value.details() or "").startswith(f"{field}: ")
            assert running.access.grants() == known

    asyncio.run(test())
