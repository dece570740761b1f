"""Draws the events of one fault: from its begin to its end, if it ends."""

import random
from dataclasses import dataclass
from typing import Any

from perseus_dist.simulation.chaos.drawing.fault_kinds import FaultKind
from perseus_dist.simulation.chaos.drawing.phases import estimated_time_s
from perseus_dist.simulation.chaos.scenario.events import (
    GPUS_PER_NODE,
    DiskFull,
    Event,
    HeatCap,
    Loss,
    MessageDelay,
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
)
from perseus_dist.simulation.chaos.scenario.scenario import ScenarioJob

_MAX_CYCLES = 8
_MAX_OSCILLATION = 60  # iterations
_SLOWDOWNS = (1.02, 1.03, 1.04, 1.05, 1.06, 1.08, 1.1, 1.15, 1.2, 1.3, 1.45, 1.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """When a fault happens.

    Attributes:
        begin: Its first iteration.
        end: The first one after it; None where it stays.
    """

    kind: FaultKind
    begin: int
    end: int | None


def draw_events(rng: random.Random, fault: Fault, job: ScenarioJob) -> list[Event]:
    """The events of a fault that happens to a job; ``fault.kind`` is none of ``JOB_FAULTS``."""
    rank = rng.randrange(job.num_ranks)
    match fault.kind:
        case FaultKind.SLOW_GPU:
            return _slow(fault, rng.choice(_SLOWDOWNS), rank=rank)
        case FaultKind.HEAT:
            return _hot(rng, fault, job, rank=rank)
        case FaultKind.POWER_CAP:
            return _capped(rng, fault, job, rank=rank)
        case FaultKind.NODE:
            return _node(rng, fault, job)
        case FaultKind.SLOW_LINK:
            # A transfer between two stages of up to a fifth of a microbatch's time, or, where a rank sends several
            # forwards in a row, no longer than one: simulated links carry any number at once, plans count with one.
            usual_s = rng.uniform(0.02, 0.2) * estimated_time_s(job) / (job.microbatches + job.pp)
            transfer_s = round(usual_s / 2 if job.schedule == "dualpipev" else usual_s, 5)
            return [
                SlowLink(iteration=fault.begin, rank=rank, transfer_s=transfer_s),
                *([] if fault.end is None else [SlowLink(iteration=fault.end, rank=rank, transfer_s=None)]),
            ]
        case FaultKind.OSCILLATION:
            return _oscillation(rng, fault, rank)
        case FaultKind.PARTITION:
            which = rng.choice((None, rank))
            return [Partition(iteration=at, rank=which, is_partitioned=on) for at, on in _on_and_off(fault)]
        case FaultKind.LATE_MESSAGES:
            which, delay_s = rng.choice((None, rank)), rng.choice((0.1, 0.3, 1.0, 3.0, 10.0))
            return [
                MessageDelay(iteration=at, rank=which, delay_s=delay_s if on else None) for at, on in _on_and_off(fault)
            ]
        case FaultKind.REPEATED_MESSAGES:
            which, repeat = rng.choice((None, rank)), rng.choice((0.1, 0.5, 1.0))
            return [
                Repetition(iteration=at, rank=which, repeat=repeat if on else None) for at, on in _on_and_off(fault)
            ]
        case FaultKind.LOST_MESSAGES:
            which, lose = rng.choice((None, rank)), rng.choice((0.02, 0.1, 0.5))
            return [Loss(iteration=at, rank=which, lose=lose if on else None) for at, on in _on_and_off(fault)]
        case FaultKind.DISK_FULL:
            return [DiskFull(iteration=at, is_full=on) for at, on in _on_and_off(fault)]
        case FaultKind.TARGET:
            return _target(rng, fault, job)
        case FaultKind.REPORT:
            pipeline, degree = rng.randrange(job.dp), rng.choice((1.0, 1.05, 1.1, 1.2, 1.5))
            return [
                StragglerOrder(iteration=at, pipeline=pipeline, degree=degree if on else None)
                for at, on in _on_and_off(fault)
            ]
        case _:
            return _process(fault, rank)


def _on_and_off(fault: Fault) -> list[tuple[int, bool]]:
    return [(fault.begin, True), *([] if fault.end is None else [(fault.end, False)])]


def _slow(fault: Fault, slowdown: float, **place: int) -> list[Event]:
    return [SlowDown(iteration=at, slowdown=slowdown if on else 1.0, **place) for at, on in _on_and_off(fault)]


def _hot(rng: random.Random, fault: Fault, job: ScenarioJob, **place: int) -> list[Event]:
    ranks = HeatCap(iteration=0, thermal_cap_mhz=None, **place).ranks(job.num_ranks)
    first, *others = (preset.clocks_mhz for preset in job.presets_of(ranks))
    common = [clock for clock in first if all(clock in clocks_mhz for clocks_mhz in others)]
    cap_mhz = rng.choice([clock for clock in common if all(0.6 <= clock / menu[0] < 1 for menu in (first, *others))])
    return [HeatCap(iteration=at, thermal_cap_mhz=cap_mhz if on else None, **place) for at, on in _on_and_off(fault)]


def _capped(rng: random.Random, fault: Fault, job: ScenarioJob, **place: int) -> list[Event]:
    presets = job.presets_of(PowerCap(iteration=0, power_limit_w=None, **place).ranks(job.num_ranks))
    least_w = max(preset.power_limits_w[0] for preset in presets)
    usual_w = min(preset.power_limits_w[1] for preset in presets)
    limit_w = max(least_w, round(rng.uniform(0.5, 0.95) * usual_w, -1))
    return [PowerCap(iteration=at, power_limit_w=limit_w if on else None, **place) for at, on in _on_and_off(fault)]


def _node(rng: random.Random, fault: Fault, job: ScenarioJob) -> list[Event]:
    node = rng.randrange(-(-job.num_ranks // GPUS_PER_NODE))
    match rng.randrange(3):
        case 0:
            return _slow(fault, rng.choice(_SLOWDOWNS), node=node)
        case 1:
            return _hot(rng, fault, job, node=node)
        case _:
            return _capped(rng, fault, job, node=node)


def _oscillation(rng: random.Random, fault: Fault, rank: int) -> list[Event]:
    """Slow for some iterations of each period, as often as the fault's duration says or a few times."""
    period = rng.choice((2, 3, 5, 8, 12, 20))
    num_slow, slowdown = rng.randint(1, period - 1), rng.choice(_SLOWDOWNS[2:])
    until = fault.begin + _MAX_OSCILLATION if fault.end is None else fault.end
    num_cycles = min(max(3, (until - fault.begin) // period), _MAX_CYCLES)
    events: list[Event] = []
    for cycle in range(num_cycles):
        begin = fault.begin + cycle * period
        events.append(SlowDown(iteration=begin, rank=rank, slowdown=slowdown))
        events.append(SlowDown(iteration=begin + num_slow, rank=rank, slowdown=1.0))
    return events


def _target(rng: random.Random, fault: Fault, job: ScenarioJob) -> list[Event]:
    deadline_s = round(rng.uniform(0.9, 1.4) * estimated_time_s(job), 3)
    target = rng.choice(("t_min", "slowdown=1.03", "slowdown=1.1", "slowdown=1.3", f"deadline={deadline_s}"))
    return [TargetOrder(iteration=at, target=target if on else job.target) for at, on in _on_and_off(fault)]


_PROCESSES: dict[FaultKind, tuple[Process, ProcessAction, ProcessAction]] = {
    FaultKind.AGENT_KILLED: (Process.AGENT, ProcessAction.KILL, ProcessAction.RESTART),
    FaultKind.AGENT_STOPPED: (Process.AGENT, ProcessAction.STOP, ProcessAction.CONTINUE),
    FaultKind.PLANNER_KILLED: (Process.PLANNER, ProcessAction.KILL, ProcessAction.RESTART),
    FaultKind.PLANNER_STOPPED: (Process.PLANNER, ProcessAction.STOP, ProcessAction.CONTINUE),
    FaultKind.LEASE_KILLED: (Process.LEASE, ProcessAction.KILL, ProcessAction.RESTART),
    FaultKind.LEASE_STOPPED: (Process.LEASE, ProcessAction.STOP, ProcessAction.CONTINUE),
    FaultKind.TRAINER_KILLED: (Process.TRAINER, ProcessAction.KILL, ProcessAction.RESTART),
}


def _process(fault: Fault, rank: int) -> list[Event]:
    """A process that goes, and comes back. A job cannot train without one of its trainers: that comes back at once."""
    process, away, back = _PROCESSES[fault.kind]
    end = fault.begin if process is Process.TRAINER else fault.end
    fields: dict[str, Any] = {"process": process, "rank": None if process is Process.PLANNER else rank}
    events: list[Event] = [ProcessEvent(iteration=fault.begin, action=away, **fields)]
    if end is not None:
        events.append(ProcessEvent(iteration=end, action=back, **fields))
    return events
