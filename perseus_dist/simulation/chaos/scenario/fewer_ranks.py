"""Scenarios with fewer ranks in some way: what happened to a rank happens to one that is still there."""

from collections.abc import Iterator
from dataclasses import replace

from perseus_dist.simulation.chaos.scenario.events import GPUS_PER_NODE, Event, NextJob, StragglerOrder
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob


def with_fewer_pipelines(scenario: Scenario) -> Iterator[Scenario]:
    """Half of the pipelines, and one less; none where a later job has a size of its own."""
    dp = scenario.job.dp
    if not _has_own_sizes(scenario):
        for fewer in sorted({max(1, dp // 2), dp - 1} - {0, dp}):
            yield _resized(scenario, replace(scenario.job, dp=fewer))


def with_shorter_pipelines(scenario: Scenario) -> Iterator[Scenario]:
    """Half of the stages, and one less; for the interleaved schedule as many microbatches for each rank as before."""
    pp, job = scenario.job.pp, scenario.job
    is_interleaved = job.chunks > 1
    if _has_own_sizes(scenario) or any(
        isinstance(event, NextJob) and "microbatches" in event.changes and is_interleaved for event in scenario.events
    ):
        return
    for fewer in sorted({max(1 + is_interleaved, pp // 2), pp - 1} - {is_interleaved, 0, pp}):
        microbatches = job.microbatches // pp * fewer if is_interleaved else job.microbatches
        gpu = ",".join(job.gpu.split(",")[:fewer])
        yield _resized(scenario, replace(job, pp=fewer, microbatches=microbatches, gpu=gpu))


def with_smaller_groups(scenario: Scenario) -> Iterator[Scenario]:
    """Half of the ranks of each tensor-parallel group."""
    tp = scenario.job.tp
    if tp > 1 and not _has_own_sizes(scenario):
        yield _resized(scenario, replace(scenario.job, tp=tp // 2))


def _has_own_sizes(scenario: Scenario) -> bool:
    return any(
        isinstance(event, NextJob)
        and ({"pp", "dp", "tp"} & event.changes.keys() or "," in str(event.changes.get("gpu")))
        for event in scenario.events
    )


def _resized(scenario: Scenario, job: ScenarioJob) -> Scenario:
    events = tuple(_moved(event, scenario.job, job) for event in scenario.events)
    return replace(scenario, job=job, events=events)


def _moved(event: Event, before: ScenarioJob, after: ScenarioJob) -> Event:
    if isinstance(event, StragglerOrder) and event.pipeline is not None:
        return replace(event, pipeline=event.pipeline % after.dp)
    rank, node = getattr(event, "rank", None), getattr(event, "node", None)
    if rank is not None:
        dp_rank, pp_rank, tp_rank = rank // before.ranks_per_pipeline, before.pp_rank_of(rank), rank % before.tp
        last_before, last_after = max(1, before.pp - 1), after.pp - 1
        group = after.group_of(dp_rank % after.dp, round(pp_rank * last_after / last_before))
        return replace(event, rank=group[tp_rank % after.tp])
    if node is not None:
        return replace(event, node=node % -(-after.num_ranks // GPUS_PER_NODE))
    return event
