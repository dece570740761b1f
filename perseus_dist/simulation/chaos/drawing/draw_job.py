"""Draws what is trained."""

import random
from dataclasses import replace

from perseus_dist.simulation.chaos.drawing.phases import estimated_phases, estimated_time_s
from perseus_dist.simulation.chaos.scenario.scenario import SAVED, SWEEP, ScenarioJob
from perseus_dist.simulator.machine import MAX_GPUS

_MIN_TIME_S, _MAX_TIME_S = 0.2, 20.0
_MAX_SWEEP = 150  # iterations: a history must leave room for faults
_MAX_WORK = 320  # ranks x microbatches: what a played iteration costs grows with it
_TIME_EXPONENT = 1.6  # 1 draws evenly over the orders of magnitude
_MIN_SCALE = 0.1  # a forward of 5 ms
_SHARE_LARGE = 0.28  # of jobs with 16 ranks or more
_LARGE = 16
_VERY_LARGE, _SHARE_VERY_LARGE = 33, 0.15  # of those, with 33 ranks or more
_GPUS, _GPU_WEIGHTS = ("a100", "a40", "h100", "h200"), (4, 2, 2, 1)
_SHARE_MIXED = 0.1  # of jobs with several stages
_SHARE_DUALPIPEV = 0.12  # of jobs that can have it
_SHARE_TENSOR_PARALLEL = 0.31  # of jobs whose ranks and work allow it, which are nearly all
_MAX_PARALLEL_WORK = 2 * _MAX_WORK
_NOISES_PERCENT = (0.0, 0.0, 0.1, 0.3, 0.5, 1.0)
_SHARE_NOISY = 0.25  # of jobs
_NOISY_PERCENT = (1.5, 2.0, 2.5, 3.0)


def draw_job(rng: random.Random) -> ScenarioJob:
    """Draw a job: its sizes, schedule, GPU, imbalance, noise, profile, target and times."""
    pp, dp = _draw_sizes(rng)
    microbatches = rng.choice([m for m in (2, 3, 4, 6, 8, 12, 16) if m * pp * dp <= _MAX_WORK])
    chunks = 1
    schedule = rng.choices(("1f1b", "gpipe", "interleaved"), (6, 2, 2))[0]
    if schedule == "interleaved":
        if pp == 1 or pp * pp * dp > _MAX_WORK:
            schedule = "1f1b"
        else:
            microbatches, chunks = pp * max(1, microbatches // pp), 2
    job = ScenarioJob(
        schedule=schedule,
        pp=pp,
        dp=dp,
        microbatches=microbatches,
        chunks=chunks,
        gpu=rng.choices(_GPUS, _GPU_WEIGHTS)[0],
        imbalance=rng.choice((0.0, 0.05, 0.1, 0.1, 0.2, 0.4)),
        noise_percent=rng.choice(_NOISES_PERCENT),
        profile=rng.choice((SWEEP, SAVED)),
        target=rng.choices(("t_min", _slowdown(rng)), (4, 1))[0],
    )
    return _with_time(rng, job)


def on_mixed_gpus(rng: random.Random, job: ScenarioJob) -> ScenarioJob:
    """Some jobs are on GPUs of two models, the first stages on one and the others on another."""
    first, second = rng.sample(_GPUS, 2)
    if job.pp == 1 or rng.random() >= _SHARE_MIXED:
        return job
    num_first = rng.randrange(1, job.pp)
    return _with_short_sweep(replace(job, gpu=",".join([first] * num_first + [second] * (job.pp - num_first))))


def with_dualpipev(rng: random.Random, job: ScenarioJob) -> ScenarioJob:
    """Some jobs with several pp_ranks run DualPipeV, two chunks of the model on each and two microbatches for each."""
    microbatches = max(job.microbatches, 2 * job.pp)
    if job.pp == 1 or 2 * microbatches * job.pp * job.dp > _MAX_WORK or rng.random() >= _SHARE_DUALPIPEV:
        return job
    return _with_short_sweep(replace(job, schedule="dualpipev", microbatches=microbatches, chunks=1))


def with_tensor_parallel(rng: random.Random, job: ScenarioJob) -> ScenarioJob:
    """Some jobs share each computation among two or four ranks."""
    sizes = [
        tp
        for tp in (2, 4)
        if tp * job.num_ranks <= MAX_GPUS and tp * job.num_ranks * job.microbatches <= _MAX_PARALLEL_WORK
    ]
    if not sizes or rng.random() >= _SHARE_TENSOR_PARALLEL:
        return job
    return replace(job, tp=rng.choice(sizes))


def with_noise(rng: random.Random, job: ScenarioJob) -> ScenarioJob:
    """Some jobs have computations that take now much more, now much less, each by itself."""
    noise_percent = rng.choice(_NOISY_PERCENT)
    return replace(job, noise_percent=noise_percent) if rng.random() < _SHARE_NOISY else job


def draw_next_job(rng: random.Random, job: ScenarioJob) -> dict[str, object]:
    """Changes of a job that takes another's name: its workload, its GPU or its batch size."""
    match rng.randrange(3):
        case 0:
            time_scale = round(job.time_scale * rng.choice((0.7, 0.9, 1.1, 1.5)), 4)
            more = rng.choice((0.0, 0.1, 0.3))
            return {"time_scale": time_scale, **({"imbalance": round(job.imbalance + more, 2)} if more else {})}
        case 1:
            gpu = rng.choice([gpu for gpu in _GPUS if gpu != job.gpu])
            longer = _with_short_sweep(replace(job, gpu=gpu))
            changes: dict[str, object] = {"gpu": gpu}
            return changes if longer.time_scale == job.time_scale else {**changes, "time_scale": longer.time_scale}
        case _:
            step = job.pp if job.schedule == "interleaved" else 1
            return {"microbatches": job.microbatches + step * rng.choice((1, 2))}


def _with_short_sweep(job: ScenarioJob) -> ScenarioJob:
    while _sweep_length(job) > _MAX_SWEEP:
        job = replace(job, time_scale=job.time_scale * 2)
    return job


def _draw_sizes(rng: random.Random) -> tuple[int, int]:
    is_large, is_very_large = rng.random() < _SHARE_LARGE, rng.random() < _SHARE_VERY_LARGE
    low, high = (1, _LARGE) if not is_large else (_VERY_LARGE, 65) if is_very_large else (_LARGE, _VERY_LARGE)
    while True:
        pp, dp = rng.choice((1, 2, 2, 3, 4, 4, 6, 8)), rng.randint(1, 8)
        if low <= pp * dp < high:
            return pp, dp


def _slowdown(rng: random.Random) -> str:
    return f"slowdown={rng.choice((1.02, 1.05, 1.1, 1.2))}"


def _with_time(rng: random.Random, job: ScenarioJob) -> ScenarioJob:
    """An iteration of 0.2 to 20 s, and not so short that the sweep takes ages.

    Short ones are drawn more often: what a played iteration costs also grows with its seconds.
    """
    low = max(_MIN_TIME_S, _MIN_SCALE * estimated_time_s(job))
    while True:
        time_s = low * max(_MAX_TIME_S / low, 1.01) ** (rng.random() ** _TIME_EXPONENT)
        timed = replace(job, time_scale=round(time_s / estimated_time_s(job), 4))
        if _sweep_length(timed) <= _MAX_SWEEP:
            return timed
        low *= 1.1


def _sweep_length(job: ScenarioJob) -> int:
    phases = estimated_phases(job)
    return phases.planning - phases.sweep
