"""An operator's first hour: the steps of docs/cluster.md in their order, on simulated GPUs and without systemd.

Paths of the machine become folders of the test, ``planner.example`` becomes localhost, ports become free ones. What
systemd would start is started as its units say; what only installs packages is left out.
"""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from scraping import basic, get
from waiting import PATIENCE_S, wait_for

from perseus_dist.simulator.machine import SimulatedMachine

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cluster.md").read_text()
MISSING = [name for name in ("openssl", "htpasswd", "promtool", "prometheus") if shutil.which(name) is None]
LEFT_OUT = re.compile(
    r"apt-get |python3 -m venv|/opt/perseus-dist/bin/pip|ln -s|systemd-|groupadd |systemctl daemon-reload"
)
PASSWORD = "shown to scrapers"

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}"),
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed"),
]


class Hosts:
    """The page's hosts, below one folder: the planner's, and two GPU nodes."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.checkout = folder / "checkout"
        self.checkout.mkdir()
        (self.checkout / "launch").symlink_to(ROOT / "launch")
        self._stack = stack
        self.exported: dict[str, str] = {}
        self.told: dict[str, str] = {}
        self.nodes: list[dict[str, str]] = []
        self.outputs: list[str] = []
        for name in ("etc/systemd/system", "etc/prometheus"):
            (folder / name).mkdir(parents=True)

    @property
    def settings(self) -> Path:
        return self.folder / "etc/perseus-dist/perseus.toml"

    def environ(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "HOME": str(self.folder), "PERSEUS_CONFIG": str(self.settings)}

    def here(self, text: str) -> str:
        """A line of the page with this test's folders, host and ports."""
        for place in ("/etc/", "/var/lib/"):
            text = text.replace(place, f"{self.folder}{place}")
        for port, name in (("50151", "address"), ("50152", "web_url"), ("9464", "metrics_address")):
            if name in self.told:
                text = text.replace(f"planner.example:{port}", f"localhost:{port_in(self.told[name])}")
        return text.replace("planner.example", "localhost").replace(" -g perseus-dist", "")

    def run(self, line: str, environ: dict[str, str] | None = None) -> str:
        """Run a command of the page, or what takes its place."""
        if LEFT_OUT.match(line):
            return ""
        if line.startswith("export "):
            self.exported |= dict(word.split("=", 1) for word in self.here(line).split()[1:])
            return ""
        if line.startswith("systemctl enable --now "):
            for unit in line.split()[3:]:
                self.start(unit)
            return ""
        words = self.here(line)
        fed = None
        if line.startswith("htpasswd "):
            words, fed = words.replace("htpasswd ", "htpasswd -i "), PASSWORD
        settings = self.environ() | self.exported | (environ or {})
        done = subprocess.run(
            ["bash", "-c", words],
            cwd=self.checkout,
            env=settings,
            input=fed,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        self.outputs.append(done.stdout)
        return done.stdout

    def start(self, unit: str) -> None:
        name = unit if "." in unit else f"{unit}.service"
        text = (self.folder / "etc/systemd/system" / name).read_text()
        if name == "perseus-planner.service":
            self.start_planner(text)
        elif name == "perseus-clockd.service":
            for environ in self.nodes:
                self.start_clockd(text, environ)
        elif name == "perseus-release.service":
            for environ in self.nodes:
                self.run("perseus-dist release --all --if-unleased", environ)
        else:
            assert name == "perseus-node-metrics.timer"
            service = (self.folder / "etc/systemd/system/perseus-node-metrics.service").read_text()
            assert "perseus-dist doctor --metrics" in service
            for number, environ in enumerate(self.nodes):
                self.run(f"perseus-dist doctor --metrics {self.folder}/node-{number}.prom", environ)

    def start_planner(self, unit: str) -> None:
        assert "ExecStart=perseus-dist planner" in unit
        state, told = self.folder / "var/lib/perseus-dist", self.folder / "told.json"
        command = ["perseus-dist", "planner", "--state-dir", str(state), "--address-file", str(told)]
        self._spawn(command, self.environ())
        wait_for(told.exists)
        self.told = json.loads(told.read_text())

    def start_clockd(self, unit: str, environ: dict[str, str]) -> None:
        assert "ExecStart=perseus-dist clockd" in unit
        self._spawn(["perseus-dist", "clockd"], self.environ() | environ)
        wait_for(Path(environ["PERSEUS_CLOCKD_SOCKET"]).exists)

    def _spawn(self, command: list[str], environ: dict[str, str]) -> None:
        process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)

    def write_settings(self, text: str) -> None:
        for port in ("50151", "50152", "9464"):
            text = text.replace(f"0.0.0.0:{port}", "0.0.0.0:0")
        self.settings.parent.mkdir(parents=True, exist_ok=True)
        self.settings.write_text(text)


def port_in(address: str) -> str:
    found = re.search(r":(\d+)/?$", address)
    assert found, address
    return found[1]


def steps() -> Iterator[tuple[str, list[str]]]:
    """Each fenced block: the language, and its lines."""
    for number, section in enumerate(re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:], start=1):
        assert section.startswith(f"{number}. ")
        for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", section, flags=re.DOTALL | re.MULTILINE):
            yield language, text.splitlines()


@contextmanager
def two_nodes(folder: Path) -> Iterator[list[dict[str, str]]]:
    with SimulatedMachine("a100", count=2) as first, SimulatedMachine("a100", count=2) as second:
        nodes = []
        for number, machine in enumerate((first, second)):
            run = folder / f"run-{number}"
            run.mkdir()
            own = {"PERSEUS_CLOCKD_SOCKET": str(run / "clockd.sock"), "PERSEUS_LEASE_DIR": str(run)}
            found = {name: value for name, value in machine.environment().items() if name != "PERSEUS_CONFIG"}
            nodes.append({**found, **own, "PERSEUS_CLOCKD_GROUP": str(os.getegid())})
        yield nodes


def test_the_page_leads_from_an_empty_machine_to_a_job_that_is_seen(tmp_path: Path) -> None:
    with ExitStack() as stack:
        hosts = Hosts(tmp_path, stack)
        hosts.nodes = stack.enter_context(two_nodes(tmp_path))
        for language, lines in steps():
            if language == "text":
                hosts.write_settings("\n".join(lines) + "\n")
                assert tomllib.loads(hosts.settings.read_text())["planner"]
                continue
            for line in lines:
                for environ in hosts.nodes if line == "perseus-dist doctor" else [None]:
                    hosts.run(line, environ)
        assert "serves" in "".join(hosts.outputs)
        assert (hosts.checkout / "llama-team.token").stat().st_mode & 0o777 == 0o600

        train(hosts, variables())
        check_page_and_metrics(hosts)
        check_prometheus(hosts)
        listed = hosts.run("perseus-dist audit --json")
        assert {"CreateToken", "StartJob"} <= {json.loads(line)["action"] for line in listed.splitlines()}


def variables() -> dict[str, str]:
    """The table of step 6."""
    return dict(re.findall(r"^\| `(PERSEUS_\w+)` \| .*?`([^`]*)`(?: \|$|$)", PAGE, flags=re.MULTILINE))


def train(hosts: Hosts, said: dict[str, str]) -> None:
    """A short job on the first node, with the page's variables."""
    assert said.keys() == {"PERSEUS_PLANNER", "PERSEUS_TLS_CA", "PERSEUS_TOKEN_FILE", "PERSEUS_JOB"}
    environ = {name: hosts.here(value) for name, value in said.items()}
    environ["PERSEUS_TOKEN_FILE"] = str(hosts.checkout / "llama-team.token")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = ["perseus-deepspeed", "--num_gpus", "2", "--master_port", port, "examples/deepspeed_gpt.py"]
    command += ["--deepspeed", "--deepspeed_config", "examples/deepspeed_gpt.json", "--stages", "2", "--steps", "6"]
    settings = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PERSEUS_CONTROL": "clockd"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**hosts.environ(), **hosts.nodes[0], **settings, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    jobs = json.loads(hosts.run("perseus-dist jobs --json"))["jobs"]
    names = sorted(job["job_id"] for job in jobs)
    assert names[0] == "llama-70b", done.stderr[-2000:]
    assert [name.startswith("rehearsal-") for name in names[1:]] == [True, True]


def check_page_and_metrics(hosts: Hosts) -> None:
    tls = ssl.create_default_context(cafile=str(hosts.folder / "etc/perseus-dist/ca.pem"))
    token = (hosts.checkout / "ops.token").read_text().strip()
    page = f"localhost:{port_in(hosts.told['web_url'])}"
    assert get(page, path="/", tls=tls) != "200"
    assert "llama-70b" in get(page, path="/", tls=tls, authorization=f"Bearer {token}")
    scraped = f"localhost:{port_in(hosts.told['metrics_address'])}"
    assert get(scraped, tls=tls) == "401"
    assert "perseus_build_info" in get(scraped, tls=tls, authorization=basic("prometheus", PASSWORD))
    for number in range(2):
        assert "perseus_node_clockd_up 1" in (hosts.folder / f"node-{number}.prom").read_text()


def check_prometheus(hosts: Hosts) -> None:
    """The configuration that the page names, with this planner's address, and the rules where the page has put them."""
    folder = hosts.folder / "etc/prometheus"
    text = (ROOT / "launch/prometheus/prometheus.yml").read_text()
    text = text.replace("/etc/prometheus/perseus-ca.pem", str(hosts.folder / "etc/perseus-dist/ca.pem"))
    text = text.replace("/etc/prometheus/perseus-password", str(folder / "perseus-password"))
    text = text.replace("planner.example:9464", f"localhost:{port_in(hosts.told['metrics_address'])}")
    (folder / "perseus-password").write_text(PASSWORD)
    (folder / "prometheus.yml").write_text(text.replace("scrape_interval: 15s", "scrape_interval: 1s"))
    check = ["promtool", "check", "config", str(folder / "prometheus.yml")]
    assert subprocess.run(check, capture_output=True, text=True, check=False).returncode == 0
    log = hosts.folder / "prometheus.log"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={hosts.folder}/tsdb"]
    with (
        log.open("w") as file,
        subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stderr=file) as running,
    ):
        try:
            listening = re.compile(r'"Listening on".*address=(127\.0\.0\.1:[1-9]\d*)')
            address = wait_for(lambda: listening.findall(log.read_text()))[0]
            until_s = time.monotonic() + PATIENCE_S
            query = "/api/v1/query?query=perseus_build_info"
            while '"job":"perseus-planner"' not in (answer := get(address, path=query)):
                assert time.monotonic() < until_s, (answer, log.read_text()[-2000:])
                time.sleep(0.2)
        finally:
            running.terminate()
