"""What the lease daemon takes from clients that it does not trust."""

import errno
import json
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.device.control import ClockReport
from perseus_dist.device.lease import health
from perseus_dist.device.lease.wire import (
    WireError,
    decode_from_client,
    decode_from_daemon,
    decode_report,
    encode,
    encode_report,
)

ACQUIRE = {"op": "acquire", "version": 1, "gpu": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "pids": [1, 2]}
SET = {"op": "set", "clock_mhz": 1200, "request_ns": 5}


@pytest.mark.parametrize("message", [ACQUIRE, SET, {**SET, "clock_mhz": None}, {"op": "beat"}, {"op": "release"}])
def test_messages_come_through(message: dict[str, object]) -> None:
    assert decode_from_client(encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        {**ACQUIRE, "version": 2},
        {**ACQUIRE, "gpu": "GPU-../../../etc/passwd"},
        {**ACQUIRE, "gpu": "GPU-" + "a" * 100},
        {**ACQUIRE, "gpu": 0},
        {**ACQUIRE, "pids": [0]},
        {**ACQUIRE, "pids": [True]},
        {**ACQUIRE, "pids": list(range(1, 100))},
        {**ACQUIRE, "pids": "1"},
        {**SET, "clock_mhz": -1},
        {**SET, "clock_mhz": 1200.5},
        {**SET, "clock_mhz": 10**30},
        {**SET, "request_ns": None},
        {**SET, "request_ns": 2**63},
        {"op": "unlock everything"},
        {},
    ],
)
def test_messages_that_are_refused(message: dict[str, object]) -> None:
    with pytest.raises(WireError, match=r"expected|op is"):
        decode_from_client(encode(message))


@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(st.none() | st.text() | st.floats(), st.lists).map(lambda value: json.dumps(value).encode()),
    )
)
def test_anything_else_is_refused_too(line: bytes) -> None:
    with pytest.raises(WireError):
        decode_from_client(line)


def test_a_set_must_say_which_clock() -> None:
    """Null releases; nothing at all is a mistake of the client's."""
    assert decode_from_client(b'{"op":"set","clock_mhz":null,"request_ns":1}')["clock_mhz"] is None
    with pytest.raises(WireError, match="a set without clock_mhz"):
        decode_from_client(b'{"op":"set","request_ns":1}')


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(WireError):
        decode_from_client(b"[" * 8000)


def test_reports_come_through() -> None:
    report = ClockReport(
        requested_mhz=1200,
        observed_mhz=1185,
        event_reasons=0x20,
        request_ns=1,
        set_ns=2,
        reached_ns=None,
        error="",
    )
    assert decode_report(decode_from_daemon(encode_report(report))) == report
    with pytest.raises(WireError, match="request_ns"):
        decode_report({"requested_mhz": 1, "observed_mhz": 1, "event_reasons": 0})


class FullDaemon:
    """The socket of a daemon that refuses a connection before it was asked anything."""

    def __init__(self, said: bytes) -> None:
        self._said = said

    def connect(self) -> "FullDaemon":
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def settimeout(self, _: float) -> None: ...

    def sendall(self, _: bytes) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def recv(self, _: int) -> bytes:
        return self._said


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (encode({"op": "refused", "reason": "512 connections are open already"}), "512 connections are open already"),
        (b"what?\n", "what?"),
        (b"", "no daemon answers there (Broken pipe)"),
    ],
)
def test_the_last_words_of_a_daemon_that_is_full_are_its_fault(
    said: bytes, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SocketConnector", lambda _: FullDaemon(said))
    assert health.find_clockd_fault("/run/clockd.sock", 1.0) == fault
