"""The agent's process: threads and descriptors around the core.

    main thread    epoll: doorbell, the trainer's end, clock control, inbox; owns the core
    setup thread   opens GPU and clock control, which may take seconds, then ends
    meter thread   NVML (meter_thread.py)
    planner link   gRPC (link.py), only where there is a planner

The process ends with its trainer, on SIGTERM, and when it fails; its clock is released in each case, and by the clock
control itself if it is killed. Set ``PERSEUS_LOG=debug`` to read of all messages and actions of every rank.
"""

import logging
import os
import secrets
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from perseus_dist.agent.core.actions import (
    Action,
    KeepReports,
    KeepTimeline,
    LeavePlanner,
    LogDebug,
    LogWarning,
    ReadMeter,
    RequestClock,
    Send,
    WatchEnergy,
)
from perseus_dist.agent.core.core import AgentCore
from perseus_dist.agent.link.find_planner import FindPlanner, find_in_folder, find_named, find_shared
from perseus_dist.agent.link.link import Connected, Disconnected, LinkEvent, PlannerLink, Received, Unreachable
from perseus_dist.agent.process.devices import Devices, open_devices
from perseus_dist.agent.process.inbox import Inbox
from perseus_dist.agent.process.meter_thread import Edges, MeterThread, Reading
from perseus_dist.agent.process.polling import begin_delay_ns, end_delay_ns
from perseus_dist.agent.process.rank_report import RankReport, SeenOfJob
from perseus_dist.agent.process.startup import (
    cache_file,
    parse_target,
    rank_from_spec,
    relay_from_spec,
    saved_profile_from_spec,
    settings_from_spec,
    tls_from_spec,
)
from perseus_dist.agent.process.waiter import SHORTEST_NS, Waiter
from perseus_dist.boundaries.rank_spec import AgentStart, RankSpec
from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.errors import OutputError, PerseusError

if TYPE_CHECKING:
    from perseus_dist.agent.link.embedded_planner import EmbeddedPlanner

_log = logging.getLogger(__name__)

_CONTROL_POLL_NS = 400_000_000  # keeps the lease on the clock alive
_WATCHING_WORK_NS = 200_000_000  # what nothing rings for: a lease asked for again, the embedded planner's end
_SETUP_S = 15.0  # a control that does not answer is given up after 10 s
_FLUSH_S = 2.0
_LAST_WORD_S = 5.0  # for the watched job's last figures; the trainer does not wait for it
_WATCH_NS = 1_000_000_000  # after the last boundary


class Ended:
    """SIGTERM or SIGINT."""


AgentInput = Devices | Reading | Edges | LinkEvent | Ended


class AgentProcess:
    """One rank's agent.

    Args:
        start: What the trainer gave.

    Raises:
        OSError, ValueError: The trainer's shared memory cannot be used.
    """

    def __init__(self, start: AgentStart) -> None:
        self._spec = start.spec
        self._watches_job = start.spec.rank == 0 or start.spec.shows_job
        self._trainer_pid = start.trainer_pid
        self._trainer_fds = {start.trainer_pidfd, start.trainer_image_fd}  # readable once there is no trainer any more
        self._is_replacement = start.is_replacement
        self._setup = threading.Thread(target=self._open_devices, name="setup", daemon=True)
        self._reader = BoundaryReader(start.ring_fd, start.doorbell_fd, from_now=start.is_replacement)
        self._reader.set_watched(False)  # an agent that was killed may have left it otherwise
        self._inbox: Inbox[AgentInput] = Inbox()
        self._waiter = Waiter()
        for descriptor in self._trainer_fds:
            self._waiter.add(descriptor)
        self._waiter.add(self._inbox.fileno())
        self._report = RankReport(start.spec, self._reader, is_continued=start.is_replacement)
        self._devices: Devices | None = None
        self._core: AgentCore | None = None
        self._meter: MeterThread | None = None
        self._link: PlannerLink | None = None
        self._embedded: EmbeddedPlanner | None = None
        self._refusal = ""
        self._num_lost = 0
        self._looked_ns = 0  # how far the device is, last
        self._boundary_ns = -_WATCH_NS  # when the last one was seen
        self._is_watching = False
        self._reason = ""  # to end; empty while there is none

    def run(self) -> None:
        """Until the trainer ends. Never leaves a clock locked."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._setup.start()
        try:
            while not self._reason:
                self._wait()
                self._work()
        finally:
            self._leave()

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """For whatever comes first. Nothing but boundaries is looked for more often than ``_due_ns`` says."""
        now_ns = time.monotonic_ns()
        is_watching = self._core is not None and self._watch(now_ns)
        due_ns = self._due_ns(now_ns, is_watching=is_watching)
        running, awaited, is_change_due = None, None, True
        is_device_ordered = self._reader.device_ordered
        if is_watching and self._core is not None:
            running, awaited = self._core.running(), self._core.awaited()
            is_change_due = self._core.is_change_due(is_device_ordered=is_device_ordered)
        while True:
            timeout_ns = max(due_ns - now_ns, 0)
            if running is not None:
                timeout_ns = min(timeout_ns, end_delay_ns(running, now_ns, is_change_due=is_change_due))
            elif is_watching:
                delay_ns = begin_delay_ns(
                    awaited, now_ns, is_device_ordered=is_device_ordered, is_change_due=is_change_due
                )
                timeout_ns = min(timeout_ns, delay_ns)
            readable = self._waiter.wait(timeout_ns)
            now_ns = time.monotonic_ns()
            if readable or now_ns >= due_ns or not is_watching or self._reader.has_news():
                break
            self._looked_ns = now_ns
        if self._trainer_fds & readable:
            self._reason = "the trainer's process has ended"

    def _due_ns(self, now_ns: int, *, is_watching: bool) -> int:
        due_ns = now_ns + (_WATCHING_WORK_NS if is_watching else _CONTROL_POLL_NS)
        timer_ns = None if self._core is None else self._core.next_timer_ns()
        return due_ns if timer_ns is None else min(due_ns, max(timer_ns, now_ns + SHORTEST_NS))

    def _watch(self, now_ns: int) -> bool:
        """Whether to look for boundaries by ourselves: that spares the trainer the doorbell, and a GPU has none."""
        is_watching = self._reader.pending > 0 or now_ns < self._boundary_ns + _WATCH_NS
        if is_watching == self._is_watching:
            return is_watching
        self._is_watching = is_watching
        self._reader.set_watched(is_watching)
        return True  # what was written before the trainer knew is found at the next look

    def _work(self) -> None:
        """Boundaries first: a clock that is asked for late is worth less."""
        if self._core is not None and self._devices is not None:
            self._handle_boundaries(self._core)
            self._handle_reports(self._core, self._devices)
        for told in self._inbox.take():
            self._handle(told)
        if self._core is not None:
            now_ns = time.monotonic_ns()
            timer_ns = self._core.next_timer_ns()
            if timer_ns is not None and timer_ns <= now_ns:
                self._do(self._core.on_timer(now_ns), now_ns)
            if self._core.is_over:
                self._reason = self._reason or "finished"
        if self._embedded is not None and not self._reason:
            self._embedded.look_after(time.monotonic_ns())
        self._report.write_due()

    def _handle_boundaries(self, core: AgentCore) -> None:
        now_ns = time.monotonic_ns()
        looked_ns, self._looked_ns = self._looked_ns, now_ns
        was_device_ordered = self._reader.device_ordered
        boundaries = self._reader.read(now_ns)
        is_exact = not (was_device_ordered or self._reader.device_ordered)
        lost = self._reader.lost
        if lost > self._num_lost:
            self._do(core.on_lost_boundaries(lost - self._num_lost, now_ns), now_ns)
            self._num_lost = lost
        if boundaries:
            self._boundary_ns = now_ns
            self._report.see(boundaries)
            self._do(core.on_boundaries(boundaries, now_ns, looked_ns=None if is_exact else looked_ns), now_ns)

    def _handle_reports(self, core: AgentCore, devices: Devices) -> None:
        now_ns = time.monotonic_ns()
        for report in devices.control.poll(now_ns):
            self._do(core.on_clock_report(report, now_ns), now_ns)
        if devices.control.refusal != self._refusal:
            self._refusal = devices.control.refusal
            self._do(core.on_control(self._refusal, now_ns), now_ns)

    def _handle(self, told: AgentInput) -> None:
        now_ns = time.monotonic_ns()
        if isinstance(told, Ended):
            self._reason = "asked to end"
        elif isinstance(told, Devices):
            self._begin(told)
        elif isinstance(told, SeenOfJob):
            self._report.record_job(told)
        elif self._core is not None:
            self._do(self._tell_core(self._core, told, now_ns), now_ns)

    @staticmethod
    def _tell_core(core: AgentCore, told: AgentInput, now_ns: int) -> list[Action]:
        match told:
            case Reading(sample, trouble):
                return core.on_meter(sample, now_ns, trouble=trouble)
            case Edges(edges):
                return core.on_energy_edges(edges, now_ns)
            case Connected():
                return core.on_connected(now_ns)
            case Disconnected():
                return core.on_disconnected(now_ns)
            case Received(message):
                return core.on_message(message, now_ns)
        return []

    def _do(self, actions: list[Action], now_ns: int) -> None:
        for action in actions:
            match action:
                case RequestClock(clock_mhz) if self._devices is not None:
                    self._devices.control.request(clock_mhz, now_ns)
                    self._report.request_clock(clock_mhz)
                case Send(message) if self._link is not None:
                    self._link.send(message)
                case ReadMeter() if self._meter is not None:
                    self._meter.read_now()
                case WatchEnergy(is_on) if self._meter is not None:
                    self._meter.watch_energy(is_on)
                case LeavePlanner() if self._link is not None:
                    self._link.leave()
                case KeepReports(reports):
                    self._report.keep(reports)
                case KeepTimeline():
                    self._report.keep_timeline(action, self._refusal)
                case LogDebug(sentence):
                    _log.debug("%s", sentence)
                case LogWarning(sentence):
                    _log.warning("%s", sentence)

    # ---- begin and end ----------------------------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal wants it
        self._inbox.put(Ended())

    def _open_devices(self) -> None:
        self._inbox.put(open_devices(self._spec, own_pids=(self._trainer_pid,)))

    def _begin(self, devices: Devices) -> None:
        self._devices = devices
        gpu = devices.gpu
        self._refusal = devices.control.refusal
        self._report.begin(devices)
        self._core = AgentCore(
            rank=rank_from_spec(self._spec),
            schedule=self._spec.schedule,
            gpu=gpu,
            incarnation=secrets.randbits(63) + 1,
            target=None if self._spec.target is None else parse_target(self._spec.target),
            saved_profile=saved_profile_from_spec(self._spec),
            settings=settings_from_spec(self._spec),
            run_id=self._spec.run_id,
            workload=self._spec.workload,
            findings=devices.findings,
        )
        self._waiter.add(self._reader.doorbell_fileno)
        if devices.control.fileno() >= 0:
            self._waiter.add(devices.control.fileno())
        if devices.meter is not None:
            self._meter = MeterThread(devices.meter, round(gpu.energy_period_s * 1e9), self._inbox.put)
            self._meter.start()
        find = self._find_planner(self._spec, devices)
        if find is not None:
            watched_job = self._spec.job_id if self._watches_job else None
            tls, relay = tls_from_spec(self._spec), relay_from_spec(self._spec)
            self._link = PlannerLink(find, tls, self._inbox.put, watched_job=watched_job, relay=relay)
            self._link.start()

    def _find_planner(self, spec: RankSpec, devices: Devices) -> FindPlanner | None:
        if spec.planner is not None:
            return find_named(spec.planner, spec.token_file)
        if spec.shared_planner is not None:
            return find_shared(spec.shared_planner)
        folder = None if spec.rendezvous is None else Path(spec.rendezvous)
        num_ranks = spec.pp_size * spec.dp_size * spec.tp_size
        if folder is None and num_ranks > 1:
            why = "neither a planner nor a rendezvous folder is named: clocks stay as they are"
            self._report.record_job(Unreachable(why))
            return None
        if spec.rank == 0:
            from perseus_dist.agent.link.embedded_planner import EmbeddedPlanner  # memory that other ranks save

            try:
                self._embedded = EmbeddedPlanner(
                    folder,
                    spec,
                    time.monotonic_ns(),
                    is_continued=self._is_replacement,
                    cache=cache_file(spec, devices),
                )
            except (OSError, OutputError) as error:
                why = f"the job's planner cannot be started: {error}; clocks stay as they are"
                self._report.record_job(Unreachable(why))
                return None
            folder = self._embedded.folder
        return None if folder is None else find_in_folder(folder, spec.job_id)

    def _leave(self) -> None:
        """The clock first. The rest may take its time."""
        now_ns = time.monotonic_ns()
        if self._core is not None and not self._core.is_over:
            with suppress(Exception):  # the last boundaries, and CLOSE among them, may just have been written
                self._handle_boundaries(self._core)
            if not self._core.is_over:
                self._do(self._core.on_trainer_end(self._reason or "the agent has failed", now_ns), now_ns)
        if self._link is not None:
            self._link.leave()
        if self._devices is not None:
            self._devices.control.close()
        elif self._is_replacement:
            self._finish_restore()
        if self._link is not None:
            self._link.join(_LAST_WORD_S if self._watches_job else _FLUSH_S)
        self._report.close(self._inbox.take())
        if self._embedded is not None:
            self._embedded.end()
        elif self._spec.rank == 0 and self._spec.planner is None and self._spec.rendezvous is not None:
            with suppress(OSError):  # made for a planner that never came to be
                Path(self._spec.rendezvous).rmdir()

    def _finish_restore(self) -> None:
        """The trainer ended before the clock control was open, which begins with what a killed agent left locked."""
        self._setup.join(_SETUP_S)
        for told in self._inbox.take():
            if isinstance(told, Devices):
                told.control.close()


def run_agent(text: bytes) -> int:
    """Run an agent by what its trainer wrote on standard input.

    Returns:
        The exit code: 0; or 2, after one line on standard error, where the trainer gave what cannot be used, or where
        files, sockets or devices failed, also in mid-run.
    """
    level = logging.DEBUG if os.environ.get("PERSEUS_LOG") == "debug" else logging.INFO
    logging.basicConfig(level=level, format="perseus agent: %(message)s")
    try:
        start = AgentStart.from_json(text)
        logging.basicConfig(level=level, format=f"perseus rank {start.spec.rank}: %(message)s", force=True)
        AgentProcess(start).run()
    except (PerseusError, OSError, ValueError, TypeError, KeyError) as error:
        _log.error("the agent cannot run, training goes on without: %s", error)
        return 2
    return 0
