"""A real Prometheus scrapes a planner with three jobs and a sick node; queries of dashboards and alerts have data."""

import asyncio
import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import bcrypt
import grpc
import pytest
import trustme
from planner_process import planner
from postgres_server import running_server, why_not
from prometheus_programs import is_ready, listening, query
from scraping import basic, get
from waiting import PATIENCE_S, wait_for

from perseus_dist.device.lease.file import LeaseFile
from perseus_dist.messages.from_agent import Attach
from perseus_dist.planner.store.state_dir import OPERATOR_TOKEN
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.connection import authorization
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub
from perseus_dist.simulator.machine import SimulatedMachine

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from load_agent import LoadAgent, LoadJob  # noqa: E402

PROGRAMS = ("prometheus", "promtool", "prometheus-node-exporter")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
MISSING += ["postgresql"] if why_not() else []
pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(bool(MISSING), reason=f"needs the Debian packages of {', '.join(MISSING)}"),
]
RULES = ROOT / "launch/prometheus/perseus.rules.yml"
WINDOWS = {"$__rate_interval": "1m", "$perseus_job": "first"}


class Observer(LoadAgent):
    """A rank that cannot set clocks."""

    def _attach(self) -> Attach:
        told = super()._attach()
        return replace(told, gpu=replace(told.gpu, control="observe", clocks_mhz=(), refusal="no daemon"))


@contextmanager
def three_jobs(address: str) -> Iterator[None]:
    """Two that come under a plan and one that only observes, training until the end."""
    schedule = one_f_one_b(pp=2, microbatches=4)
    agents: list[LoadAgent] = []
    for name, make in (("first", LoadAgent), ("second", LoadAgent), ("watched", Observer)):
        job = LoadJob(job_id=name, schedule=schedule, dp_size=2)
        agents += [make(job=job, rank=rank, address=address) for rank in job.ranks()]
    ending = threading.Event()

    async def train() -> None:
        tasks = [asyncio.create_task(agent.run()) for agent in agents]
        for agent in agents:
            await agent.attached.wait()
        while not ending.is_set():
            await asyncio.gather(*(agent.report(num_iterations=2) for agent in agents))
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(train()))
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


class World:
    """Planner, node, Prometheus and jobs."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        ca = trustme.CA()
        leaf = ca.issue_cert("localhost", "127.0.0.1")
        self.ca, cert, key = folder / "ca.pem", folder / "planner.pem", folder / "planner.key"
        ca.cert_pem.write_to_path(self.ca)
        leaf.cert_chain_pems[0].write_to_path(cert)
        leaf.private_key_pem.write_to_path(key)
        hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
        (folder / "scrapers").write_text(f"prometheus:{hashed}\n")
        options = ["--metrics", "127.0.0.1:0", "--metrics-tls-cert", str(cert), "--metrics-tls-key", str(key)]
        options += ["--metrics-password-file", str(folder / "scrapers")]
        signals = folder / "signals"
        signals.mkdir()
        (signals / "day.csv").write_text("timestamp,duration,value\n2026-11-24T00:00:00+00:00,60,0.1\n")
        database = stack.enter_context(running_server())  # with the queue of planning requests
        options += ["--signals", str(signals), "--store", database.url(database.fresh_database())]
        self.planner = stack.enter_context(planner(folder, *options))
        self.scraped = self.planner.told["metrics_address"]
        self.node = self._node(stack)
        self.url = "http://" + stack.enter_context(self._prometheus())
        wait_for(lambda: is_ready(self.url))
        wait_for(lambda: self.query("perseus_planning_seconds_count == 0"))  # from here on it is seen to grow
        stack.enter_context(three_jobs(self.planner.address))

    def _node(self, stack: ExitStack) -> str:
        """node_exporter of a node with a GPU whose holder died and another one that is hot."""
        machine = stack.enter_context(SimulatedMachine("a100", count=2))
        machine.gpu(1).set_event_reasons(0x20)
        environ = {**os.environ, **machine.environment(), "PERSEUS_LEASE_DIR": str(self.folder / "leases")}
        (self.folder / "leases").mkdir()
        lease = LeaseFile(self.folder / "leases", machine.gpu(0).uuid)
        lease.take("a holder that dies")
        lease.touch()
        lease.give_back()
        textfiles = self.folder / "textfiles"
        textfiles.mkdir()
        command = [sys.executable, "-m", "perseus_dist", "doctor", "--metrics", str(textfiles / "perseus.prom")]
        subprocess.run(command, env=environ, check=True, timeout=PATIENCE_S)
        exporter = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile"]
        exporter += [f"--collector.textfile.directory={textfiles}"]
        return stack.enter_context(listening(exporter, self.folder / "exporter.log"))

    def _prometheus(self) -> Any:
        """The example's configuration, with this test's addresses and files, and everything once a second."""
        config = self.folder / "prometheus.yml"
        shutil.copy(RULES, self.folder)
        (self.folder / "password").write_text("secret")
        text = (ROOT / "launch/prometheus/prometheus.yml").read_text()
        for there, here in (
            ("/etc/prometheus/perseus-ca.pem", str(self.ca)),
            ("/etc/prometheus/perseus-password", str(self.folder / "password")),
            ("planner.example:9464", self.scraped),
            ("node-0.example:9100", self.node),
            ("interval: 15s", "interval: 1s"),
        ):
            assert there in text
            text = text.replace(there, here)
        config.write_text(text)
        promtool("check", "config", str(config))
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}"]
        return listening(command, self.folder / "prometheus.log")

    def query(self, expression: str) -> list[Any]:
        """Series with a number."""
        return query(self.url, expression)


def promtool(*arguments: str, text: str | None = None) -> str:
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("world"), stack)


def all_of(world: World, expressions: Sequence[str], patience_s: float = 60.0) -> list[str]:
    """The expressions without data after that time."""
    missing, until_s = list(expressions), time.monotonic() + patience_s
    while missing and time.monotonic() < until_s:
        missing = [expression for expression in missing if not world.query(expression)]
        time.sleep(0.2 if missing else 0.0)
    return missing


def dashboard_queries(instance: str) -> list[str]:
    queries = []
    for path in sorted((ROOT / "launch/grafana/dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            queries += [target["expr"] for target in panel["targets"]]
    settings = {**WINDOWS, "$instance": instance}
    for name, value in settings.items():
        queries = [query.replace(name, value) for query in queries]
    assert not [query for query in queries if "$" in query]
    return queries


def test_every_panel_has_data(world: World) -> None:
    with grpc.insecure_channel(world.planner.address) as channel:
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]
        jobs: Callable[[], Any] = lambda: {job.job_id: job.phase for job in stub.ListJobs(pb.ListJobsRequest()).jobs}  # noqa: E731
        wanted = {"first": "enforcing", "second": "enforcing", "watched": "observing"}
        wait_for(lambda: jobs() == wanted)
        wait_for(lambda: world.query('perseus_job_measured_over_predicted_ratio{perseus_job="first"}'))
        report = pb.StragglerReport(id="test", degree=1.2, dp_rank=0)
        stub.ReportStraggler(pb.ReportStragglerRequest(job_id="first", straggler=report))
        with suppress(grpc.RpcError):
            stub.ClearStraggler(pb.ClearStragglerRequest(job_id="first", id="none"))
    assert all_of(world, dashboard_queries(world.node)) == []
    assert {one["metric"]["perseus_job"] for one in world.query("perseus_job_info")} == set(wanted)
    assert not world.query('{__name__=~"perseus_.*",exported_job!=""}'), "a label collided with Prometheus's own"


def test_every_alert_has_data_and_those_that_are_due_are_pending(world: World) -> None:
    expressions = re.findall(r"^ +expr: (.+)$", RULES.read_text(), re.MULTILINE)
    assert len(expressions) == 12
    with grpc.insecure_channel(world.planner.address) as channel:
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]
        budget = pb.Budget(name="too-small", watts=1.0, jobs=["second"], objective="total")
        token = authorization((world.folder / "state" / OPERATOR_TOKEN).read_text().strip())
        stub.SetBudget(pb.SetBudgetRequest(budget=budget), metadata=token)
        price = pb.PricePolicy(name="too-soon", jobs=["first"], signal="day.csv", iterations=10**6)
        price.deadline_s = time.time() + 600
        stub.SetPricePolicy(pb.SetPricePolicyRequest(policy=price), metadata=token)
    without_threshold = [re.sub(r" (==|>) [\d.]+$", "", expression) for expression in expressions]
    assert all_of(world, without_threshold) == []
    due = {"PerseusClocksLeftLocked", "PerseusGpuThrottled", "PerseusJobOnlyObserving"}
    due |= {"PerseusClockdDown", "PerseusBackupOld"}  # there is none on this node
    due |= {"PerseusBudgetNotMet", "PerseusPriceDeadline"}
    wait_for(lambda: {one["metric"]["alertname"] for one in world.query("ALERTS")} >= due)
    assert {one["metric"]["alertname"] for one in world.query("ALERTS")} == due


def test_what_is_served_is_sound_and_not_for_all(world: World) -> None:
    trust, stranger = ssl.create_default_context(cafile=str(world.ca)), ssl.create_default_context()
    right = basic("prometheus", "secret")
    assert get(world.scraped, tls=trust) == "401"
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        get(world.scraped, authorization=right, tls=stranger)
    with pytest.raises((http.client.HTTPException, OSError)):
        get(world.scraped, authorization=right)  # plain text
    assert promtool("check", "metrics", text=get(world.scraped, authorization=right, tls=trust)) == ""
    of_node = [line for line in get(world.node).splitlines() if re.match(r"(# \w+ )?perseus_", line)]
    assert promtool("check", "metrics", text="\n".join(of_node) + "\n") == ""


def test_rules_and_their_tests() -> None:
    folder = RULES.parent
    promtool("check", "config", "--syntax-only", str(folder / "prometheus.yml"))
    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(folder / "perseus.test.yml"))
