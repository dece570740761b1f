"""Events as objects of a scenario file: ``{"iteration": 40, "rank": 5, "thermal_cap_mhz": 1005}``.

Each kind of event has a field of its own that says what happens; ``iteration`` and the place stand beside it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from perseus_dist.errors import PerseusError
from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.scenario.events import (
    GPUS_PER_NODE,
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
)
from perseus_dist.simulation.chaos.scenario.job_fields import changed_fields, take_job
from perseus_dist.simulation.chaos.scenario.json_fields import JsonFields
from perseus_dist.simulation.chaos.scenario.scenario import ScenarioJob
from perseus_dist.simulation.chaos.scenario.target import parse_scenario_target

_MAX_ITERATION = 10**6
_MAX_SLOWDOWN = 100.0
_MAX_S = 1e4


def read_event(fields: object, where: str, job: ScenarioJob) -> Event:
    """Read an event.

    Args:
        fields: Of a JSON file.
        where: Names the event in messages.
        job: The job that it happens to.

    Raises:
        ScenarioError: It is none, or cannot happen to that job.
    """
    taken = JsonFields(fields, where)
    iteration = taken.whole("iteration", 0, _MAX_ITERATION)
    kinds = [name for name in _TAKE if name in taken]
    if len(kinds) != 1:
        raise ScenarioError(
            f"{where}: saw {' and '.join(kinds) or 'no field that says what happens'}, expected one of "
            f"{', '.join(_TAKE)}; write one event for each"
        )
    event = _TAKE[kinds[0]](taken, where, iteration, job)
    taken.end()
    return event


def _gpus(taken: JsonFields, where: str, job: ScenarioJob) -> dict[str, Any]:
    num_nodes = -(-job.num_ranks // GPUS_PER_NODE)
    place = {
        "rank": taken.whole("rank", 0, job.num_ranks - 1, None),
        "node": taken.whole("node", 0, num_nodes - 1, None),
    }
    if (place["rank"] is None) == (place["node"] is None):
        seen = "neither" if place["rank"] is None else "both"
        raise ScenarioError(f'{where}: saw {seen} of "rank" and "node", expected one; say which GPUs it is about')
    return place


def _read_slowdown(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:
    slowdown = taken.real("slowdown", 1, _MAX_SLOWDOWN, None) or 1.0
    return SlowDown(iteration=iteration, slowdown=slowdown, **_gpus(taken, where, job))


def _read_heat(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:
    cap_mhz = taken.whole("thermal_cap_mhz", 1, 10**5, None)
    event = HeatCap(iteration=iteration, thermal_cap_mhz=cap_mhz, **_gpus(taken, where, job))
    if cap_mhz is not None:
        try:
            for preset in job.presets_of(event.ranks(job.num_ranks)):
                preset.check_clock(cap_mhz)
        except PerseusError as error:
            raise ScenarioError(f"{where}: thermal_cap_mhz: {error}") from None
    return event


def _read_power(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:
    place = _gpus(taken, where, job)
    presets = job.presets_of(PowerCap(iteration=iteration, power_limit_w=None, **place).ranks(job.num_ranks))
    least_w, most_w = (max(one.power_limits_w[0] for one in presets), min(one.power_limits_w[2] for one in presets))
    return PowerCap(iteration=iteration, power_limit_w=taken.real("power_limit_w", least_w, most_w, None), **place)


def _read_link(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:
    transfer_s = taken.real("transfer_s", 0, _MAX_S, None)
    return SlowLink(iteration=iteration, transfer_s=transfer_s or None, **_gpus(taken, where, job))


def _process_reader(action: ProcessAction) -> "_Read":
    def take(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:
        is_lasting = action in (ProcessAction.STOP, ProcessAction.CONTINUE)  # without trainers nothing goes on
        among = tuple(process for process in Process if not (is_lasting and process is Process.TRAINER))
        process = Process(taken.text(action, among=among))
        rank = taken.whole("rank", 0, job.num_ranks - 1, None)
        if (process is Process.PLANNER) != (rank is None):
            seen, remedy = ("no rank", "add it") if rank is None else (f"rank {rank}", "leave it out")
            expected = "none: a job has one planner" if process is Process.PLANNER else f"that of the {process}"
            raise ScenarioError(f"{where}: rank: saw {seen}, expected {expected}; {remedy}")
        return ProcessEvent(iteration=iteration, action=action, process=process, rank=rank)

    return take


def _read_delay(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:  # noqa: ARG001
    delay_s = taken.real("delay_s", 0, _MAX_S, None) or None
    return MessageDelay(iteration=iteration, delay_s=delay_s, rank=taken.whole("rank", 0, job.num_ranks - 1, None))


def _read_partition(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:  # noqa: ARG001
    is_partitioned = taken.switch("partition")
    rank = taken.whole("rank", 0, job.num_ranks - 1, None)
    return Partition(iteration=iteration, is_partitioned=is_partitioned, rank=rank)


def _read_repetition(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:  # noqa: ARG001
    repeat = taken.real("repeat", 0, 1, None) or None
    return Repetition(iteration=iteration, repeat=repeat, rank=taken.whole("rank", 0, job.num_ranks - 1, None))


def _read_loss(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:  # noqa: ARG001
    lose = taken.real("lose", 0, 1, None) or None
    return Loss(iteration=iteration, lose=lose, rank=taken.whole("rank", 0, job.num_ranks - 1, None))


def _read_disk(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:  # noqa: ARG001
    return DiskFull(iteration=iteration, is_full=taken.switch("disk_full"))


def _read_target(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:  # noqa: ARG001
    target = taken.text("target")
    parse_scenario_target(target, f"{where}: target")
    return TargetOrder(iteration=iteration, target=target)


def _read_straggler(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:
    reported = taken.any("straggler")
    if reported is None:
        return StragglerOrder(iteration=iteration)
    fields = JsonFields(reported, f"{where}: straggler")
    pipeline = fields.whole("pipeline", 0, job.dp - 1)
    degree = fields.real("degree", 1, _MAX_SLOWDOWN, None)
    fields.end()
    return StragglerOrder(iteration=iteration, pipeline=pipeline, degree=degree)


def _read_next_job(taken: JsonFields, where: str, iteration: int, job: ScenarioJob) -> Event:
    fields = JsonFields(taken.any("job"), f"{where}: job")
    later = take_job(fields, f"{where}: job", earlier=job)
    fields.end()
    if iteration == 0:
        raise ScenarioError(f"{where}: iteration: saw 0, expected 1 or more; a first job must have trained")
    return NextJob(iteration=iteration, changes=changed_fields(job, later))


_Read = Callable[[JsonFields, str, int, ScenarioJob], Event]
_TAKE: Mapping[str, _Read] = {
    "slowdown": _read_slowdown,
    "thermal_cap_mhz": _read_heat,
    "power_limit_w": _read_power,
    "transfer_s": _read_link,
    **{action.value: _process_reader(action) for action in ProcessAction},
    "delay_s": _read_delay,
    "partition": _read_partition,
    "repeat": _read_repetition,
    "lose": _read_loss,
    "disk_full": _read_disk,
    "target": _read_target,
    "straggler": _read_straggler,
    "job": _read_next_job,
}


def format_event(event: Event) -> dict[str, Any]:
    """The event as an object of a file; the inverse of ``read_event``."""
    fields: dict[str, Any] = {"iteration": event.iteration, **_place(event)}
    match event:
        case SlowDown():
            return {**fields, "slowdown": event.slowdown}
        case HeatCap():
            return {**fields, "thermal_cap_mhz": event.thermal_cap_mhz}
        case PowerCap():
            return {**fields, "power_limit_w": event.power_limit_w}
        case SlowLink():
            return {**fields, "transfer_s": event.transfer_s}
        case ProcessEvent():
            return {"iteration": event.iteration, event.action.value: event.process.value, **_place(event)}
        case MessageDelay():
            return {**fields, "delay_s": event.delay_s}
        case Partition():
            return {**fields, "partition": event.is_partitioned}
        case Repetition():
            return {**fields, "repeat": event.repeat}
        case Loss():
            return {**fields, "lose": event.lose}
        case DiskFull():
            return {**fields, "disk_full": event.is_full}
        case TargetOrder():
            return {**fields, "target": event.target}
        case StragglerOrder(pipeline=None):
            return {**fields, "straggler": None}
        case StragglerOrder():
            return {**fields, "straggler": {"pipeline": event.pipeline, "degree": event.degree}}
        case NextJob():
            return {**fields, "job": dict(event.changes)}


def _place(event: Event) -> dict[str, int]:
    named = {name: getattr(event, name, None) for name in ("rank", "node")}
    return {name: value for name, value in named.items() if value is not None}
