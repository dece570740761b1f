"""The thread of one lease: it makes the calls that ``ClockSlot`` asks for. One that hangs holds up no other."""

import logging
import threading
import time
from collections.abc import Callable

from perseus_dist.device.lease.clock_slot import Action, Call, ClockSlot, Freed, Outcome, Phase, Request, SlotEvent
from perseus_dist.device.lease.file import LeaseFile, LeaseFileError
from perseus_dist.device.nvml import gpu_guard
from perseus_dist.device.nvml.clock_setter import ClockSetter
from perseus_dist.device.nvml.gpu_guard import Claimant
from perseus_dist.device.nvml.nvml import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    LIBRARY_NOT_FOUND,
    NO_BINDINGS,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    NOTHING_DONE,
    UNINITIALIZED,
    UNUSABLE,
    Gpu,
    NvmlError,
)

_log = logging.getLogger(__name__)

# After one of these there is no point in asking for the next clock.
_FATAL = frozenset(
    {
        UNINITIALIZED,
        NOT_SUPPORTED,
        NO_PERMISSION,
        NOT_FOUND,
        DRIVER_NOT_LOADED,
        LIBRARY_NOT_FOUND,
        NO_BINDINGS,
        FUNCTION_NOT_FOUND,
        GPU_IS_LOST,
    }
)


class LeaseWorker:
    """One lease on one GPU, from claim to ``Freed``; the thread ends with it.

    All methods may be called from any thread and return at once. Events are delivered from the worker's thread.
    """

    def __init__(
        self,
        gpu: Gpu,
        setter: ClockSetter,
        lease_file: LeaseFile,
        *,
        claimant: Claimant | None,
        holder: str,
        bounds_mhz: tuple[int, int],
        deliver: Callable[[SlotEvent], None],
    ) -> None:
        """Begin.

        Args:
            gpu: Used by the worker's thread alone from now on, as are setter and file.
            setter: Who writes.
            lease_file: Not taken yet.
            claimant: Who claims the lease; None to only restore what a dead holder left.
            holder: A word for the lease file.
            bounds_mhz: Lowest and highest clock that the operator allows.
            deliver: Takes the events.
        """
        self._gpu = gpu
        self._setter = setter
        self._lease_file = lease_file
        self._claimant = claimant
        self._holder = holder
        self._bounds_mhz = bounds_mhz
        self._deliver = deliver
        self._slot = ClockSlot()
        self._changed = threading.Condition()
        self._called_ns = 0
        if claimant is None:
            self._slot.restore()
        else:
            self._slot.acquire()
        # A daemon thread: one that hangs in the driver must not keep the process from ending.
        threading.Thread(target=self._run, name=f"lease-{gpu.uuid}", daemon=True).start()

    def request(self, request: Request) -> None:
        """Wish for a clock."""
        with self._changed:
            self._slot.request(request)
            self._changed.notify()

    def drop(self) -> None:
        """End the lease; ``Freed`` follows as soon as the clocks are restored."""
        with self._changed:
            events = self._slot.drop()
            self._changed.notify()
        self._hand_out(events)

    def describe_delay(self, now_ns: int) -> str:
        """The reason why the lease waits, if it waits long."""
        with self._changed:
            action = self._slot.in_flight
            waited_s = (now_ns - self._called_ns) / 1e9
        return f"; its '{action.call}' has not returned for {waited_s:.1f} s" if action and waited_s > 0.5 else ""

    def _run(self) -> None:
        while True:
            with self._changed:
                action = self._next_action()
                if action is None:
                    return
                self._called_ns = time.monotonic_ns()
            outcome = self._perform(action)
            with self._changed:
                events = self._slot.finish(outcome)
            self._hand_out(events)

    def _next_action(self) -> Action | None:
        while self._slot.phase is not Phase.FREE:
            now_ns = time.monotonic_ns()
            action = self._slot.next_action(now_ns)
            if action is not None:
                return action
            wake_ns = self._slot.wake_ns()
            self._changed.wait(None if wake_ns is None else max(0, wake_ns - now_ns) / 1e9)
        return None

    def _hand_out(self, events: list[SlotEvent]) -> None:
        for event in events:
            if isinstance(event, Freed):  # before anybody hears of it and claims the GPU anew
                self._lease_file.give_back()
            self._deliver(event)

    def _perform(self, action: Action) -> Outcome:
        try:
            match action.call:
                case Call.CHECK:
                    return self._check(first=action.first)
                case Call.SET:
                    return self._set(action)
                case Call.RESET:
                    self._lease_file.take(self._holder)
                    self._setter.unlock()
                    self._lease_file.clear()
                    return _done()
                case Call.READ:
                    observed_mhz = self._gpu.sm_clock_mhz()
                    time_ns = time.monotonic_ns()
                    return Outcome(time_ns=time_ns, observed_mhz=observed_mhz, event_reasons=self._read_reasons())
        except NvmlError as error:
            return _failed(
                str(error),
                fatal=error.code in _FATAL,
                nothing_done=error.code in NOTHING_DONE,
                unusable=error.code in UNUSABLE,
            )
        except LeaseFileError as error:
            return _failed(str(error), fatal=True, nothing_done=True)
        except Exception as error:  # the thread must live: it owes a restore
            _log.exception("%s: unexpected failure of '%s'", self._gpu.uuid, action.call)
            return _failed(f"unexpected failure: {error!r}", fatal=False, nothing_done=False)

    def _check(self, *, first: bool) -> Outcome:
        assert self._claimant is not None
        if not first:
            refusal = gpu_guard.find_mig_refusal(self._gpu) or gpu_guard.find_process_refusal(self._gpu, self._claimant)
            return _failed(refusal, fatal=True) if refusal else _done()
        self._setter.prepare()
        clocks_mhz = self._gpu.clocks_mhz()  # also says whether there is such a GPU, before a file is made for it
        try:
            was_touched = self._lease_file.take(self._holder)
        except LeaseFileError as error:
            return _failed(str(error), fatal=False)
        if was_touched:
            self._setter.unlock()
            self._lease_file.clear()
            _log.warning("%s: restored the clocks that a holder that died left locked", self._gpu.uuid)
        if refusal := gpu_guard.find_process_refusal(self._gpu, self._claimant):
            return _failed(refusal, fatal=False)  # perhaps the job before, which is just ending
        refusal = gpu_guard.find_mig_refusal(self._gpu) or gpu_guard.find_lock_refusal(self._gpu)
        low_mhz, high_mhz = self._bounds_mhz
        allowed_mhz = tuple(clock for clock in clocks_mhz if low_mhz <= clock <= high_mhz)
        if not refusal and not allowed_mhz:
            refusal = (
                f"{self._gpu.uuid} supports {clocks_mhz[-1]} to {clocks_mhz[0]} MHz, and the operator allows only "
                f"{low_mhz} to {high_mhz} MHz"
            )
        if refusal:
            return _failed(refusal, fatal=True)
        return Outcome(time_ns=time.monotonic_ns(), clocks_mhz=allowed_mhz)

    def _set(self, action: Action) -> Outcome:
        assert action.clock_mhz is not None
        if action.first:
            if refusal := gpu_guard.find_lock_refusal(self._gpu):
                return _failed(refusal, fatal=True, nothing_done=True)
            self._lease_file.touch()
        try:
            self._setter.lock(action.clock_mhz)
        except NvmlError as error:
            if action.first and error.code in NOTHING_DONE:
                self._lease_file.clear()  # or somebody would lift, later, a lock that is not ours
            raise
        return _done()

    def _read_reasons(self) -> int:
        try:
            return self._gpu.event_reasons()
        except NvmlError:
            return 0


def _done() -> Outcome:
    return Outcome(time_ns=time.monotonic_ns())


def _failed(error: str, *, fatal: bool, nothing_done: bool = False, unusable: bool = False) -> Outcome:
    return Outcome(time_ns=time.monotonic_ns(), error=error, fatal=fatal, nothing_done=nothing_done, unusable=unusable)
