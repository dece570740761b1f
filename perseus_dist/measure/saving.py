"""Saving of a pipeline of the measured stage: a plan from the measured curves, and an interval from their noise.

The interval is a parametric bootstrap: the measured curves stand for the truth, profiles are drawn around them with the
noise that repeated measurements showed, each is planned on, and what such a plan promises is held against what it
would really save. The mean of the difference corrects the promise (a plan picks points that noise made look cheap), and
twice its standard deviation is the interval.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from perseus_dist.measure.clock_sweep import KINDS, Point
from perseus_dist.measure.errors import MeasureError
from perseus_dist.measure.switch_latency import TargetLatency
from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.planning.profile.profile_csv import Row, write_rows
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import ps_from_s, uw_from_w

_NUM_DRAWS = 24
_NUM_POINTS = 64  # of the frontier that is shown
_NUM_POINTS_DRAWN = 4  # beside the one plan that counts
_SIGMAS = 2.0
_MAX_INSTRUCTIONS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How well measurements repeat: relative standard deviation of one point, pooled over all clocks.

    Attributes:
        time, energy: As shares.
        num_pairs: Clocks that were measured twice; without any, what a single point says of itself.
    """

    time: float
    energy: float
    num_pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSaving:
    """A 1F1B pipeline of equal stages under the plan that is no later than all-maximum clocks.

    Attributes:
        pp_size, num_microbatches: Of the pipeline.
        saving_percent: Of the pipeline's energy, corrected for what noise promises too much.
        half_width_percent: Of its interval: two standard deviations.
        slowdown_percent: Of the plan on the measured times.
        late_percent: The slowdown that noise may add: mean plus two standard deviations, at least 0.
        iteration_s, energy_j: At maximum clocks.
        switch_latency_s: Counted for every change of clocks.
        largest_saving_percent: Of the plan of least energy, and
        largest_slowdown_percent: the slowdown that it takes.
    """

    pp_size: int
    num_microbatches: int
    saving_percent: float
    half_width_percent: float
    slowdown_percent: float
    late_percent: float
    iteration_s: float
    energy_j: float
    switch_latency_s: float
    largest_saving_percent: float
    largest_slowdown_percent: float


def check_pipeline(pp_size: int, num_microbatches: int) -> None:
    """Whether a pipeline is one that is planned in seconds; to be asked before minutes are spent on measuring.

    Raises:
        MeasureError: It has too many instructions.
    """
    num_instructions = 2 * pp_size * num_microbatches
    if num_instructions > _MAX_INSTRUCTIONS:
        raise MeasureError(
            f"--pp {pp_size} --microbatches {num_microbatches}: {num_instructions} instructions, expected at most "
            f"{_MAX_INSTRUCTIONS}; measure with a smaller pipeline, and plan the large one with 'perseus-dist plan'"
        )


def write_stage_profile(
    points: Sequence[Point], latencies: Sequence[TargetLatency], path: Path, *, num_stages: int
) -> None:
    """Write a profile that ``perseus-dist plan`` reads: the measured stage as every stage of a pipeline.

    How long its GPU takes to change clocks stands there too, as far as that is known.

    Raises:
        OutputError: The place cannot be written to.
    """
    rows = [
        Row(
            line=0,
            stage=stage,
            kind=point.kind,
            clock_mhz=point.clock_mhz,
            time_s=point.time_s,
            energy_j=point.energy_j,
            samples=point.num_runs,
            time_std_s=point.time_std_s,
            energy_std_j=point.energy_j * math.sqrt(point.num_runs) * point.power_se_w / point.power_w,
        )
        for stage in range(num_stages)
        for point in sorted(points, key=lambda point: (point.kind != "F", -point.clock_mhz))
    ]
    told = [(latency.clock_mhz, latency.switch_s) for latency in latencies if latency.switch_s.num]
    rows += [
        Row(
            line=0,
            stage=stage,
            kind=CLOCK_CHANGE,
            clock_mhz=clock_mhz,
            time_s=switch_s.median,
            energy_j=0.0,
            samples=switch_s.num,
            time_p90_s=switch_s.p90,
        )
        for stage in range(num_stages)
        for clock_mhz, switch_s in told
    ]
    write_rows(path, rows)


def noise_of(points: Sequence[Point]) -> Noise:
    """From the points that were measured twice."""
    pairs = defaultdict(list)
    for point in points:
        pairs[point.kind, point.clock_mhz].append(point)
    twice = [(pair[0], pair[1]) for pair in pairs.values() if len(pair) == 2]
    time = math.sqrt(statistics.fmean(point.time_std_s**2 / point.num_runs / point.time_s**2 for point in points))
    power = math.sqrt(statistics.fmean((point.power_se_w / point.power_w) ** 2 for point in points))
    energy = math.hypot(time, power)
    if twice:
        time = max(time, _repeatability([(a.time_s, b.time_s) for a, b in twice]))
        energy = max(energy, _repeatability([(a.energy_j, b.energy_j) for a, b in twice]))
    return Noise(time=time, energy=energy, num_pairs=len(twice))


def predict_saving(
    profile_path: Path,
    *,
    noise: Noise,
    blocking_power_w: float,
    switch_latency_s: float,
    pp_size: int,
    num_microbatches: int,
    seed: int = 0,
) -> tuple[PipelineSaving, Frontier]:
    """Plan on a profile that ``write_stage_profile`` wrote; what that saves, and the frontier.

    Args:
        profile_path: The profile.
        noise: Of one of its rows.
        blocking_power_w: [W] of one GPU.
        switch_latency_s: [s] that a change of clocks takes where the profile does not say.
        pp_size: Ranks of the pipeline, as many as the profile has stages.
        num_microbatches: Of an iteration.
        seed: Of the drawn noise.

    Raises:
        ProfileError: The profile cannot be planned with.
    """
    profile = read_profile(profile_path)
    schedule = one_f_one_b(pp=pp_size, microbatches=num_microbatches)
    blocking_uw = [int(uw_from_w(blocking_power_w))] * pp_size

    def problem_of(source: Profile) -> PlanningProblem:
        return make_problem(schedule, source, blocking_uw_of_rank=blocking_uw)

    problem, free = problem_of(profile), replace(profile, clock_changes={})  # of noise, without latency
    latency_ps = int(ps_from_s(switch_latency_s))
    frontier = plan_frontier(problem, switch_latency_ps=latency_ps, num_points=_NUM_POINTS, thorough=False)
    baseline = frontier.baseline
    execution = frontier.execution(frontier.point_for_deadline(baseline.time_ps))
    promised, slowdowns = [], []
    random = np.random.default_rng(seed)
    for _ in range(_NUM_DRAWS):
        drawn = problem_of(_with_noise(free, noise, random))
        quick = plan_frontier(drawn, num_points=_NUM_POINTS_DRAWN, thorough=False)
        point = quick.point_for_deadline(quick.baseline.time_ps)
        real = replay(problem_of(free), quick.clock_indices[point])
        promised.append(
            1 - int(quick.total_uj[point]) / quick.baseline.total_uj - (1 - real.total_uj / baseline.total_uj)
        )
        slowdowns.append(real.time_ps / baseline.time_ps - 1)
    least = frontier.execution(int(frontier.deadline_points[-1]))
    saving = PipelineSaving(
        pp_size=pp_size,
        num_microbatches=num_microbatches,
        saving_percent=100 * (1 - execution.total_uj / baseline.total_uj - statistics.fmean(promised)),
        half_width_percent=100 * _SIGMAS * statistics.stdev(promised),
        slowdown_percent=100 * (execution.time_ps / baseline.time_ps - 1),
        late_percent=100 * max(0.0, statistics.fmean(slowdowns) + _SIGMAS * statistics.stdev(slowdowns)),
        iteration_s=baseline.time_ps / 1e12,
        energy_j=baseline.total_uj / 1e6,
        switch_latency_s=switch_latency_s,
        largest_saving_percent=100 * (1 - least.total_uj / baseline.total_uj),
        largest_slowdown_percent=100 * (least.time_ps / baseline.time_ps - 1),
    )
    return saving, frontier


def _repeatability(pairs: Sequence[tuple[float, float]]) -> float:
    """Relative standard deviation of one of two measurements of the same."""
    return math.sqrt(statistics.fmean(((a - b) / (a + b) * 2) ** 2 for a, b in pairs) / 2)


def _with_noise(profile: Profile, noise: Noise, random: np.random.Generator) -> Profile:
    """Another measurement of the same stage: all stages of a profile are one stage, and get the same noise."""
    drawn: Mapping[str, Measurements] = {kind: _drawn(profile.measurements[0, kind], noise, random) for kind in KINDS}
    return replace(profile, measurements={key: drawn[key[1]] for key in profile.measurements})


def _drawn(measured: Measurements, noise: Noise, random: np.random.Generator) -> Measurements:
    shape = measured.times_s.shape
    times = 1 + noise.time / np.sqrt(2 if noise.num_pairs else 1) * random.standard_normal(shape)
    energies = 1 + noise.energy / np.sqrt(2 if noise.num_pairs else 1) * random.standard_normal(shape)
    return replace(measured, times_s=measured.times_s * times, energies_j=measured.energies_j * energies)
