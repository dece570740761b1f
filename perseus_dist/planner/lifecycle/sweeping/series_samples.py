"""Samples of a sweep's series: kept as they come, dropped when replaced; whether lower clocks can still pay."""

from collections import defaultdict
from statistics import fmean

from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.planner.job.facts.sweeps import OF_STAGES, SAVED_PROFILE, SamplesReceived
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.profiling import ActiveSweep, Profiling, TakenSamples
from perseus_dist.planner.shapes.stage import MeasuredStage
from perseus_dist.planning.schedule.instruction import Kind

_COMPUTATIONS = frozenset(Kind)


def keep_samples(profiling: Profiling, fact: SamplesReceived) -> None:
    """Add samples to what is known, when they come and when a job is restored."""
    if fact.series == OF_STAGES:
        if fact.work is not None:
            stage = MeasuredStage(
                work=fact.work,
                samples=fact.samples.samples,
                blocking_power_w=fact.samples.blocking_power_w,
                switch_latency_s=fact.samples.switch_latency_s,
            )
            profiling.stages = (*profiling.stages, stage)
        return
    key = (fact.rank, fact.incarnation)
    profiling.acked_samples[key] = max(profiling.acked_samples.get(key, 0), fact.samples.sequence)
    taken = profiling.samples.setdefault(fact.series, {}).setdefault(fact.rank, [])
    taken.append(TakenSamples(fact.clock_mhz, fact.samples))
    if fact.samples.last and profiling.sweep is not None and profiling.sweep.ordered.series == fact.series:
        profiling.sweep.take(fact.rank, fact.clock_mhz)


def drop_replaced(profiling: Profiling, series: int) -> list[str]:
    """Forget older samples of the ranks that this series has measured; returns the prefixes of their keys."""
    drop: list[str] = []
    measured = profiling.samples.get(series, {}).keys()
    for older in [known for known in profiling.samples if SAVED_PROFILE < known < series]:
        for rank in measured & profiling.samples[older].keys():
            del profiling.samples[older][rank]
            drop.append(f"samples/{older}/{rank}/")
        if not profiling.samples[older]:
            gone = [sweep_id for sweep_id, ordered in profiling.sweeps.items() if ordered.series == older]
            for sweep_id in gone:
                del profiling.sweeps[sweep_id]
            del profiling.samples[older]
            profiling.ended_series.discard(older)
            drop += [f"ended/{older}/", *(f"sweep/{sweep_id}/" for sweep_id in gone)]
    return drop


def has_risen(job: Job, sweep: ActiveSweep) -> bool:
    """Whether every instruction's energy has its minimum so far behind it that lower clocks cannot pay.

    Judged on the clocks at which every stage has been measured by some rank. An instruction that could not be measured
    at one of them says nothing about it.
    """
    first, rises = job.profiling.sweeps[sweep.ordered.series], job.policy.num_rises_to_stop
    if not job.members.places.keys() >= set(first.ranks):
        return False  # the planner was restarted, and some have not come back
    energies_j: defaultdict[tuple[int, int, str, int], list[float]] = defaultdict(list)
    stages: defaultdict[int, set[int]] = defaultdict(set)  # measured, by clock
    for rank in first.ranks:
        pp_rank = job.members.places[rank].pp_rank
        for taken in job.profiling.samples.get(first.series, {}).get(rank, ()):
            stages[taken.clock_mhz].add(pp_rank)
            for sample in taken.samples.samples:
                energies_j[pp_rank, sample.chunk, sample.kind, taken.clock_mhz].append(sample.energy_j)
    all_stages = {job.members.places[rank].pp_rank for rank in first.ranks}
    done_mhz = [clock for clock in first.clocks_mhz if stages[clock] == all_stages]
    for pp_rank, chunk, kind in {key[:3] for key in energies_j if key[2] in _COMPUTATIONS}:
        keys = [(pp_rank, chunk, kind, clock) for clock in done_mhz]
        means_j = [fmean(energies_j[key]) for key in keys if key in energies_j]
        if not means_j or len(means_j) - 1 - means_j.index(min(means_j)) < rises:
            return False
    return bool(energies_j)


def clock_of_step(profiling: Profiling, rank: int, message: ProfileSamples) -> int:
    """[MHz] of a rank's step; 0 for a saved profile, or a step that the sweep does not have."""
    ordered = profiling.sweeps.get(message.sweep_id)
    clocks_mhz = ordered.clocks_of(rank) if ordered is not None else ()
    return clocks_mhz[message.step] if 0 <= message.step < len(clocks_mhz) else 0
