"""Profiles of simulated jobs beside the simulator's truth."""

import csv
import math
from io import StringIO
from statistics import NormalDist

from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.detection import OwnRequest
from perseus_dist.planning.schedule.instruction import kind_from_profile_name
from perseus_dist.simulation.chaos.world.world import ProfileRow
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.simulated_profile import profile_of_times
from perseus_dist.simulator.gpu_preset import GpuPreset
from perseus_dist.simulator.presets import find_presets


def undisturbed_profile(simulated: SimulatedJob, gpu: str, noise_percent: float = 0.0) -> str:
    """The profile that a sweep of the undisturbed machine would find, as CSV.

    Args:
        simulated: The job.
        gpu: The preset of all simulated GPUs, or of each rank of a pipeline.
        noise_percent: Standard deviation of a rank's computations.
    """
    share = _waiting_share(simulated, noise_percent)
    return profile_of_times(_presets_of_stages(simulated, gpu), simulated.instruction_times(), waiting_share=share)


def profile_in_force(job: Job, simulated: SimulatedJob, gpu: str, noise_percent: float = 0.0) -> tuple[ProfileRow, ...]:
    """The computations that a job's plans are made from, each beside its truth; none without a plan.

    Where every pipeline follows a plan of its own, or has one made beside a new table, that is the profile times how
    slow a stage's best replica is.

    Args:
        job: Of the planner.
        simulated: The same job.
        gpu: As of ``undisturbed_profile``.
        noise_percent: Likewise.
    """
    if job.plan is None or job.spec is None:
        return ()
    factors = dict.fromkeys(range(job.spec.pp_size), math.inf)
    for dp_rank in range(job.spec.dp_size):
        own = job.straggler_plan_in_force(dp_rank) or _asked_for(job, dp_rank)
        slow = {one.pp_rank: one.factor for one in own.slow_ranks if not one.cap_mhz} if own else {}
        factors = {pp_rank: min(factor, slow.get(pp_rank, 1.0)) for pp_rank, factor in factors.items()}
    presets, pp_rank_of = _presets_of_stages(simulated, gpu), simulated.schedule.rank_of_stage
    times = {(time.stage, time.kind): time for time in simulated.instruction_times()}
    waiting_share, rows = _waiting_share(simulated, noise_percent), []
    for row in csv.DictReader(StringIO(job.plan.profile_csv.decode())):
        stage, kind, clock_mhz = int(row["stage"]), kind_from_profile_name(row["instruction"]), int(row["frequency"])
        time = times.get((stage, kind))
        if time is None or time.kernel_class is None:
            continue
        preset = presets[stage]
        has_clock = clock_mhz in preset.clocks_mhz  # the profile may be of an earlier job's GPUs
        true_time_s = preset.kernel_time_s(time.kernel_class, time.seconds, clock_mhz) if has_clock else 0.0
        factor = factors[pp_rank_of[stage]]
        true_w = preset.kernel_power_w(time.kernel_class, clock_mhz) if has_clock else 0.0
        waiting_s = waiting_share * true_time_s
        rows.append(
            ProfileRow(
                stage=stage,
                kind=kind,
                clock_mhz=clock_mhz,
                time_s=factor * float(row["time"]),
                energy_j=factor * float(row["energy"]),
                true_time_s=true_time_s + waiting_s,
                true_energy_j=true_time_s * true_w + waiting_s * preset.blocking_power_w,
                blocking_w=preset.blocking_power_w,
                num_runs=int(float(row.get("samples") or 1)),
            )
        )
    return tuple(rows)


def _waiting_share(simulated: SimulatedJob, noise_percent: float) -> float:
    """By how much the slowest rank of a tensor-parallel group takes longer than the mean rank, by noise alone.

    Blom's approximation of the largest of so many normal values; 0 where a group is one rank.
    """
    count = simulated.tensor_parallel
    return noise_percent / 100 * NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def _presets_of_stages(simulated: SimulatedJob, gpu: str) -> list[GpuPreset]:
    """(num_stages) of each stage's GPU."""
    schedule = simulated.schedule
    of_ranks = find_presets(gpu, schedule.num_ranks)
    return [of_ranks[pp_rank] for pp_rank in schedule.rank_of_stage]


def _asked_for(job: Job, dp_rank: int) -> OwnRequest | None:
    """The plan of a pipeline alone that is being made beside the newest table of all."""
    asked = job.detection.straggler_requests.get(dp_rank)
    if asked is None or asked.request_id is None or job.plan is None:
        return None
    return asked if asked.base_revision == job.plan.revision else None
