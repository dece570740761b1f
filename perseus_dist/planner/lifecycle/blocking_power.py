"""Power of GPUs that wait for a peer: as ranks have measured it, or estimated until one has.

A rank measures it in a sweep, while its clock is the one that was asked for. Heat or a power cap may hold all GPUs
below that clock, and then the sweep shows nothing; another one is due once iterations at full clocks are shorter.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from statistics import fmean, median_low

from perseus_dist.messages.from_agent import Sample
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.profiling import Profiling, TakenSamples
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule_text import parse_schedule

_COMPUTATIONS = frozenset(Kind)
_ALIKE_POWER = 1.5  # times, that waiting GPUs of a job may differ by
_ESTIMATED_SHARE = 0.35
"""Of the least that a computation draws at any clock: fits of GPT-3 on A100 and Bloom on A40 say 0.36 and 0.40."""
_FASTER_SHARE = 0.01


def blocking_power_w(job: Job) -> tuple[float, ...]:
    """(pp_size) the mean of what its ranks drew waiting at their highest clock; the others' mean where none waited.

    GPUs of one model that wait draw alike. What is far from that, as where something disturbed the measurement, is left
    out. Where no rank of a model has waited, a share of the least power of a computation on that model.
    """
    assert job.spec is not None
    seen_w, found_w = _measured_w(job), dict[int, float]()
    for pp_ranks in _alike_pp_ranks(job):
        of_model_w = {pp_rank: seen_w[pp_rank] for pp_rank in pp_ranks if pp_rank in seen_w}
        usual_w = median_low([power_w for powers_w in of_model_w.values() for power_w in powers_w] or [0.0])
        alike_w = {
            pp_rank: [power_w for power_w in powers_w if usual_w / _ALIKE_POWER <= power_w <= _ALIKE_POWER * usual_w]
            for pp_rank, powers_w in of_model_w.items()
        }
        means_w = {pp_rank: fmean(powers_w) for pp_rank, powers_w in alike_w.items() if powers_w}
        elsewhere_w = fmean(means_w.values()) if means_w else _estimated_w(job, pp_ranks)
        found_w |= {pp_rank: means_w.get(pp_rank, elsewhere_w) for pp_rank in pp_ranks}
    return tuple(found_w[pp_rank] for pp_rank in range(job.spec.pp_size))


def is_blocking_power_known(job: Job) -> bool:
    """Whether some rank has measured it, or a saved profile has brought it along."""
    return bool(_measured_w(job))


def note_unmeasured(job: Job, time_s: float) -> None:
    """Note that no rank could measure it, if so, in iterations at full clocks that took this long [s]."""
    if not is_blocking_power_known(job) and _is_held_back(job.profiling):
        job.profiling.held_back_s = time_s


def why_measured_again(job: Job) -> str:
    """Why a sweep can measure it now that could not before, in a sentence; empty where none can."""
    probed, held_back_s = job.measured.probed, job.profiling.held_back_s
    if not held_back_s or not probed or probed[-1].time_s >= (1 - _FASTER_SHARE) * held_back_s:
        return ""
    return f"iterations at full clocks take {probed[-1].time_s:.4f} s now: measuring blocking power once more"


def _measured_w(job: Job) -> dict[int, list[float]]:
    """By pp_rank, what its ranks have measured in the newest series that tells."""
    seen_w: dict[int, list[float]] = {}
    profiling = job.profiling
    for series in sorted(profiling.samples.keys() & profiling.ended_series, reverse=True):
        newly_seen_w: defaultdict[int, list[float]] = defaultdict(list)
        for rank, taken in profiling.samples[series].items():
            at = [one for one in taken if one.samples.blocking_power_w > 0]
            if at:
                highest = max(at, key=lambda one: one.clock_mhz)
                newly_seen_w[job.members.places[rank].pp_rank].append(highest.samples.blocking_power_w)
        for pp_rank, powers_w in newly_seen_w.items():
            seen_w.setdefault(pp_rank, powers_w)
    return seen_w


def _alike_pp_ranks(job: Job) -> list[list[int]]:
    """The pp_ranks on GPUs of each model; replicas have the same, or are not planned.

    A pp_rank of which no rank is known yet is on the model that most are on.
    """
    assert job.spec is not None
    names = {
        place.pp_rank: job.members.fingerprints[rank].fingerprint.gpu_name
        for rank, place in job.members.places.items()
        if rank in job.members.fingerprints
    }
    usual = next((name for name, _ in Counter(names.values()).most_common(1)), "")
    of_models: defaultdict[str, list[int]] = defaultdict(list)
    for pp_rank in range(job.spec.pp_size):
        of_models[names.get(pp_rank, usual)].append(pp_rank)
    return list(of_models.values())


def _estimated_w(job: Job, pp_ranks: Collection[int]) -> float:
    powers_w = [
        sample.energy_j / sample.time_s
        for pp_rank, sample in _samples(job)
        if pp_rank in pp_ranks and sample.kind in _COMPUTATIONS and sample.energy_j > 0 and sample.time_s > 0
    ]
    return _ESTIMATED_SHARE * min(powers_w, default=0.0)


def _samples(job: Job) -> Iterator[tuple[int, Sample]]:
    """(pp_rank, sample); those of a saved profile are of a stage, which the schedule gives to a pp_rank."""
    profiling = job.profiling
    pp_rank_of = parse_schedule(job.schedule_text).rank_of_stage
    for series in profiling.samples.keys() & profiling.ended_series:
        for rank, taken in profiling.samples[series].items():
            for one in taken:
                for sample in one.samples.samples:
                    if sample.stage < 0:
                        yield job.members.places[rank].pp_rank, sample
                    elif sample.stage < len(pp_rank_of):
                        yield pp_rank_of[sample.stage], sample


def _is_held_back(profiling: Profiling) -> bool:
    """Whether a rank has measured no computation in a step of a sweep: its clock was another one."""
    return any(
        one.clock_mhz and not any(sample.kind in _COMPUTATIONS for sample in one.samples.samples)
        for one in _taken(profiling)
    )


def _taken(profiling: Profiling) -> Iterator[TakenSamples]:
    for series in profiling.samples.keys() & profiling.ended_series:
        for taken in profiling.samples[series].values():
            yield from taken
