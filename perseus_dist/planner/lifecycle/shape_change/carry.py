"""A job that comes back in another shape: what was measured of its stages is kept, and used where it still holds.

The samples of a shape are known by rank, and go with it. Before that, they are summed up by stage of the model, beside
what earlier shapes have left (``stages_of_job``). Once all ranks of the new shape are there and have said what they
hold, its stages are looked up among those (``use_stages``), and stand for a sweep: one of round ``CARRIED_ROUND``.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from perseus_dist.fingerprint import Fingerprint, of_stage
from perseus_dist.messages.from_agent import ProfileSamples, Sample
from perseus_dist.planner.job.facts.sweeps import CARRIED_ROUND, OF_STAGES, SamplesReceived, SweepBegun, SweepEnded
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.blocking_power import blocking_power_w, is_blocking_power_known
from perseus_dist.planner.lifecycle.events import Effect, Log, Persist
from perseus_dist.planner.lifecycle.plan import has_profile, newest_samples, newest_series, switch_latency_s
from perseus_dist.planner.lifecycle.reset import spend
from perseus_dist.planner.lifecycle.sweeping.series_samples import keep_samples
from perseus_dist.planner.lifecycle.sweeping.witnesses import believed_ranks, of_newest_state
from perseus_dist.planner.shapes.stage import MeasuredStage, StageWork, computes_alike, joined
from perseus_dist.planner.shapes.stage_estimates import StagesOfShape, UnknownStageError, stages_of_shape
from perseus_dist.planning.profile.samples import ALIKE_SHARE
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE, Kind
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.straggler.layout import RankCoords

_COMPUTATIONS = frozenset(Kind)
_NO_AGENT = 0  # incarnation of samples that no agent has sent


def stages_of_job(job: Job) -> tuple[MeasuredStage, ...]:
    """Measurements of stages: of earlier shapes, and of the present one as far as its ranks have taken them."""
    known = job.profiling.stages
    if job.spec is None or not job.schedule_text or not has_profile(job):
        return known
    works = works_of_job(job, parse_schedule(job.schedule_text))
    series = {rank: newest_series(job.profiling, rank) for rank in job.members.places}
    own = [rank for rank, number in series.items() if number in job.profiling.sweeps and not _is_carried(job, number)]
    taken = of_newest_state({rank: newest_samples(job.profiling, rank) for rank in own})
    rows: defaultdict[tuple[int, int], defaultdict[int, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for rank in believed_ranks(taken, job.members.places):
        place = job.members.places[rank]
        for one in taken[rank]:
            for sample in one.samples.samples:
                if sample.stage < 0:
                    rows[place.pp_rank, sample.chunk][place.tp_rank].append(sample)
    powers_w, latency_s = blocking_power_w(job), switch_latency_s(job)
    measured = [
        MeasuredStage(
            work=works[key],
            samples=_of_group(of_ranks.values()),
            blocking_power_w=powers_w[key[0]] if is_blocking_power_known(job) else 0.0,  # an estimate is not measured
            switch_latency_s=latency_s,
        )
        for key, of_ranks in sorted(rows.items())
        if key in works
    ]
    return joined(known, tuple(measured))


def keep_stages(job: Job, stages: tuple[MeasuredStage, ...]) -> list[Effect]:
    """Keep these across the change of shape that is under way; all samples by rank are dropped already."""
    job.profiling.stages, job.profiling.has_tried_stages = stages, False
    if not stages:
        return []
    facts = tuple(
        SamplesReceived(
            rank=number,
            pp_rank=0,
            dp_rank=0,
            tp_rank=0,
            incarnation=_NO_AGENT,
            series=OF_STAGES,
            clock_mhz=0,
            samples=ProfileSamples(
                sequence=1,
                sweep_id=0,
                step=0,
                samples=stage.samples,
                blocking_power_w=stage.blocking_power_w,
                switch_latency_s=stage.switch_latency_s,
                last=True,
            ),
            work=stage.work,
        )
        for number, stage in enumerate(stages)
    )
    return [Persist(facts=facts, drop=(f"samples/{OF_STAGES}/",))]


def use_stages(job: Job) -> list[Effect]:
    """Make a profile of what was measured in other shapes, once all ranks are there; in vain, it is said why."""
    if (
        not job.profiling.stages
        or job.profiling.has_tried_stages
        or job.plan is not None
        or job.profiling.sweep is not None
        or job.profiling.samples
        or job.num_attached < job.num_ranks
        or job.members.ranks[0].has_profile
    ):
        return []
    job.profiling.has_tried_stages = True
    schedule = parse_schedule(job.schedule_text)
    works = works_of_job(job, schedule)
    of_ranks = _stages_of_ranks(schedule)
    places = {stage: (pp_rank, chunk) for pp_rank, own in enumerate(of_ranks) for chunk, stage in enumerate(own)}
    try:
        wanted = [_known(works, places[stage], stage) for stage in range(schedule.num_stages)]
        found = stages_of_shape(wanted, _kinds(schedule), job.profiling.stages)
    except UnknownStageError as error:
        return [
            Log(sentence=f"what was measured in another shape does not hold for this one ({error}): profiling anew")
        ]
    return [Log(sentence=_sentence(found)), *_as_series(job, of_ranks, found)]


def _sentence(found: StagesOfShape) -> str:
    num_stages, kept = len(found.stages), len(found.stages) - found.num_estimated
    if not found.num_estimated:
        return f"the profile of all {num_stages} stages is used as it was measured in another shape: no sweep"
    estimated = f"follows from others by their layers, to within {100 * found.doubt:.1f} %: no sweep"
    if not kept:
        return f"the profile of all {num_stages} stages {estimated}"
    return (
        f"the profile of {kept} of {num_stages} stages is used as it was measured in another shape, and that of "
        f"{found.num_estimated} {estimated}"
    )


def _as_series(job: Job, of_ranks: Sequence[Sequence[int]], found: StagesOfShape) -> list[Effect]:
    """As if the ranks of the first pipeline had measured it in a sweep."""
    assert job.spec is not None
    job.profiling.sweep_id += 1
    series = job.profiling.sweep_id
    facts: list[SamplesReceived] = []
    clocks_of: dict[int, tuple[int, ...]] = {}
    for pp_rank, stages in enumerate(of_ranks):
        rows: defaultdict[int, list[Sample]] = defaultdict(list)
        for chunk, stage in enumerate(stages):
            for sample in found.stages[stage].samples:
                rows[sample.clock_mhz].append(replace(sample, chunk=chunk))
        base = found.stages[stages[0]]
        for tp_rank in range(job.spec.tp_size):
            rank = job.members.rank_at[RankCoords(pp_rank, 0, tp_rank)]
            clocks_of[rank] = tuple(sorted(rows, reverse=True))
            facts += [
                SamplesReceived(
                    rank=rank,
                    pp_rank=pp_rank,
                    dp_rank=0,
                    tp_rank=tp_rank,
                    incarnation=_NO_AGENT,
                    series=series,
                    clock_mhz=clock_mhz,
                    samples=ProfileSamples(
                        sequence=step + 1,
                        sweep_id=series,
                        step=step,
                        samples=tuple(rows[clock_mhz]),
                        blocking_power_w=base.blocking_power_w,
                        switch_latency_s=base.switch_latency_s,
                        last=True,
                    ),
                )
                for step, clock_mhz in enumerate(clocks_of[rank])
            ]
    ordered = SweepBegun(
        sweep_id=series,
        series=series,
        first_iteration=0,
        iterations_per_clock=1,
        clocks_mhz=tuple(sorted(set().union(*clocks_of.values()), reverse=True)),
        ranks=tuple(sorted(clocks_of)),
        first_only=(),
        is_profile=True,
        num_round=CARRIED_ROUND,
        clocks_of_ranks=tuple(clocks for _, clocks in sorted(clocks_of.items())),
    )
    job.profiling.sweeps[series] = ordered
    for fact in facts:
        keep_samples(job.profiling, fact)
    job.profiling.ended_series.add(series)
    job.num_changes += 1
    ended = SweepEnded(series=series)
    return [Persist(facts=(ordered, *facts, ended, spend(job, keeps_profile=True)))]


def _is_carried(job: Job, series: int) -> bool:
    return job.profiling.sweeps[series].num_round == CARRIED_ROUND


def _stages_of_ranks(schedule: Schedule) -> list[list[int]]:
    return [sorted({instruction.stage for instruction in order}) for order in schedule.ranks]


def _kinds(schedule: Schedule) -> list[set[str]]:
    found: list[set[str]] = [set() for _ in range(schedule.num_stages)]
    for order in schedule.ranks:
        for instruction in order:
            found[instruction.stage].add(instruction.kind)
    return found


def works_of_job(job: Job, schedule: Schedule) -> dict[tuple[int, int], StageWork]:
    """By pp_rank and chunk; without those whose ranks are not all known to compute alike."""
    works: defaultdict[int, dict[StageWork, None]] = defaultdict(dict)  # different ones, by stage, as first seen
    of_stages: dict[Fingerprint, Fingerprint] = {}  # thousands of ranks have few
    of_ranks, num_stages, found = _stages_of_ranks(schedule), schedule.num_stages, {}
    for rank, place in job.members.places.items():
        known = job.members.fingerprints.get(rank)
        if known is None or place.pp_rank >= len(of_ranks):
            continue
        workload, stages = known.fingerprint.workload, of_ranks[place.pp_rank]
        fingerprint = of_stages.get(known.fingerprint)
        if fingerprint is None:
            fingerprint = of_stages[known.fingerprint] = of_stage(known.fingerprint)
        for chunk, stage in enumerate(stages):
            work = StageWork(
                index=stage,
                num_stages=num_stages,
                parameters=workload.stage_parameters[chunk] if len(workload.stage_parameters) == len(stages) else 0,
                layers=workload.stage_layers[chunk] if len(workload.stage_layers) == len(stages) else 0,
                fingerprint=fingerprint,
            )
            works[stage].setdefault(work)
            found[place.pp_rank, chunk] = next(iter(works[stage]))
    return {key: work for key, work in found.items() if all(computes_alike(work, o) for o in works[work.index])}


def _known(works: dict[tuple[int, int], StageWork], place: tuple[int, int], stage: int) -> StageWork:
    if place not in works:
        raise UnknownStageError(f"ranks of stage {stage} do not compute alike, or do not say what they compute")
    return works[place]


def _of_group(of_ranks: Iterable[Sequence[Sample]]) -> tuple[Sample, ...]:
    """By kind and clock: the time of the slowest GPU of a tensor-parallel group, and the energy of one on average."""
    by_key: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)
    for samples in of_ranks:
        own: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)
        for sample in samples:
            own[sample.kind, sample.clock_mhz].append(sample)
        for key, of_replicas in own.items():
            by_key[key].append(_of_replicas(of_replicas))
    return tuple(
        replace(
            max(of_gpus, key=lambda sample: sample.time_s),
            energy_j=fmean(sample.energy_j for sample in of_gpus),
            chunk=0,
        )
        for _, of_gpus in sorted(by_key.items(), key=lambda item: (-item[0][1], item[0][0]))
    )


def _of_replicas(samples: Sequence[Sample]) -> Sample:
    """One kind at one clock: the mean of replicas that were not disturbed; of a constant, the one that waited least."""
    least = min(samples, key=lambda sample: sample.time_s)
    if least.kind not in _COMPUTATIONS and least.kind != CLOCK_CHANGE:
        return least
    alike = [sample for sample in samples if sample.time_s <= (1 + ALIKE_SHARE) * least.time_s]
    if least.kind == CLOCK_CHANGE:
        alike = list(samples)
    return replace(
        least,
        time_s=fmean(sample.time_s for sample in alike),
        energy_j=fmean(sample.energy_j for sample in alike),
        time_p90_s=max(sample.time_p90_s for sample in alike),
        num_runs=sum(sample.num_runs for sample in alike),
    )
