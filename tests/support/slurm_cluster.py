"""A Slurm cluster of two nodes on this machine: munged, slurmctld and two slurmds, of one's own folder and ports.

With a database, slurmdbd keeps accounts of its jobs.
"""

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import slurm_database
from waiting import wait_until

from perseus_dist.simulation.frameworks.training_run import free_port

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "launch" / "slurm"
PAGE = ROOT / "docs" / "slurm.md"
NODES = ("n1", "n2")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "runuser")
_FREEZER = Path("/sys/fs/cgroup/freezer")  # of cgroup v1


def refusal() -> str:
    """Why there can be none here; empty if there can."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_path()) is None]
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    return f"{', '.join(missing)} missing: apt-get install slurmctld slurmd slurm-client munge" if missing else ""


def has_cgroups() -> bool:
    """Whether jobs' processes can be tracked by cgroups, as clusters do; otherwise by their parents."""
    return os.access(_FREEZER, os.W_OK) and (_FREEZER / "tasks").exists()


class Cluster:
    """Slurm's commands, and the folder with the settings of prolog and epilog.

    Args:
        root: Readable by all.
        environ: Of jobs, prolog and epilog: a simulated machine's.
    """

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self.root = root
        self.scripts = root / "perseus"
        self.records = root / "records"
        self.opted_in = root / "opted-in"
        self.log = root / "perseus.log"
        self.dcgm_jobs = root / "dcgm"
        self.environ = {**os.environ, **environ, "PATH": _path(), "SLURM_CONF": str(root / "slurm.conf")}
        self._of_prolog = dict(environ)
        shutil.copytree(LAUNCH, self.scripts)
        self.records.mkdir()
        self.configure()

    def configure(self, *, on_failure: str = "log", without_driver: str = "none") -> None:
        """Write the shipped ``perseus.conf`` with this cluster's settings; one node's driver may be missing."""
        exports = "".join(f"export {name}={value!r}\n" for name, value in self._of_prolog.items())
        (self.scripts / "perseus.conf").write_text(
            f"{(LAUNCH / 'perseus.conf').read_text()}"
            f"PERSEUS_DIST={Path(sys.executable).parent / 'perseus-dist'}\nPERSEUS_RECORDS={self.records}\n"
            f"PERSEUS_DCGM_JOBS={self.dcgm_jobs}\nPERSEUS_OPT_IN={self.opted_in}\nPERSEUS_ON_FAILURE={on_failure}\n"
            f"PERSEUS_LOG_FILE={self.log}\nPERSEUS_ADMIN_COMMENT=yes\n"
            f'if [ "${{SLURMD_NODENAME:-}}" != {without_driver} ]; then\n{exports}fi\n'
        )

    def call(self, *command: str) -> str:
        """A command's output."""
        done = subprocess.run(command, env=self.environ, cwd=self.root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def submit(self, *words: str) -> "SlurmJob":
        """As ``sbatch`` on the command line."""
        number = self.call("sbatch", "--parsable", f"--chdir={self.root}", "--output=out.%j", *words)
        return SlurmJob(self, number.strip())


class SlurmJob:
    """A job that was submitted."""

    def __init__(self, cluster: Cluster, number: str) -> None:
        self._cluster = cluster
        self.number = number
        self.report = cluster.root / f"perseus-{number}"

    def state(self) -> str:
        """As ``scontrol`` has it."""
        return self._field("JobState")

    def wait(self) -> str:
        """The state in the end, once the epilog is over on all nodes: Slurm frees nodes after that."""
        wait_until(lambda: self.state() not in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING") and self._is_over())
        return self.state()

    def output(self) -> str:
        """Of the batch script and its steps."""
        path = self._cluster.root / f"out.{self.number}"
        return path.read_text() if path.exists() else ""

    def story(self) -> str:
        """All that tells why it failed: its output, what Slurm says of it, and the ends of the daemons' logs."""
        paths = self._cluster.root.glob("*.log")
        logs = (f"{path.name}:\n{path.read_text(errors='replace')[-2000:]}" for path in paths)
        return "\n".join([self.output(), self._cluster.call("scontrol", "show", "job", self.number), *logs])

    def comment(self) -> str:
        """The whole of it, which has blanks."""
        lines = self._cluster.call("scontrol", "show", "job", self.number).splitlines()
        return next((line.strip()[len("Comment=") :] for line in lines if line.strip().startswith("Comment=")), "")

    def admin_comment(self) -> str:
        """As Slurm's database has it."""
        return self._cluster.call("sacct", "-X", "-n", "-P", "-j", self.number, "-o", "AdminComment").strip()

    def _is_over(self) -> bool:
        states = self._cluster.call("sinfo", "--noheader", "--Node", "--format=%T").split()
        return not any(state.startswith(("completing", "allocated", "draining", "mixed")) for state in states)

    def _field(self, name: str) -> str:
        words = self._cluster.call("scontrol", "show", "job", self.number).split()
        return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))


@contextmanager
def slurm_cluster(environ: Mapping[str, str], *, with_database: bool = False) -> Iterator[Cluster]:
    """Start the daemons, each as its own user, and end them."""
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="perseus-slurm-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        root.chmod(0o755)
        cluster = Cluster(root, environ)
        stack.callback(_end_steps, cluster)
        for name, owner in (("munge", "munge"), ("state", "slurm"), ("spool", "root")):
            (root / name).mkdir(mode=0o755)
            shutil.chown(root / name, owner)
        key = root / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        shutil.chown(key, "munge")
        storage = "AccountingStorageType=accounting_storage/none\n"
        if with_database:
            cluster.environ["MYSQL_UNIX_PORT"] = str(stack.enter_context(slurm_database.mariadb(root)))
            storage = slurm_database.write_settings(root, free_port())
        (root / "slurm.conf").write_text(_settings(cluster, storage))
        (root / "gres.conf").write_text("Name=gpu File=/dev/zero\nName=gpu File=/dev/full\n")
        (root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=yes\n")
        folder = root / "munge"
        files = (("key-file", "key"), ("socket", "s"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))
        _start(stack, cluster, ["munged", "-F", *(f"--{option}={folder / name}" for option, name in files)], "munge")
        wait_until((folder / "s").exists)
        if with_database:
            _start(stack, cluster, ["slurmdbd", "-D"], "slurm")
            wait_until(lambda: _succeeds(cluster, "sacctmgr", "-n", "show", "cluster"))
            cluster.call("sacctmgr", "-i", "add", "cluster", "perseus")
        _start(stack, cluster, ["slurmctld", "-D"], "slurm")
        for node in NODES:
            _start(stack, cluster, ["slurmd", "-D", "-N", node], "root", umask=0o077)  # as on hardened hosts
        wait_until(lambda: _idle(cluster) == len(NODES))
        yield cluster


def processes_of(cluster: Cluster) -> list[int]:
    """Those that Slurm has started: slurmstepd outlives slurmd, also where a test is interrupted."""
    found, ours = [], f"SLURM_CONF={cluster.environ['SLURM_CONF']}".encode()
    for process in Path("/proc").iterdir():
        try:
            is_ours = ours in (process / "environ").read_bytes().split(b"\0")
        except OSError:  # no process, or gone meanwhile
            continue
        if is_ours:
            found.append(int(process.name))
    return found


def _end_steps(cluster: Cluster) -> None:
    for number in processes_of(cluster):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def _idle(cluster: Cluster) -> int:
    command = ["sinfo", "--noheader", "--Node", "--format=%T"]
    done = subprocess.run(command, env=cluster.environ, capture_output=True, text=True, check=False)
    return done.stdout.split().count("idle")


def _succeeds(cluster: Cluster, *command: str) -> bool:
    return subprocess.run(command, env=cluster.environ, capture_output=True, check=False).returncode == 0


def _start(stack: ExitStack, cluster: Cluster, command: Sequence[str], user: str, umask: int = -1) -> None:
    entry = pwd.getpwnam(user)
    log = stack.enter_context((cluster.root / f"{command[0]}-{command[-1]}.log".replace("/", "_")).open("wb"))
    process = subprocess.Popen(
        command,
        env=cluster.environ,
        cwd=cluster.root,
        user=entry.pw_uid,
        group=entry.pw_gid,
        umask=umask,
        stdout=log,
        stderr=log,
    )

    def end() -> None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)


def _settings(cluster: Cluster, storage: str) -> str:
    host, root = socket.gethostname().partition(".")[0], cluster.root
    ports = [free_port() for _ in range(1 + len(NODES))]
    nodes = "".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={os.cpu_count()} Gres=gpu:2\n"
        for node, port in zip(NODES, ports[1:], strict=True)
    )
    return f"""\
ClusterName=perseus
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/s
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/state/pid
SlurmdPidFile={root}/spool/%n.pid
ProctrackType=proctrack/{"cgroup" if has_cgroups() else "linuxproc"}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
GresTypes=gpu
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=2
{storage}{_documented_settings(cluster)}{nodes}\
PartitionName=all Nodes={",".join(NODES)} Default=YES MaxTime=30 OverSubscribe=EXCLUSIVE
"""


def _documented_settings(cluster: Cluster) -> str:
    """What the page tells to write into ``slurm.conf``."""
    (text,) = re.findall(r"^```text\n(PrologFlags.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    return str(text).replace("/etc/slurm/perseus", str(cluster.scripts))


def _path() -> str:
    return f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin:{os.environ.get('PATH', '')}"
