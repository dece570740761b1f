"""The client of a lease daemon, shared or private: never blocks after it was opened, and comes back after a loss."""

import logging
import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from perseus_dist.device.control import ClockReport
from perseus_dist.device.lease.wire import (
    MAX_PIDS,
    VERSION,
    Message,
    WireError,
    decode_from_daemon,
    decode_report,
    encode,
)

_log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 1.0
_REFUSED_RETRY_FIRST_S = 0.05
_REFUSED_RETRY_LONGEST_S = 0.4
_LOST_RETRY_FIRST_NS = 250_000_000
_LOST_RETRY_LONGEST_NS = 5_000_000_000
# A change of clocks takes some 10 ms, and zeusd may take 10 s. Each hang in a row is waited for twice as long.
HANG_NS = 12_000_000_000
_LONGEST_HANG_NS = 600_000_000_000
# Beats per lease: three may be lost or late.
_BEATS_PER_LEASE = 4
_READ_BYTES = 65536


class Connector(Protocol):
    """The way to a lease daemon.

    Attributes:
        answer_s: [s] within which it answers, if it does: longer where it has to start first.
    """

    answer_s: float

    def connect(self) -> socket.socket:
        """A newly connected stream socket; called again after every loss.

        Raises:
            OSError: There is nothing to connect to.
        """

    def end_hung(self, pid: int) -> bool:
        """End a daemon that has stopped answering, if it is ours to end: the next connection is to another one.

        Args:
            pid: The process, as it has told.
        """

    def close(self) -> None:
        """Tidy up, after the last connection was closed. Never waits."""


class LeaseClient:
    """A ``ClockControl`` on a connection to a lease daemon. To be used from one thread.

    Attributes:
        holder_pid: Process id of the daemon that granted the lease last, as it says; 0 before the first.
        is_unusable: Whether the last refusal is the daemon's own fault: it can set no clocks for anybody.
    """

    def __init__(self, name: str, connector: Connector, gpu_uuid: str, *, own_pids: Sequence[int]) -> None:
        """Prepare; ``open`` connects.

        Args:
            name: ``clockd``, ``zeusd`` or ``direct``.
            connector: The way to the daemon; the client's own from now on.
            gpu_uuid: As NVML writes it.
            own_pids: Processes of ours that may run on the GPU.
        """
        self.name = name
        self.clocks_mhz: tuple[int, ...] = ()
        self.refusal = "no connection yet"
        self.holder_pid = 0
        self.is_unusable = False
        self._connector = connector
        self._acquire = encode(
            {"op": "acquire", "version": VERSION, "gpu": gpu_uuid, "pids": list(own_pids)[:MAX_PIDS]}
        )
        self._epoll = select.epoll()  # one descriptor for all connections to come
        self._is_closed = False
        self._socket: socket.socket | None = None
        self._received = b""
        self._unsent = b""
        self._granted = False
        self._owes_restore = False  # clocks were set, and no daemon has said that they are restored
        self._caveat = ""
        self._may_retry = False
        self._last_refusal = ""  # of the daemon's own words
        self._wanted: Message | None = None  # the newest request, as long as it has not been sent
        self._held_mhz: int | None = None
        self._newest_request_ns = 0  # of those sent
        self._unanswered_ns: int | None = None  # since when none has been answered
        self._hang_ns = HANG_NS
        self._beat_ns = 0
        self._beat_interval_ns = 0
        self._retry_ns = 0
        self._num_losses = 0
        self._is_doubted = False

    def open(self, timeout_s: float | None = None, *, is_patient: bool = True) -> bool:
        """Connect and acquire, waiting for the answer. What a GPU's last holder still restores is waited for, too.

        Args:
            timeout_s: How long; None for as long as the connector says.
            is_patient: Whether to ask again where a refusal may be over soon.

        Returns:
            Whether the lease is held; otherwise ``refusal`` says why not, and the client is to be closed.

        Raises:
            OSError: There is nothing to connect to.
        """
        timeout_s = self._connector.answer_s if timeout_s is None else timeout_s
        until = time.monotonic() + timeout_s
        retry_s = _REFUSED_RETRY_FIRST_S
        was_cut_off = False  # without a word, as by a daemon that is just being restarted
        while True:
            try:
                self._begin(self._acquire)
            except ConnectionRefusedError:  # its socket is there: perhaps it is just being started again
                if not is_patient or time.monotonic() + retry_s >= until:
                    raise
                time.sleep(retry_s)
                continue
            while self._socket is not None and not self._granted and (left_s := until - time.monotonic()) > 0:
                self._epoll.poll(left_s)
                self._receive(time.monotonic_ns())
            if self._granted:
                return True
            if self._socket is None and not self._last_refusal and is_patient and not was_cut_off:
                was_cut_off = True
                continue
            if self._socket is not None:
                self.refusal = f"the {self.name} lease daemon did not answer within {timeout_s:.0f} s"
            if self._socket is not None or not is_patient or not self._may_retry or time.monotonic() + retry_s >= until:
                self.refusal = self._last_refusal or self.refusal  # the daemon's reason, if it gave one, says more
                return False
            time.sleep(retry_s)
            retry_s = min(_REFUSED_RETRY_LONGEST_S, 2 * retry_s)

    @property
    def was_refused(self) -> bool:
        """Whether a daemon has refused the lease, with a reason of its own."""
        return bool(self._last_refusal)

    def request(self, clock_mhz: int | None, now_ns: int) -> None:
        """See ``ClockControl``."""
        self._wanted = {"op": "set", "clock_mhz": clock_mhz}
        self._held_mhz = clock_mhz
        self._send_wanted(now_ns)

    def fileno(self) -> int:
        """See ``ClockControl``."""
        return -1 if self._is_closed else self._epoll.fileno()

    def poll(self, now_ns: int) -> list[ClockReport]:
        """See ``ClockControl``."""
        if self._is_closed:
            return []
        if self._socket is None and now_ns >= self._retry_ns:
            try:
                self._begin(self._acquire)
            except OSError as error:
                self._lose(f"the {self.name} lease daemon cannot be reached: {error.strerror or error}", now_ns)
        reports = self._receive(now_ns)
        self._replace_hung(now_ns)
        self._send_wanted(now_ns)
        if self._granted and now_ns >= self._beat_ns:
            self._send(encode({"op": "beat"}), now_ns)
        return reports

    def close(self) -> None:
        """See ``ClockControl``."""
        if self._is_closed:
            return
        self._is_closed = True
        until = time.monotonic() + CLOSE_TIMEOUT_S
        if self._granted:
            self._send(encode({"op": "release"}), time.monotonic_ns())
            self._wait_for_restore(until)
        if self._owes_restore and self._socket is None:
            self._let_successor_restore(until)
        if self._owes_restore and self._socket is not None:
            _log.warning(
                "clocks not yet restored after %.0f s; the %s lease daemon goes on", CLOSE_TIMEOUT_S, self.name
            )
        self._disconnect()
        self._connector.close()
        self._epoll.close()
        self._granted = False
        self.refusal = self.refusal or "closed"

    def _wait_for_restore(self, until_s: float) -> None:
        """As long as the daemon is there, and owes it."""
        while self._owes_restore and self._socket is not None and (left_s := until_s - time.monotonic()) > 0:
            self._epoll.poll(left_s)
            self._receive(time.monotonic_ns())

    def _let_successor_restore(self, until_s: float) -> None:
        """The daemon died with the clocks set: another one restores first of all what it left."""
        try:
            self._begin(encode({"op": "release"}))
        except OSError as error:
            _log.warning(
                "clocks may stay locked: the %s lease daemon died and cannot be reached (%s); it restores them when it "
                "is started again, and so does 'perseus-dist release'",
                self.name,
                error.strerror or error,
            )
            return
        while self._socket is not None and (left_s := until_s - time.monotonic()) > 0:
            self._epoll.poll(left_s)
            self._receive(time.monotonic_ns())
        self._owes_restore = self._socket is not None  # it hangs up when all is restored

    def _begin(self, first: bytes) -> None:
        """Connect, and say the first thing."""
        connected = self._connector.connect()
        connected.settimeout(0)
        self._socket = connected
        self._received = self._unsent = b""
        self._granted = self._may_retry = False
        self._epoll.register(connected.fileno(), select.EPOLLIN)
        self._send(first, time.monotonic_ns())

    def _replace_hung(self, now_ns: int) -> None:
        """A daemon that does not answer leaves the clock what it is; the next one restores it first."""
        if self._unanswered_ns is None or now_ns < self._unanswered_ns + self._hang_ns:
            return
        if self._connector.end_hung(self.holder_pid):
            self._hang_ns = min(_LONGEST_HANG_NS, 2 * self._hang_ns)
            self._lose(f"the {self.name} lease daemon hangs", now_ns)
        else:
            self._unanswered_ns = now_ns

    def _send_wanted(self, now_ns: int) -> None:
        if self._granted and self._wanted is not None and not self._unsent:
            # From now on: the time without a daemon is none that the clock takes.
            wanted, self._wanted = {**self._wanted, "request_ns": now_ns}, None
            self._newest_request_ns = now_ns
            if self._unanswered_ns is None:
                self._unanswered_ns = now_ns
            self._owes_restore |= wanted["clock_mhz"] is not None
            self._send(encode(wanted), now_ns)

    def _send(self, line: bytes, now_ns: int) -> None:
        """Send what can be sent at once; a daemon that does not read gets the rest later, and no beats on top."""
        if self._socket is None:
            return
        data = self._unsent or line
        try:
            self._unsent = data[self._socket.send(data) :]
        except BlockingIOError:
            self._unsent = data
        except OSError as error:
            self._receive(now_ns)  # its last words, if it had any, say why
            if self._socket is not None:
                self._lose(f"the connection to the {self.name} lease daemon broke: {error.strerror or error}", now_ns)
            return
        self._beat_ns = now_ns + self._beat_interval_ns

    def _receive(self, now_ns: int) -> list[ClockReport]:
        reports: list[ClockReport] = []
        while self._socket is not None:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            *lines, self._received = (self._received + data).split(b"\n")
            try:
                for line in lines:
                    self._heed(decode_from_daemon(line), reports, now_ns)
            except (WireError, KeyError, TypeError, ValueError) as error:
                self._lose(f"the {self.name} lease daemon says what cannot be understood: {error}", now_ns)
            if not data and self._socket is not None:
                self._lose(f"the {self.name} lease daemon ended the connection", now_ns)
        return reports

    def _heed(self, message: Message, reports: list[ClockReport], now_ns: int) -> None:
        match message.get("op"):
            case "report":
                report = decode_report(message)
                reports.append(report)
                self._unanswered_ns = None if report.request_ns >= self._newest_request_ns else now_ns
                if report.requested_mhz is not None and not report.error:
                    self._hang_ns = HANG_NS
                    self._trust()
            case "granted":
                # A daemon restarted with other bounds: what was promised stays; what it refuses is reported.
                self.clocks_mhz = self.clocks_mhz or tuple(message["clocks_mhz"])
                self._beat_interval_ns = int(message["lease_s"] * 1e9 / _BEATS_PER_LEASE)
                self._beat_ns = now_ns
                self._granted = True
                self._owes_restore = False  # it has restored what a dead one left
                self.holder_pid = int(message.get("pid", 0))
                self._tell_caveat(str(message.get("caveat", "")))
                if not self._is_doubted:
                    self._trust()
            case "refused":
                self._may_retry = bool(message["retry"])
                self.is_unusable = bool(message.get("unusable", False))
                self._owes_restore = False  # as above
                fault = "can set no clocks" if self.is_unusable else "refuses"
                self._last_refusal = f"{self.name} {fault}: {message['reason']}"
                self._lose(self._last_refusal, now_ns)
            case "lost":
                self._is_doubted = True  # it was granted, and then could not be used: that may happen again
                self._owes_restore = False  # it restores before it ends
                self._lose(f"{self.name} has ended the lease: {message['reason']}", now_ns)
            case "restored":
                self._owes_restore = False

    def _tell_caveat(self, caveat: str) -> None:
        """Once, however often the daemon is replaced."""
        if caveat and caveat != self._caveat:
            _log.warning("%s", caveat)
        self._caveat = caveat

    def _trust(self) -> None:
        """The lease can be used."""
        self.refusal = ""
        self._is_doubted = False
        self._num_losses = 0

    def _lose(self, reason: str, now_ns: int) -> None:
        """The lease is gone; the next one begins with the newest request."""
        self._disconnect()
        self._granted = False
        self._unanswered_ns = None
        self.refusal = reason
        if self._wanted is None and self._held_mhz is not None:
            self._wanted = {"op": "set", "clock_mhz": self._held_mhz}
        self._retry_ns = now_ns + min(_LOST_RETRY_LONGEST_NS, _LOST_RETRY_FIRST_NS << min(self._num_losses, 10))
        self._num_losses += 1

    def _disconnect(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._epoll.unregister(self._socket.fileno())
            self._socket.close()
            self._socket = None
