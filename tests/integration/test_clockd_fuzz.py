"""Hostile frames at a real clock daemon: it serves on, its memory stays bounded, and no clock stays locked.

``PERSEUS_NUM_FRAMES=100000`` sends the full count.
"""

import json
import os
import random
import socket
import time
from collections import Counter
from pathlib import Path

from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.device.lease.wire import MAX_LINE_BYTES
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.unix_socket import unix_address

NUM_FRAMES = int(os.environ.get("PERSEUS_NUM_FRAMES", "3000"))
FRAMES_PER_CONNECTION = 12
TIMEOUT_S = 10.0
MAX_GROWTH_KB = 20_000
ODD_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, 1, -1, 1200, 1410, 2**31, 2**63, -(2**63), 10**400, 1e309, float("nan"), 1.5),
    *("", "GPU-", "GPU-../../etc", "\ud800", "x" * 300, [], [[]], [1] * 100, [-1], ["1"], {}, {"op": "set"}),
)


def valid(chance: random.Random, gpu: str) -> dict[str, object]:
    """A message as a client sends it."""
    return chance.choice(
        [
            {"op": "acquire", "version": 1, "gpu": gpu, "pids": [os.getpid()]},
            {"op": "set", "clock_mhz": chance.choice([None, 1410, 1200, 900]), "request_ns": time.monotonic_ns()},
            {"op": "beat"},
            {"op": "release"},
        ]
    )


def frame(chance: random.Random, gpu: str) -> bytes:
    """A message, as it is or with fields, bytes or its length changed."""
    message = valid(chance, gpu)
    kind = chance.randrange(6)
    if kind == 0:
        message[chance.choice([*message, "more"])] = chance.choice(ODD_VALUES)
    elif kind == 1:
        del message[chance.choice([*message])]
    data = bytearray(json.dumps(message).encode() + b"\n")
    if kind == 2:
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
    elif kind == 3:
        data = data[: chance.randrange(len(data))] + chance.choice([b"", b"\n", b"\0\n"])
    elif kind == 4 and chance.randrange(20) == 0:
        data = bytearray(b"[" * chance.choice([MAX_LINE_BYTES - 1, MAX_LINE_BYTES + 1])) + b"\n"
    return bytes(data)


def converse(clockd: ClockdProcess, chance: random.Random, gpu: str) -> Counter[str]:
    """One connection: some frames at once or one after the other, then its end; gives the answers' kinds."""
    answers: Counter[str] = Counter()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT_S)
        with unix_address(clockd.socket_path) as address:
            client.connect(address)
        if chance.randrange(2):
            client.sendall(json.dumps({"op": "acquire", "version": 1, "gpu": gpu, "pids": []}).encode() + b"\n")
        data = b""
        try:
            for _ in range(FRAMES_PER_CONNECTION):
                client.sendall(frame(chance, gpu))
            if chance.randrange(2):
                client.shutdown(socket.SHUT_WR)
                while received := client.recv(65536):
                    data += received
        except ConnectionError:
            answers["cut off"] += 1
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            answers[json.loads(line)["op"]] += 1
    return answers


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def test_hostile_frames(tmp_path: Path) -> None:
    chance, answers, sent = random.Random(3), Counter[str](), 0
    with SimulatedMachine("a100", count=2) as machine:
        gpus = [gpu.uuid for gpu in machine.gpus]
        environ = {**os.environ, **machine.environment()}
        with ClockdProcess(tmp_path, environ, "--lease-s", "1") as clockd:
            before_kb = 0
            while sent < NUM_FRAMES:
                answers += converse(clockd, chance, chance.choice([*gpus, gpus[0][:-1] + "x"]))
                sent += FRAMES_PER_CONNECTION
                if not before_kb and sent > NUM_FRAMES / 10:
                    before_kb = resident_kb(clockd.process.pid)
            assert clockd.process.poll() is None
            assert resident_kb(clockd.process.pid) - before_kb < MAX_GROWTH_KB
            until_s = time.monotonic() + TIMEOUT_S
            while not all(gpu.state().is_unlocked for gpu in machine.gpus):
                assert time.monotonic() < until_s, "a clock is still locked after every connection has ended"
                time.sleep(0.05)
            assert clockd.stop() == 0
            assert "Traceback" not in clockd.log_path.read_text()
    assert min(answers[kind] for kind in ("granted", "refused", "report", "restored")) > 0, answers
