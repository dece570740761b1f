"""``simulate --planner``: against a real planner with TLS, tokens, Prometheus and the page; what is refused."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from planner_process import Planner, planner
from prometheus_programs import is_ready, listening, query
from slurm_cluster import Cluster, SlurmJob, refusal, slurm_cluster
from slurm_training import are_unlocked, record_of, submit_training
from waiting import PATIENCE_S, wait_for

from perseus_dist.cli import main
from perseus_dist.simulator.machine import SimulatedMachine

PROMETHEUS, CHROMIUM = shutil.which("prometheus"), shutil.which("chromium")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--jobs", "3", "--schedule", "1f1b", "--pp", "2", "--microbatches", "2"], "--jobs goes with --planner"),
        (["--tls", "--virtual-time", "--chaos", "1"], "--tls goes with --planner"),
        (["--planner", "127.0.0.1:1", "--chaos", "1"], "--chaos does not go with --planner"),
        (["--planner", "127.0.0.1:1", "--virtual-time"], "--virtual-time does not go with --planner"),
        (["--planner", "127.0.0.1:1", "--job", "../up"], "--job ../up: expected"),
        (["--planner", "127.0.0.1:1", "--jobs", "17"], "need 68 simulated GPUs"),
        (["--planner", "127.0.0.1:1", "--nodes", "5"], "5 nodes share 4 simulated GPUs"),
        (["--planner", "127.0.0.1:1", "--tls-cert", "x.pem"], "--tls-key"),
        (["--planner", "127.0.0.1:1"], "no planner answers"),
        ([], "--planner is needed"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert main(["simulate", *arguments]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert (said.err.count("\n"), said.out) == (1, "")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rehearsal")
    ca = trustme.CA()
    leaf = ca.issue_cert("localhost")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    leaf.cert_chain_pems[0].write_to_path(folder / "planner.pem")
    leaf.private_key_pem.write_to_path(folder / "planner.key")
    return folder


@pytest.fixture(scope="module")
def served(files: Path) -> Iterator[Planner]:
    """On all addresses, so that every call needs a token."""
    tls = ["--tls-cert", str(files / "planner.pem"), "--tls-key", str(files / "planner.key")]
    with planner(files, "--bind", "0.0.0.0:0", "--web", "0.0.0.0:0", "--metrics", "127.0.0.1:0", *tls) as running:
        yield running


class Operator:
    """Commands with an operator's options."""

    def __init__(self, files: Path, served: Planner) -> None:
        self.files = files
        self.address = f"localhost:{served.address.rpartition(':')[2]}"
        self._reach = ["--planner", self.address, "--tls-ca", str(files / "ca.pem")]

    def token(self, name: str, *options: str) -> str:
        path = self.files / f"{name}.token"
        admin = ["--token-file", str(self.files / "state" / "operator-token")]
        assert main(["token", "create", name, *options, "--out", str(path), *self._reach, *admin]) == 0
        return str(path)

    def rehearse(self, token: str, *options: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-P", "-m", "perseus_dist", "simulate", *self._reach, "--token-file", token]
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=600)


def prometheus(files: Path, scraped: str, stack: ExitStack) -> str:
    """Its URL."""
    config = files / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: planner, static_configs: [{{targets: ['{scraped}']}}]}}]\n"
    )
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={files / 'data'}"]
    url = "http://" + stack.enter_context(listening(command, files / "prometheus.log"))
    wait_for(lambda: is_ready(url))
    return url


def fleet_in_browser(url: str, token: str, jobs: Sequence[str]) -> list[str]:
    """What the fleet's rows of jobs say once each is under its plan, after a login with the token."""
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(base_url=url, ignore_https_errors=True)
        context.set_default_timeout(PATIENCE_S * 1e3)
        page = context.new_page()
        page.goto("")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        texts = []
        for job in jobs:
            row = page.get_by_role("row").filter(has=page.get_by_role("link", name=job, exact=True))
            expect(row).to_contain_text("enforcing", timeout=300_000)
            texts.append(row.inner_text())
        page.get_by_role("link", name="Nodes").click()
        for node in ("node0", "node1", "node2", "node3"):
            expect(page.get_by_role("heading", name=node, exact=True)).to_be_visible()
        browser.close()
        return texts


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    """Of Slurm's nodes."""
    with SimulatedMachine("a100", count=2) as machine:
        yield machine


@pytest.fixture
def cluster(machine: SimulatedMachine) -> Iterator[Cluster | None]:
    """None where Slurm cannot run."""
    if refusal():
        yield None
        return
    with slurm_cluster(machine.environment()) as cluster:
        yield cluster


@pytest.mark.stress
def test_jobs_on_several_nodes_beside_one_of_slurms_with_prometheus_and_the_page(
    files: Path, served: Planner, machine: SimulatedMachine, cluster: Cluster | None
) -> None:
    operator = Operator(files, served)
    token = operator.token("rehearse", "--role", "operate", "--job", "rehearsal-*")
    done: list[subprocess.CompletedProcess[str]] = []
    options = ["--jobs", "3", "--nodes", "4", "--pp", "2", "--microbatches", "4", "--json", "--job", "rehearsal-test"]
    options += ["--iterations", "90"]  # planned late where busy
    names = [f"rehearsal-test-{number}" for number in (1, 2, 3)]
    jobs = [*names]
    with ExitStack() as stack:
        url = prometheus(files, served.told["metrics_address"], stack) if PROMETHEUS else None
        thread = threading.Thread(target=lambda: done.append(operator.rehearse(token, *options)))
        thread.start()
        stack.callback(thread.join)
        submitted: SlurmJob | None = None
        if cluster is not None:
            submitted = submit_training(
                cluster,
                machine,
                "--comment=perseus",
                num_iterations=300,
                job_id="rehearsal-slurm",
                planner=operator.address,
                token_file=token,
                tls_ca=str(files / "ca.pem"),
            )
            jobs.append("rehearsal-slurm")
        if CHROMIUM:
            port = served.told["web_url"].rstrip("/").rpartition(":")[2]
            rows = fleet_in_browser(f"https://localhost:{port}", Path(token).read_text().strip(), jobs)
            assert all("predicted" in row for row in rows)
        if url is not None:
            under_plans = 'max_over_time(perseus_job_phase{phase="enforcing"}[10m]) == 1'
            wait_for(lambda: {one["metric"]["perseus_job"] for one in query(url, under_plans)} == set(jobs), 300)
        thread.join()
        if submitted is not None:
            assert cluster is not None
            assert submitted.wait() == "COMPLETED", submitted.story()
            record = record_of(cluster, submitted)  # which the epilog has collected
            assert record.is_complete, record.reason
            assert record.saved_j > 0
            assert are_unlocked(machine)
    (run,) = done
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    assert document["passed"]
    assert [job["job_id"] for job in document["jobs"]] == names
    assert [job["nodes"] for job in document["jobs"]] == [[0], [1, 2], [2, 3]]
    for job in document["jobs"]:
        assert (job["phase"], job["fault"], job["lost_boundaries"]) == ("done", "", 0)
        assert job["planned_iterations"] > 0
        assert job["saving_percent"] > 3


@pytest.mark.stress
def test_a_token_that_may_not_start_jobs_fails_the_rehearsal_with_the_planners_words(
    files: Path, served: Planner, tmp_path: Path
) -> None:
    token = Operator(files, served).token("looker", "--role", "view")
    logs = tmp_path / "logs"
    options = ("--pp", "2", "--microbatches", "2", "--iterations", "12", "--log-dir", str(logs))
    run = Operator(files, served).rehearse(token, *options)
    assert run.returncode == 1, run.stderr
    assert "token looker may not do this" in run.stdout
    assert "0 of 1 jobs passed" in run.stdout
    assert (logs / "node0" / "clockd.log").exists()
