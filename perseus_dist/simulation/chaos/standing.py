"""Conditions at each iteration of a scenario: faults that are not over, the target, operators' reports."""

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from perseus_dist.messages.terms import Target
from perseus_dist.simulation.chaos.scenario.events import (
    DiskFull,
    Event,
    HeatCap,
    Loss,
    MessageDelay,
    NextJob,
    Partition,
    PowerCap,
    Process,
    ProcessAction,
    ProcessEvent,
    Repetition,
    SlowDown,
    SlowLink,
    StragglerOrder,
    TargetOrder,
    is_recovery,
)
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.scenario.target import parse_scenario_target
from perseus_dist.simulation.virtual.link import AGENT_NOTICES_NS

_Down = frozenset[tuple[Process, int | None, ProcessAction]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFaults:
    """Faults of one rank's GPU and its links; the defaults are a GPU that is well."""

    slowdown: float = 1.0
    thermal_cap_mhz: int | None = None
    power_limit_w: float | None = None
    transfer_s: float | None = None

    @property
    def is_only_slow(self) -> bool:
        """Whether nothing but a constant factor is wrong."""
        return replace(self, slowdown=1.0) == WELL


WELL = GpuFaults()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Conditions of one iteration.

    Attributes:
        gpus: By rank, those that are not well.
        down: Processes that were killed or stopped, and which of it; the planner's rank is None. Stopping what is dead
            does nothing, and neither does starting what is stopped.
        cut_off: Ranks whose messages do not pass.
        lossy: Ranks whose messages are lost now and then.
        delays_s: By rank, [s] that its messages take; those that take any.
        is_disk_full: Whether the planner's is.
        reports: By pipeline, the degree that an operator reported. An order to a planner that is dead fails, as the
            operator sees, and changes nothing: no planner that comes back can know of it, and what was ordered before
            is durable. So does one that the planner refuses.
    """

    target: Target
    gpus: Mapping[int, GpuFaults] = field(default_factory=dict)
    down: _Down = frozenset()
    cut_off: frozenset[int] = frozenset()
    lossy: frozenset[int] = frozenset()
    delays_s: Mapping[int, float] = field(default_factory=dict)
    is_disk_full: bool = False
    reports: Mapping[int, float] = field(default_factory=dict)

    @property
    def delay_s(self) -> float:
        """[s] the longest that a message takes."""
        return max(self.delays_s.values(), default=0.0)

    @property
    def can_be_planned(self) -> bool:
        """Whether whatever it takes to set clocks by a plan is there."""
        is_too_late = 2e9 * self.delay_s >= AGENT_NOTICES_NS
        return not (self.down or self.cut_off or self.lossy or self.is_disk_full or is_too_late)

    @property
    def is_planner_dead(self) -> bool:
        """Whether operators' orders fail; those to a planner that is stopped wait for it."""
        return (Process.PLANNER, None, ProcessAction.KILL) in self.down

    @property
    def somebody_may_wait(self) -> bool:
        """Whether there is anything to wait for: a GPU that is not well, or a report that says so."""
        return bool(self.gpus) or any(degree > 1 for degree in self.reports.values())

    def allowed_s(self, time_s: float) -> float:
        """[s] how long an iteration may take that takes ``time_s`` without Perseus: r times as long.

        r is the target's factor, 1 for T_min; a deadline allows the deadline, and never less than ``time_s``. A
        standing report allows its degree, where that is more, because operators ask others to wait so long.
        """
        factor = max([self.target.slowdown or 1.0, *self.reports.values()])
        return max(factor * time_s, self.target.deadline_s or 0.0)


class History:
    """A scenario, looked at iteration by iteration.

    Args:
        scenario: What is played.
        unheeded: Operators' orders in it that the planner refuses, or is killed before it hears of.

    Attributes:
        disturbances: The first iteration of each disturbance: of faults of one kind that begin together. What ends a
            disturbance belongs to it.
        events: All of them.
        planning_s: [s] that the planner takes for a plan.
        last_event: Iteration of the last event; 0 where there is none.
    """

    def __init__(self, scenario: Scenario, *, unheeded: Collection[Event] = ()) -> None:
        self.events, self.planning_s = scenario.events, scenario.planning_s
        self._firsts = [0]
        self._standing = [Standing(target=parse_scenario_target(scenario.job.target))]
        job = scenario.job
        for event in scenario.events:
            is_unheeded = any(event is one for one in unheeded)
            after = self._standing[-1] if is_unheeded else _after(self._standing[-1], event, job)
            if isinstance(event, NextJob):
                job = scenario.job_at(event.iteration)
            if event.iteration == self._firsts[-1]:
                self._standing[-1] = after
            else:
                self._firsts.append(event.iteration)
                self._standing.append(after)
        begun = {(event.iteration, type(event)) for event in scenario.events if not is_recovery(event)}
        self.disturbances = tuple(sorted(iteration for iteration, _ in begun))
        self.last_event = max((event.iteration for event in scenario.events), default=0)

    def at(self, iteration: int) -> Standing:
        """The conditions while an iteration is trained."""
        return self._standing[bisect_right(self._firsts, iteration) - 1]


def _after(standing: Standing, event: Event, job: ScenarioJob) -> Standing:
    match event:
        case SlowDown():
            return _with_gpus(standing, event.ranks(job.num_ranks), slowdown=event.slowdown)
        case HeatCap():
            return _with_gpus(standing, event.ranks(job.num_ranks), thermal_cap_mhz=event.thermal_cap_mhz)
        case PowerCap():
            return _with_gpus(standing, event.ranks(job.num_ranks), power_limit_w=event.power_limit_w)
        case SlowLink():
            return _with_gpus(standing, event.ranks(job.num_ranks), transfer_s=event.transfer_s)
        case ProcessEvent():
            return replace(standing, down=_down_after(standing.down, event))
        case MessageDelay():
            late = {rank: event.delay_s for rank in _ranks(event.rank, job) if event.delay_s}
            others = {
                rank: delay_s for rank, delay_s in standing.delays_s.items() if rank not in _ranks(event.rank, job)
            }
            return replace(standing, delays_s=others | late)
        case Partition():
            return replace(standing, cut_off=_changed(standing.cut_off, event.rank, job, begins=event.is_partitioned))
        case Repetition():
            return standing
        case Loss():
            return replace(standing, lossy=_changed(standing.lossy, event.rank, job, begins=bool(event.lose)))
        case DiskFull():
            return replace(standing, is_disk_full=event.is_full)
        case TargetOrder() | StragglerOrder() if standing.is_planner_dead:
            return standing
        case TargetOrder():
            return replace(standing, target=parse_scenario_target(event.target))
        case StragglerOrder(pipeline=None):
            return replace(standing, reports={})
        case StragglerOrder():
            others = {pipeline: degree for pipeline, degree in standing.reports.items() if pipeline != event.pipeline}
            return replace(standing, reports=others | _report(event))
        case NextJob():
            return _next_job(standing, event)


def _down_after(down: _Down, event: ProcessEvent) -> _Down:
    process, rank = event.process, event.rank
    stopped, killed = (process, rank, ProcessAction.STOP), (process, rank, ProcessAction.KILL)
    lease_stopped = (Process.LEASE, rank, ProcessAction.STOP)
    match event.action:
        case ProcessAction.STOP:
            owner = Process.AGENT if process is Process.LEASE else process  # of whose process it is a part
            is_dead = killed in down or (owner, rank, ProcessAction.KILL) in down
            return down if is_dead else down | {stopped}
        case ProcessAction.CONTINUE:
            return down - {stopped}
        case ProcessAction.KILL if process is Process.LEASE:  # its agent starts another by itself
            return down - {stopped}
        case ProcessAction.KILL if process is Process.AGENT:  # its lease goes with it
            return down - {stopped, lease_stopped} | {killed}
        case ProcessAction.KILL:
            return down - {stopped} | {killed}
        case ProcessAction.RESTART if process is Process.TRAINER and any(one is process for one, _, _ in down):
            return _without_ranks(down)  # of all ranks
        case ProcessAction.RESTART:
            return down - {killed}


def _ranks(rank: int | None, job: ScenarioJob) -> range:
    """The ranks whose links an event is about."""
    return range(job.num_ranks) if rank is None else range(rank, rank + 1)


def _changed(faulty: frozenset[int], rank: int | None, job: ScenarioJob, *, begins: bool) -> frozenset[int]:
    ranks = frozenset(_ranks(rank, job))
    return faulty | ranks if begins else faulty - ranks


def _report(event: StragglerOrder) -> dict[int, float]:
    return {} if event.pipeline is None or event.degree is None else {event.pipeline: event.degree}


def _with_gpus(standing: Standing, ranks: tuple[int, ...], **changes: float | None) -> Standing:
    gpus = {**standing.gpus}
    for rank in ranks:
        faults = replace(gpus.get(rank, WELL), **changes)  # type: ignore[arg-type]
        gpus[rank] = faults
        if faults == WELL:
            del gpus[rank]
    return replace(standing, gpus=gpus)


def _next_job(standing: Standing, event: NextJob) -> Standing:
    """Ranks' processes and their links are new; machines are where the GPU is, and the planner is the same."""
    target = event.changes.get("target")
    return replace(
        standing,
        target=standing.target if target is None else parse_scenario_target(target),
        gpus={} if {"gpu", "pp", "dp", "tp"} & event.changes.keys() else standing.gpus,
        down=_without_ranks(standing.down),
        cut_off=frozenset(),
        lossy=frozenset(),
        delays_s={},
    )


def _without_ranks(down: _Down) -> _Down:
    """Processes that are down once every rank's are new."""
    return frozenset(one for one in down if one[0] is Process.PLANNER)
