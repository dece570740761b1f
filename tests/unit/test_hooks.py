"""The hook: what each call publishes, and that no misuse of it reaches the trainer."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import builders
import pytest
from builders import make_spec
from python_path import python_path

from perseus_dist.boundaries.agent_status import AgentStatus, decode_status, encode_status
from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.record import Boundary, Event
from perseus_dist.boundaries.ring import RingWriter
from perseus_dist.hooks import Hook, attach
from perseus_dist.messages.target_text import format_target
from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.job import Phase

SPEC = make_spec(rank=3, schedule="0F0 0B0\n")


class Wire:
    """A hook and the other end of it."""

    def __init__(self) -> None:
        ring, doorbell_fd = RingWriter(), os.eventfd(0, os.EFD_NONBLOCK)
        self._fds = os.dup(ring.fd), os.dup(doorbell_fd)
        self.hook = Hook(ring, doorbell_fd)
        self.reader = BoundaryReader(*self._fds)

    def read(self) -> list[Boundary]:
        return [passed.boundary for passed in self.reader.read(0)]

    def close(self) -> None:
        self.hook.close()
        self.reader.close()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def test_an_iteration_as_an_adapter_reports_it(wire: Wire) -> None:
    wire.hook.iteration_begin(7)
    wire.hook.begin("F", chunk=1, microbatch=3)
    wire.hook.end("F", chunk=1, microbatch=3)
    wire.hook.begin("STEP")
    wire.hook.end("STEP")
    wire.hook.mark("grad_sync")
    wire.hook.release()
    wire.hook.iteration_end(7)
    wire.hook.close()
    boundaries = wire.read()
    assert [(b.event, b.kind, b.chunk, b.microbatch) for b in boundaries] == [
        (Event.ITERATION_BEGIN, "", 0, -1),
        (Event.BEGIN, "F", 1, 3),
        (Event.END, "F", 1, 3),
        (Event.BEGIN, "STEP", 0, -1),
        (Event.END, "STEP", 0, -1),
        (Event.MARK, "grad_sync", 0, -1),
        (Event.MARK, "release", 0, -1),
        (Event.ITERATION_END, "", 0, -1),
        (Event.CLOSE, "", 0, -1),
    ]
    assert {b.iteration for b in boundaries} == {7}
    assert [b.sequence for b in boundaries] == list(range(1, 10))
    times_ns = [b.host_ns for b in boundaries]
    assert times_ns == sorted(times_ns)


def test_what_an_iteration_did_is_one_record(wire: Wire) -> None:
    wire.hook.iteration_begin(7)
    wire.hook.work()
    wire.hook.work(4096)
    wire.hook.work(tokens=2**40, input_wait_ns=1_500_000_000)
    wire.hook.iteration_end(7)
    boundaries = wire.read()
    assert [b.event for b in boundaries[1:-1]] == [Event.WORK] * 3
    assert [(b.timed_sequence, b.device_ns) for b in boundaries] == [
        (0, 0),
        (0, -1),
        (4096, -1),
        (2**40, 1_500_000_000),
        (0, 0),
    ]
    assert {b.iteration for b in boundaries} == {7}


@pytest.mark.parametrize("arguments", [(-1,), (1.5,), (2**64,), ("many",), (1, 2**63), (1, 0.5)])
def test_work_that_cannot_be_written_is_dropped_and_counted(wire: Wire, arguments: tuple[object, ...]) -> None:
    wire.hook.work(*cast("Any", arguments))
    wire.hook.work(5)
    assert [b.timed_sequence for b in wire.read()] == [5]
    assert wire.reader.lost == 1


def test_closed_hook_does_nothing(wire: Wire) -> None:
    wire.hook.close()
    assert not wire.hook.enabled
    wire.hook.iteration_begin(0)
    wire.hook.begin("F")
    wire.hook.close()
    assert [b.event for b in wire.read()] == [Event.CLOSE]


@pytest.mark.parametrize(
    "arguments",
    [
        ("a name that is too long",),
        ("Größe",),
        (None,),
        (7,),
        ([],),
        ("F", 2**15),
        ("F", "chunk"),
        ("F", 0, 2**31),
        ("F", 0, None),
        ("F", 0, 1.5),
    ],
)
def test_what_cannot_be_written_is_dropped_and_counted(
    wire: Wire, arguments: tuple[object, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            wire.hook.begin(*cast("Any", arguments))
        wire.hook.begin("F")
    assert [b.kind for b in wire.read()] == ["F"]
    assert wire.reader.lost == 3
    assert len(caplog.records) == 1


def test_the_doorbell_rings_unless_the_agent_watches(wire: Wire) -> None:
    def rings() -> bool:
        try:
            return os.eventfd_read(wire.reader.doorbell_fileno) > 0
        except BlockingIOError:
            return False

    wire.hook.iteration_begin(0)
    assert rings()
    wire.reader.set_watched(True)
    wire.hook.begin("F")
    wire.hook.end("F")
    assert not rings()
    wire.reader.set_watched(False)
    wire.hook.mark("grad_sync")
    assert rings()
    assert len(wire.read()) == 4


def test_strange_iteration_numbers_do_no_harm(wire: Wire) -> None:
    wire.hook.iteration_begin(cast("Any", "first"))
    wire.hook.iteration_begin(2**40)
    wire.hook.iteration_begin(5)
    assert [b.iteration for b in wire.read()] == [5]
    assert wire.reader.lost == 2


def test_calls_from_other_threads_are_dropped_and_counted(wire: Wire) -> None:
    wire.hook.iteration_begin(0)
    thread = threading.Thread(target=wire.hook.begin, args=("F",))
    thread.start()
    thread.join()
    wire.hook.end("F")
    assert [b.event for b in wire.read()] == [Event.ITERATION_BEGIN, Event.END]
    assert wire.reader.lost == 1


def test_any_thread_may_close(wire: Wire) -> None:
    """Engines are in circles of references, and any thread may be the one that collects garbage."""
    wire.hook.iteration_begin(0)
    thread = threading.Thread(target=wire.hook.close)
    thread.start()
    thread.join()
    assert [b.event for b in wire.read()] == [Event.ITERATION_BEGIN, Event.CLOSE]
    assert wire.reader.lost == 0
    assert not wire.hook.enabled


def test_a_doorbell_that_cannot_be_rung_does_no_harm(wire: Wire) -> None:
    os.close(wire.hook._doorbell_fd)
    wire.hook._doorbell_fd = -1
    wire.hook.begin("F")
    assert [b.kind for b in wire.read()] == ["F"]


def test_exceptions_of_the_trainers_own_signal_handlers_pass(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(wire.hook._ring, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        wire.hook.begin("F")


def test_disabled_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_DISABLE", "1")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")  # not even tried
    hook = attach(SPEC)
    assert not hook.enabled
    hook.iteration_begin(0)
    hook.close()


@pytest.mark.parametrize("executable", ["/nonexistent/python", "", None])
def test_no_agent_no_harm(
    executable: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with caplog.at_level(logging.WARNING):
        hook = attach(SPEC)
    assert not hook.enabled
    hook.iteration_begin(0)
    hook.begin("F")
    hook.close()
    assert "rank 3" in caplog.text


def test_needs_the_standard_library_alone() -> None:
    script = """
import sys
before = set(sys.modules)
import perseus_dist.hooks
for name in sorted({name.partition(".")[0] for name in set(sys.modules) - before}):
    if name not in sys.stdlib_module_names and not name.startswith("__editable__"):
        print(name)
"""
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["perseus_dist"]


@pytest.mark.parametrize(
    ("closed", "is_mute"),
    [("for stream in range(3): os.close(stream)", True), ("sys.__stderr__ = None", True), ("", False)],
    ids=["closed", "closed at first", "open"],
)
def test_descriptors_are_none_of_the_standard_streams_where_those_are_closed(closed: str, *, is_mute: bool) -> None:
    """The agent has streams of its own there, and whatever writes to standard error would write into the ring.

    Nor does an agent write into the file that has the number of a standard error that was closed.
    """
    script = f"""
import os
import sys
from builders import make_spec
from perseus_dist import hooks
from perseus_dist.boundaries import agent_process

class Started:
    pid = 0

    def __init__(self, command, *, pass_fds, stderr, **_):
        os.write(out, " ".join(map(str, (*pass_fds, stderr))).encode())

agent_process.subprocess.Popen = Started
out = os.dup(1)
{closed}
hooks.attach(make_spec(rank=3, schedule="0F0 0B0"))
"""
    environment = {**os.environ, "PYTHONPATH": python_path(Path(builders.__file__).parent)}
    started = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    *fds, stderr = started.stdout.split()
    assert len(fds) == 4
    assert min(map(int, fds)) > 2
    assert stderr == (str(subprocess.DEVNULL) if is_mute else "None")


STATUS = AgentStatus(
    phase="re-profiling",
    iteration=41,
    time_s=0.83,
    energy_j=301.5,
    clock_mhz=1290,
    job_time_s=0.84,
    job_energy_j=1200.25,
    predicted_saving=0.125,
    target="slowdown=1.0523232323232323",
    num_stragglers=2,
    straggler_degree=1.25,
    table_revision=3,
    switch_revision=7,
    measured_saving=-0.015625,
    t_prime_s=1.05,
    num_probes=2**40,
    num_falls=1,
)


def test_the_trainer_reads_what_its_agent_said_last(wire: Wire) -> None:
    assert wire.hook.status() is None
    wire.reader.set_status(AgentStatus())
    assert wire.hook.status() == AgentStatus()
    wire.reader.set_status(STATUS)
    assert wire.hook.status() == STATUS
    wire.hook.iteration_begin(42)  # boundaries and status do not get into each other's way
    assert [b.event for b in wire.read()] == [Event.ITERATION_BEGIN]
    assert wire.hook.status() == STATUS
    wire.hook.close()
    assert wire.hook.status() is None
    assert Hook().status() is None


def test_the_status_takes_the_three_cache_lines_that_it_has_and_the_longest_texts() -> None:
    longest = AgentStatus(phase=max(Phase, key=len), target=format_target(Target(deadline_s=1.2345678901234567e-300)))
    block = encode_status(longest)
    assert len(block) <= 192
    assert decode_status(block) == longest


def test_a_status_that_is_half_written_is_not_read(wire: Wire) -> None:
    wire.reader.set_status(STATUS)
    assert wire.hook.status() == STATUS
    ring = cast("Any", wire.hook)._ring
    ring.memory[400] ^= 0xFF
    assert wire.hook.status() == STATUS  # the one before
    ring.memory[400] ^= 0xFF
    wire.reader.set_status(AgentStatus(phase="enforcing"))
    assert wire.hook.status() == AgentStatus(phase="enforcing")
