"""Certificates and tokens that do not fit: each agent says so in one line, and its trainer trains."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from builders import make_spec
from processes import has_ended
from waiting import wait_until

from perseus_dist.simulation.trainers.trainer_config import InstructionTime, TrainerConfig
from perseus_dist.simulator.machine import SimulatedMachine

YESTERDAY = datetime.now(UTC) - timedelta(days=1)
_PHASE = re.compile("job .+ is [a-z_]+: ")  # what a planner that has let the agent in tells of the job


@dataclass
class Case:
    """An agent, and what it says of the planner; ``job_id`` is its own by default."""

    said: str
    token: str = ""
    job_id: str = ""
    options: dict[str, Path] = field(default_factory=dict)


@dataclass
class Running:
    """A trainer's files."""

    log: Path
    iterations: Path

    def is_attached(self) -> bool:
        return _PHASE.search(self.log.read_text()) is not None

    def troubles(self) -> list[str]:
        """Everything that was said, but for the usual."""
        return [line for line in self.log.read_text().splitlines() if _PHASE.search(line) is None]

    def num_iterations(self) -> int:
        return self.iterations.read_bytes().count(b"\n")


class Authority:
    """Issues certificates into files."""

    def __init__(self, folder: Path, name: str) -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.pem = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.pem)

    def issue(self, name: str, *, not_after: datetime | None = None) -> tuple[Path, Path]:
        """A certificate and its key, in files that take the place of older ones at once."""
        not_before = None if not_after is None else not_after - timedelta(days=1)
        leaf = self._ca.issue_cert("127.0.0.1", not_before=not_before, not_after=not_after)
        cert, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        for path, data in ((key, leaf.private_key_pem), (cert, leaf.cert_chain_pems[0])):
            data.write_to_path(path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)
        return cert, key


@contextmanager
def planner(folder: Path, *options: str | Path) -> Iterator[str]:
    """Its address."""
    address_file = folder / "address.json"
    command = [sys.executable, "-m", "perseus_dist", "planner", "--bind", "127.0.0.1:0", "--state-dir", str(folder)]
    with (folder / "planner.log").open("wb") as log:
        process = subprocess.Popen([*command, "--address-file", str(address_file), *map(str, options)], stderr=log)
    with process:
        try:
            wait_until(lambda: address_file.exists() or process.poll() is not None)
            yield json.loads(address_file.read_text())["address"]
        finally:
            process.terminate()


def job_of_one_rank(
    name: str, case: Case, gpu: int, machine: SimulatedMachine, planner_address: str, folder: Path
) -> TrainerConfig:
    spec = make_spec(
        job_id=case.job_id or name,
        schedule="0F0 0B0\n",
        local_rank=gpu,
        gpu_uuid=machine.gpus[gpu].uuid,
        planner=planner_address,
        token_file=str(folder / f"{name}.token") if case.token else None,
        control="observe",
        options={option: str(path) for option, path in case.options.items()},
    )
    times = tuple(InstructionTime(stage=0, kind=kind, seconds=0.1) for kind in "FB")
    return TrainerConfig(
        spec=spec, gpu=gpu, times=times, num_iterations=100_000, device_ordered=False, first_semaphore=gpu
    )


@contextmanager
def trainer(config: TrainerConfig, machine: SimulatedMachine, running: Running) -> Iterator[None]:
    """A trainer; its agent has ended too at the end."""
    with running.log.open("wb") as log, running.iterations.open("wb") as iterations:
        process = subprocess.Popen(
            [sys.executable, "-m", "perseus_dist.simulation.trainers.trainer"],
            env={**os.environ, **machine.environment()},
            stdin=subprocess.PIPE,
            stdout=iterations,
            stderr=log,
        )
    assert process.stdin is not None
    process.stdin.write(config.to_json().encode())
    process.stdin.close()
    try:
        yield
        assert process.poll() is None
    finally:
        agents = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        process.wait()
        wait_until(lambda: all(has_ended(int(pid)) for pid in agents))


def test_who_is_not_let_in_trains_on_and_says_why_once(tmp_path: Path) -> None:
    servers, clients, strangers = (Authority(tmp_path, name) for name in ("servers", "clients", "strangers"))
    cert, key = servers.issue("planner")

    def shown(authority: Authority, name: str, *, not_after: datetime | None = None) -> dict[str, Path]:
        own_cert, own_key = authority.issue(name, not_after=not_after)
        return {"tls_ca": servers.pem, "tls_cert": own_cert, "tls_key": own_key}

    welcome = shown(clients, "welcome")
    # Of a handshake that failed the agent is told nothing but that there is no connection.
    no_handshake = "planner at 127.0.0.1:"
    cases = {
        "owner": Case("", token="ours", options=welcome),
        "wrong-token": Case("job owner is another token's", token="theirs", job_id="owner", options=welcome),
        "no-token": Case("job owner is another token's", job_id="owner", options=welcome),
        "missing-token": Case("missing-token.token: cannot be read", token="missing", options=welcome),
        "no-certificate": Case(no_handshake, options={"tls_ca": servers.pem}),
        "strange-certificate": Case(no_handshake, options=shown(strangers, "strange")),
        "expired-certificate": Case(no_handshake, options=shown(clients, "expired", not_after=YESTERDAY)),
        "strange-planner": Case(no_handshake, options={**welcome, "tls_ca": strangers.pem}),
        "plain-text": Case(no_handshake),
        "expired-planner": Case(no_handshake, token="later", options=welcome),
    }
    for name, case in cases.items():
        if case.token and name != "missing-token":
            (tmp_path / f"{name}.token").write_text(f"{case.token}\n")
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=len(cases)))
        tls = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", clients.pem)
        address = stack.enter_context(planner(tmp_path, *tls))
        trainers: dict[str, Running] = {}

        def start(name: str) -> Running:
            config = job_of_one_rank(name, cases[name], len(trainers), machine, address, tmp_path)
            trainers[name] = Running(tmp_path / f"{name}.log", tmp_path / f"{name}.jsonl")
            stack.enter_context(trainer(config, machine, trainers[name]))
            return trainers[name]

        owner = start("owner")
        wait_until(owner.is_attached)
        unwelcome = {name: start(name) for name in list(cases)[1:-1]}
        for running in unwelcome.values():
            wait_until(running.troubles)
        servers.issue("planner", not_after=YESTERDAY)
        unwelcome["expired-planner"] = start("expired-planner")
        wait_until(unwelcome["expired-planner"].troubles)
        num_iterations = {name: running.num_iterations() for name, running in trainers.items()}
        time.sleep(4)  # some more attempts
        for name, running in unwelcome.items():
            (line,) = running.troubles()
            assert cases[name].said in line
            assert line.endswith("training goes on, trying again")
            assert not running.is_attached()
        assert owner.troubles() == []
        assert all(running.num_iterations() > num_iterations[name] for name, running in trainers.items())

        servers.issue("planner")
        (tmp_path / "missing-token.token").write_text("here-now\n")
        for name in ("expired-planner", "missing-token"):
            wait_until(unwelcome[name].is_attached)
