"""Stragglers in the life cycle of a job, with invented instants, invented GPUs and real plans."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest

from perseus_dist.messages.from_agent import (
    Attach,
    Drift,
    GpuSample,
    IterationReport,
    KindTime,
    ProfileSamples,
    Sample,
    Telemetry,
)
from perseus_dist.messages.from_planner import PlannerMessage, PlanTable, Switch
from perseus_dist.messages.job_status import JobStatus
from perseus_dist.messages.terms import NO_POINT, Gpu, Rank, Target
from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.runs import BaselineMeasured, JobRegistered, ScheduleReceived
from perseus_dist.planner.job.facts.sweeps import SamplesReceived, SweepBegun, SweepEnded
from perseus_dist.planner.job.guard import Breach
from perseus_dist.planner.lifecycle.enforcement.plan_choice import choose
from perseus_dist.planner.lifecycle.events import (
    Answer,
    Effect,
    JobEvent,
    Log,
    Persist,
    PlanFailed,
    PlanReady,
    RankAttached,
    RankDetached,
    RankMessage,
    Send,
    SendTable,
    StartPlanning,
    StragglerCleared,
    StragglerReported,
    TargetSet,
    Tick,
)
from perseus_dist.planner.lifecycle.lifecycle import Phase, Policy, restore, step
from perseus_dist.planner.lifecycle.plan import start_planning
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row, row_of_fact
from perseus_dist.planner.worker.frontier_build import build_plan
from perseus_dist.planner.worker.measured_profile import profile_of_request
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay
from perseus_dist.planning.frontier.slow_rank import SlowRank, with_slow_ranks
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b
from perseus_dist.rpc.codec import decode_planner_message, encode_planner_message
from perseus_dist.units import uw_from_w

SCHEDULE = one_f_one_b(pp=2, microbatches=4)
CLOCKS_MHZ = tuple(range(1400, 600, -100))
BLOCKING_W = 80.0
KINDS = {"F": 0.04, "B": 0.08}
LIGHT_STAGE = 0.9  # of the heavy one's time
TAIL_S = 0.005  # of an iteration, behind all pipelines: less than the self-check would learn
THERMAL, FREE = 0x20, 0x2
PLANNING_ITERATIONS = 2


def sample(pp_rank: int, kind: str, clock_mhz: int) -> Sample:
    time_s = KINDS[kind] * (LIGHT_STAGE if pp_rank == 0 else 1.0) * (0.2 + 0.8 * CLOCKS_MHZ[0] / clock_mhz)
    power_w = 100 + 250 * (clock_mhz / CLOCKS_MHZ[0]) ** 3
    return Sample(
        chunk=0,
        kind=kind,
        clock_mhz=clock_mhz,
        time_s=time_s,
        energy_j=power_w * time_s,
        time_std_s=0.0,
        energy_std_j=0.0,
        num_runs=9,
        window_s=2.0,
    )


def place(rank: int, dp: int) -> Rank:
    return Rank(
        job_id="job",
        rank=rank,
        pp_rank=rank % 2,
        dp_rank=rank // 2,
        tp_rank=0,
        pp_size=2,
        dp_size=dp,
        tp_size=1,
        schedule_digest=SCHEDULE.digest(),
    )


def stored(dp: int) -> Iterable[Fact]:
    """A job that is profiled, and not planned yet."""
    yield JobRegistered(schedule_digest=SCHEDULE.digest(), pp_size=2, dp_size=dp, tp_size=1, token_sha256="")
    yield ScheduleReceived(text=format_schedule(SCHEDULE))
    yield SweepBegun(
        sweep_id=1,
        series=1,
        first_iteration=0,
        iterations_per_clock=1,
        clocks_mhz=CLOCKS_MHZ,
        ranks=tuple(range(2 * dp)),
        first_only=(),
        is_profile=True,
    )
    for rank in range(2 * dp):
        for index, clock_mhz in enumerate(CLOCKS_MHZ):
            samples = ProfileSamples(
                sequence=index + 1,
                sweep_id=1,
                step=index,
                samples=tuple(sample(rank % 2, kind, clock_mhz) for kind in KINDS),
                blocking_power_w=BLOCKING_W,
                switch_latency_s=0.0,
                last=True,
            )
            yield SamplesReceived(
                rank=rank,
                pp_rank=rank % 2,
                dp_rank=rank // 2,
                tp_rank=0,
                incarnation=rank,
                series=1,
                clock_mhz=clock_mhz,
                samples=samples,
            )
    yield SweepEnded(series=1)
    yield BaselineMeasured(num_iterations=5, time_s=0.593, time_spread_s=0.0, energy_j=1000.0, energy_spread_j=0.0)


@cache
def planned(request: PlanningRequest) -> PlanResult:
    return build_plan(request, encode=encode_planner_message)


@dataclass
class World:
    """A job under its plan: ranks that follow their switches, GPUs that may be slow, and the planner's side of it.

    Attributes:
        cap_mhz: By rank, the clock that its GPU is held to.
        factor: By rank, how many times as long its computations take.
        mute: Ranks whose agents say nothing.
        noise: Relative, of a pipeline's time.
        reason: NVML's for a cap.
        shows_gpus: Whether NVML can be read.
        fails_straggler_plans: Whether the planning worker cannot make them.
        num_deaths: Times that it dies over one first.
    """

    dp: int = 2
    policy: Policy = field(default_factory=lambda: Policy(default_switch_latency_s=0.0))
    cap_mhz: dict[int, int] = field(default_factory=dict)
    factor: dict[int, float] = field(default_factory=dict)
    mute: set[int] = field(default_factory=set)
    noise: float = 0.0005
    reason: int = THERMAL
    shows_gpus: bool = True
    fails_straggler_plans: bool = False
    num_deaths: int = 0

    def __post_init__(self) -> None:
        self.now_s = 100.0
        self.iteration = 0
        self.rng = np.random.default_rng(0)
        self.facts: dict[str, Fact] = {fact.key: fact for fact in stored(self.dp)}
        self.requests: list[PlanningRequest] = []
        self.waiting: list[tuple[int, PlanningRequest]] = []
        self.answers: list[Answer] = []
        self.log: list[str] = []
        self.effects: list[Effect] = []
        self.sequence = 0
        self.tables: dict[int, dict[int, PlanTable]] = {rank: {} for rank in range(2 * self.dp)}
        self.switches: dict[int, list[Switch]] = {rank: [] for rank in range(2 * self.dp)}
        self.times_s: list[float] = []
        self.begin()
        self.iterate(4)
        assert self.status.phase == "enforcing"
        self.problem = self._problem()

    def begin(self) -> None:
        """A planner takes up what is stored, and all ranks come to it."""
        self.job = restore("job", list(self.facts.values()), self.policy)
        self.stream_of: dict[int, int] = {}
        for rank in range(2 * self.dp):
            self.attach(rank)

    def attach(self, rank: int) -> None:
        self.sequence += 1
        stream = self.sequence
        self.stream_of[rank] = stream
        gpu = Gpu(uuid="GPU", name="A100", driver_version="550", clocks_mhz=CLOCKS_MHZ, control="clockd")
        attach = Attach(
            rank=place(rank, self.dp),
            gpu=gpu,
            incarnation=rank,
            iteration=self.iteration,
            table_revision=max((r for r, table in self.tables[rank].items() if not table.base_revision), default=0),
        )
        self.tell(RankAttached(stream=stream, attach=attach))

    @property
    def status(self) -> JobStatus:
        return job_status(self.job)

    @property
    def points(self) -> list[int]:
        return [pipeline.point for pipeline in self.status.pipelines]

    def tell(self, event: JobEvent) -> list[Effect]:
        effects = step(self.job, event, self.now_s)
        assert sum(isinstance(effect, Persist) for effect in effects) <= 1
        self.effects += effects
        rank_of = {stream: rank for rank, stream in self.stream_of.items()}
        for effect in effects:
            match effect:
                case Persist():
                    for prefix in effect.drop:
                        self.facts = {key: fact for key, fact in self.facts.items() if not key.startswith(prefix)}
                    self.facts |= {fact.key: fact_of_row(row_of_fact(fact)) for fact in effect.facts}
                case Send(stream=stream, message=message):
                    self.receive(rank_of[stream], message)
                case SendTable(stream=stream, encoded=encoded):
                    self.receive(rank_of[stream], decode_planner_message(encoded))
                case StartPlanning(request=request):
                    self.requests.append(request)
                    self.waiting.append((self.iteration + PLANNING_ITERATIONS, request))
                case Answer():
                    self.answers.append(effect)
                case Log():
                    self.log.append(effect.sentence)
        return effects

    def receive(self, rank: int, message: PlannerMessage) -> None:
        match message:
            case PlanTable():
                self.tables[rank][message.revision] = message
            case Switch():
                assert message.point == NO_POINT or message.table_revision in self.tables[rank], (
                    "no switch before its table"
                )
                self.switches[rank].append(message)

    def followed(self, rank: int, iteration: int | None = None) -> Switch | None:
        """What a rank follows in an iteration, the present one unless told."""
        at = self.iteration if iteration is None else iteration
        return next((one for one in reversed(self.switches[rank]) if one.effective_iteration <= at), None)

    def iterate(self, num: int = 1) -> None:
        """Iterations of all ranks; each reports once in each, as it ends, and so does its GPU."""
        for _ in range(num):
            times_s = [self.pipeline_time_s(dp_rank) for dp_rank in range(self.dp)]
            self.times_s.append(max(times_s) + TAIL_S)
            self.now_s += self.times_s[-1]
            reports = [self.telemetry(rank, times_s[rank // 2]) for rank in range(2 * self.dp)]
            self.iteration += 1
            for rank, telemetry in enumerate(reports):
                if rank not in self.mute:
                    self.tell(RankMessage(stream=self.stream_of[rank], message=telemetry))
            due, self.waiting = (
                [one for one in self.waiting if (one[0] <= self.iteration) is is_due] for is_due in (True, False)
            )
            for _, request in due:
                self._answer(request)
            self.tell(Tick())

    def until(self, is_so: Callable[[], bool], limit: int = 20) -> int:
        """Iterate until something is so; how many iterations that took."""
        for num in range(limit):
            if is_so():
                return num
            self.iterate()
        raise AssertionError("\n".join(self.log[-20:]))

    def _answer(self, request: PlanningRequest) -> None:
        if request.slow_ranks and self.num_deaths > 0:
            self.num_deaths -= 1
            self.tell(PlanFailed(request_id=request.request_id, reason="the worker died", transient=True))
        elif request.slow_ranks and self.fails_straggler_plans:
            self.tell(PlanFailed(request_id=request.request_id, reason="no memory"))
        else:
            result = planned(replace(request, request_id=0))
            self.tell(PlanReady(result=replace(result, request_id=request.request_id)))

    def _problem(self) -> PlanningProblem:
        request = self.requests[0]
        return make_problem(
            SCHEDULE, profile_of_request(SCHEDULE, request), blocking_uw_of_rank=uw_from_w([80, 80]).tolist()
        )

    def clocks(self, rank: int) -> list[int]:
        switch, num = self.followed(rank), len(SCHEDULE.ranks[rank % 2])
        if switch is None or switch.point == NO_POINT:
            return [CLOCKS_MHZ[0]] * num
        table = self.tables[rank][switch.table_revision]
        if switch.point == table.num_points:
            return [CLOCKS_MHZ[0]] * num
        row = np.frombuffer(table.clocks_mhz, dtype="<u2").reshape(table.num_points, num)[switch.point]
        return [int(clock) for clock in row]

    def _reached(self, rank: int) -> list[int]:
        return [min(clock, self.cap_mhz.get(rank, clock)) for clock in self.clocks(rank)]

    def pipeline_time_s(self, dp_rank: int) -> float:
        if not hasattr(self, "problem"):
            return 0.6
        ranks = (2 * dp_rank, 2 * dp_rank + 1)
        slow = [SlowRank(pp_rank=rank % 2, factor=self.factor[rank]) for rank in ranks if rank in self.factor]
        indices = [CLOCKS_MHZ.index(clock) for rank in ranks for clock in self._reached(rank)]
        played = replay(with_slow_ranks(self.problem, slow), np.array(indices, dtype=np.int32))
        return played.time_ps / 1e12 * (1 + self.rng.normal(0, self.noise))

    def telemetry(self, rank: int, pipeline_time_s: float) -> Telemetry:
        switch, asked, reached = self.followed(rank), self.clocks(rank), self._reached(rank)
        has_plan = switch is not None and switch.point != NO_POINT
        kinds = [instruction.kind for instruction in SCHEDULE.ranks[rank % 2]]
        kind_times = []
        for kind in KINDS:
            took, expected = (
                sum(
                    sample(rank % 2, kind, clock).time_s
                    for one, clock in zip(kinds, clocks, strict=True)
                    if one == kind
                )
                for clocks in (reached, asked)
            )
            ratio = took / expected * self.factor.get(rank, 1.0) * (1 + self.rng.normal(0, 0.002))
            requested = round(np.mean([clock for one, clock in zip(kinds, asked, strict=True) if one == kind]))
            kind_times.append(KindTime(kind=kind, time_ratio=ratio, requested_mhz=requested))
        is_capped = max(asked) > max(reached)
        gpu = GpuSample(
            requested_mhz=max(asked),
            clock_mhz=max(reached),
            event_reasons=self.reason if is_capped else FREE,
            temperature_c=88.0 if is_capped else 60.0,
        )
        self.sequence += 1
        return Telemetry(
            sequence=self.sequence,
            iteration=self.iteration + 1,
            control="clockd",
            gpu=gpu if self.shows_gpus else GpuSample(),
            iterations=(
                IterationReport(
                    iteration=self.iteration,
                    time_s=self.times_s[-1],
                    pipeline_time_s=pipeline_time_s,
                    energy_j=200.0,
                    table_revision=switch.table_revision if switch is not None and has_plan else 0,
                    point=switch.point if switch is not None else NO_POINT,
                    kind_times=tuple(kind_times) if has_plan else (),
                ),
            ),
        )


def own(world: World, dp_rank: int) -> int:
    """Revision of a pipeline's own table that all its ranks follow; 0 for the table of all."""
    revisions = {switch.table_revision for rank in (2 * dp_rank, 2 * dp_rank + 1) if (switch := world.followed(rank))}
    assert len(revisions) == 1
    (revision,) = revisions
    return world.tables[2 * dp_rank][revision].base_revision and revision


def full_point(world: World) -> int:
    """The point that stands for all-maximum clocks."""
    assert world.job.plan is not None
    return world.job.plan.summary.full_point


def slow_ranks(world: World) -> list[int]:
    return [verdict.rank for verdict in world.status.verdicts]


def kinds(world: World) -> list[str]:
    return [event.kind for event in world.status.events]


# ---- detected, answered, over ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dp", [2, 5])
def test_a_throttled_gpu_slows_the_others_gets_its_pipeline_a_plan_and_is_forgotten(dp: int) -> None:
    world = World(dp=dp)
    world.iterate(20)
    assert slow_ranks(world) == []
    usual, usual_s = world.points, world.times_s[-1]
    world.cap_mhz[3] = 1100
    assert world.until(lambda: world.points[0] > usual[0]) <= 4
    (verdict,) = world.status.verdicts
    assert (verdict.rank, verdict.pp_rank, verdict.dp_rank, verdict.cause) == (3, 1, 1, "thermal")
    assert verdict.is_acted_upon
    assert "throttled by heat (1100 MHz of 1400 MHz requested, 88 degrees Celsius)" in verdict.sentence
    assert world.points[1] == full_point(world), "until it has a plan of its own"
    world.until(lambda: own(world, 1) > 0)
    (request,) = [request for request in world.requests if request.slow_ranks]
    assert request.slow_ranks == (SlowRank(pp_rank=1, cap_mhz=1100),)
    assert request.base_revision == world.job.plan.revision  # type: ignore[union-attr]
    world.iterate(20)
    status, slow = world.status, world.status.pipelines[1]
    forced_s = max(world.pipeline_time_s(1) for _ in range(5))
    assert status.t_prime_s == pytest.approx(forced_s, rel=0.01)
    assert world.times_s[-1] <= forced_s * 1.003 + TAIL_S
    assert [pipeline.is_waiting for pipeline in status.pipelines] == [dp_rank != 1 for dp_rank in range(dp)]
    assert all(pipeline.planned_time_s <= status.t_prime_s for pipeline in status.pipelines if pipeline.is_waiting)
    assert slow.table_revision == own(world, 1)
    assert slow.planned_time_s == pytest.approx(forced_s, rel=0.01)
    assert set(world.clocks(3)) == {CLOCKS_MHZ[0]}, "evidence of the cap, and of its end, stays"
    assert min(world.clocks(2)) < CLOCKS_MHZ[0], "the other rank has time to spare"
    assert 0 < status.predicted_saving < 1
    num_switches = status.switch_revision
    world.iterate(30)
    assert world.status.switch_revision == num_switches, "nothing changes, and nothing is switched"
    del world.cap_mhz[3]
    assert world.until(lambda: world.points == usual and own(world, 1) == 0) <= 4
    world.iterate(20)
    assert world.status.verdicts == ()
    assert world.status.t_prime_s == 0
    assert world.points == usual
    assert world.times_s[-1] == pytest.approx(usual_s, rel=0.005)
    assert kinds(world).count("recovered") == 1
    assert world.status.refused_reports == 0


def test_the_way_back_takes_as_long_as_nvml_and_a_message_take() -> None:
    world = World()
    world.iterate(20)
    usual = world.points
    world.cap_mhz[3] = 1000
    world.iterate(15)
    del world.cap_mhz[3]
    over = world.iteration
    world.iterate(6)
    back = next(at for at in range(over, world.iteration) if world.followed(0, at).point == usual[0])  # type: ignore[union-attr]
    assert back - over <= 4, "three readings, one an iteration here, and a message"
    assert {world.followed(rank, back).point for rank in range(4)} == set(usual)  # type: ignore[union-attr]


def test_a_rank_that_is_slower_than_heat_can_make_it_is_planned_for_as_slow() -> None:
    world = World()
    world.iterate(20)
    world.factor[3] = 1.5
    world.cap_mhz[3] = 1300
    world.iterate(30)
    slow = [request.slow_ranks[0] for request in world.requests if request.slow_ranks][-1]
    assert (slow.pp_rank, slow.cap_mhz) == (1, 0)
    assert slow.factor > 1.4
    assert world.status.t_prime_s == pytest.approx(world.pipeline_time_s(1), rel=0.02)


def test_a_deeper_cap_is_planned_for_and_the_plan_in_force_stays_meanwhile() -> None:
    world = World()
    world.iterate(20)
    world.cap_mhz[3] = 1200
    world.iterate(15)
    first, t_prime_s = own(world, 1), world.status.t_prime_s
    assert first
    world.cap_mhz[3] = 900
    seen = []
    for _ in range(15):
        world.iterate()
        seen.append(own(world, 1))
    assert sorted(set(seen)) == [first, seen[-1]]
    assert seen == sorted(seen)
    assert world.status.t_prime_s > 1.1 * t_prime_s
    assert world.status.t_prime_s == pytest.approx(world.pipeline_time_s(1), rel=0.01)
    assert [request.slow_ranks[0].cap_mhz for request in world.requests if request.slow_ranks] == [1200, 900]
    world.cap_mhz[3] = 1200  # better, but not over
    world.iterate(20)
    assert world.status.t_prime_s == pytest.approx(t_prime_s, rel=0.02)
    assert len([request for request in world.requests if request.slow_ranks]) == 3


def test_a_clock_that_is_granted_and_not_reached_is_a_straggler_by_time() -> None:
    world = World(reason=0)
    world.iterate(20)
    usual = world.points
    world.cap_mhz[3] = 1100
    world.until(lambda: world.points[0] > usual[0])
    (verdict,) = world.status.verdicts
    assert (verdict.rank, verdict.cause) == (3, "unknown")
    assert "the cause is not known (1100 MHz of 1400 MHz requested)" in verdict.sentence
    world.until(lambda: own(world, 1) > 0)
    world.iterate(10)
    assert world.times_s[-1] <= world.pipeline_time_s(1) * 1.003 + TAIL_S
    del world.cap_mhz[3]
    world.until(lambda: world.points == usual and own(world, 1) == 0)


def test_what_noise_makes_of_t_prime_is_not_worth_a_switch() -> None:
    world = World(noise=0.005)
    world.iterate(20)
    world.cap_mhz[3] = 1000
    world.iterate(20)
    settled = world.status.switch_revision
    world.iterate(60)
    assert world.status.switch_revision == settled


def test_slow_instructions_without_a_reason_are_detected_by_time() -> None:
    world = World(shows_gpus=False)
    world.iterate(20)
    usual = world.points
    world.factor[2] = 1.3
    assert world.until(lambda: world.points[0] > usual[0]) <= 6
    world.iterate(15)
    (verdict,) = world.status.verdicts
    assert (verdict.rank, verdict.cause) == (2, "slow_compute")
    assert verdict.degree == pytest.approx(1.3, abs=0.02)
    (request,) = [request for request in world.requests if request.slow_ranks]
    assert request.slow_ranks[0].factor == pytest.approx(1.3, abs=0.03)
    assert own(world, 1)
    assert world.status.t_prime_s == pytest.approx(world.pipeline_time_s(1), rel=0.015)
    assert world.times_s[-1] <= world.pipeline_time_s(1) * 1.005 + TAIL_S
    world.factor.clear()
    world.iterate(12)
    assert world.status.verdicts == ()
    assert world.points == usual
    assert own(world, 1) == 0


def test_a_gpu_that_becomes_hot_during_a_sweep_brings_no_dropped_plan_back() -> None:
    world = World()
    world.iterate(30)
    drift = Drift(sequence=1, chunk=0, kind="F", clock_mhz=1000, profile_time_s=0.1, measured_time_s=0.2, num_runs=9)
    for rank in (0, 2):
        world.tell(RankMessage(stream=world.stream_of[rank], message=drift))
    assert world.points == [NO_POINT, NO_POINT]
    world.cap_mhz[3] = 1000
    world.iterate(12)
    assert slow_ranks(world) == [3]
    assert (world.job.phase, world.points) == (Phase.REPROFILING, [NO_POINT, NO_POINT])


@pytest.mark.parametrize("is_same_profile", [True, False])
def test_a_straggler_stays_known_under_a_table_of_the_same_profile(*, is_same_profile: bool) -> None:
    """Planned again for other transfers: its peers wait at other clocks by then, and nothing could find it anew."""
    world = World()
    world.iterate(20)
    world.cap_mhz[2] = 1000
    world.until(lambda: bool(slow_ranks(world)))
    watch, revision = world.job.detection.watch, world.status.table_revision
    assert world.job.plan is not None
    if not is_same_profile:
        world.job.plan = replace(world.job.plan, profile_csv=world.job.plan.profile_csv.replace(b"1400", b"1410"))
        world.job.detection.watch = None
        world.iterate()
        watch = world.job.detection.watch
    world.effects += start_planning(world.job, "other transfers")
    world.requests.append(world.effects[-1].request)  # type: ignore[union-attr]
    world.waiting.append((world.iteration, world.requests[-1]))
    world.iterate(2)
    assert world.status.table_revision > revision
    assert (world.job.detection.watch is watch) is is_same_profile
    if is_same_profile:
        for _ in range(12):
            world.iterate()
            assert slow_ranks(world) == [2]


def test_a_pipeline_waits_no_longer_than_a_straggler_takes_where_a_slow_link_may_make_it_late() -> None:
    points = []
    for factor in (1.0, 1.1):
        world = World()
        assert world.job.plan is not None
        summary = world.job.plan.summary
        slowest_ps = round(factor * summary.baseline_time_ps) if factor > 1 else 0
        world.job.plan = replace(world.job.plan, summary=replace(summary, slowest_case_ps=slowest_ps))
        world.iterate(20)
        world.cap_mhz[3] = 800
        world.iterate(20)
        choice = choose(world.job)
        time_s = summary.time_ps[choice.points[0]] / 1e12
        assert factor * time_s <= world.status.t_prime_s
        points.append(choice.points[0])
    assert 0 < points[1] < points[0]


def test_a_stage_with_time_to_spare_makes_nobody_wait_longer_than_it_costs() -> None:
    world = World()
    world.iterate(20)
    world.cap_mhz[2] = 1200  # the light stage, which has 10 % to spare
    for _ in range(30):
        world.iterate()
        forced_s = max(world.pipeline_time_s(1) for _ in range(5))
        assert world.times_s[-1] <= forced_s * 1.004 + TAIL_S


def test_one_pipeline_gets_a_plan_for_its_slow_rank_and_nobody_waits() -> None:
    world = World(dp=1)
    world.iterate(20)
    world.cap_mhz[1] = 1000
    world.iterate(12)
    assert own(world, 0)
    assert world.status.t_prime_s == 0
    assert not world.status.pipelines[0].is_waiting
    del world.cap_mhz[1]
    world.iterate(6)
    assert own(world, 0) == 0


def test_a_pipelines_own_plan_knows_a_rank_that_is_slow_beside_its_straggler() -> None:
    world = World(dp=1)
    world.iterate(20)
    world.factor |= {0: 1.025, 1: 1.2}  # too little for a verdict
    world.iterate(25)
    assert {verdict.rank for verdict in world.status.verdicts} == {1}
    asked = world.requests[-1]
    assert {slow.pp_rank: slow.factor for slow in asked.slow_ranks} == pytest.approx({0: 1.025, 1: 1.2}, rel=0.003)
    num_requests = len(world.requests)
    world.iterate(12)
    assert len(world.requests) == num_requests
    world.factor[0] = 1.0
    world.iterate(20)
    assert [slow.pp_rank for slow in world.requests[-1].slow_ranks] == [1]


@pytest.mark.parametrize("others", [{2: 1.15}, {3: 1.15}, {2: 1.1, 3: 1.2}])
def test_where_all_pipelines_straggle_none_waits_longer_than_the_slowest_takes(others: dict[int, float]) -> None:
    world = World(dp=2)
    world.iterate(20)
    world.factor |= {1: 1.3}
    world.iterate(12)
    world.factor |= others
    world.iterate(40)
    assert {verdict.dp_rank for verdict in world.status.verdicts} == {0, 1}
    assert world.pipeline_time_s(1) < world.pipeline_time_s(0) * 1.003


def test_a_plan_for_what_is_partly_over_is_not_put_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setitem(globals(), "PLANNING_ITERATIONS", 8)
    world.iterate(20)
    world.factor[3] = 1.5
    world.until(lambda: bool(world.waiting and world.waiting[-1][1].slow_ranks))
    world.factor[3] = 1.1
    world.until(lambda: own(world, 1) > 0)
    table = next(one for one in reversed(world.requests) if one.revision == own(world, 1))
    assert [slow.factor for slow in table.slow_ranks] == pytest.approx([1.1], rel=0.02)


def test_several_stragglers_wait_for_the_slowest_on_plans_of_their_own() -> None:
    world = World(dp=3)
    world.iterate(20)
    world.cap_mhz |= {1: 1200, 5: 900}
    world.iterate(25)
    assert {verdict.rank for verdict in world.status.verdicts} == {1, 5}
    assert own(world, 0)
    assert own(world, 2)
    assert own(world, 0) != own(world, 2)
    forced_s = world.pipeline_time_s(2)
    assert world.status.t_prime_s == pytest.approx(forced_s, rel=0.01)
    for dp_rank in (0, 1):
        assert 0.9 * forced_s < world.pipeline_time_s(dp_rank) < forced_s * 1.003
    del world.cap_mhz[5]
    world.iterate(8)
    assert own(world, 2) == 0
    assert own(world, 0)
    assert world.status.t_prime_s == pytest.approx(world.pipeline_time_s(0), rel=0.01)
    world.cap_mhz[5] = 900  # again: what was planned for it is of use again
    num_requests = len(world.requests)
    world.until(lambda: own(world, 2) > 0)
    assert len(world.requests) == num_requests


def waiting_world() -> World:
    """Pipeline 0 waits for pipeline 1, which follows a plan of its own."""
    world = World()
    world.iterate(20)
    world.cap_mhz[3] = 1100
    world.until(lambda: own(world, 1) > 0)
    world.iterate(6)
    assert world.points[0] > 0
    return world


def test_iterations_that_are_later_than_full_clocks_beside_the_same_stragglers_are_looked_into() -> None:
    """Ranks at their power limit that were asked for less were expected to be faster: 2 % late for good."""
    world = waiting_world()
    guard = world.job.enforcement.guard.guard
    guard.reference_s = world.times_s[-1] / 1.03
    why = "iterations take longer than the stragglers that are waited for made them at full clocks"
    world.iterate(20)
    assert guard._suspicion != why, "the reference is of before the straggler"
    world.job.enforcement.measured_at_s = world.now_s
    world.iterate()
    assert guard._suspicion == why


def test_plans_for_stragglers_that_are_late_give_way_to_full_clocks_for_a_while() -> None:
    world = waiting_world()
    watch, iteration_s = world.job.enforcement.guard, world.times_s[-1]
    verdicts = slow_ranks(world)
    breach = Breach(reference_s=iteration_s, allowed_s=iteration_s, observed_s=1.03 * iteration_s, lost_s=1.0)
    for num_iterations in (64, 128):
        watch.guard.breach = breach
        world.iterate(2)
        assert own(world, 1) == 0
        assert world.points[1] == full_point(world)
        assert world.points[0] > 0, "waiting is not what was late"
        assert slow_ranks(world) == verdicts
        assert any("pipelines with stragglers run at full clocks" in sentence for sentence in world.log)
        assert watch.own_plans_held_until - world.iteration in range(num_iterations - 3, num_iterations + 1)
        world.iterate(num_iterations - 8)
        assert own(world, 1) == 0
        world.until(lambda: own(world, 1) > 0)


def test_where_what_is_waited_for_is_longer_than_full_clocks_waiting_ends() -> None:
    world = waiting_world()
    watch, reference_s = world.job.enforcement.guard, world.times_s[-1] / 1.1
    watch.guard.breach = Breach(
        reference_s=reference_s, allowed_s=reference_s, observed_s=1.1 * reference_s, lost_s=1.0
    )
    world.tell(Tick())
    assert slow_ranks(world) == []
    assert watch.own_plans_held_until == 0


def test_an_agent_that_dies_is_not_waited_for() -> None:
    world = World()
    world.iterate(20)
    usual = world.points
    world.cap_mhz[3] = 1000
    world.iterate(15)
    assert world.points[0] > usual[0]
    world.mute.add(3)
    world.tell(RankDetached(stream=world.stream_of[3]))
    world.until(lambda: world.points == usual, limit=30)
    assert world.status.verdicts == ()
    assert any("has reported nothing for 10 s" in sentence for sentence in world.log)


def test_nothing_is_detected_while_targets_and_reports_change_allclocks() -> None:
    world = World()
    for event in (
        TargetSet(target=Target(slowdown=1.2)),
        TargetSet(target=Target()),
        StragglerReported(straggler_id="a", degree=1.4, dp_rank=0),
        StragglerCleared(straggler_id="a"),
    ):
        world.iterate(25)
        world.tell(event)
    world.iterate(25)
    assert not {"verdict", "recovered"} & set(kinds(world))
    assert world.status.refused_reports == 0


def test_a_slower_target_is_of_what_full_clocks_take_now() -> None:
    """A slow link is over that the plan counts with: full clocks take less than by the profile."""
    world = World()
    world.iterate(20)
    world.job.enforcement.guard.guard.reference_s = 0.9 * world.status.fastest_s
    world.tell(TargetSet(target=Target(slowdown=1.2)))
    planned_s = world.status.pipelines[0].planned_time_s
    assert 1.15 * 0.9 <= planned_s / world.status.fastest_s <= 1.2 * 0.9
    world.job.enforcement.guard.guard.reference_s = 1.1 * world.status.fastest_s
    world.tell(TargetSet(target=Target(slowdown=1.21)))
    assert world.status.pipelines[0].planned_time_s > 1.18 * world.status.fastest_s, "a straggler makes no plan slower"


# ---- reports of operators --------------------------------------------------------------------------------------------


def test_a_report_wins_over_the_detector_until_it_is_cleared() -> None:
    world = World()
    world.iterate(20)
    usual = world.points
    world.cap_mhz[3] = 1000
    world.iterate(15)
    judged = world.status
    world.tell(StragglerReported(straggler_id="me", degree=1.05, dp_rank=1))
    status = world.status
    assert status.t_prime_s == pytest.approx(1.05 * status.fastest_s, rel=0.01)
    assert all(verdict.is_muted for verdict in status.verdicts)
    assert status.pipelines[1].table_revision == status.table_revision, "the target's plan"
    world.iterate(10)
    assert world.status.t_prime_s == status.t_prime_s
    world.tell(StragglerReported(straggler_id="me", degree=1.0, dp_rank=1))
    assert world.points == usual
    assert world.status.t_prime_s == 0
    world.iterate(10)
    assert world.points == usual
    world.tell(StragglerCleared(straggler_id="me"))
    world.iterate(10)
    assert world.status.t_prime_s == pytest.approx(judged.t_prime_s, rel=0.01)
    others = ("switch", "verdict")
    assert [kind for kind in kinds(world) if kind not in others] == ["reported", "reported", "cleared"]


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (StragglerReported(straggler_id="a", degree=1.2, dp_rank=2), "saw dp_rank 2, expected 0 to 1"),
        (StragglerReported(straggler_id="a", degree=0.99, dp_rank=0), "saw degree 0.99, expected 1"),
        (StragglerReported(straggler_id="a", degree=100.5, dp_rank=0), "to 100"),
        (StragglerReported(straggler_id="a", degree=float("nan"), dp_rank=0), "saw degree nan"),
        (StragglerCleared(straggler_id="a"), "saw straggler 'a', expected one that was reported: none"),
    ],
)
def test_a_report_that_cannot_be_is_refused_and_changes_nothing(event: JobEvent, complaint: str) -> None:
    world = World()
    before = world.status
    world.tell(event)
    (answer,) = world.answers
    assert not answer.accepted
    assert complaint in answer.reason
    assert world.status == before


def test_stragglers_can_be_shown_without_anything_being_done() -> None:
    world = World(policy=Policy(default_switch_latency_s=0.0, acts_on_stragglers=False))
    world.iterate(20)
    usual = world.points
    world.cap_mhz[3] = 1000
    world.iterate(15)
    assert [verdict.rank for verdict in world.status.verdicts] == [3]
    assert world.points == usual
    assert not [request for request in world.requests if request.slow_ranks]
    world.tell(StragglerReported(straggler_id="me", degree=1.3, dp_rank=1))
    assert world.points[0] > usual[0]


# ---- bad telemetry ---------------------------------------------------------------------------------------------------


def test_telemetry_that_is_repeated_or_goes_back_changes_nothing_but_a_count() -> None:
    world = World()
    world.iterate(12)
    (_, *told) = [world.telemetry(rank, 0.6) for rank in range(4)]
    old = replace(told[0], sequence=3, gpu=GpuSample(clock_mhz=7), trouble="of old", missed_clocks=99)
    before = world.status
    assert not world.tell(RankMessage(stream=world.stream_of[1], message=old))
    assert not world.tell(RankMessage(stream=world.stream_of[1], message=replace(old, sequence=4)))
    after = world.status
    assert after.refused_reports == 2
    assert replace(after, refused_reports=0, messages=before.messages) == before


HUGE = tuple(KindTime(kind=kind, time_ratio=900.0, requested_mhz=1400) for kind in KINDS)


@pytest.mark.parametrize(
    ("change", "num_refused"),
    [
        (lambda report: replace(report, kind_times=HUGE), 5),
        (lambda report: replace(report, iteration=3), 5),
        (lambda report: replace(report, kind_times=report.kind_times[:1]), 0),  # half of it says nothing
    ],
    ids=["huge", "long ago", "half"],
)
def test_a_report_that_cannot_be_judged_leaves_the_verdicts_as_they_are(
    change: Callable[[IterationReport], IterationReport], num_refused: int
) -> None:
    world = World()
    world.iterate(20)
    for _ in range(5):
        told = world.telemetry(3, 0.6)
        world.tell(
            RankMessage(
                stream=world.stream_of[3], message=replace(told, iterations=tuple(map(change, told.iterations)))
            )
        )
        world.tell(Tick())
    assert world.status.refused_reports == num_refused
    assert len([sentence for sentence in world.log if "is not judged" in sentence]) <= 2, "each reason once a minute"
    world.iterate(10)
    assert slow_ranks(world) == []


def test_ordinary_telemetry_leads_to_nothing() -> None:
    world = World()
    world.iterate(20)
    world.effects.clear()
    for rank in range(4):
        world.tell(RankMessage(stream=world.stream_of[rank], message=world.telemetry(rank, 0.6)))
    assert world.effects == []


# ---- plans of one's own ----------------------------------------------------------------------------------------------


def until_planned(world: World, num: int) -> None:
    """Iterate so often before plans that are asked for are there."""
    world.waiting = [(at + num, request) for at, request in world.waiting]
    world.iterate(num)


@pytest.mark.parametrize("slowdown", [1.0, 1.1])
def test_a_pipeline_is_no_slower_than_at_full_clocks_before_its_own_plan_is_there(slowdown: float) -> None:
    """A stage with time to spare has become the slowest, and the plan of all runs the others too slowly for it."""
    world = World()
    world.tell(TargetSet(target=Target(slowdown=slowdown)))
    world.iterate(20)
    usual = world.points
    world.factor[2] = 1.25
    assert world.until(lambda: slow_ranks(world) == [2], limit=40) < 30
    until_planned(world, 30)
    assert own(world, 1) == 0, "it takes long to plan"
    fastest = replay(with_slow_ranks(world.problem, [SlowRank(pp_rank=0, factor=1.25)]), np.zeros(16, dtype=np.int32))
    allowed_s = max(fastest.time_ps / 1e12, slowdown * world.status.fastest_s - TAIL_S) + TAIL_S
    assert max(world.times_s[-20:]) <= 1.004 * allowed_s
    assert slow_ranks(world) == [2], "its times are evidence still"
    assert all(pipeline.planned_energy_j > 0 for pipeline in world.status.pipelines)
    assert 0 < world.status.predicted_saving < 1
    world.until(lambda: own(world, 1) > 0)
    world.iterate(10)
    assert max(world.times_s[-5:]) <= 1.006 * allowed_s
    del world.factor[2]
    world.until(lambda: world.points == usual and own(world, 1) == 0, limit=40)


def test_a_gpu_that_recovers_before_its_pipelines_plan_is_there_is_seen() -> None:
    world = World()
    world.iterate(20)
    usual = world.points
    world.factor[2] = 1.25
    world.until(lambda: slow_ranks(world) == [2], limit=40)
    world.waiting = [(at + 1000, request) for at, request in world.waiting]
    world.iterate(12)
    del world.factor[2]
    assert world.until(lambda: world.points == usual, limit=40) <= 12
    assert slow_ranks(world) == []


def test_a_restarted_planner_keeps_full_clocks_before_it_knows_again() -> None:
    world = World()
    world.iterate(20)
    world.factor[2] = 1.25
    world.until(lambda: slow_ranks(world) == [2], limit=40)
    world.waiting.clear()
    before = world.points
    world.begin()
    world.iterate(3)
    assert world.points == before
    assert set(world.clocks(2)) == {CLOCKS_MHZ[0]}
    world.until(lambda: own(world, 1) > 0, limit=40)


def test_where_a_budget_leaves_no_power_for_full_clocks_the_targets_plan_stays() -> None:
    world = World()
    world.iterate(20)
    usual = world.points
    world.job.holds_probes = True
    world.factor[2] = 1.25
    world.until(lambda: slow_ranks(world) == [2], limit=40)
    assert world.points[1] == usual[1]


def test_a_pipeline_that_cannot_be_planned_for_stays_at_full_clocks() -> None:
    world = World(fails_straggler_plans=True)
    world.iterate(20)
    usual = world.points
    world.cap_mhz[3] = 1000
    world.iterate(30)
    assert len([request for request in world.requests if request.slow_ranks]) == 1, "not asked again"
    assert "no plan of its own can be made for pipeline 1: no memory" in world.log
    assert own(world, 1) == 0
    assert set(world.clocks(2)) == set(world.clocks(3)) == {CLOCKS_MHZ[0]}
    assert world.points[0] > usual[0]
    assert world.status.phase == "enforcing"


@pytest.mark.parametrize(("num_deaths", "is_made"), [(1, True), (2, True), (3, False)])
def test_a_pipelines_own_plan_is_asked_for_again_where_the_planning_worker_has_died(
    num_deaths: int, *, is_made: bool
) -> None:
    world = World(num_deaths=num_deaths)
    world.iterate(20)
    world.cap_mhz[3] = 1000
    world.iterate(60)
    asked = [request for request in world.requests if request.slow_ranks]
    assert len(asked) == min(num_deaths + 1, 3)
    assert (own(world, 1) > 0) == is_made
    assert world.log.count("planning for pipeline 1 alone is tried again in 10 s: the worker died") == len(asked) - 1
    assert ("no plan of its own can be made for pipeline 1: the worker died" in world.log) != is_made


def test_a_rank_that_comes_back_is_told_its_pipelines_own_table() -> None:
    world = World()
    world.iterate(20)
    world.cap_mhz[3] = 1000
    world.iterate(15)
    revision = own(world, 1)
    for rank in (0, 2):
        world.tell(RankDetached(stream=world.stream_of[rank]))
        world.tables[rank].clear()
        world.attach(rank)
    assert set(world.tables[0]) == {world.status.table_revision}
    assert set(world.tables[2]) == {world.status.table_revision, revision}


def test_only_the_ranks_of_a_pipeline_are_told_its_own_table_and_revisions_never_repeat() -> None:
    world = World()
    world.iterate(20)
    for cap_mhz in (1200, 1000, 800):
        world.cap_mhz[3] = cap_mhz
        world.iterate(15)
    revisions = [request.revision for request in world.requests]
    assert revisions == sorted(set(revisions))
    assert set(world.tables[0]) == set(world.tables[1]) == {revisions[0]}
    assert set(world.tables[2]) == set(world.tables[3]) == set(revisions)
    world.begin()
    assert world.job.revisions.given_table == revisions[-1]


# ---- a planner that is started again ---------------------------------------------------------------------------------


def test_a_restarted_planner_switches_nothing_back_before_it_knows_again() -> None:
    world = World()
    world.iterate(20)
    world.cap_mhz[3] = 1000
    world.iterate(15)
    points, revision, t_prime_s = world.points, own(world, 1), world.status.t_prime_s
    world.begin()
    for _ in range(12):
        world.iterate()
        assert world.points == pytest.approx(points, rel=0.03)
        assert own(world, 1) == revision
        assert world.status.t_prime_s == pytest.approx(t_prime_s, rel=0.01)
    assert [verdict.rank for verdict in world.status.verdicts] == [3]
    assert len([request for request in world.requests if request.slow_ranks]) == 1


def test_a_restarted_planner_comes_back_once_it_knows_that_nobody_straggles() -> None:
    world = World()
    world.iterate(20)
    usual = world.points
    world.cap_mhz[3] = 1000
    world.iterate(15)
    waiting = world.points
    del world.cap_mhz[3]
    world.begin()
    world.iterate(4)
    assert world.points == waiting
    assert world.until(lambda: world.points == usual) <= 8
    assert world.status.pipelines[1].table_revision == world.status.table_revision


@pytest.mark.parametrize("num_waited", [15, 40])
def test_a_restarted_planner_knows_a_straggler_whom_plans_hide(num_waited: int) -> None:
    """Nobody else runs at its clocks while the others wait: silence of a new detector says nothing."""
    world = World()
    world.iterate(20)
    usual = world.points
    world.factor[2] = 1.25
    world.until(lambda: own(world, 1) > 0, limit=60)
    world.iterate(num_waited)
    points, revision = world.points, own(world, 1)
    world.begin()
    for _ in range(40):
        world.iterate()
        assert own(world, 1) == revision
        assert world.points == pytest.approx(points, rel=0.05)
    assert slow_ranks(world) == [2]
    assert len([request for request in world.requests if request.slow_ranks]) == 1, "it is planned for already"
    del world.factor[2]
    assert world.until(lambda: world.points == usual and own(world, 1) == 0, limit=40) <= 12


def test_a_restarted_planner_sees_that_a_straggler_has_recovered_meanwhile() -> None:
    world = World()
    world.iterate(20)
    usual = world.points
    world.factor[2] = 1.25
    world.until(lambda: own(world, 1) > 0, limit=60)
    world.iterate(15)
    del world.factor[2]
    world.begin()
    assert world.until(lambda: world.points == usual and own(world, 1) == 0, limit=40) <= 16
    world.iterate(10)
    assert slow_ranks(world) == []


def test_an_operator_need_not_wait_for_a_restarted_planner_to_know() -> None:
    world = World()
    world.iterate(20)
    usual = world.points
    world.cap_mhz[3] = 1000
    world.iterate(15)
    world.begin()
    world.tell(StragglerReported(straggler_id="me", degree=1.0, dp_rank=1))
    assert world.points == usual


def test_what_a_planner_of_before_stored_can_be_read() -> None:
    world = World()
    switch = world.facts["switch"]
    table = row_of_fact(world.facts["table"])
    row = row_of_fact(switch)
    body = json.loads(row.body)
    for name in ("own_revisions", "t_prime_s"):
        del body[name]
    assert fact_of_row(FactRow(row.key, row.kind, json.dumps(body), row.blob)) == switch
    body = json.loads(table.body)
    for name in ("kind_shares", "tail_ps", "slow_rank_ps"):
        del body["summary"][name]
    old = fact_of_row(FactRow(table.key, table.kind, json.dumps(body), table.blob))
    world.facts["table"] = old
    world.begin()
    world.iterate(20)
    world.cap_mhz[3] = 1000
    world.iterate(15)
    assert [verdict.rank for verdict in world.status.verdicts] == [3]
    assert own(world, 1)
    del body["revision"]
    with pytest.raises(ValueError, match="cannot be read"):
        fact_of_row(FactRow(table.key, table.kind, json.dumps(body), table.blob))
    assert isinstance(switch, SwitchDecided)
    assert switch.revision_of(1) == switch.table_revision
