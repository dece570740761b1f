"""The interface for framework adapters: calls at the boundaries of work. Standard library only.

The trainer is never harmed: no call raises, blocks or waits; a missing or slow agent changes nothing, and one that was
killed is started again; forked children are silent. Calls come from one thread, the one that called first; others are
dropped and counted.

Set ``PERSEUS_DISABLE=1`` and nothing happens at all.
"""

import logging
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from time import monotonic_ns

from perseus_dist.boundaries.agent_keeper import AgentKeeper
from perseus_dist.boundaries.agent_process import start_agent
from perseus_dist.boundaries.agent_status import AgentStatus
from perseus_dist.boundaries.descriptors import above_standard, copy_above_standard
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.boundaries.record import MAX_KIND_BYTES, NO_MICROBATCH, Event, Mark, encode_record
from perseus_dist.boundaries.ring import RingWriter, give_back_records
from perseus_dist.boundaries.stream import DeviceOrder

__all__ = ["AgentStatus", "Hook", "RankSpec", "attach"]

_log = logging.getLogger(__name__)

# Plain integers: an IntEnum's attribute costs the hot path more than the call that uses it.
_ITERATION_BEGIN, _ITERATION_END = int(Event.ITERATION_BEGIN), int(Event.ITERATION_END)
_BEGIN, _END, _MARK, _CLOSE = int(Event.BEGIN), int(Event.END), int(Event.MARK), int(Event.CLOSE)
_WORK = int(Event.WORK)


class Hook:
    """Publishes boundaries to the rank's agent.

    Args:
        ring: Where records go; None makes a hook that does nothing.
        doorbell_fd: A non-blocking eventfd that wakes the agent.
        device_stream: As in ``attach``.
    """

    def __init__(
        self,
        ring: RingWriter | None = None,
        doorbell_fd: int = -1,
        *,
        device_stream: Callable[[], int] | None = None,
    ) -> None:
        self._ring = ring
        self._doorbell_fd = doorbell_fd
        self._device = DeviceOrder(ring, device_stream) if ring is not None and device_stream is not None else None
        self._thread = 0
        self._iteration = -1
        self._kinds: dict[str, bytes] = {}
        self._has_complained = False
        self._status: AgentStatus | None = None
        self._keeper: AgentKeeper | None = None
        _hooks.add(self)

    @property
    def enabled(self) -> bool:
        """Whether anything is published."""
        return self._ring is not None

    def iteration_begin(self, iteration: int) -> None:
        """An iteration begins: its instructions follow, in the order of the schedule."""
        self._record(_ITERATION_BEGIN, "", 0, NO_MICROBATCH, iteration)

    def iteration_end(self, iteration: int) -> None:
        """The iteration is over, its optimizer step included."""
        self._record(_ITERATION_END, "", 0, NO_MICROBATCH, iteration)

    def begin(self, kind: str, chunk: int = 0, microbatch: int = NO_MICROBATCH) -> None:
        """An instruction begins. Call it before its first launch.

        Args:
            kind: F, B, I, W or a constant's name, as in the schedule.
            chunk: Model chunk on this rank, from 0.
            microbatch: Index in the iteration; -1 where the framework does not say.
        """
        self._record(_BEGIN, kind, chunk, microbatch)

    def end(self, kind: str, chunk: int = 0, microbatch: int = NO_MICROBATCH) -> None:
        """An instruction ends. Call it after its last launch."""
        self._record(_END, kind, chunk, microbatch)

    def work(self, tokens: int = 0, input_wait_ns: int | None = None) -> None:
        """Work of the iteration, so that a rank with more to do is not taken for a slow one.

        Call it once an iteration, just before its end.

        Args:
            tokens: Of all microbatches, as all ranks of a tensor-parallel group see them together, so that the ranks of
                a pipeline say the same; 0 where the framework does not say. Another unit of work serves as well.
            input_wait_ns: [ns] waited for input data; None where the framework does not say.
        """
        wait_ns = -1 if input_wait_ns is None else input_wait_ns
        self._record(_WORK, "", 0, NO_MICROBATCH, wait_ns=wait_ns, tokens=tokens)

    def mark(self, phase: str) -> None:
        """Mark another phase's begin: a name of ``boundaries.record.Mark``, or one of at most 16 ASCII characters."""
        self._record(_MARK, phase, 0, NO_MICROBATCH)

    def release(self) -> None:
        """Release the clocks until the next iteration begins: what runs is not what was planned."""
        self._record(_MARK, Mark.RELEASE, 0, NO_MICROBATCH)

    def status(self) -> AgentStatus | None:
        """The agent's newest status, about a second old: figures for the trainer's own monitor. Any thread may ask.

        None where there is nothing yet, no agent, or the hook is closed.
        """
        ring = self._ring
        if ring is None:
            return None
        with suppress(Exception):
            self._status = ring.status or self._status
        return self._status

    def close(self) -> None:
        """Training is over. Later calls do nothing. Any thread may call it, such as one that collects garbage."""
        device = self._device
        if self._thread not in (0, get_ident()):
            self._thread, self._device = get_ident(), None  # this thread may have no CUDA context
        self._record(_CLOSE, "", 0, NO_MICROBATCH)
        ring, doorbell_fd = self._ring, self._doorbell_fd
        if ring is None:
            return
        self._ring, self._doorbell_fd = None, -1
        keeper = self._keeper
        if keeper is not None:
            keeper.stop()
        with suppress(Exception):
            os.close(doorbell_fd)
            ring.close(keeps_header=device is not None, has_reader=lambda: keeper is None or not keeper.is_over)

    def _start_agent(self, spec: RankSpec) -> None:
        ring = self._ring
        if ring is None:
            return
        pid = start_agent(spec, ring_fd=ring.fd, doorbell_fd=self._doorbell_fd)
        if not pid:
            return
        # Descriptors of the keeper's own: this hook may be closed at any moment.
        ring_fd, doorbell_fd = copy_above_standard(ring.fd), copy_above_standard(self._doorbell_fd)

        def replace_agent() -> int:
            return start_agent(spec, ring_fd=ring_fd, doorbell_fd=doorbell_fd, is_replacement=True)

        def end() -> None:
            if ring.is_closed:  # else ``close`` does it; a device keeps the memory of each hook of a process
                with suppress(OSError):
                    give_back_records(ring_fd)
            os.close(ring_fd)
            os.close(doorbell_fd)

        self._keeper = AgentKeeper(rank=spec.rank, pid=pid, start=replace_agent, end=end)

    def _record(
        self,
        event: int,
        kind: str,
        chunk: int,
        microbatch: int,
        iteration: int | None = None,
        wait_ns: int = 0,
        tokens: int = 0,
    ) -> None:
        ring = self._ring
        if ring is None:
            return
        try:
            if self._thread != get_ident():
                self._bind_thread()
            name = self._kinds.get(kind)
            if name is None:
                name = self._encode_kind(kind)
            if iteration is not None:
                self._iteration = iteration
            if event == _ITERATION_BEGIN and self._device is not None:
                self._device.begin_iteration(self._iteration)
            sequence = ring.head + 1
            now_ns = monotonic_ns()
            ring.write(
                encode_record(sequence, event, name, chunk, microbatch, self._iteration, now_ns, wait_ns, tokens)
            )
            if self._device is not None and event != _WORK:  # the host alone says it, the device passes nothing there
                self._device.put(sequence, name, chunk, microbatch)
            if not ring.is_watched:  # waking a process is most of what a call costs
                os.eventfd_write(self._doorbell_fd, 1)
        except Exception as error:
            self._drop(ring, error)

    def _bind_thread(self) -> None:
        if self._thread:
            raise RuntimeError("the hook was called from a second thread; call it from one")
        self._thread = get_ident()

    def _encode_kind(self, kind: str) -> bytes:
        name = kind.encode("ascii")
        if len(name) > MAX_KIND_BYTES:
            raise ValueError(f"{kind!r} is too long a name; give at most {MAX_KIND_BYTES} characters")
        self._kinds[kind] = name
        return name

    def _drop(self, ring: RingWriter, error: Exception) -> None:
        with suppress(Exception):
            ring.count_dropped()
            if not self._has_complained:
                self._has_complained = True
                _log.warning("a boundary was dropped, and so will others like it be: %s", error)

    def _silence(self) -> None:
        self._ring = None


_hooks: "weakref.WeakSet[Hook]" = weakref.WeakSet()


def _silence_child() -> None:
    for hook in _hooks:
        hook._silence()  # noqa: SLF001 - its own module


os.register_at_fork(after_in_child=_silence_child)


def attach(spec: RankSpec, *, device_stream: Callable[[], int] | None = None) -> Hook:
    """Start the rank's agent and return the hook that feeds it. Never raises, never waits for the agent.

    Args:
        spec: The rank.
        device_stream: The CUstream handle that the instruction about to run is launched on, asked for at every
            boundary. Without it boundaries are passed when Python is there, which is right only where the trainer
            synchronises after each instruction.
    """
    if os.environ.get("PERSEUS_DISABLE", "0") not in ("", "0"):
        return Hook()
    hook = Hook()
    try:
        doorbell_fd = above_standard(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        hook = Hook(RingWriter(), doorbell_fd, device_stream=device_stream)
        hook._start_agent(spec)  # noqa: SLF001 - its own module
    except Exception as error:
        _log.warning("clocks stay as they are: the agent of rank %s could not be started: %s", spec.rank, error)
        hook.close()
    return hook
