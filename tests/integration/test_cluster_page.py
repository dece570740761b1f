"""An operator's first hour: the steps of docs/cluster.md in their order, on simulated GPUs and without systemd.

Paths of the machine become folders of the test, ``planner.example`` becomes localhost, ports become free ones. Users,
groups, folders and links are made below those, and units enabled; what systemd would start is started as they say. The
soak tier runs the page as it is printed, in a root file system and a network of its own, pip included; only ``--now``
needs a machine that systemd has booted.
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
NEEDED = ("openssl", "htpasswd", "promtool", "prometheus", "systemd-sysusers", "systemd-tmpfiles", "systemctl")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
LEFT_OUT = re.compile(r"apt-get |/opt/perseus-dist/bin/pip|systemctl daemon-reload")
BELOW = {  # commands that work on the machine, and how they work below a folder instead
    "systemd-sysusers": "systemd-sysusers --root={root}",
    "systemd-tmpfiles": "systemd-tmpfiles --root={root}",
    "groupadd": "groupadd --prefix {root}",
    "systemctl enable --now": "systemctl --root={root} enable",
}
PASSWORD = "shown to scrapers"

pytestmark = [
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
        for name in ("etc/systemd/system", "etc/prometheus", "usr/local/bin"):
            (folder / name).mkdir(parents=True)
        (folder / "etc/group").touch()  # of a machine that has users

    @property
    def settings(self) -> Path:
        return self.folder / "etc/perseus-dist/perseus.toml"

    def environ(self) -> dict[str, str]:
        path = f"{self.folder}/usr/local/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "HOME": str(self.folder), "PERSEUS_CONFIG": str(self.settings)}

    def here(self, text: str) -> str:
        """A line of the page with this test's folders, host and ports."""
        text = re.sub(r"(?<![\w.])/(?=(etc|var/lib|opt|usr/local)/)", f"{self.folder}/", text)
        for command, below in BELOW.items():
            if text.startswith(command):
                text = below.format(root=self.folder) + text.removeprefix(command)
        for port, name in (("50151", "address"), ("50152", "web_url"), ("9464", "metrics_address")):
            if name in self.told:
                text = text.replace(f"planner.example:{port}", f"localhost:{port_in(self.told[name])}")
        return text.replace("planner.example", "localhost").replace(" -g perseus-dist", "")

    def run(self, line: str, environ: dict[str, str] | None = None) -> str:
        """Run a command of the page, or what takes its place."""
        if "/bin/pip install" in line:
            command = self.folder / "opt/perseus-dist/bin/perseus-dist"
            command.symlink_to(Path(sys.executable).parent / "perseus-dist")
        if LEFT_OUT.match(line):
            return ""
        if line.startswith("export "):
            self.exported |= dict(word.split("=", 1) for word in self.here(line).split()[1:])
            return ""
        if line.startswith("systemctl enable --now "):
            self._do(self.here(line))
            for unit in line.split()[3:]:
                name = unit if "." in unit else f"{unit}.service"
                assert name in {one.name for one in (self.folder / "etc/systemd/system").glob("*.wants/*")}, (
                    "not enabled"
                )
                self.start(unit)
            return ""
        words = self.here(line)
        fed = None
        if line.startswith("htpasswd "):
            words, fed = words.replace("htpasswd ", "htpasswd -i "), PASSWORD
        return self._do(words, self.environ() | self.exported | (environ or {}), fed)

    def _do(self, words: str, environ: dict[str, str] | None = None, fed: str | None = None) -> str:
        done = subprocess.run(
            ["bash", "-c", words],
            cwd=self.checkout,
            env=environ or self.environ(),
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


@pytest.mark.stress
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


IN_A_ROOT_OF_ITS_OWN = """
mount -t tmpfs t "$1"
mkdir "$1"/{u,w,m}
mount -t overlay o -o "lowerdir=/,upperdir=$1/u,workdir=$1/w" "$1/m"
cd "$1/m"
mount -t proc p proc
mount --rbind /dev dev
mount -t tmpfs t run
mount -t tmpfs t tmp
mount --rbind "$2" mnt
echo "127.0.0.1 planner.example localhost" > etc/hosts
chroot . bash /mnt/packages
unshare --net chroot . bash -c "ip link set lo up; exec bash /mnt/script"
exit  # process 1 stays outside, by which systemctl knows that it is not to start anything
"""
TAKES_PLACE = {  # of systemd, which starts nothing there, and of who types a password; GPUs there are none
    r"systemctl enable --now (perseus-release .*)": r"systemctl enable \1",
    r"systemctl enable --now (perseus-planner)$": r"""systemctl enable \1
        runuser -u perseus-dist -- perseus-dist planner --state-dir /var/lib/perseus-dist 2> /tmp/planner.log &
        until grep -q listening /tmp/planner.log || ! kill -0 $!; do sleep 0.2; done""",
    r"htpasswd .*": rf"printf '{PASSWORD}\n{PASSWORD}\n' | \g<0>",
    r"perseus-dist doctor$": r"\g<0> || [ $? = 1 ]",
}


def printed(language: str, lines: list[str]) -> str:
    """A block of the page as it is printed, for one host that is planner and node."""
    if language == "text":
        return "\n".join(["cat > /etc/perseus-dist/perseus.toml <<'END'", *lines, "END"])
    (planners,) = re.findall(r"On the planner's host install `'(\.\[[a-z,]+\])'`", PAGE)
    text = "\n".join(lines).replace(".[agent]", planners)
    for pattern, instead in TAKES_PLACE.items():
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a root file system of its own: as root")
def test_every_command_of_the_page_works_as_it_is_printed(tmp_path: Path) -> None:
    """In an overlay of this machine's root, and behind the first step without a network."""
    (tmp_path / "root").mkdir()
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    (tmp_path / "checkout").mkdir()
    subprocess.run(["tar", "-x", "-C", tmp_path / "checkout"], input=packed, check=True)
    begin = "set -euxo pipefail; cd /mnt/checkout; mkdir -p /etc/prometheus"
    blocks = [printed(language, lines) for language, lines in steps()]
    (tmp_path / "packages").write_text("\n".join([begin, blocks[0]]))
    (tmp_path / "script").write_text("\n".join([begin, *blocks[1:]]))
    environ = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environ |= {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    command = ["unshare", "--mount", "--pid", "--ipc", "--fork", "bash", "-euc", IN_A_ROOT_OF_ITS_OWN, "-"]
    done = subprocess.run(
        [*command, str(tmp_path / "root"), str(tmp_path)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert "llama-team" in done.stdout
    assert "perseus-planner.service" in done.stderr, "enabled"


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
