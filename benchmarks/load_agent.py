"""An agent without a trainer, many of which fit into one process: it says what a real one says, over real gRPC."""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import grpc

from perseus_dist.agent.link.planner_route import PlannerRoute
from perseus_dist.agent.link.relayed import owner_of_job
from perseus_dist.messages.finding import Finding
from perseus_dist.messages.from_agent import (
    AgentMessage,
    Attach,
    GpuSample,
    IterationReport,
    KindTime,
    ProfileSamples,
    RunTimes,
    Sample,
    ScheduleText,
    SwitchSeen,
    Telemetry,
)
from perseus_dist.messages.from_planner import Attached, PlannerMessage, PlanTable, ScheduleWanted, Sweep, Switch
from perseus_dist.messages.terms import NO_POINT, Gpu, Rank
from perseus_dist.planning.schedule.schedule import Schedule, format_schedule
from perseus_dist.rpc.codec import decode_planner_message, encode_agent_message
from perseus_dist.rpc.connection import ATTACH, CHANNEL_OPTIONS, authorization

CLOCKS_MHZ = tuple(range(1410, 1110, -15))
ITERATION_S = 0.5
_AT_MAXIMUM = GpuSample(power_w=300.0, clock_mhz=CLOCKS_MHZ[0], requested_mhz=CLOCKS_MHZ[0], temperature_c=60.0)

_TIMED_STEP = 16
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 1.5
_CONNECT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """A job of ``pp_size x dp_size`` ranks."""

    job_id: str
    schedule: Schedule
    dp_size: int

    def ranks(self) -> Iterator[Rank]:
        """All of them; rank = dp_rank * pp_size + pp_rank."""
        digest = self.schedule.digest()
        for dp_rank, pp_rank in itertools.product(range(self.dp_size), range(self.schedule.num_ranks)):
            yield Rank(
                job_id=self.job_id,
                rank=dp_rank * self.schedule.num_ranks + pp_rank,
                pp_rank=pp_rank,
                dp_rank=dp_rank,
                tp_rank=0,
                pp_size=self.schedule.num_ranks,
                dp_size=self.dp_size,
                tp_size=1,
                schedule_digest=digest,
            )


@dataclass(slots=True, kw_only=True)
class LoadAgent:
    """One rank.

    Attributes:
        address: Of the planner; of several replicas, with commas between.
        attached: Set while the planner has accepted its stream.
        attached_at_s: [s] monotonic, of the latest time that it was accepted.
        switches: (switch revision, monotonic time [s]) of every switch that it was told.
        num_telemetry: Telemetry messages that gRPC has taken.
        gpu: What it says of its GPU.
        ratio: Its computations' time over the profile's.
        pipeline_ratio: Its pipeline's time over the usual.
        token: Of its job; empty for this user's.
        host, findings: As it says them of its node.
        wants_timelines: The planner wants times of iterations under a plan.
    """

    job: LoadJob
    rank: Rank
    address: str
    attached: asyncio.Event = field(default_factory=asyncio.Event)
    attached_at_s: float = 0.0
    switches: list[tuple[int, float]] = field(default_factory=list)
    num_telemetry: int = 0
    table_revision: int = 0
    gpu: GpuSample = _AT_MAXIMUM
    ratio: float = 1.0
    pipeline_ratio: float = 1.0
    token: str = ""
    wants_timelines: bool = False
    _switch: Switch | None = None
    _iteration: int = 0
    _sequence: int = 0
    _sample_sequence: int = 0
    _incarnation: int = field(default_factory=lambda: random.getrandbits(64))
    host: str = ""
    findings: tuple[Finding, ...] = ()
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _call: "grpc.aio.StreamStreamCall[bytes, bytes] | None" = None

    async def run(self) -> None:
        """Keep attached, for ever."""
        options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))  # a connection of its own, as a process has
        delay_s, route = _FIRST_DELAY_S, PlannerRoute()
        while True:
            async with grpc.aio.insecure_channel(route.choose(self.address), options=options) as channel:
                try:
                    async with asyncio.timeout(_CONNECT_S):
                        await channel.channel_ready()
                    self._call = channel.stream_stream(ATTACH)(metadata=authorization(self.token))
                    await self._send(self._attach())
                    data: bytes
                    async for data in self._call:
                        delay_s = _FIRST_DELAY_S
                        await self._take(decode_planner_message(data))
                    route.note_end()
                except grpc.aio.AioRpcError as error:
                    if owner := owner_of_job(error):
                        route.note_redirect(owner)
                    else:
                        route.note_end()
                except (asyncio.InvalidStateError, TimeoutError):
                    route.note_end()
                self.attached.clear()
            if route.take_redirect():
                continue
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)

    async def report(self, num_iterations: int) -> None:
        """Train for some iterations, and send one telemetry message of them if the stream is there.

        Training never waits for a stream, so that all ranks of a job are at the same iteration.
        """
        first, self._iteration = self._iteration, self._iteration + num_iterations
        if not self.attached.is_set():
            return
        self._sequence += 1
        message = Telemetry(
            sequence=self._sequence,
            iteration=self._iteration - 1,
            iterations=tuple(self._iteration_report(number) for number in range(first, self._iteration)),
            gpu=self.gpu,
            control="clockd",
        )
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the stream has ended, as ``run`` will see
            await self._send(message)
            self.num_telemetry += 1
            timed = self._iteration - self._iteration % _TIMED_STEP
            if first < timed and (times := self._run_times(timed)):
                await self._send(times)

    def _run_times(self, number: int) -> RunTimes | None:
        """Of an iteration that is said to have been under the plan: what a pipeline without bubbles would do."""
        switch = self._switch
        if not self.wants_timelines or switch is None or switch.point == NO_POINT:
            return None
        order = self.job.schedule.ranks[self.rank.pp_rank]
        run_ns = round(ITERATION_S * 1e9) // (len(order) + self.rank.pp_size)
        begins_ns = tuple(run_ns * (self.rank.pp_rank + at) for at in range(len(order)))
        return RunTimes(
            iteration=number,
            begins_ns=begins_ns,
            ends_ns=tuple(begin_ns + run_ns for begin_ns in begins_ns),
            clocks_mhz=tuple(CLOCKS_MHZ[at % len(CLOCKS_MHZ)] for at in range(len(order))),
            table_revision=switch.table_revision,
            point=switch.point,
        )

    def _iteration_report(self, number: int) -> IterationReport:
        planned = self._switch
        point = NO_POINT if planned is None or number < planned.effective_iteration else planned.point
        clock_mhz = CLOCKS_MHZ[0] - max(0, point)  # the same at the same point, which is all that is compared
        return IterationReport(
            iteration=number,
            time_s=ITERATION_S * self.pipeline_ratio,
            pipeline_time_s=ITERATION_S * self.pipeline_ratio,
            energy_j=150.0,
            table_revision=0 if planned is None or point == NO_POINT else planned.table_revision,
            point=point,
            kind_times=()
            if point == NO_POINT
            else tuple(KindTime(kind=kind, time_ratio=self.ratio, requested_mhz=clock_mhz) for kind in ("F", "B")),
        )

    async def _send(self, message: AgentMessage) -> None:
        async with self._writing:  # gRPC takes one message of a stream at a time
            assert self._call is not None
            await self._call.write(encode_agent_message(message))

    def _attach(self) -> Attach:
        gpu = Gpu(
            uuid=f"GPU-{self.rank.rank}",
            name="load agent",
            driver_version="0",
            clocks_mhz=CLOCKS_MHZ,
            control="clockd",
            energy_period_s=0.02,
        )
        return Attach(
            rank=self.rank,
            gpu=gpu,
            incarnation=self._incarnation,
            iteration=self._iteration - 1,
            table_revision=self.table_revision,
            host=self.host,
            findings=self.findings,
        )

    async def _take(self, message: PlannerMessage) -> None:
        match message:
            case Attached():
                self.attached_at_s = time.monotonic()
                self.attached.set()
                self.wants_timelines = message.wants_timelines
            case ScheduleWanted():
                await self._send(ScheduleText(text=format_schedule(self.job.schedule)))
            case Sweep():
                for step, clock_mhz in enumerate(message.clocks_mhz):
                    await self._send(self._samples(message.sweep_id, step, clock_mhz))
            case PlanTable():
                if message.base_revision == 0:
                    self.table_revision = message.revision
            case Switch():
                self.switches.append((message.switch_revision, time.monotonic()))
                self._switch = message
                seen = SwitchSeen(table_revision=message.table_revision, switch_revision=message.switch_revision)
                await self._send(seen)
            case _:
                pass

    def _samples(self, sweep_id: int, step: int, clock_mhz: int) -> ProfileSamples:
        """Of a GPU of no make: time falls and power rises with the clock; stages differ by some percent."""
        self._sample_sequence += 1
        slower, weight = CLOCKS_MHZ[0] / clock_mhz, 1.0 + 0.02 * self.rank.pp_rank
        power_w = 100.0 + 250.0 * slower**-2.5
        chunks = {instruction.stage // self.rank.pp_size for instruction in self.job.schedule.ranks[self.rank.pp_rank]}
        samples = []
        for chunk, (kind, seconds) in itertools.product(sorted(chunks), (("F", 0.01), ("B", 0.02))):
            time_s = seconds * weight * (0.3 + 0.7 * slower)
            samples.append(
                Sample(
                    chunk=chunk,
                    kind=kind,
                    clock_mhz=clock_mhz,
                    time_s=time_s,
                    energy_j=time_s * power_w,
                    time_std_s=0.0,
                    energy_std_j=0.0,
                    num_runs=50,
                    window_s=2.0,
                )
            )
        return ProfileSamples(
            sequence=self._sample_sequence,
            sweep_id=sweep_id,
            step=step,
            samples=tuple(samples),
            blocking_power_w=80.0,
            switch_latency_s=0.0,
            last=True,
        )
