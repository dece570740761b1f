"""The life cycle of a job, told to it event by event with invented times: no process, no clock, no disk."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders import make_rank
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perseus_dist.cli.jobs.job_view import format_troubles, status_document
from perseus_dist.messages.from_agent import (
    Attach,
    Drift,
    Goodbye,
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
from perseus_dist.messages.from_planner import (
    Attached,
    PlannerMessage,
    Probe,
    ProfileAck,
    Refused,
    Release,
    ScheduleWanted,
    StopSweep,
    Sweep,
    Switch,
)
from perseus_dist.messages.terms import NO_POINT, Gpu, Rank, Target
from perseus_dist.planner.job.facts.decisions import SwitchDecided, TargetChosen
from perseus_dist.planner.job.facts.runs import BaselineMeasured
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.measured_transfers import slowest
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.job.stored_facts import check_facts
from perseus_dist.planner.lifecycle.baseline import record_baseline
from perseus_dist.planner.lifecycle.enforcement.switching import decide
from perseus_dist.planner.lifecycle.events import (
    Answer,
    Effect,
    Forget,
    JobEvent,
    Log,
    Persist,
    PlanExpected,
    PlanFailed,
    PlannerEnds,
    PlanReady,
    RankAttached,
    RankDetached,
    RankMessage,
    Refuse,
    Send,
    SendTable,
    StartPlanning,
    StragglerCleared,
    StragglerReported,
    TargetSet,
    Tick,
    without_acknowledgement,
)
from perseus_dist.planner.lifecycle.lifecycle import Phase, Policy, new_job, restore, step
from perseus_dist.planner.lifecycle.plan import planning_request
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.worker.frontier_build import build_plan
from perseus_dist.planner.worker.measured_profile import csv_of_request
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planning.frontier.replay import ends_of
from perseus_dist.planning.frontier.slow_rank import SlowRank
from perseus_dist.planning.schedule.dag import build_dag
from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b
from perseus_dist.rpc.job_status_wire import status_to_wire

if TYPE_CHECKING:
    from perseus_dist.planner.job.facts.fact import Fact

SCHEDULE = one_f_one_b(pp=2, microbatches=2)
WHOLE_MENU = Policy(num_first_clocks=24, max_sweep_rounds=1, shares_sweep=False, num_profile_periods=100)
POLICY = replace(WHOLE_MENU, max_sweep_clocks=6, gone_s=60.0, keep_done_s=100.0)
CLOCKS_MHZ = tuple(range(1400, 700, -100))  # 7: a stride of 2 makes 4 of them
S = 10**12  # picoseconds
DRIFT = Drift(sequence=1, chunk=0, kind="F", clock_mhz=1000, profile_time_s=0.1, measured_time_s=0.2, num_runs=9)


def summary(*, fastest_s: float = 1.0) -> FrontierSummary:
    """Four plans: as fast as all-max, and 10, 20, 40 % slower; the third draws least until its own end."""
    times_s = [fastest_s * share for share in (1.0, 1.1, 1.2, 1.4)]
    return FrontierSummary(
        time_ps=tuple(round(time_s * S) for time_s in times_s),
        total_uj=(800, 700, 650, 660),
        lower_bound_uj=(790, 690, 640, 650),
        baseline_time_ps=round(fastest_s * S),
        baseline_uj=1000,
        total_blocking_uw=100,
    )


def _rank(rank: int) -> Rank:
    return make_rank(rank=rank, pp_rank=rank % 2, dp_rank=rank // 2, pp_size=2, schedule_digest=SCHEDULE.digest())


def _gpu() -> Gpu:
    return Gpu(
        uuid="GPU-0", name="A100", driver_version="550", clocks_mhz=CLOCKS_MHZ, control="clockd", energy_period_s=0.02
    )


class Fleet:
    """All ranks of a job, the planner's side of them, and a store that keeps what was persisted.

    Attributes:
        inbox: By stream, what was sent to it, oldest first.
        facts: By key, in the order of storing, as the database keeps them.
        requests: What the planning worker was asked.
        energy_j: [J] of any computation, by clock.
        reached_mhz: Clocks that GPUs run at when told to; nothing is measured at others.
        seen_mhz, event_reasons, trouble: As telemetry tells them.
        free_s, planned_s: [s] an iteration at full clocks, and under a plan.
        time_ratios: By rank, what its instructions take under a plan over the profile's; empty where nothing is told.
        free_ratios: The same at full clocks.
        run_id: Of the trainers that attach from now on.
    """

    def __init__(self, *, dp: int = 1, policy: Policy = POLICY, clocks_mhz: tuple[int, ...] = CLOCKS_MHZ) -> None:
        self.policy = policy
        self.dp = dp
        self.clocks_mhz = clocks_mhz
        self.job = new_job("job", policy)
        self.now_s = 100.0
        self.stream_of: dict[int, int] = {}
        self.num_streams = 0
        self.inbox: dict[int, list[PlannerMessage | bytes]] = {}
        self.facts: dict[str, Fact] = {}
        self.requests: list[PlanningRequest] = []
        self.answers: list[Answer] = []
        self.log: list[str] = []
        self.forgotten = False
        self.is_disk_full = False
        self.iteration = 0
        self.run_id = "run 1"
        self.sequences: dict[int, int] = {}
        self.reported_steps: set[tuple[int, int, int]] = set()
        self.energy_j: Callable[[int], float] = lambda clock_mhz: clock_mhz / 100  # falls to the lowest clock
        self.reached_mhz = range(10_000)
        self.seen_mhz = self.event_reasons = 0
        self.trouble = ""
        self.free_s, self.planned_s = 1.0, 1.0
        self.time_ratios: dict[int, float] = {}
        self.free_ratios: dict[int, float] = {}

    def tell(self, event: JobEvent) -> list[Effect]:
        """One event; its effects take place."""
        effects = step(self.job, event, self.now_s)
        if self.is_disk_full:
            failed = next((i for i, effect in enumerate(effects) if isinstance(effect, Persist)), len(effects))
            effects = [*effects[:failed], *without_acknowledgement(effects[failed:], "disk full")]
        for effect in effects:
            match effect:
                case Persist():
                    for prefix in effect.drop:
                        self.facts = {key: fact for key, fact in self.facts.items() if not key.startswith(prefix)}
                    for fact in effect.facts:
                        self.facts.pop(fact.key, None)
                        self.facts[fact.key] = fact
                case Send():
                    self.inbox[effect.stream].append(effect.message)
                case SendTable():
                    self.inbox[effect.stream].append(effect.encoded)
                case Refuse():
                    self.inbox[effect.stream].append(effect.refused)
                case StartPlanning():
                    self.requests.append(effect.request)
                case Answer():
                    self.answers.append(effect)
                case Log():
                    self.log.append(effect.sentence)
                case Forget():
                    self.forgotten = True
        if any(isinstance(effect, Persist) for effect in effects):
            check_facts(self.facts.values())  # a planner that restarts now takes the job up
        return effects

    def attach(self, rank: int, /, *, incarnation: int | None = None, **changes: object) -> int:
        """A stream of a rank; ``changes`` are of its ``Attach``. Returns the stream."""
        self.num_streams += 1
        stream = self.num_streams
        gpu = _gpu()
        if not self.clocks_mhz:
            gpu = replace(gpu, clocks_mhz=(), control="observe", refusal="no rights")
        attach = Attach(
            rank=replace(_rank(rank), dp_size=self.dp),
            gpu=gpu,
            incarnation=1000 + rank if incarnation is None else incarnation,
            iteration=self.iteration,
            run_id=self.run_id,
        )
        self.inbox[stream] = []
        self.tell(RankAttached(stream=stream, attach=replace(attach, **changes)))  # type: ignore[arg-type]
        if not isinstance(self.inbox[stream][0], Refused):
            self.stream_of[rank] = stream
        return stream

    def attach_all(self, **changes: object) -> None:
        for rank in range(2 * self.dp):
            self.attach(rank, **changes)  # type: ignore[arg-type]
        for stream in self.stream_of.values():
            if ScheduleWanted() in self.inbox[stream]:
                self.say(stream, ScheduleText(text=format_schedule(SCHEDULE)))

    def detach(self, rank: int) -> None:
        self.tell(RankDetached(stream=self.stream_of.pop(rank)))

    def say(self, stream: int, message: object) -> list[Effect]:
        return self.tell(RankMessage(stream=stream, message=message))  # type: ignore[arg-type]

    def iterate(self, num: int = 1, *, energy_j: float | None = 50.0) -> None:
        """Iterations reported by all attached ranks, who measure what a sweep asks of them."""
        for _ in range(num):
            orders = {rank: self.order(rank) for rank in self.stream_of}
            is_planned = any(point != NO_POINT for _, point in orders.values())
            time_s = self.planned_s if is_planned else self.free_s
            self.now_s += time_s
            for rank, stream in list(self.stream_of.items()):
                revision, point = orders[rank]
                ratios = self.free_ratios if point == NO_POINT else self.time_ratios
                report = IterationReport(
                    iteration=self.iteration,
                    time_s=time_s,
                    pipeline_time_s=0.9 * time_s,
                    energy_j=energy_j,
                    table_revision=revision,
                    point=point,
                    kind_times=tuple(
                        KindTime(kind=kind, time_ratio=ratios.get(rank, 1.0), requested_mhz=1400) for kind in "FB"
                    )
                    if ratios
                    else (),
                )
                telemetry = Telemetry(
                    sequence=self.iteration + 1,
                    iterations=(report,),
                    gpu=GpuSample(clock_mhz=self.seen_mhz, event_reasons=self.event_reasons),
                    control=self._control,
                    trouble=self.trouble,
                )
                self.say(stream, telemetry)
            self.iteration += 1
            for rank in list(self.stream_of):
                self.measure(rank)
            self.tell(Tick())

    def order(self, rank: int) -> tuple[int, int]:
        """(revision, point) of the table that the next iteration runs by; a probe goes before the switch."""
        probes = [message for message in self.sent(rank) if isinstance(message, Probe)]
        is_probed = probes and self.iteration in range(
            probes[-1].first_iteration, probes[-1].first_iteration + probes[-1].num_iterations
        )
        switch = self.switch(rank)
        if is_probed or switch is None or switch.point == NO_POINT:
            return 0, NO_POINT
        return switch.table_revision, switch.point

    @property
    def _control(self) -> str:
        return "clockd" if self.clocks_mhz else "observe"

    def measure(self, rank: int) -> None:
        """Send the samples of every step of the newest sweep that is over."""
        sweep = self.sweep(rank)
        if sweep is None:
            return
        for index, clock_mhz in enumerate(sweep.clocks_mhz):
            over = sweep.first_iteration + (index + 1) * sweep.iterations_per_clock
            if over <= self.iteration and (rank, sweep.sweep_id, index) not in self.reported_steps:
                self.reported_steps.add((rank, sweep.sweep_id, index))
                self.say(self.stream_of[rank], self.samples(rank, sweep.sweep_id, index, clock_mhz))

    def samples(self, rank: int, sweep_id: int, index: int, clock_mhz: int) -> ProfileSamples:
        self.sequences[rank] = self.sequences.get(rank, 0) + 1
        return ProfileSamples(
            sequence=self.sequences[rank],
            sweep_id=sweep_id,
            step=index,
            samples=tuple(
                sample(kind, clock_mhz, self.energy_j(clock_mhz)) for kind in "FB" if clock_mhz in self.reached_mhz
            ),
            blocking_power_w=80.0,
            switch_latency_s=0.01 * (rank + 1),
            last=True,
        )

    def say_times(self, link_ns: int) -> None:
        """Times of an iteration with a link between the stages, from all ranks; rank 1's clock is ahead."""
        f_ns, b_ns, ahead_ns = 10_000_000, 20_000_000, 10**12
        turn_ns = 2 * f_ns + b_ns + 2 * link_ns  # until rank 1 has sent its first backward's gradient
        begins = {
            0: (0, f_ns + link_ns, turn_ns, turn_ns + f_ns + b_ns + link_ns),
            1: tuple(ahead_ns + ns for ns in (f_ns + link_ns, 2 * f_ns + link_ns, turn_ns, turn_ns + f_ns)),
        }
        for rank, stream in self.stream_of.items():
            begins_ns = begins[rank % 2]
            durations_ns = (f_ns, f_ns, b_ns, b_ns) if rank % 2 == 0 else (f_ns, b_ns, f_ns, b_ns)
            ends_ns = tuple(begin + ns for begin, ns in zip(begins_ns, durations_ns, strict=True))
            self.say(stream, RunTimes(iteration=self.iteration, begins_ns=begins_ns, ends_ns=ends_ns))

    def sent(self, rank: int) -> list[PlannerMessage | bytes]:
        return self.inbox[self.stream_of[rank]]

    def sweep(self, rank: int) -> Sweep | None:
        return next((m for m in reversed(self.sent(rank)) if isinstance(m, Sweep)), None)

    def switch(self, rank: int) -> Switch | None:
        return next((m for m in reversed(self.sent(rank)) if isinstance(m, Switch)), None)

    def plan_ready(self, made: FrontierSummary | None = None, *, profile_csv: bytes = b"csv") -> None:
        request = self.requests[-1]
        result = PlanResult(
            request_id=request.request_id,
            revision=request.revision,
            summary=made or summary(),
            tables=(b"table 0", b"table 1"),
            frontier_npz=b"npz",
            profile_csv=profile_csv,
        )
        self.tell(PlanReady(result=result))

    def phase(self) -> Phase:
        return self.job.phase

    def to_profiling(self) -> "Fleet":
        self.attach_all()
        self.iterate(8)
        assert self.job.phase is Phase.PROFILING
        return self

    def to_planning(self) -> "Fleet":
        self.to_profiling()
        for _ in range(100):
            if self.job.phase is Phase.PLANNING:
                return self
            self.iterate()
        raise AssertionError(self.job.reason)

    def to_enforcing(self) -> "Fleet":
        self.to_planning()
        self.plan_ready()
        assert self.job.phase is Phase.ENFORCING
        return self

    def restart(self) -> None:
        """The planner dies, and another one begins with what is stored; its clock is another one."""
        self.job = restore("job", list(self.facts.values()), self.policy)
        self.now_s = 5.0
        self.stream_of.clear()


def sample(kind: str, clock_mhz: int, energy_j: float, *, stage: int = -1) -> Sample:
    return Sample(
        chunk=0,
        kind=kind,
        clock_mhz=clock_mhz,
        time_s=100 / clock_mhz,
        energy_j=energy_j,
        time_std_s=0.0,
        energy_std_j=0.0,
        num_runs=4,
        window_s=2.0,
        stage=stage,
    )


def of_type(messages: Iterable[object], kind: type) -> list[object]:
    return [message for message in messages if isinstance(message, kind)]


# ---- registering -----------------------------------------------------------------------------------------------------


def test_the_first_rank_registers_the_job_and_is_asked_for_the_schedule_once() -> None:
    fleet = Fleet()
    fleet.inbox[0] = []
    attach = Attach(rank=_rank(0), gpu=_gpu(), incarnation=1)
    effects = fleet.tell(RankAttached(stream=0, attach=attach, token_sha256="ab"))
    assert isinstance(effects[0], Persist), "the job is durable before anybody is told that it is there"
    assert fleet.job.spec is not None
    assert fleet.job.spec.token_sha256 == "ab"
    assert fleet.inbox[0] == [Attached(phase="registering", table_revision=0, acked_samples=0), ScheduleWanted()]
    fleet.attach(1)
    assert ScheduleWanted() not in fleet.sent(1)


def test_the_next_rank_is_asked_for_the_schedule_when_the_first_leaves_before_it_answered() -> None:
    fleet = Fleet()
    fleet.attach(0)
    fleet.attach(1)
    fleet.detach(0)
    assert ScheduleWanted() in fleet.sent(1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0F0 0B0\n", "digest"),
        (format_schedule(one_f_one_b(pp=2, microbatches=3)), "digest"),
        ("0F0 nonsense\n", "cannot run"),
    ],
)
def test_a_schedule_that_is_not_the_announced_one_is_refused(text: str, complaint: str) -> None:
    fleet = Fleet()
    stream = fleet.attach(0)
    fleet.say(stream, ScheduleText(text=text))
    refused = fleet.inbox[stream][-1]
    assert isinstance(refused, Refused)
    assert complaint in refused.reason
    assert fleet.job.schedule_text == ""


def test_another_schedule_is_refused_while_ranks_of_the_job_are_attached() -> None:
    fleet = Fleet()
    fleet.attach(0)
    stream = fleet.attach(1, rank=replace(_rank(1), schedule_digest="f" * 64))
    (refused,) = fleet.inbox[stream]
    assert isinstance(refused, Refused)
    assert refused.retry
    assert "f" * 12 in refused.reason
    assert SCHEDULE.digest()[:12] in refused.reason
    fleet.say(stream, Goodbye(reason="not listened to"))
    assert fleet.job.num_attached == 1


def test_a_first_rank_that_contradicts_itself_leaves_no_job_behind() -> None:
    fleet = Fleet()
    stream = fleet.attach(0, rank=replace(_rank(0), pp_rank=7))
    (refused,) = fleet.inbox[stream]
    assert isinstance(refused, Refused)
    assert "pp_rank 7" in refused.reason
    assert not refused.retry  # it would say the same again
    assert fleet.job.spec is None
    assert fleet.forgotten
    assert not fleet.facts


def test_a_duplicate_rank_is_refused_until_the_older_one_is_detached() -> None:
    fleet = Fleet()
    fleet.attach(0)
    duplicate = fleet.attach(0, incarnation=7)
    (refused,) = fleet.inbox[duplicate]
    assert isinstance(refused, Refused)
    assert refused.retry
    fleet.detach(0)
    again = fleet.attach(0, incarnation=7)
    assert isinstance(fleet.inbox[again][0], Attached)


def test_the_same_agent_takes_the_place_of_its_older_stream() -> None:
    fleet = Fleet()
    old = fleet.attach(0)
    new = fleet.attach(0)
    assert isinstance(fleet.inbox[old][-1], Refused)
    fleet.tell(RankDetached(stream=old))  # seen late
    assert fleet.job.num_attached == 1
    assert fleet.job.members.ranks[0].stream == new


def test_two_ranks_in_one_place_are_refused() -> None:
    fleet = Fleet()
    fleet.attach(0)
    stream = fleet.attach(1, rank=replace(_rank(1), pp_rank=0))
    (refused,) = fleet.inbox[stream]
    assert isinstance(refused, Refused)
    assert "place" in refused.reason


def test_a_new_schedule_begins_the_job_anew_when_nobody_runs_the_old_one_and_revisions_go_on() -> None:
    fleet = Fleet().to_enforcing()
    switch, sweep_id = fleet.switch(0), fleet.job.profiling.sweep_id
    assert switch is not None
    for rank in (0, 1):
        fleet.detach(rank)
    fleet.attach(0, incarnation=5, rank=replace(_rank(0), schedule_digest="f" * 64))
    assert fleet.job.plan is None
    assert [key for key in fleet.facts if key.startswith(("table", "switch", "baseline", "schedule"))] == []
    assert [key for key in fleet.facts if key.startswith("samples")], "what instructions take is as true as ever"
    for _ in range(2):
        assert fleet.job.revisions.held_table == switch.table_revision
        assert fleet.job.revisions.held_switch == switch.switch_revision
        assert fleet.job.profiling.sweep_id == sweep_id
        fleet.restart()


def test_a_job_that_begins_anew_in_the_middle_of_a_sweep_is_measured_and_planned_again() -> None:
    other = one_f_one_b(pp=2, microbatches=3)
    fleet = Fleet().to_profiling()
    for rank in (0, 1):
        fleet.say(fleet.stream_of[rank], Goodbye(reason="finished"))
        fleet.detach(rank)
    assert fleet.phase() is Phase.DONE
    for rank in (0, 1):
        stream = fleet.attach(rank, incarnation=5, rank=replace(_rank(rank), schedule_digest=other.digest()))
        if ScheduleWanted() in fleet.inbox[stream]:
            fleet.say(stream, ScheduleText(text=format_schedule(other)))
    fleet.iterate(8)
    assert fleet.phase() is Phase.PROFILING
    fleet.iterate(30)
    assert fleet.phase() is Phase.PLANNING
    assert fleet.requests[-1].schedule_text == format_schedule(other)


def test_a_rank_that_comes_back_with_another_schedule_makes_the_plan_stale_until_it_is_right_again() -> None:
    fleet = Fleet().to_enforcing()
    fleet.detach(1)
    other = fleet.attach(1, incarnation=8, rank=replace(_rank(1), schedule_digest="f" * 64))
    assert isinstance(fleet.inbox[other][-1], Refused)
    assert fleet.phase() is Phase.STALE
    released = fleet.switch(0)
    assert released is not None
    assert released.point == NO_POINT
    fleet.tell(TargetSet(target=Target(slowdown=1.2)))
    assert fleet.switch(0) == released, "nothing is enforced while ranks disagree"
    fleet.attach(1, incarnation=9)
    assert fleet.phase() is Phase.ENFORCING
    enforced = fleet.switch(0)
    assert enforced is not None
    assert (enforced.point, enforced.switch_revision) == (2, released.switch_revision + 1)
    assert fleet.switch(1) == enforced


# ---- warming up, profiling -------------------------------------------------------------------------------------------


def test_the_baseline_is_the_median_of_whole_iterations_after_warm_up() -> None:
    fleet = Fleet(dp=2)
    fleet.attach_all()
    fleet.iterate(3, energy_j=999.0)
    fleet.iterate(4)
    assert fleet.phase() is Phase.WARMING_UP
    fleet.iterate(1)
    status = job_status(fleet.job)
    assert (status.baseline.time_s, status.baseline.energy_j) == (1.0, 200.0)
    assert fleet.phase() is Phase.PROFILING


@pytest.mark.parametrize(
    ("iteration_s", "is_rough"),
    [pytest.param(0.1, True, id="a counter's period is 4 percent of five"), pytest.param(1.0, False, id="0.4 percent")],
)
def test_the_energy_of_a_baseline_is_that_of_more_iterations_where_a_counter_makes_it_rough(
    iteration_s: float, *, is_rough: bool
) -> None:
    """Its five lie together, and may all the same be read early or late by a part of the counter's period."""
    fleet = Fleet(dp=2)
    fleet.attach_all()
    fleet.job.measured.baseline = BaselineMeasured(
        num_iterations=5, time_s=iteration_s, time_spread_s=0.0, energy_j=200.0, energy_spread_j=1.0
    )
    full = FullClocks(time_s=iteration_s, energy_j=206.0, num_iterations=40, weight=1600.0)
    fleet.job.measured.saving.begin(full)
    effects = record_baseline(fleet.job)
    baseline = job_status(fleet.job).baseline
    assert (baseline.num_iterations, baseline.energy_j) == ((40, 206.0) if is_rough else (5, 200.0))
    assert bool(effects) == is_rough


def test_an_iteration_that_a_rank_has_not_reported_does_not_count() -> None:
    fleet = Fleet()
    fleet.attach_all()
    fleet.iterate(7)
    away = fleet.stream_of.pop(1)
    fleet.iterate(3)
    assert fleet.phase() is Phase.WARMING_UP
    fleet.stream_of[1] = away
    fleet.iterate(1)
    assert fleet.phase() is Phase.PROFILING


def test_a_sweep_starts_at_the_maximum_and_thins_the_clocks_out() -> None:
    fleet = Fleet().to_profiling()
    sweep = fleet.sweep(0)
    assert sweep is not None
    assert sweep.clocks_mhz == (1400, 1200, 1000, 800)
    assert sweep.iterations_per_clock == 3  # 100 periods of 20 ms and two changes of clock, in iterations of 1 s
    assert sweep.first_iteration > fleet.iteration - 1
    assert fleet.sweep(1) == sweep


@pytest.mark.parametrize("missed", ["", "F", "FB"])
def test_a_clock_at_which_a_computation_was_missed_is_held_for_two_iterations(missed: str) -> None:
    """It was on its way during the first of them: to hold it for as long again measures as little again."""

    class Disturbed(Fleet):
        def samples(self, rank: int, sweep_id: int, index: int, clock_mhz: int) -> ProfileSamples:
            message = super().samples(rank, sweep_id, index, clock_mhz)
            told = (one for one in message.samples if one.kind not in missed or one.clock_mhz != middle_mhz)
            return replace(message, samples=tuple(told))

    policy = replace(WHOLE_MENU, num_first_clocks=3, max_sweep_rounds=2, num_profile_periods=10, max_saving_doubt=0.0)
    fleet = Disturbed(policy=policy).to_profiling()
    first = fleet.sweep(0)
    assert first is not None
    _, middle_mhz, _ = first.clocks_mhz
    fleet.iterate(4)
    second = fleet.sweep(0)
    assert second is not None
    assert second.sweep_id == first.sweep_id + 1
    assert (middle_mhz in second.clocks_mhz) == bool(missed)
    # What was throttled from its begin to its end, or otherwise disturbed, is as well measured in one.
    assert (first.iterations_per_clock, second.iterations_per_clock) == (1, 2 if missed == "F" else 1)


def test_a_stage_is_swept_over_the_clocks_that_all_its_ranks_have() -> None:
    fleet = Fleet(dp=2)
    others = {2: (1500, 1400, 1000, 900), 1: (1740, 1500, 900), 3: (1740, 1500, 900)}  # by rank; 0 and 2 run stage 0
    for rank in range(4):
        fleet.attach(rank, gpu=replace(_gpu(), clocks_mhz=others.get(rank, (1400, 1200, 1000, 900))))
    fleet.say(fleet.stream_of[0], ScheduleText(text=format_schedule(SCHEDULE)))
    fleet.iterate(8)
    clocks_mhz = []
    for rank in range(4):
        sweep = fleet.sweep(rank)
        assert sweep is not None
        clocks_mhz.append(sweep.clocks_mhz)
    assert [clocks[0] for clocks in clocks_mhz] == [1400, 1740, 1400, 1740], "a stage's highest comes first"
    assert {*clocks_mhz[0], *clocks_mhz[2]} == {1400, 1000, 900}
    assert {*clocks_mhz[1], *clocks_mhz[3]} == {1740, 1500, 900}


def test_samples_are_acknowledged_behind_the_fact_and_again_when_they_come_again() -> None:
    fleet = Fleet().to_profiling()
    samples = fleet.samples(0, 1, 0, 1400)
    stream = fleet.stream_of[0]
    for _ in range(2):
        effects = fleet.say(stream, samples)
        persist = next(i for i, effect in enumerate(effects) if isinstance(effect, Persist))
        ack = effects.index(Send(stream=stream, message=ProfileAck(sequence=samples.sequence)))
        assert persist < ack
    assert len(fleet.job.profiling.samples[1][0]) == 1
    again = fleet.attach(0)
    attached = fleet.inbox[again][0]
    assert isinstance(attached, Attached)
    assert attached.acked_samples == samples.sequence


def test_a_blocking_power_that_is_far_from_the_others_is_left_out() -> None:
    """GPUs that wait draw alike, so that a rank that was disturbed as it waited tells nothing."""

    class Disturbed(Fleet):
        def samples(self, rank: int, sweep_id: int, index: int, clock_mhz: int) -> ProfileSamples:
            told = super().samples(rank, sweep_id, index, clock_mhz)
            return replace(told, blocking_power_w=(84.0, 1578.0)[rank % 2])

    assert Disturbed().to_planning().requests[0].blocking_power_w == (84.0, 84.0)


@pytest.mark.parametrize(("measured_w", "planned_w"), [((84.0, 150.0), (84.0, 150.0)), ((84.0, 0.0), (84.0, 35.0))])
def test_gpus_of_different_models_wait_at_different_powers(
    measured_w: tuple[float, float], planned_w: tuple[float, float]
) -> None:
    """Of a model that has not waited, a share of its own computations' power is nearer than another model's."""

    class Mixed(Fleet):
        def samples(self, rank: int, sweep_id: int, index: int, clock_mhz: int) -> ProfileSamples:
            told = super().samples(rank, sweep_id, index, clock_mhz)
            rows = tuple(replace(row, energy_j=100.0 * row.time_s) for row in told.samples)
            return replace(told, samples=rows, blocking_power_w=measured_w[rank % 2])

        def attach(self, rank: int, /, *, incarnation: int | None = None, **changes: object) -> int:
            changes["gpu"] = replace(_gpu(), name=("A100", "H100")[rank % 2])
            return super().attach(rank, incarnation=incarnation, **changes)

    request = Mixed().to_planning().requests[0]
    assert request.blocking_power_w == pytest.approx(planned_w)


def test_stages_of_a_saved_profile_are_on_the_gpus_that_the_schedule_puts_them_on() -> None:
    """Under DualPipeV the last stage is the first rank's: its powers are none of the last rank's model."""
    schedule = make_schedule("dualpipev", pp=2, microbatches=4)
    text = ScheduleText(text=format_schedule(schedule))

    class Mixed(Fleet):
        def samples(self, rank: int, sweep_id: int, index: int, clock_mhz: int) -> ProfileSamples:
            return replace(super().samples(rank, sweep_id, index, clock_mhz), blocking_power_w=0.0)

        def attach(self, rank: int, /, *, incarnation: int | None = None, **changes: object) -> int:
            changes["gpu"] = replace(_gpu(), name=("A100", "H100")[rank % 2])
            changes["rank"] = replace(_rank(rank), schedule_digest=schedule.digest())
            stream = super().attach(rank, incarnation=incarnation, **changes)
            self.say(stream, text)
            return stream

    fleet = Mixed()
    fleet.attach_all(has_profile=True)
    rows = [sample(kind, clock, 5.0, stage=stage) for stage in range(4) for kind in "FB" for clock in (1400, 1000)]
    saved = tuple(replace(row, energy_j=(100.0 if row.stage in (0, 3) else 150.0) * row.time_s) for row in rows)
    fleet.sequences[0] = 1
    fleet.say(fleet.stream_of[0], ProfileSamples(sequence=1, sweep_id=0, step=0, samples=saved, last=True))
    fleet.iterate(16)
    assert fleet.requests[-1].blocking_power_w == pytest.approx((35.0, 52.5))


def test_planning_starts_when_the_sweep_is_complete() -> None:
    fleet = Fleet().to_planning()
    (request,) = fleet.requests
    assert request.revision == 1
    assert request.schedule_text == format_schedule(SCHEDULE)
    assert [(c.pp_rank, len(c.samples)) for c in request.contributions] == [(0, 8), (1, 8)]
    assert request.blocking_power_w == (80.0, 80.0)
    assert request.switch_latency_s == 0.02  # the upper quartile of 10 ms and 20 ms


def test_planning_tells_the_time_that_is_left_where_it_is_expected() -> None:
    fleet = Fleet().to_planning()
    status = job_status(fleet.job)
    assert (status.progress, status.phase_left_s) == ("planning, 0 s so far", 0.0)
    fleet.tell(PlanExpected(request_id=fleet.requests[-1].request_id + 1, expected_s=5.0))  # of another request
    assert job_status(fleet.job).phase_left_s == 0.0
    fleet.tell(PlanExpected(request_id=fleet.requests[-1].request_id, expected_s=40.0))
    fleet.now_s += 10.0
    fleet.tell(Tick())
    status = job_status(fleet.job)
    assert (status.progress, status.progress_share, status.phase_left_s) == ("planning, 10 s so far", 0.25, 30.0)
    fleet.now_s += 50.0
    fleet.tell(Tick())
    status = job_status(fleet.job)  # longer than expected: nobody knows how long
    assert (status.progress, status.progress_share, status.phase_left_s) == ("planning, 60 s so far", 0.0, 0.0)


def test_the_sweep_stops_when_energy_has_risen_for_three_clocks() -> None:
    fleet = Fleet(policy=replace(POLICY, max_sweep_clocks=24))
    fleet.energy_j = lambda clock_mhz: 10 + abs(clock_mhz - 1300) / 100  # least at the second of seven clocks
    fleet.to_planning()
    stop = next(message for message in fleet.sent(0) if isinstance(message, StopSweep))
    assert fleet.iteration <= stop.first_iteration <= fleet.iteration + 2
    assert {s.clock_mhz for s in fleet.requests[0].contributions[0].samples} == {1400, 1300, 1200, 1100, 1000}


def test_clocks_that_no_gpu_reached_say_nothing_about_energy() -> None:
    fleet = Fleet(policy=replace(POLICY, max_sweep_clocks=24))
    fleet.reached_mhz = range(1200, 1401)  # energy falls as far as it was measured
    fleet.to_planning()
    assert not of_type(fleet.sent(0), StopSweep)
    assert {s.clock_mhz for s in fleet.requests[0].contributions[0].samples} == {1400, 1300, 1200}


def test_a_sweep_that_leaves_no_choice_of_clocks_is_not_planned_with() -> None:
    fleet = Fleet().to_profiling()
    fleet.reached_mhz, fleet.trouble = (range(1400, 1401), "the lock was refused")
    fleet.iterate(20)
    assert fleet.phase() is Phase.OBSERVING
    assert fleet.job.reason == "no rank could set clocks in the sweep: the lock was refused"
    assert (fleet.requests, fleet.job.profiling.sweep_id) == ([], 1)
    assert csv_of_request(planning_request(fleet.job)).count(b",1400,") == 4
    fleet.reached_mhz = range(10_000)
    fleet.detach(1)
    fleet.attach(1, incarnation=2)
    fleet.iterate(30)
    assert fleet.phase() is Phase.PLANNING, "a rank that starts anew is another chance"


def test_ranks_that_lose_their_rights_before_anything_was_chosen_make_the_job_observed() -> None:
    fleet = Fleet().to_profiling()
    fleet.iterate(4)
    fleet.clocks_mhz, fleet.reached_mhz, fleet.trouble = (), range(0), "clockd is gone"
    fleet.iterate(30)
    assert fleet.phase() is Phase.OBSERVING
    assert fleet.job.reason == "no rank can set clocks: clockd is gone"
    fleet.clocks_mhz, fleet.reached_mhz = CLOCKS_MHZ, range(10_000)
    fleet.iterate(30)
    assert fleet.phase() is Phase.PLANNING


def test_whoever_watches_sees_every_iteration_that_all_ranks_have_reported() -> None:
    fleet = Fleet().to_enforcing()
    seen = fleet.job.num_changes
    fleet.iterate(3)
    assert fleet.job.num_changes == seen + 3


def test_constants_have_no_say_in_when_a_sweep_stops() -> None:
    class FleetWithSteps(Fleet):
        def samples(self, rank: int, sweep_id: int, index: int, clock_mhz: int) -> ProfileSamples:
            told = super().samples(rank, sweep_id, index, clock_mhz)
            return replace(told, samples=(*told.samples, sample("STEP", clock_mhz, 1000 - index)))

    fleet = FleetWithSteps(policy=replace(POLICY, num_rises_to_stop=1))
    fleet.energy_j = lambda clock_mhz: abs(clock_mhz - 1200) + 1
    fleet.to_planning()
    assert of_type(fleet.sent(0), StopSweep)


def test_a_sweep_stops_once_nobody_has_been_able_to_set_clocks_for_a_while() -> None:
    fleet = Fleet(policy=replace(POLICY, rights_grace_s=5, num_profile_periods=500)).to_profiling()
    fleet.clocks_mhz, fleet.reached_mhz = (), range(0)
    fleet.iterate(4)
    assert fleet.phase() is Phase.PROFILING
    fleet.iterate(3)
    assert fleet.phase() is Phase.OBSERVING
    assert of_type(fleet.sent(0), StopSweep)


def test_a_new_sweep_that_leaves_no_choice_of_clocks_leaves_the_plan_in_force() -> None:
    fleet = Fleet().to_enforcing()
    fleet.reached_mhz, fleet.trouble = (range(1400, 1401), "the lock was refused")
    for stream in fleet.stream_of.values():
        fleet.say(stream, replace(DRIFT, measured_time_s=0.104))
    fleet.iterate(30)
    assert fleet.job.profiling.sweep_id == 2
    assert fleet.phase() is Phase.ENFORCING
    assert "the plan in force stays" in fleet.job.reason
    assert len(fleet.requests) == 1


@pytest.mark.parametrize("is_planner_restarted", [False, True])
def test_a_rank_that_was_away_when_its_sweep_was_stopped_is_told_when_it_is_back(*, is_planner_restarted: bool) -> None:
    fleet = Fleet(dp=2, policy=replace(POLICY, max_sweep_clocks=24))
    fleet.energy_j = lambda clock_mhz: 10 + abs(clock_mhz - 1300) / 100
    fleet.to_planning()
    fleet.plan_ready()
    if is_planner_restarted:
        fleet.restart()
    else:
        fleet.detach(3)
    fleet.attach(3, table_revision=1)
    (stop,) = of_type(fleet.sent(3), StopSweep)
    assert isinstance(stop, StopSweep)
    assert stop.sweep_id == 1
    assert fleet.iteration <= stop.first_iteration <= fleet.iteration + 2


def test_what_a_rank_missed_is_swept_again_when_it_is_back() -> None:
    fleet = Fleet().to_profiling()
    fleet.iterate(4)  # the first clock is measured
    fleet.detach(1)
    fleet.iterate(20)
    assert fleet.phase() is Phase.PROFILING
    assert "1 to come back" in fleet.job.reason
    fleet.attach(1, incarnation=2)
    fleet.iterate(1)
    second = fleet.sweep(1)
    assert second is not None
    assert (second.sweep_id, second.clocks_mhz) == (2, (1200, 1000, 800))
    assert fleet.sweep(0) != second, "the others have measured all of it"
    fleet.iterate(12)
    assert fleet.phase() is Phase.PLANNING
    assert [len(c.samples) for c in fleet.requests[0].contributions] == [8, 8]


def test_a_paused_sweep_waits_for_the_samples_that_a_rank_had_kept() -> None:
    fleet = Fleet().to_profiling()
    fleet.iterate(4)  # the first clock is measured
    fleet.detach(1)
    fleet.iterate(20)
    fleet.attach(1)
    fleet.tell(Tick())
    assert fleet.job.profiling.sweep_id == 1, "what it had kept may be on its way"
    fleet.say(fleet.stream_of[1], fleet.samples(1, 1, 1, 1200))
    assert fleet.job.profiling.sweep_id == 1
    fleet.iterate(1)
    second = fleet.sweep(1)
    assert second is not None
    assert (second.sweep_id, second.clocks_mhz) == (2, (1000, 800))


def test_a_rank_that_stays_away_is_not_waited_for_when_another_pipeline_measured_the_same() -> None:
    fleet = Fleet(dp=2).to_profiling()
    fleet.detach(3)
    fleet.iterate(20)
    assert fleet.phase() is Phase.PLANNING
    assert sorted(c.pp_rank for c in fleet.requests[0].contributions) == [0, 0, 1]


def test_a_rank_that_never_sends_samples_does_not_keep_the_job_in_a_sweep_for_ever() -> None:
    fleet = Fleet().to_profiling()
    fleet.reported_steps.update((1, sweep_id, index) for sweep_id in range(9) for index in range(9))
    fleet.iterate(100)
    assert fleet.phase() is Phase.PLANNING
    assert fleet.job.profiling.sweep is None
    assert any("sent no samples in 3 sweeps" in line for line in fleet.log)
    fleet.tell(PlanFailed(request_id=fleet.requests[-1].request_id, reason="stage 1 forward not measured"))
    assert fleet.phase() is Phase.OBSERVING
    assert "stage 1 forward" in fleet.job.reason
    fleet.iterate(20)
    assert len(fleet.requests) == 1
    fleet.detach(1)
    fleet.attach(1, incarnation=2)
    fleet.iterate(1)
    assert fleet.phase() is Phase.PROFILING


def test_a_sweep_is_ordered_anew_when_training_starts_again_from_earlier() -> None:
    fleet = Fleet()
    fleet.iteration = 500
    fleet.to_profiling()
    for rank in (0, 1):
        fleet.detach(rank)
    fleet.iteration = 100
    fleet.attach(0, incarnation=1)
    fleet.attach(1, incarnation=2)
    fleet.iterate(1)
    sweep = fleet.sweep(1)
    assert sweep is not None
    assert 100 + POLICY.num_warmup_iterations < sweep.first_iteration < 108
    assert fleet.sweep(0) == sweep
    fleet.iterate(20)
    assert fleet.phase() is Phase.PLANNING
    assert fleet.job.profiling.sweep_id == 2


def test_an_agent_that_has_seen_no_iteration_yet_does_not_set_training_back() -> None:
    fleet = Fleet()
    fleet.iteration = 500
    fleet.to_enforcing()
    switch = fleet.switch(0)
    fleet.detach(1)
    fleet.attach(1, incarnation=2, iteration=-1)
    assert fleet.switch(1) == switch
    assert fleet.job.progress.iteration == fleet.iteration


def test_a_switch_of_an_earlier_run_is_decided_anew_before_the_first_iteration() -> None:
    fleet = Fleet()
    fleet.iteration = 500
    fleet.to_enforcing()
    fleet.restart()
    fleet.iteration = 0
    fleet.attach_all(iteration=-1, table_revision=0)
    switch = fleet.switch(1)
    assert switch is not None
    assert switch.effective_iteration == 0
    assert fleet.switch(0) == switch


def test_a_job_without_rights_is_observed() -> None:
    fleet = Fleet(clocks_mhz=())
    fleet.attach_all()
    fleet.iterate(10)
    assert fleet.phase() is Phase.OBSERVING
    assert "no rights" in fleet.job.reason
    assert fleet.sweep(0) is None


def test_a_job_without_rights_is_measured_once_at_the_clock_that_it_runs_at() -> None:
    fleet = Fleet(clocks_mhz=())
    fleet.seen_mhz = 1410
    fleet.attach_all()
    fleet.iterate(10)
    assert fleet.phase() is Phase.OBSERVING
    sweep = fleet.sweep(0)
    assert sweep is not None
    assert sweep.clocks_mhz == (1410,)
    fleet.restart()
    fleet.attach_all()
    fleet.iterate(20)
    assert fleet.phase() is Phase.OBSERVING
    assert "no rights" in fleet.job.reason
    assert (fleet.job.profiling.sweep, fleet.job.profiling.sweep_id) == (None, 1)
    header, *rows = csv_of_request(planning_request(fleet.job)).decode().splitlines()
    assert header.startswith("stage,instruction,frequency,time,energy")
    assert [row.split(",")[:3] for row in rows] == [
        [stage, name, "1410"] for stage in "01" for name in ("backward", "forward")
    ]
    fleet.restart()
    fleet.clocks_mhz = CLOCKS_MHZ
    fleet.attach_all()
    fleet.iterate(30)
    assert fleet.phase() is Phase.PLANNING, "with rights, the same ranks are profiled"
    assert len(fleet.requests[-1].contributions[0].samples) == 8


def test_an_observed_job_whose_gpus_run_at_another_clock_stays_observed() -> None:
    fleet = Fleet(clocks_mhz=())
    fleet.seen_mhz = 1410
    fleet.reported_steps.update((rank, 1, 0) for rank in (0, 1))
    fleet.attach_all()
    fleet.iterate(40)
    assert (fleet.phase(), fleet.job.profiling.sweep, fleet.job.profiling.sweep_id) == (Phase.OBSERVING, None, 1)
    assert not planning_request(fleet.job).contributions


def test_a_rank_without_rights_measures_at_the_first_clock_alone() -> None:
    fleet = Fleet()
    fleet.attach(0)
    fleet.attach(1, gpu=replace(_gpu(), clocks_mhz=(), control="observe"))
    fleet.say(fleet.stream_of[0], ScheduleText(text=format_schedule(SCHEDULE)))
    fleet.iterate(8)
    first, second = fleet.sweep(0), fleet.sweep(1)
    assert first is not None
    assert second is not None
    assert second == replace(first, clocks_mhz=(1400,))
    fleet.iterate(15)
    assert [len(c.samples) for c in fleet.requests[0].contributions] == [8, 2]


def test_a_rank_that_loses_its_rights_amid_a_sweep_is_not_waited_for() -> None:
    fleet = Fleet(dp=2).to_profiling()
    fleet.iterate(4)
    stream = fleet.stream_of.pop(3)
    fleet.say(stream, Telemetry(sequence=50, control="observe", trouble="no permission any more"))
    fleet.iterate(20)
    assert fleet.phase() is Phase.PLANNING
    assert fleet.job.profiling.sweep_id == 1
    assert any("without rights" in line for line in fleet.log)


def test_a_saved_profile_is_planned_with_after_its_blocking_power_was_measured() -> None:
    fleet = Fleet()
    fleet.attach_all(has_profile=True)
    fleet.iterate(8)
    assert fleet.phase() is Phase.WARMING_UP
    assert "saved profile" in fleet.job.reason
    rows = tuple(sample(kind, clock, 5.0, stage=s) for s in (0, 1) for kind in "FB" for clock in (1400, 1000))
    fleet.sequences[0] = 1
    fleet.say(fleet.stream_of[0], ProfileSamples(sequence=1, sweep_id=0, step=0, samples=rows, last=True))
    fleet.tell(Tick())
    assert fleet.phase() is Phase.PROFILING
    sweep = fleet.sweep(1)
    assert sweep is not None
    assert sweep.clocks_mhz == (1400,)
    fleet.iterate(5)
    (request,) = fleet.requests
    assert [c.samples for c in request.contributions] == [rows]
    assert request.blocking_power_w == (80.0, 80.0)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_blocking_power_is_estimated_while_heat_hides_it_and_measured_after_that(*, is_restarted: bool) -> None:
    """A GPU below the clock that was asked for is not measured; plans were made with 0 W, for good."""

    class Hot(Fleet):
        def samples(self, rank: int, sweep_id: int, index: int, clock_mhz: int) -> ProfileSamples:
            told = super().samples(rank, sweep_id, index, clock_mhz)
            return told if told.samples else replace(told, blocking_power_w=0.0)

    fleet = Hot()
    fleet.reached_mhz, fleet.free_s, fleet.planned_s = range(0), 1.2, 1.2
    fleet.attach_all(has_profile=True)
    rows = tuple(sample(kind, clock, 5.0, stage=s) for s in (0, 1) for kind in "FB" for clock in (1400, 1000))
    fleet.sequences[0] = 1
    fleet.say(fleet.stream_of[0], ProfileSamples(sequence=1, sweep_id=0, step=0, samples=rows, last=True))
    fleet.iterate(16)
    # At 1000 MHz a computation draws 5 J in 0.1 s.
    assert fleet.requests[-1].blocking_power_w == pytest.approx((17.5, 17.5))
    fleet.plan_ready()
    fleet.iterate(20)
    assert fleet.phase() is Phase.ENFORCING
    assert fleet.job.profiling.sweep_id == 1
    fleet.reached_mhz, fleet.free_s, fleet.planned_s = range(10_000), 1.0, 1.0
    if is_restarted:
        fleet.restart()
        fleet.attach_all(has_profile=True)
    for _ in range(60):
        fleet.iterate()
        if fleet.phase() is Phase.PLANNING:
            break
    assert fleet.job.profiling.sweep_id == 2
    assert fleet.requests[-1].blocking_power_w == (80.0, 80.0)
    fleet.plan_ready()
    fleet.iterate(100)
    assert fleet.phase() is Phase.ENFORCING
    assert fleet.job.profiling.sweep_id == 2


def test_a_saved_profile_that_does_not_fit_is_replaced_by_a_sweep() -> None:
    fleet = Fleet()
    fleet.attach_all(has_profile=True)
    rows = (sample("F", 1400, 5.0, stage=0),)
    saved = ProfileSamples(sequence=1, sweep_id=0, step=0, samples=rows, blocking_power_w=70.0, last=True)
    fleet.say(fleet.stream_of[0], saved)
    fleet.sequences[0] = 1
    fleet.iterate(8)
    assert fleet.phase() is Phase.PLANNING
    fleet.tell(PlanFailed(request_id=fleet.requests[0].request_id, reason="stage 1 not measured"))
    assert fleet.phase() is Phase.PROFILING
    assert "the saved profile cannot be planned with (stage 1 not measured): profiling instead" in fleet.log
    assert not [key for key in fleet.facts if key.startswith("samples/0/")]
    sweep = fleet.sweep(0)
    assert sweep is not None
    assert len(sweep.clocks_mhz) == 4


# ---- planning, enforcing ---------------------------------------------------------------------------------------------


def test_the_table_is_durable_before_it_is_sent_and_the_switch_comes_behind_it() -> None:
    fleet = Fleet().to_planning()
    request = fleet.requests[0]
    result = PlanResult(
        request_id=request.request_id,
        revision=request.revision,
        summary=summary(),
        tables=(b"table 0", b"table 1"),
        frontier_npz=b"npz",
        profile_csv=b"csv",
    )
    effects = fleet.tell(PlanReady(result=result))
    kinds = [type(effect) for effect in effects if not isinstance(effect, Log)]
    assert kinds == [Persist, SendTable, SendTable, Send, Send]
    assert {"table", "switch"} <= fleet.facts.keys()
    assert fleet.sent(1)[-2] == b"table 1"
    switch = fleet.switch(1)
    assert switch is not None
    assert (switch.table_revision, switch.point, switch.switch_revision) == (1, 0, 1)
    assert switch.effective_iteration > fleet.iteration


def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    fleet = Fleet().to_planning()
    fleet.tell(PlanFailed(request_id=1, reason="killed", transient=True))
    fleet.iterate(11)
    assert [request.request_id for request in fleet.requests] == [1, 2]
    late = fleet.requests.pop()
    fleet.plan_ready()
    fleet.tell(PlanFailed(request_id=1, reason="killed"))
    assert fleet.phase() is Phase.PLANNING
    fleet.requests.append(late)
    fleet.plan_ready()
    assert fleet.phase() is Phase.ENFORCING


def test_a_worker_that_died_is_asked_again_a_few_times() -> None:
    fleet = Fleet().to_planning()
    for attempt in (1, 2, 3):
        assert len(fleet.requests) == attempt
        fleet.tell(PlanFailed(request_id=fleet.requests[-1].request_id, reason="killed", transient=True))
        fleet.iterate(11)
    assert len(fleet.requests) == 3
    assert fleet.phase() is Phase.OBSERVING


def test_the_slower_target_gets_a_slower_point_and_the_effective_iteration_is_ahead_of_all_ranks() -> None:
    fleet = Fleet().to_enforcing()
    fleet.now_s += 0.9
    fleet.tell(TargetSet(target=Target(slowdown=1.15)))
    assert fleet.answers[-1].accepted
    switch = fleet.switch(0)
    assert switch is not None
    assert (switch.point, switch.switch_revision) == (1, 2)
    # Iteration 20 began 0.9 s ago and lasts 1 s: 21 begins while the switch travels.
    assert switch.effective_iteration == fleet.iteration + 2


def test_a_pause_of_training_does_not_push_the_effective_iteration_away() -> None:
    fleet = Fleet().to_enforcing()
    fleet.now_s += 3600.0
    fleet.tell(TargetSet(target=Target(slowdown=1.15)))
    switch = fleet.switch(0)
    assert switch is not None
    assert switch.effective_iteration <= fleet.iteration + 3


def test_a_slower_targets_plan_that_takes_a_little_too_long_is_replaced_by_a_faster_one() -> None:
    """A profile may be off by a few thousandths at a plan's clocks: less than what breaks the promise."""
    fleet = Fleet().to_planning()
    fleet.tell(TargetSet(target=Target(slowdown=1.2)))
    times_ps = tuple(round(time_s * S) for time_s in (1.0, 1.19, 1.2))
    fleet.plan_ready(replace(summary(), time_ps=times_ps, total_uj=(800, 660, 650), lower_bound_uj=(790, 650, 640)))
    assert fleet.job.switch is not None
    slow = fleet.job.switch.points[0]
    assert slow == 2
    fleet.planned_s = 1.2 * 1.006
    fleet.iterate(11)
    assert fleet.job.switch.points[0] == slow, "too few tell"
    fleet.iterate(5)  # a probe is among them
    assert fleet.job.switch.points[0] == slow - 1
    assert "0.6 % longer than the target allows" in fleet.job.switch.reason
    fleet.planned_s = 1.2
    fleet.iterate(60)
    assert fleet.job.switch.points[0] == slow - 1
    assert fleet.phase() is Phase.ENFORCING


def test_the_fastest_plan_is_taken_where_noise_made_lower_clocks_look_faster() -> None:
    fleet = Fleet().to_planning()
    times_ps = tuple(round(time_s * S) for time_s in (0.99, 1.0, 1.2))
    fleet.plan_ready(replace(summary(), time_ps=times_ps, total_uj=(800, 760, 650), lower_bound_uj=(790, 750, 640)))
    assert fleet.job.switch is not None
    assert fleet.job.switch.points[0] == 1
    fleet.planned_s = 1.006
    fleet.iterate(16)
    assert fleet.job.switch.points[0] == 0
    fleet.planned_s = 1.004
    fleet.iterate(60)
    assert fleet.job.switch.points[0] == 0
    assert fleet.phase() is Phase.ENFORCING


def test_what_a_slightly_slow_rank_makes_late_is_planned_again_with_it() -> None:
    """Two percent make no straggler; a plan that has given away their time to spare is late with them."""
    fleet = Fleet(dp=2).to_enforcing()
    fleet.time_ratios = {3: 1.02}
    fleet.planned_s = 1.003
    fleet.iterate(40)
    assert fleet.phase() is Phase.ENFORCING, "that little is not worth a plan"
    fleet.planned_s = 1.007
    fleet.iterate(40)
    assert fleet.phase() is Phase.PLANNING
    assert fleet.requests[-1].slightly_slow == (SlowRank(pp_rank=1, factor=1.02),)
    fleet.plan_ready()
    num_requests = len(fleet.requests)
    fleet.iterate(60)
    assert len(fleet.requests) == num_requests, "what is known is not planned with again"
    assert fleet.phase() is Phase.ENFORCING


def test_a_deadline_that_no_plan_meets_is_refused_with_what_can_be_met() -> None:
    fleet = Fleet().to_enforcing()
    fleet.tell(TargetSet(target=Target(deadline_s=0.5)))
    assert not fleet.answers[-1].accepted
    assert "1.000000000 s" in fleet.answers[-1].reason
    assert fleet.job.target == Target()


@pytest.mark.parametrize(("time_s", "length"), [(1.0, 5), (0.13, 5), (0.055, 11), (0.001, 50)])
def test_a_baseline_of_short_iterations_is_longer(time_s: float, length: int) -> None:
    """The counter ticks every 20 ms: what is read late at either end must be little beside the window."""
    fleet = Fleet()
    fleet.free_s = time_s
    fleet.attach_all()
    while fleet.job.measured.baseline is None and fleet.iteration < 100:
        fleet.iterate()
    assert fleet.job.measured.baseline is not None
    assert fleet.job.measured.baseline.num_iterations == length


@pytest.mark.parametrize(("num_before", "length"), [(4, 9), (0, 5)])
def test_a_baseline_waits_for_iterations_whose_energy_is_known(num_before: int, length: int) -> None:
    """Where one of five was not metered, the other four were too few for a counter that ticks."""
    fleet = Fleet()
    fleet.attach_all()
    fleet.iterate(3 + num_before)
    fleet.iterate(energy_j=None)
    while fleet.job.measured.baseline is None and fleet.iteration < 100:
        fleet.iterate()
    assert fleet.job.measured.baseline is not None
    assert len(fleet.job.measured.baseline_iterations) == length + 1
    assert fleet.job.measured.baseline.num_iterations == 5


def test_a_baseline_does_not_wait_for_a_counter_that_comes_and_goes() -> None:
    fleet = Fleet()
    fleet.attach_all()
    while fleet.job.measured.baseline is None and fleet.iteration < 100:
        fleet.iterate(energy_j=50.0 if fleet.iteration % 2 else None)
    assert fleet.iteration == 3 + 2 * 5


def test_a_deadline_that_a_job_begins_with_and_no_plan_meets_is_a_trouble_of_the_job() -> None:
    fleet = Fleet().to_enforcing()
    assert job_status(fleet.job).troubles == ()
    assert fleet.job.plan is not None
    fleet.job.chosen_target = TargetChosen(target=Target(deadline_s=0.5), by_operator=False)
    said = "a deadline of 0.5 s cannot be met: the fastest plan takes 1.000000000 s"
    assert job_status(fleet.job).troubles == (said,)
    decide(fleet.job, fleet.now_s, "the plan is new", force=True)
    assert fleet.job.switch is not None
    assert said in fleet.job.switch.reason


def test_all_but_the_straggling_pipeline_slow_down_and_come_back() -> None:
    fleet = Fleet(dp=3).to_enforcing()
    fleet.tell(StragglerReported(straggler_id="a", degree=1.15, dp_rank=1))
    fleet.tell(StragglerReported(straggler_id="b", degree=1.5, dp_rank=1))
    assert [fleet.job.point(dp_rank) for dp_rank in range(3)] == [3, 0, 3]
    assert [fleet.switch(2 * dp_rank).point for dp_rank in range(3)] == [3, 0, 3]  # type: ignore[union-attr]
    fleet.tell(StragglerCleared(straggler_id="b"))
    assert [fleet.job.point(dp_rank) for dp_rank in range(3)] == [1, 0, 1]
    fleet.tell(StragglerCleared(straggler_id="a"))
    assert [fleet.job.point(dp_rank) for dp_rank in range(3)] == [0, 0, 0]
    assert all(answer.accepted for answer in fleet.answers)
    fleet.tell(StragglerCleared(straggler_id="a"))
    fleet.tell(StragglerReported(straggler_id="c", degree=2.0, dp_rank=3))
    assert [answer.accepted for answer in fleet.answers[-2:]] == [False, False]
    assert not [key for key in fleet.facts if key.startswith("straggler/")]


def test_a_target_that_is_slower_than_the_straggler_stands() -> None:
    fleet = Fleet(dp=2).to_enforcing()
    fleet.tell(TargetSet(target=Target(slowdown=1.2)))
    fleet.tell(StragglerReported(straggler_id="a", degree=1.15, dp_rank=0))
    assert [fleet.job.point(dp_rank) for dp_rank in range(2)] == [2, 2]


def test_operators_are_answered_before_there_is_a_job_or_a_plan() -> None:
    fleet = Fleet()
    fleet.tell(TargetSet(target=Target(slowdown=1.2)))
    assert not fleet.answers[-1].accepted
    assert fleet.forgotten
    fleet.attach(0)
    fleet.tell(TargetSet(target=Target(slowdown=1.2)))
    assert fleet.answers[-1].accepted
    assert fleet.job.target == Target(slowdown=1.2)


def test_the_job_says_what_it_wants_and_an_operator_overrules() -> None:
    fleet = Fleet()
    fleet.attach(0, target=Target(slowdown=1.1))
    fleet.attach(1, target=Target(slowdown=1.3))
    assert fleet.job.target == Target(slowdown=1.1)
    fleet.tell(TargetSet(target=Target(slowdown=1.4)))
    for rank in (0, 1):
        fleet.detach(rank)
    fleet.attach(0, incarnation=3, target=Target(slowdown=1.2))
    assert fleet.job.target == Target(slowdown=1.4)


def test_a_late_rank_gets_the_table_it_lacks_and_the_switch() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(3)
    for held, expected in ((0, [b"table 1"]), (1, [])):
        fleet.detach(1)
        fleet.attach(1, table_revision=held)
        attached, *rest = fleet.sent(1)
        assert isinstance(attached, Attached)
        assert attached.phase == "enforcing"
        assert rest == [*expected, fleet.switch(0), StopSweep(sweep_id=1, first_iteration=fleet.iteration + 1)]


def test_an_earlier_iteration_after_a_restart_of_training_makes_a_new_effective_iteration() -> None:
    fleet = Fleet()
    fleet.iteration = 500
    fleet.to_enforcing()
    for rank in (0, 1):
        fleet.detach(rank)
    fleet.iteration = 10
    fleet.attach(0, incarnation=1)
    fleet.attach(1, incarnation=2)
    switch = fleet.switch(1)
    assert switch is not None
    assert switch.effective_iteration < 15
    assert fleet.switch(0) == switch, "decided once for all"


def test_a_rank_that_was_slow_before_training_went_back_was_slow_until_then() -> None:
    fleet = Fleet()
    fleet.iteration = 500
    fleet.to_enforcing()
    fleet.job.measured.slow_at = fleet.job.progress.iteration
    for rank in (0, 1):
        fleet.detach(rank)
    fleet.iteration = 10
    fleet.attach(0, incarnation=1)
    assert fleet.job.measured.slow_at == 10


def test_figures_under_the_plan_are_of_iterations_that_all_ranks_ran_under_it() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(5, energy_j=40.0)
    status = job_status(fleet.job)
    assert (status.enforced.time_s, status.enforced.energy_j) == (1.0, 80.0)
    assert status.predicted_saving == pytest.approx(0.2)
    assert status.phase == "enforcing"
    assert (status.fastest_s, status.t_star_s, status.profiled_clocks) == (1.0, 1.2, 4)
    assert [(p.point, p.planned_time_s, p.attached_ranks) for p in status.pipelines] == [(0, 1.0, 2)]


def test_a_restarted_planner_counts_its_sweeps_on() -> None:
    fleet = Fleet().to_enforcing()
    fleet.restart()
    fleet.attach_all(table_revision=1)
    fleet.say(fleet.stream_of[0], DRIFT)
    fleet.iterate(7)
    sweep = fleet.sweep(0)
    assert sweep is not None
    assert sweep.sweep_id == 2


def test_drift_sweeps_the_ranks_concerned_again_and_a_new_table_follows() -> None:
    fleet = Fleet(dp=2).to_enforcing()
    drift = replace(DRIFT, measured_time_s=0.104)  # not so far that the plan is dropped
    fleet.say(fleet.stream_of[3], drift)
    fleet.iterate(7)
    assert fleet.phase() is Phase.ENFORCING, "its replica has not left the profile: one of them is slow, or fast"
    fleet.say(fleet.stream_of[1], drift)
    fleet.iterate(1)
    assert fleet.phase() is Phase.REPROFILING
    assert [fleet.sweep(rank).sweep_id for rank in range(4)] == [1, 2, 1, 2]  # type: ignore[union-attr]
    fleet.energy_j = lambda _clock_mhz: 7.0
    fleet.iterate(20)
    assert fleet.phase() is Phase.PLANNING
    energies_j = {(c.pp_rank, s.energy_j) for c in fleet.requests[-1].contributions for s in c.samples}
    assert {energy_j for pp_rank, energy_j in energies_j if pp_rank == 1} == {7.0}
    assert {energy_j for pp_rank, energy_j in energies_j if pp_rank == 0} == {8.0, 10.0, 12.0, 14.0}
    fleet.plan_ready(summary(fastest_s=1.1))
    switch = fleet.switch(0)
    assert switch is not None
    assert (switch.table_revision, switch.switch_revision) == (2, 2)
    assert not [key for key in fleet.facts if key.startswith(("samples/1/1/", "samples/1/3/"))]
    fleet.say(fleet.stream_of[3], drift)
    fleet.iterate(20)
    assert fleet.phase() is Phase.ENFORCING, "not again so soon"


def test_a_profile_of_a_sweep_that_gpus_were_slow_in_is_measured_again_twice_at_most() -> None:
    """The plan is on time, and nothing else tells that it could save more."""
    header = b"stage,instruction,frequency,time,energy,samples\n"
    even = b"".join(b"0,forward,%d,%f,1,100\n" % (clock, 140 / clock) for clock in range(1400, 1000, -100))
    sends = b"0,send_f,,0.001,0,1\n0,send_b,0,0.001,0,1\n"
    fleet = Fleet(dp=2).to_planning()
    for num_sweeps in (1, 2, 3):
        fleet.plan_ready(profile_csv=header + even + b"0,forward,900,0.2,1,100\n" + sends)
        fleet.iterate(2)
        assert fleet.sweep(0).sweep_id == min(num_sweeps + 1, 3)  # type: ignore[union-attr]
        if num_sweeps == 3:
            break
        assert fleet.phase() is Phase.REPROFILING
        assert "stage 0 at 900 MHz take" in fleet.job.reason
        fleet.iterate(20)
        assert fleet.phase() is Phase.PLANNING
    assert fleet.phase() is Phase.ENFORCING, "GPUs come and go"
    even_fleet = Fleet(dp=2).to_planning()
    even_fleet.plan_ready(profile_csv=header + even + sends)
    even_fleet.iterate(10)
    assert even_fleet.phase() is Phase.ENFORCING


def swept_after_probe(fleet: Fleet) -> str:
    """Iterations that meet a probe; why a sweep follows, and a new plan; empty where none does."""
    why = ""
    for _ in range(60):
        fleet.iterate()
        if fleet.phase() is Phase.REPROFILING:
            why = fleet.job.reason
        elif fleet.phase() is Phase.PLANNING:
            fleet.plan_ready()
            break
    assert fleet.phase() is Phase.ENFORCING
    return why


def test_a_stage_that_takes_less_in_probes_than_by_the_profile_is_measured_again_twice_at_most() -> None:
    """It has time to spare, so that the plan is on time: a power cap is over that stood as it was swept."""
    fleet = Fleet(dp=2).to_enforcing()
    fleet.free_ratios = {0: 0.9, 2: 0.95}  # both replicas of pp_rank 0
    why = "computations of pp_rank 0 take up to 10.0 % less at full clocks than by the profile: sweeping it again"
    assert [swept_after_probe(fleet) for _ in range(3)] == [why, why, ""]
    ordered = fleet.job.profiling.sweeps[fleet.job.profiling.sweep_id]
    assert {*ordered.ranks, *ordered.first_only} == {0, 2}


def test_a_stage_that_becomes_slow_for_long_is_measured_again_once() -> None:
    """There is no peer that could tell that it straggles."""
    fleet = Fleet().to_enforcing()
    fleet.free_ratios = {0: 1.04}
    assert "pp_rank 0 take up to 4.0 % more at full clocks than by the profile" in swept_after_probe(fleet)
    assert swept_after_probe(fleet) == ""


@pytest.mark.parametrize(
    "ratios", [{0: 0.9}, {0: 0.9, 2: 0.985}, {0: 0.99, 2: 0.99}, {0: 0.9, 3: 0.9}], ids=["one", "hardly", "less", "two"]
)
def test_a_replica_that_takes_less_than_by_the_profile_is_no_reason_to_sweep(ratios: dict[int, float]) -> None:
    fleet = Fleet(dp=2).to_enforcing()
    fleet.free_ratios = ratios
    assert swept_after_probe(fleet) == ""


def test_a_stage_that_heat_keeps_from_the_highest_clock_is_measured_at_the_highest_that_it_reaches() -> None:
    """Plans knew the clocks of the first round alone, of which the highest below the cap was 2 % slower."""
    fleet = Fleet(dp=2, policy=replace(_adaptive(2), num_first_clocks=3))
    fleet.reached_mhz, fleet.seen_mhz, fleet.event_reasons = range(1310), 1305, 0x20
    fleet.to_planning()
    measured = [{s.clock_mhz for s in c.samples} for c in fleet.requests[0].contributions]
    assert [max(clocks) for clocks in measured] == [1300] * 4
    ordered_mhz = [sweep.clocks_mhz for sweep in fleet.job.profiling.sweeps.values()]
    assert ordered_mhz[:3] == [(1400, 1100, 800), (1400, 1300), (1400,)]


def test_heat_that_ends_within_a_sweep_leaves_the_highest_clock_measured() -> None:
    """The profile knew nothing above what heat had left, and another sweep began beside its plan."""
    fleet = Fleet(dp=2, policy=replace(_adaptive(2), num_first_clocks=3))
    fleet.reached_mhz, fleet.seen_mhz, fleet.event_reasons = range(1310), 1305, 0x20
    fleet.to_profiling()
    for _ in range(50):
        if len(fleet.job.profiling.sweeps) == 3:
            fleet.reached_mhz, fleet.seen_mhz, fleet.event_reasons = range(10_000), 1400, 0
        if fleet.requests:
            break
        fleet.iterate()
    measured = [{s.clock_mhz for s in c.samples} for c in fleet.requests[0].contributions]
    assert [max(clocks) for clocks in measured] == [1400] * 4


def test_what_a_sweep_measured_can_be_planned_with() -> None:
    fleet = Fleet().to_planning()
    fleet.tell(PlanReady(result=build_plan(fleet.requests[0], encode=lambda _message: b"table")))
    status = job_status(fleet.job)
    assert status.phase == "enforcing"
    assert status.pipelines[0].planned_time_s <= status.t_star_s
    assert 0 < status.predicted_saving < 1


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_a_job_is_done_when_all_have_said_goodbye_and_forgotten_later() -> None:
    fleet = Fleet().to_enforcing()
    for rank in (0, 1):
        fleet.say(fleet.stream_of[rank], Goodbye(reason="finished"))
        fleet.detach(rank)
    assert fleet.phase() is Phase.DONE
    fleet.now_s += 99
    fleet.tell(Tick())
    assert not fleet.forgotten
    fleet.now_s += 2
    fleet.tell(Tick())
    assert fleet.forgotten


def test_a_job_that_was_only_observed_says_why_at_its_end() -> None:
    fleet = Fleet(clocks_mhz=())
    fleet.attach_all()
    fleet.iterate(10)
    for rank in (0, 1):
        fleet.say(fleet.stream_of[rank], Goodbye(reason="finished"))
    because = "it was observing because no rank can set clocks: no rights"
    assert job_status(fleet.job).reason == f"every rank's trainer has ended; {because}"


def test_a_job_whose_ranks_are_all_gone_is_done_and_goes_on_with_its_plan_when_they_return() -> None:
    fleet = Fleet().to_enforcing()
    for rank in (0, 1):
        fleet.detach(rank)
    fleet.now_s += 61
    fleet.tell(Tick())
    assert fleet.phase() is Phase.DONE
    fleet.attach(0, incarnation=1)
    assert fleet.phase() is Phase.ENFORCING
    assert b"table 0" in fleet.sent(0)


def end_of(fleet: Fleet) -> None:
    for rank in (0, 1):
        fleet.say(fleet.stream_of[rank], Goodbye(reason="finished"))
        fleet.detach(rank)
    assert fleet.phase() is Phase.DONE


def test_a_planner_that_ends_stores_what_was_saved_since_the_last_time() -> None:
    fleet = Fleet(policy=replace(POLICY, saving_period_s=3600.0)).to_enforcing()
    fleet.iterate(10, energy_j=40.0)
    saved_j = fleet.job.measured.saving.saved_j
    assert saved_j > 0
    assert "saved" not in fleet.facts
    assert fleet.tell(PlannerEnds()) != []
    assert fleet.tell(PlannerEnds()) == [], "there is nothing new"
    fleet.restart()
    assert job_status(fleet.job).saved_j == saved_j


def test_a_job_that_is_done_stays_done_with_what_it_saved_when_the_planner_restarts() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(10, energy_j=40.0)  # each rank's; 50 J at the baseline
    saved_j = fleet.job.measured.saving.saved_j
    assert saved_j == pytest.approx(10 * 20.0, abs=5 * 20.0)
    end_of(fleet)
    before = job_status(fleet.job)
    for _ in range(2):
        fleet.restart()
        after = job_status(fleet.job)
        assert (after.phase, after.reason, after.saved_j) == (Phase.DONE, before.reason, saved_j)
    fleet.tell(Tick())
    fleet.now_s += 99
    fleet.tell(Tick())
    assert not fleet.forgotten
    fleet.now_s += 2
    fleet.tell(Tick())
    assert fleet.forgotten


def test_a_job_that_was_done_goes_on_when_its_ranks_return_to_a_restarted_planner() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(10, energy_j=40.0)
    saved_j = fleet.job.measured.saving.saved_j
    end_of(fleet)
    fleet.restart()
    fleet.attach(0, incarnation=1)
    assert fleet.phase() is Phase.ENFORCING
    fleet.restart()  # the moment after
    assert fleet.phase() is Phase.ENFORCING
    fleet.attach_all()
    fleet.iterate(10, energy_j=40.0)
    assert fleet.job.measured.saving.saved_j > saved_j


def test_joules_saved_are_stored_now_and_then_and_begin_anew_with_another_schedule() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(3, energy_j=40.0)
    fleet.iterate(20, energy_j=40.0)
    saved_j = fleet.job.measured.saving.saved_j
    fleet.restart()
    assert saved_j - 5 * 20.0 <= fleet.job.measured.saving.saved_j <= saved_j
    fleet.iterate(20, energy_j=40.0)  # nobody is attached: nothing is saved, and nothing stored
    assert fleet.tell(Tick()) == []
    fleet.attach(0, rank=replace(_rank(0), schedule_digest="another"))
    assert fleet.job.measured.saving.saved_j == 0
    assert not {"saved", "over"} & fleet.facts.keys()


# ---- restarts --------------------------------------------------------------------------------------------------------


def test_a_restarted_planner_goes_on_with_the_sweep() -> None:
    fleet = Fleet().to_profiling()
    fleet.iterate(7)  # two of four clocks
    fleet.restart()
    assert fleet.phase() is Phase.PROFILING
    fleet.attach_all()
    attached, sweep, *_ = fleet.sent(0)
    assert isinstance(attached, Attached)
    assert attached.acked_samples == fleet.sequences[0]
    assert isinstance(sweep, Sweep)
    assert sweep.sweep_id == 1
    fleet.iterate(10)
    assert fleet.phase() is Phase.PLANNING
    assert [len(c.samples) for c in fleet.requests[-1].contributions] == [8, 8]


def test_a_restarted_planner_plans_again_what_was_being_planned() -> None:
    fleet = Fleet().to_planning()
    fleet.restart()
    fleet.attach_all()
    fleet.tell(Tick())
    assert len(fleet.requests) == 2
    assert replace(fleet.requests[1], request_id=0) == replace(fleet.requests[0], request_id=0)


def test_a_restarted_planner_enforces_what_it_decided() -> None:
    fleet = Fleet(dp=2).to_enforcing()
    fleet.tell(StragglerReported(straggler_id="a", degree=1.3, dp_rank=1))
    fleet.iterate(3)
    before = job_status(fleet.job)
    fleet.restart()
    fleet.attach_all(table_revision=1)
    after = job_status(fleet.job)
    assert (after.phase, after.stragglers, after.switch_revision) == ("enforcing", before.stragglers, 2)
    assert [p.point for p in after.pipelines] == [2, 0]
    assert after.baseline == before.baseline
    fleet.tell(StragglerCleared(straggler_id="a"))
    switch = fleet.switch(0)
    assert switch is not None
    assert (switch.point, switch.switch_revision) == (0, 3)


def test_a_restarted_planner_does_not_take_a_stale_job_s_release_for_a_plan() -> None:
    fleet = Fleet().to_enforcing()
    fleet.detach(1)
    fleet.attach(1, incarnation=8, rank=replace(_rank(1), schedule_digest="f" * 64))
    assert fleet.phase() is Phase.STALE
    fleet.restart()
    fleet.attach_all()
    switch = fleet.switch(0)
    assert switch is not None
    assert (switch.point, switch.switch_revision) == (0, 3)


def test_agents_that_follow_plans_of_a_lost_store_are_released_and_revisions_go_on_from_theirs() -> None:
    fleet = Fleet()
    fleet.attach_all(table_revision=7)
    assert of_type(fleet.sent(0), Release)
    fleet.iterate(30)
    assert fleet.requests[-1].revision == 8
    fleet.plan_ready()
    switch = fleet.switch(0)
    assert switch is not None
    assert switch.table_revision == 8
    assert switch.switch_revision > 7 << 32


def test_a_switch_that_only_an_agent_knows_is_overruled() -> None:
    fleet = Fleet().to_enforcing()
    fleet.say(fleet.stream_of[0], SwitchSeen(table_revision=1, switch_revision=9))
    switch = fleet.switch(1)
    assert switch is not None
    assert switch.switch_revision == 10


def num_opcodes(run: Callable[[], object]) -> int:
    """Python's steps of a call: its work, whatever the machine is busy with."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def sample_in_a_sweep(fleet: Fleet) -> Callable[[], object]:
    fleet.to_profiling()
    sweep = fleet.sweep(1)
    assert sweep is not None
    message = fleet.samples(1, sweep.sweep_id, 0, sweep.clocks_mhz[0])
    return lambda: step(fleet.job, RankMessage(stream=fleet.stream_of[1], message=message), fleet.now_s)


def acknowledged_switch(fleet: Fleet) -> Callable[[], object]:
    fleet.to_enforcing()
    switch = fleet.switch(1)
    assert switch is not None
    message = SwitchSeen(table_revision=switch.table_revision, switch_revision=switch.switch_revision)
    return lambda: step(fleet.job, RankMessage(stream=fleet.stream_of[1], message=message), fleet.now_s)


def report_under_a_plan(fleet: Fleet) -> Callable[[], object]:
    fleet.to_enforcing().iterate(3)
    report = IterationReport(iteration=fleet.iteration, time_s=1.0, pipeline_time_s=0.9, energy_j=50.0)
    message = Telemetry(sequence=fleet.iteration + 1, iterations=(report,), gpu=GpuSample(), control="clockd")
    return lambda: step(fleet.job, RankMessage(stream=fleet.stream_of[1], message=message), fleet.now_s)


def lost_rank(fleet: Fleet) -> Callable[[], object]:
    fleet.to_enforcing()
    return lambda: step(fleet.job, RankDetached(stream=fleet.stream_of[1]), fleet.now_s)


@pytest.mark.parametrize("prepare", [sample_in_a_sweep, acknowledged_switch, report_under_a_plan, lost_rank])
def test_a_message_takes_as_many_steps_among_many_ranks_as_among_few(
    prepare: Callable[[Fleet], Callable[[], object]],
) -> None:
    few, many = (num_opcodes(prepare(Fleet(dp=dp))) for dp in (2, 32))
    assert few > 20
    assert many <= few + 60, "ten thousand ranks send some each second"


def test_nothing_is_acknowledged_that_could_not_be_stored() -> None:
    persist, log = Persist(), Log(sentence="why")
    ack, switch = (
        Send(stream=1, message=message)
        for message in (
            ProfileAck(sequence=1),
            Switch(table_revision=1, point=0, effective_iteration=3, switch_revision=1),
        )
    )
    answer = Answer(accepted=True, reason="an operator wants it")
    left = without_acknowledgement([persist, ack, switch, log, answer], "disk full")
    assert left[:2] == [switch, log]
    (refusal,) = left[2:]
    assert isinstance(refusal, Answer)
    assert not refusal.accepted
    assert "disk full" in refusal.reason


def test_a_full_disk_stops_no_plan_and_the_next_planner_goes_on_from_what_agents_hold() -> None:
    fleet = Fleet().to_planning()
    fleet.is_disk_full = True
    fleet.plan_ready()
    lost = fleet.switch(0)
    assert lost is not None
    fleet.tell(TargetSet(target=Target(slowdown=1.2)))
    assert not fleet.answers[-1].accepted
    fleet.is_disk_full = False
    fleet.restart()
    fleet.attach_all(table_revision=lost.table_revision)
    fleet.tell(Tick())
    fleet.plan_ready()
    switch = fleet.switch(0)
    assert switch is not None
    assert switch.table_revision > lost.table_revision
    assert switch.switch_revision > lost.switch_revision + 1


def test_samples_that_a_full_disk_did_not_take_are_not_acknowledged_to_a_rank_that_comes_back() -> None:
    fleet = Fleet().to_profiling()
    while fleet.job.profiling.acked_samples.get((0, 1000), 0) == 0:
        fleet.iterate()
    fleet.is_disk_full = True
    for _ in range(2):
        stream = fleet.attach(0)
        attached = next(message for message in fleet.inbox[stream] if isinstance(message, Attached))
        assert (attached.acked_samples > 0) != fleet.is_disk_full
        fleet.is_disk_full = False


def test_samples_of_a_forgotten_sweep_do_not_acknowledge_those_that_a_full_disk_did_not_take() -> None:
    """An acknowledgement covers all before it, and the agent deletes them."""
    fleet = Fleet().to_profiling()
    while fleet.job.profiling.acked_samples.get((0, 1000), 0) == 0:
        fleet.iterate()
    sequence = fleet.job.profiling.acked_samples[0, 1000] + 1
    forgotten = replace(fleet.samples(0, 1, 0, 1400), sweep_id=7, sequence=sequence)
    fleet.is_disk_full = True
    ack = Send(stream=fleet.stream_of[0], message=ProfileAck(sequence=sequence))
    assert ack not in fleet.say(fleet.stream_of[0], forgotten)
    fleet.is_disk_full = False
    assert ack in fleet.say(fleet.stream_of[0], forgotten)


def test_what_ranks_miss_and_complain_of_is_shown() -> None:
    fleet = Fleet(dp=5)
    fleet.attach_all()
    for rank, stream in fleet.stream_of.items():
        trouble = f"trouble {rank}" if rank else ""
        fleet.say(stream, Telemetry(sequence=1, lost_boundaries=rank, missed_clocks=2, trouble=trouble))
    status = job_status(fleet.job)
    assert (status.missed_clocks, status.lost_boundaries) == (20, 45)
    assert status.troubles == tuple(f"rank {rank}: trouble {rank}" for rank in range(1, 9))
    wire = status_to_wire(status)
    assert (wire.missed_clocks, wire.lost_boundaries, tuple(wire.troubles)) == (20, 45, status.troubles)
    assert status_document(wire)["lost_boundaries"] == 45
    assert format_troubles(wire).splitlines()[-2:] == ["rank 8: trouble 8", "20 clocks missed, 45 boundaries lost"]


def test_lost_telemetry_is_counted() -> None:
    fleet = Fleet()
    stream = fleet.attach(0)
    for sequence in (5, 6, 9):
        fleet.say(stream, Telemetry(sequence=sequence, control="clockd"))
    assert fleet.job.members.ranks[0].lost_messages == 2


# ---- whatever happens, in whatever order -----------------------------------------------------------------------------


class WatchedFleet(Fleet):
    """Checks at every effect what must hold at all times; ``highest`` revisions live through restarts."""

    def __init__(self) -> None:
        super().__init__(dp=2, policy=replace(POLICY, num_warmup_iterations=1, num_baseline_iterations=1))
        self.highest = {"table": 0, "switch": 0, "sweep": 0}
        self.iteration_of: dict[tuple[str, int], int] = {}

    def tell(self, event: JobEvent) -> list[Effect]:
        effects = super().tell(event)  # facts are stored by now: see the order of effects for what came first
        is_operators = isinstance(event, TargetSet | StragglerReported | StragglerCleared)
        assert sum(isinstance(effect, Answer) for effect in effects) == is_operators
        persisted_at = [index for index, effect in enumerate(effects) if isinstance(effect, Persist)]
        assert len(persisted_at) <= 1
        new_keys = {fact.key for at in persisted_at for fact in effects[at].facts}  # type: ignore[union-attr]
        newest: dict[int, int] = {}  # switch by stream; one event may decide twice, and then both are sent
        for index, effect in enumerate(effects):
            is_behind = not persisted_at or index > persisted_at[0]
            match effect:
                case SendTable():
                    self._check("table", self.job.plan.revision if self.job.plan else -1)
                    assert is_behind or "table" not in new_keys
                case Send(message=Switch() as switch):
                    self._check("switch", switch.switch_revision, switch.effective_iteration)
                    newest[effect.stream] = switch.switch_revision
                    assert is_behind or "switch" not in new_keys
                    assert "table" in self.facts
                case Send(message=Sweep() as sweep):
                    self._check("sweep", sweep.sweep_id, sweep.first_iteration)
                    assert f"sweep/{sweep.sweep_id}/" in self.facts
                    assert is_behind or f"sweep/{sweep.sweep_id}/" not in new_keys
                case Send(message=ProfileAck()):
                    assert is_behind
        stored = self.facts.get("switch")
        assert not newest or (isinstance(stored, SwitchDecided) and set(newest.values()) == {stored.switch_revision})
        ranks = list(self.job.members.rank_of_stream.values())
        assert len(ranks) == len(set(ranks))
        assert sum(pipeline.num_attached for pipeline in self.job.progress.pipelines) == len(ranks)
        if self.job.phase in (Phase.PROFILING, Phase.REPROFILING):
            assert self.job.profiling.sweep is not None
        return effects

    def _check(self, what: str, revision: int, iteration: int = 0) -> None:
        assert revision >= self.highest[what], f"{what} went back"
        assert self.iteration_of.setdefault((what, revision), iteration) == iteration, f"another {what} of that number"
        self.highest[what] = revision


def _detach(fleet: WatchedFleet, rank: int) -> None:
    if rank in fleet.stream_of:
        fleet.detach(rank)


def _say(fleet: WatchedFleet, rank: int, message: object) -> None:
    if rank in fleet.stream_of:
        fleet.say(fleet.stream_of[rank], message)


def _plan(fleet: WatchedFleet, outcome: str) -> None:
    if not fleet.requests:
        return
    if outcome == "ready":
        fleet.plan_ready()
    else:
        request_id = fleet.requests[-1].request_id
        fleet.tell(PlanFailed(request_id=request_id, reason="no", transient=outcome == "died"))


def _restart_training(fleet: WatchedFleet, iteration: int) -> None:
    for rank in list(fleet.stream_of):
        fleet.detach(rank)
    fleet.iteration = iteration


def _pass_time(fleet: WatchedFleet, time_s: float) -> None:
    fleet.now_s += time_s
    fleet.tell(Tick())


RANKS = st.integers(0, 3)
TEXT = ScheduleText(text=format_schedule(SCHEDULE))
HAPPENINGS = st.one_of(
    st.builds(lambda rank, new: lambda fleet: fleet.attach(rank, incarnation=new), RANKS, st.integers(1, 3)),
    st.builds(lambda rank: lambda fleet: _detach(fleet, rank), RANKS),
    st.builds(lambda num: lambda fleet: fleet.iterate(num), st.integers(1, 12)),
    st.builds(lambda outcome: lambda fleet: _plan(fleet, outcome), st.sampled_from(["ready", "ready", "died", "no"])),
    st.builds(lambda slowdown: lambda fleet: fleet.tell(TargetSet(target=Target(slowdown=slowdown))), st.floats(1, 2)),
    st.builds(
        lambda degree, dp: lambda fleet: fleet.tell(StragglerReported(straggler_id="a", degree=degree, dp_rank=dp)),
        st.floats(1.01, 3),
        st.integers(0, 2),
    ),
    st.just(lambda fleet: fleet.tell(StragglerCleared(straggler_id="a"))),
    st.builds(
        lambda rank, said: lambda fleet: _say(fleet, rank, said),
        RANKS,
        st.sampled_from([DRIFT, TEXT, Goodbye(reason="finished"), SwitchSeen(table_revision=1, switch_revision=5)]),
    ),
    st.just(lambda fleet: fleet.restart()),
    st.just(lambda fleet: fleet.attach_all()),
    st.builds(lambda iteration: lambda fleet: _restart_training(fleet, iteration), st.integers(0, 50)),
    st.builds(lambda time_s: lambda fleet: _pass_time(fleet, time_s), st.sampled_from([1.0, 30.0, 70.0, 700.0])),
)


@example(  # all come back at once after a drift: the plan is put in force, and dropped, within one event
    happenings=[
        lambda fleet: _say(fleet, 0, DRIFT),
        lambda fleet: _restart_training(fleet, 0),
        lambda fleet: _pass_time(fleet, 70.0),
    ],
    start="enforcing",
)
@settings(max_examples=100)
@given(happenings=st.lists(HAPPENINGS, max_size=40), start=st.sampled_from(["nobody", "attached", "enforcing"]))
def test_revisions_never_go_back_nothing_is_sent_early_and_a_healthy_job_always_gets_its_plan(
    *, happenings: list[Callable[[WatchedFleet], None]], start: str
) -> None:
    fleet = WatchedFleet()
    if start == "attached":
        fleet.attach_all()
    elif start == "enforcing":
        fleet.to_enforcing()
    for happening in happenings:
        happening(fleet)
    _restart_training(fleet, 7)
    for rank in range(4):
        fleet.attach(rank, incarnation=100)
        _say(fleet, rank, TEXT)
    for _ in range(100):
        fleet.iterate()
        _plan(fleet, "ready")
        switch = fleet.switch(0)
        if fleet.phase() is Phase.ENFORCING and switch is not None and switch.effective_iteration <= fleet.iteration:
            break
    assert fleet.phase() is Phase.ENFORCING, fleet.job.reason
    assert switch is not None
    assert fleet.job.plan is not None
    assert switch.table_revision == fleet.job.plan.revision
    assert fleet.iteration >= switch.effective_iteration


# ---- the guard -------------------------------------------------------------------------------------------------------


def to_released(fleet: Fleet) -> Fleet:
    """Its plan is slow, and has been given up."""
    fleet.planned_s = 1.1
    for _ in range(100):
        fleet.iterate()
        if fleet.phase() is Phase.RELEASED:
            return fleet
    raise AssertionError(fleet.job.reason)


def until(fleet: Fleet, phase: Phase, at_most: int) -> None:
    for _ in range(at_most):
        fleet.iterate()
        if fleet.phase() is phase:
            return
    raise AssertionError(f"{fleet.phase()}: {fleet.job.reason}")


def test_a_slow_plan_is_given_up_measured_again_and_comes_back_with_what_was_measured() -> None:
    fleet = to_released(Fleet().to_enforcing())
    assert fleet.order(0) == fleet.order(1) == (0, NO_POINT)
    assert fleet.job.enforcement.guard.num_falls == 1
    until(fleet, Phase.REPROFILING, at_most=10)
    until(fleet, Phase.PLANNING, at_most=60)
    fleet.planned_s = 1.0
    fleet.plan_ready()
    assert fleet.phase() is Phase.ENFORCING
    fleet.iterate(200)
    assert fleet.phase() is Phase.ENFORCING
    assert fleet.order(0)[1] != NO_POINT


def test_a_slow_plan_is_given_up_while_another_one_is_made() -> None:
    """Planning may take minutes; nobody probed meanwhile, and pipelines waited for what was over."""
    fleet = Fleet().to_enforcing()
    fleet.iterate(40)
    fleet.say_times(LINK_NS)
    until(fleet, Phase.PLANNING, at_most=40)
    assert fleet.order(0)[1] != NO_POINT
    fleet.planned_s = 1.1
    fleet.iterate(40)
    assert fleet.phase() is Phase.PLANNING
    assert fleet.order(0) == fleet.order(1) == (0, NO_POINT)
    assert fleet.job.enforcement.guard.num_falls == 1
    assert not any(isinstance(effect, Send) for effect in decide(fleet.job, fleet.now_s, "rank 1 is slow"))
    fleet.planned_s = 1.0
    fleet.plan_ready()
    assert fleet.phase() is Phase.ENFORCING
    assert fleet.order(0)[1] != NO_POINT


def test_a_job_whose_slow_plan_cannot_be_replaced_tries_it_again_and_again_but_less_and_less() -> None:
    fleet = to_released(Fleet().to_enforcing())
    tried = []
    for _ in range(900):
        fleet.iterate()
        if fleet.phase() is Phase.PLANNING:
            request = fleet.requests[-1]
            fleet.tell(PlanFailed(request_id=request.request_id, reason="no memory"))
        if fleet.order(0)[1] != NO_POINT:
            tried.append(fleet.iteration)
    assert fleet.job.enforcement.guard.num_falls >= 3
    assert tried
    assert len([at for at in tried if at > 450]) < len(tried) / 2


def test_a_planner_that_does_not_know_why_a_plan_was_given_up_finds_it_slow_again() -> None:
    fleet = to_released(Fleet().to_enforcing())
    fleet.restart()
    fleet.attach_all()
    assert fleet.phase() is Phase.ENFORCING
    until(fleet, Phase.RELEASED, at_most=30)
    until(fleet, Phase.REPROFILING, at_most=20)


def test_a_hold_does_not_outlast_a_restart_of_training() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(2000)
    to_released(fleet)
    for rank in (0, 1):
        fleet.detach(rank)
    fleet.iteration = 0
    fleet.attach_all(incarnation=77)
    until(fleet, Phase.ENFORCING, at_most=10)


def test_a_plan_that_kept_the_promise_before_is_tried_again_and_its_profile_measured_again_if_that_does_not_help() -> (
    None
):
    fleet = Fleet().to_enforcing()
    fleet.iterate(100)
    to_released(fleet)
    until(fleet, Phase.ENFORCING, at_most=10)
    until(fleet, Phase.RELEASED, at_most=30)
    until(fleet, Phase.REPROFILING, at_most=20)


def test_no_profile_is_measured_again_for_a_machine_that_comes_and_goes() -> None:
    """A sweep would cost more than all the plan has lost, and take rows of both states into one profile."""
    fleet = Fleet().to_enforcing()
    for number in range(1000):
        is_slow = number % 20 >= 10
        fleet.free_s, fleet.planned_s = (1.1, 1.2) if is_slow else (1.0, 1.0)
        fleet.iterate()
        assert fleet.phase() in (Phase.ENFORCING, Phase.RELEASED)
    guard = fleet.job.enforcement.guard
    assert guard.num_falls > 1
    assert guard.guard.lost_s < 10 + 0.01 * 1000


def test_a_drift_is_measured_again_where_it_lasts_or_nothing_keeps_the_promise() -> None:
    passing = replace(DRIFT, measured_time_s=0.12, num_iterations=5)
    fleet = Fleet().to_enforcing()
    fleet.iterate(60)
    fleet.say(fleet.stream_of[0], passing)
    until(fleet, Phase.RELEASED, at_most=7)
    until(fleet, Phase.ENFORCING, at_most=5)
    fleet.say(fleet.stream_of[0], replace(passing, num_iterations=24))
    until(fleet, Phase.REPROFILING, at_most=7)


@pytest.mark.parametrize(("second_s", "phase"), [(0.121, Phase.REPROFILING), (0.14, Phase.RELEASED)])
def test_a_drift_for_which_the_plan_is_dropped_twice_is_measured_again(second_s: float, phase: Phase) -> None:
    """Times that are as far off as at the last drop have not recovered in between."""
    fleet = Fleet().to_enforcing()
    fleet.iterate(60)
    fleet.say(fleet.stream_of[0], replace(DRIFT, measured_time_s=0.12, num_iterations=5))
    until(fleet, Phase.RELEASED, at_most=7)
    until(fleet, Phase.ENFORCING, at_most=5)
    fleet.iterate(20)
    fleet.say(fleet.stream_of[0], replace(DRIFT, measured_time_s=second_s, num_iterations=5))
    until(fleet, phase, at_most=7)


def test_a_stage_that_takes_far_less_than_by_its_new_profile_is_measured_again_at_once_twice_at_most() -> None:
    """No disturbance makes GPUs faster: they were slow as the profile was measured."""
    fleet = Fleet().to_enforcing()
    fleet.iterate(60)
    for phase in (Phase.REPROFILING, Phase.REPROFILING, Phase.RELEASED):
        fleet.say(fleet.stream_of[0], replace(DRIFT, measured_time_s=0.085, num_iterations=5))
        until(fleet, phase, at_most=7)
        if phase is Phase.REPROFILING:
            until(fleet, Phase.PLANNING, at_most=30)
            fleet.plan_ready()
            fleet.iterate(12)
            assert fleet.phase() is Phase.ENFORCING


def test_clocks_that_were_released_stay_so_whatever_is_found_out_meanwhile() -> None:
    fleet = to_released(Fleet().to_enforcing())
    assert fleet.job.switch is not None
    before = fleet.job.switch.switch_revision
    assert not any(isinstance(effect, Send) for effect in decide(fleet.job, fleet.now_s, "rank 1 is slow"))
    fleet.say(fleet.stream_of[0], SwitchSeen(table_revision=1, switch_revision=before + 5))
    assert fleet.job.switch.switch_revision == before + 6
    assert fleet.order(0) == fleet.order(1) == (0, NO_POINT)


def test_a_target_is_tried_at_once_although_clocks_were_released() -> None:
    fleet = to_released(Fleet().to_enforcing())
    fleet.tell(TargetSet(target=Target(slowdown=1.2)))
    assert fleet.phase() is Phase.ENFORCING
    fleet.iterate(100)
    assert fleet.phase() is Phase.ENFORCING, "10 % slower is what was asked for"
    assert fleet.order(0)[1] != NO_POINT


def test_what_operators_say_once_more_tries_no_plan_that_was_given_up() -> None:
    """As a script does that sets a job's target every few seconds, whatever it is."""
    fleet = Fleet().to_enforcing()
    target = TargetSet(target=Target(slowdown=1.01))
    report = StragglerReported(straggler_id="hot", degree=1.02, dp_rank=0)
    fleet.tell(target)
    fleet.tell(report)
    to_released(fleet)
    for event in (target, report):
        (answer,) = (effect for effect in fleet.tell(event) if isinstance(effect, Answer))
        assert answer.accepted
        assert fleet.phase() is Phase.RELEASED
    fleet.tell(TargetSet(target=Target(slowdown=1.2)))
    assert fleet.phase() is Phase.ENFORCING


def test_iterations_of_a_sweep_are_no_reference_for_the_guard() -> None:
    fleet = Fleet().to_profiling()
    fleet.free_s = 1.5  # lower clocks
    while fleet.phase() is Phase.PROFILING:
        fleet.iterate()
    assert fleet.job.enforcement.guard.guard.reference_s == 1.0


LINK_NS = 15_000_000
KNOWN = ((0, "SEND_F"), (1, "SEND_B"))


def link_ms(request: PlanningRequest) -> list[list[float]]:
    """[ms] of the link, of each pipeline, by snapshot."""
    return [
        [round(1e3 * slowest([of_pipeline]).get(KNOWN[0], 0.0), 3) for of_pipeline in snapshot]
        for snapshot in request.snapshots
    ]


def test_the_first_plan_knows_the_transfers_that_were_measured_before_it() -> None:
    fleet = Fleet(dp=2)
    fleet.to_profiling()
    fleet.say_times(LINK_NS)
    until(fleet, Phase.PLANNING, at_most=100)
    assert link_ms(fleet.requests[-1]) == [[15.0, 15.0]]
    assert set(slowest(fleet.requests[-1].snapshots[0])) == set(KNOWN)


def say_times_until_planned(fleet: Fleet, link_ns: int, *, at_most: int) -> int:
    """Snapshots that it took until a plan was asked for and made."""
    for number in range(at_most):
        fleet.say_times(link_ns)
        fleet.iterate()
        if fleet.phase() is Phase.PLANNING:
            fleet.plan_ready()
            return number + 1
        fleet.iterate(40)
    raise AssertionError("no plan is asked for")


def test_a_link_that_has_become_slow_is_planned_with_beside_what_it_was_and_alone_when_it_stays_so() -> None:
    fleet = Fleet().to_enforcing()
    assert link_ms(fleet.requests[-1]) == []
    fleet.iterate(40)
    num_plans = len(fleet.requests)
    fleet.say_times(0)
    fleet.iterate(40)
    assert len(fleet.requests) == num_plans
    assert say_times_until_planned(fleet, LINK_NS, at_most=1) == 1
    assert link_ms(fleet.requests[-1]) == [[15.0], [0.0]]
    fleet.iterate(40)
    assert say_times_until_planned(fleet, LINK_NS + 100_000, at_most=3) == 1
    assert link_ms(fleet.requests[-1]) == [[15.1]]
    fleet.iterate(40)
    num_plans = len(fleet.requests)
    fleet.say_times(LINK_NS - 100_000)  # not worth a plan
    fleet.iterate(40)
    assert len(fleet.requests) == num_plans
    assert say_times_until_planned(fleet, 0, at_most=1) == 1
    assert link_ms(fleet.requests[-1]) == [[0.0], [14.9]]


def test_spreads_of_transfers_are_measured_with_them_and_planned_with() -> None:
    fleet, random = Fleet().to_enforcing(), np.random.default_rng(5)
    schedule = one_f_one_b(pp=2, microbatches=16)
    fleet.job.schedule_text = format_schedule(schedule)
    dag = build_dag(schedule, {(0, "SEND_F"), (1, "SEND_B")})

    def say_times(spread_ns: int) -> None:
        transfers_ns = LINK_NS + random.exponential(spread_ns, len(dag.instructions) - dag.num_scheduled)
        durations_ns = np.append(np.full(dag.num_scheduled, 20_000_000), transfers_ns.astype(np.int64))
        ends_ns = ends_of(durations_ns, *dag.edges.T.copy())
        for rank, stream in fleet.stream_of.items():
            of_rank = np.flatnonzero(dag.pp_rank[: dag.num_scheduled] == rank % 2)
            begins, ends = ((ends_ns - durations_ns)[of_rank].tolist(), ends_ns[of_rank].tolist())
            fleet.say(stream, RunTimes(iteration=fleet.iteration, begins_ns=tuple(begins), ends_ns=tuple(ends)))

    say_times(0)
    assert planning_request(fleet.job).transfer_spreads == ()
    say_times(4_000_000)
    spreads_s = slowest([planning_request(fleet.job).transfer_spreads])
    assert spreads_s == {(0, "SEND_F"): pytest.approx(0.0092, rel=0.5), (1, "SEND_B"): pytest.approx(0.0092, rel=0.5)}
    num_requests = len(fleet.requests)
    say_times(8_000_000)
    fleet.iterate()
    assert len(fleet.requests) == num_requests, "no plan is made anew for a spread"


def test_a_plan_that_does_not_know_a_link_that_became_slow_meanwhile_is_begun_anew_once() -> None:
    """Two plans were made one after the other, the first of them late. A link that flaps puts no plan off for ever."""
    fleet = Fleet().to_planning()
    fleet.say_times(LINK_NS)
    fleet.iterate()
    assert [link_ms(request) for request in fleet.requests] == [[], [[15.0]]]
    assert "that is being made: beginning anew" in fleet.job.reason
    fleet.say_times(2 * LINK_NS)
    fleet.iterate()
    assert len(fleet.requests) == 2
    fleet.plan_ready()
    fleet.iterate(31)
    fleet.say_times(2 * LINK_NS)
    fleet.iterate()
    assert link_ms(fleet.requests[-1]) == [[30.0]], "both of the newest two"


def test_after_a_plan_for_a_new_link_the_next_one_waits_for_a_while() -> None:
    fleet = Fleet().to_planning()
    fleet.say_times(LINK_NS)
    fleet.iterate()
    fleet.plan_ready()
    fleet.iterate(18)
    fleet.say_times(2 * LINK_NS)
    fleet.iterate()
    assert len(fleet.requests) == 2
    fleet.iterate(14)
    assert link_ms(fleet.requests[-1]) == [[30.0], [15.0]]


@pytest.mark.stress
def test_a_link_that_comes_and_goes_is_planned_with_for_longer_and_longer() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(40)
    fleet.say_times(0)
    fleet.iterate(40)
    say_times_until_planned(fleet, LINK_NS, at_most=1)
    fleet.iterate(40)
    taken = []
    for _ in range(5):
        taken.append(say_times_until_planned(fleet, 0, at_most=40))  # until it alone is planned with
        fleet.iterate(40)
        taken.append(say_times_until_planned(fleet, LINK_NS, at_most=1))
        fleet.iterate(40)
    assert taken[1::2] == [1] * 5
    assert taken[::2] == [2, 4, 8, 16, 32]
    assert fleet.job.measured.num_agreeing == len(fleet.job.measured.snapshots) == 32


def test_times_of_a_part_of_the_ranks_or_of_another_schedule_say_nothing() -> None:
    fleet = Fleet(dp=2).to_enforcing()
    fleet.iterate(40)
    fleet.say(fleet.stream_of[0], RunTimes(iteration=7, begins_ns=(1, 2), ends_ns=(2, 3)))
    for rank in (1, 2):
        fleet.say(fleet.stream_of[rank], RunTimes(iteration=7, begins_ns=(1, 2, 3, 4), ends_ns=(2, 3, 4, 5)))
    fleet.iterate(40)
    assert not fleet.job.measured.snapshots
    assert len(fleet.requests) == 1


def test_times_under_a_plan_are_asked_for_by_a_planner_with_a_page_alone_and_say_nothing_of_transfers() -> None:
    asked = {}
    for shows in (True, False):
        fleet = Fleet(dp=6, policy=replace(POLICY, shows_timelines=shows)).to_enforcing()
        asked[shows] = [fleet.sent(rank)[0].wants_timelines for rank in range(12)]  # type: ignore[union-attr]
        num_changes = fleet.job.num_changes
        for rank in (0, 1):
            times = RunTimes(iteration=16, begins_ns=(1, 2, 3, 4), ends_ns=(2, 3, 4, 5), clocks_mhz=(900,) * 4, point=1)
            fleet.say(fleet.stream_of[rank], times)
        assert fleet.job.measured.timelines.whole.keys() == {0}
        assert fleet.job.num_changes > num_changes, "whoever looks sees it"
        assert not fleet.job.measured.run_times
        assert not fleet.job.measured.snapshots
    assert asked == {True: [True] * 8 + [False] * 4, False: [False] * 12}


def test_a_link_that_is_well_before_the_plan_that_knows_it_is_no_reason_to_sweep() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(40)
    say_times_until_planned(fleet, LINK_NS, at_most=1)
    fleet.iterate(40)
    fleet.say_times(LINK_NS)
    fleet.iterate()
    assert link_ms(fleet.requests[-1]) == [[15.0]]
    fleet.plan_ready(summary(fastest_s=1.2))  # and iterations take 1.0 s, at full clocks and under the plan
    num_plans, iteration = len(fleet.requests), fleet.iteration
    while fleet.iteration < iteration + 30 and not isinstance(fleet.sent(0)[-1], Probe):
        fleet.iterate()
    assert isinstance(fleet.sent(0)[-1], Probe)
    fleet.iterate(5)
    assert fleet.phase() is Phase.ENFORCING
    fleet.say_times(0)
    fleet.iterate()
    assert fleet.phase() is Phase.PLANNING
    assert len(fleet.requests) == num_plans + 1
    assert link_ms(fleet.requests[-1]) == [[0.0], [15.0]]


def test_times_of_ranks_that_went_on_without_the_others_hide_none_of_later_ones() -> None:
    fleet = Fleet(dp=2).to_enforcing()
    for iteration in (100, 101, 102, 103, 104):
        fleet.say(fleet.stream_of[0], RunTimes(iteration=iteration, begins_ns=(1, 2, 3, 4), ends_ns=(2, 3, 4, 5)))
    fleet.iterate(40)
    fleet.say_times(LINK_NS)
    assert [set(slowest([transfers])) for transfers in fleet.job.measured.snapshots[-1]] == [set(KNOWN)] * 2


def test_a_restarted_planner_knows_the_transfers_that_its_plan_was_made_with() -> None:
    fleet = Fleet()
    fleet.to_profiling()
    fleet.say_times(LINK_NS)
    until(fleet, Phase.PLANNING, at_most=100)
    fleet.plan_ready()
    fleet.iterate(20)
    num_plans = len(fleet.requests)
    fleet.restart()
    fleet.attach_all()
    fleet.iterate(40)
    fleet.say_times(LINK_NS)
    fleet.iterate(20)
    assert len(fleet.requests) == num_plans
    fleet.say_times(0)
    fleet.iterate()
    assert len(fleet.requests) == num_plans + 1


class SlowReplicas(Fleet):
    """A fleet in which computations of some ranks take longer from some iteration on."""

    factor_of: dict[int, float]
    slow_from = 0

    def samples(self, rank: int, sweep_id: int, index: int, clock_mhz: int) -> ProfileSamples:
        told = super().samples(rank, sweep_id, index, clock_mhz)
        factor = self.factor_of.get(rank, 1.0) if self.iteration >= self.slow_from else 1.0
        return replace(told, samples=tuple(replace(one, time_s=factor * one.time_s) for one in told.samples))


def _adaptive(dp: int) -> Policy:
    return Policy(gone_s=60.0 * dp)


def _measured_mhz(fleet: Fleet, rank: int) -> set[int]:
    return {taken.clock_mhz for of in fleet.job.profiling.samples.values() for taken in of.get(rank, ())}


def test_replicas_share_the_clocks_of_a_sweep_and_all_measure_the_maximum() -> None:
    fleet = Fleet(dp=2, policy=_adaptive(2)).to_profiling()
    orders = [fleet.sweep(rank) for rank in range(4)]
    clocks = [order.clocks_mhz for order in orders if order is not None]
    assert clocks == [(1400, 1200, 900), (1400, 1200, 900), (1400, 1100, 800), (1400, 1100, 800)] or (
        clocks[0] == clocks[1] != clocks[2] == clocks[3]
    )
    assert {own[0] for own in clocks} == {1400}
    assert set(clocks[0]) & set(clocks[2]) == {1400}
    fleet.to_planning()
    request = fleet.requests[0]
    assert request.menu_mhz == CLOCKS_MHZ
    assert len(request.contributions) == 4


def test_a_replica_that_is_slow_at_the_maximum_is_no_part_of_the_profile() -> None:
    fleet = SlowReplicas(dp=2, policy=_adaptive(2))
    fleet.factor_of = {2: 1.05}
    fleet.to_planning()
    ranks = {(c.pp_rank, min(s.time_s * s.clock_mhz for s in c.samples)) for c in fleet.requests[0].contributions}
    assert ranks == {(0, 100.0), (1, 100.0)}
    assert len(fleet.requests[0].contributions) == 3
    assert _measured_mhz(fleet, 0) >= _measured_mhz(fleet, 2), "the other one has measured its clocks, too"


def test_a_rank_that_becomes_slow_within_a_sweep_is_measured_anew() -> None:
    fleet = SlowReplicas(policy=replace(_adaptive(1), max_saving_doubt=0.0, num_first_clocks=3))
    fleet.factor_of, fleet.slow_from = {0: 1.04, 1: 1.04}, 13
    fleet.to_planning()
    samples = [s for c in fleet.requests[0].contributions for s in c.samples]
    assert {round(s.time_s * s.clock_mhz, 6) for s in samples} == {104.0}, "one state, not a mixture of two"
    assert len({s.clock_mhz for s in samples}) >= 3


class ForwardMissed(Fleet):
    """A fleet in which the first measurement at the maximum clock has no forward of pp_rank 0."""

    def samples(self, rank: int, sweep_id: int, index: int, clock_mhz: int) -> ProfileSamples:
        told = super().samples(rank, sweep_id, index, clock_mhz)
        if rank or sweep_id > 1 or clock_mhz != CLOCKS_MHZ[0]:
            return told
        return replace(told, samples=tuple(one for one in told.samples if one.kind != "F"))


def test_a_computation_that_a_measurement_missed_is_measured_again() -> None:
    """A profile that lacks the maximum clock of one would make T_min longer than all-max."""
    fleet = ForwardMissed(policy=_adaptive(1))
    fleet.to_planning()
    at_max = [s for c in fleet.requests[0].contributions for s in c.samples if s.clock_mhz == CLOCKS_MHZ[0]]
    assert {s.kind for s in at_max} >= {"F", "B"}
    assert len([one for one in at_max if one.kind == "F"]) == 2, "of both pp_ranks"


@pytest.mark.parametrize("iterations", range(0, 30, 3))
def test_a_shared_sweep_goes_on_where_it_was_at_a_restarted_planner(iterations: int) -> None:
    fleet = Fleet(dp=2, policy=_adaptive(2)).to_profiling()
    fleet.iterate(iterations)
    before = {rank: _measured_mhz(fleet, rank) for rank in range(4)}
    is_planned = fleet.phase() is Phase.PLANNING
    fleet.restart()
    fleet.attach_all()
    for _ in range(60):
        if fleet.phase() is Phase.PLANNING:
            break
        fleet.iterate()
    assert fleet.phase() is Phase.PLANNING, fleet.job.reason
    assert is_planned or fleet.job.profiling.ended_series
    for rank in range(4):
        taken = [one.clock_mhz for of in fleet.job.profiling.samples.values() for one in of.get(rank, ())]
        assert before[rank] <= set(taken)
        lower = [clock for clock in taken if clock != CLOCKS_MHZ[0]]
        assert len(lower) == len(set(lower)), "nothing but the maximum is measured twice"


def test_what_a_sweep_costs_is_told_before_and_after() -> None:
    fleet = Fleet(policy=_adaptive(1)).to_enforcing()
    before, after = (event.sentence for event in job_status(fleet.job).events if event.kind == "sweep")
    assert "of 7 clocks in" in before
    assert "at most" in before
    assert "clocks were measured in" in after
    assert "longer than at full clocks" in after
