"""Profiles of simulated jobs beside the simulator's truth."""

import csv
from io import StringIO

from perseus_dist.planning.schedule.instruction import Kind, kind_from_profile_name
from perseus_dist.simulation.chaos.scenario.scenario import ScenarioJob
from perseus_dist.simulation.chaos.world.world import ProfileRow
from perseus_dist.simulation.job import FULL_STAGE_S, SimulatedJob
from perseus_dist.simulation.simulated_profile import simulated_profile
from perseus_dist.simulator.presets import find_preset
from perseus_dist.simulator.work import WorkTimes


def undisturbed_profile(job: ScenarioJob) -> str:
    """The profile that a sweep of the undisturbed machine would find, as CSV."""
    work = WorkTimes(
        forward_s=job.time_scale * FULL_STAGE_S[Kind.FORWARD],
        backward_s=job.time_scale * FULL_STAGE_S[Kind.BACKWARD],
        imbalance=job.imbalance,
    )
    return simulated_profile(find_preset(job.gpu), work, pp_size=job.pp, num_chunks=job.chunks, constants_s={})


def profile_rows(profile_csv: bytes, simulated: SimulatedJob, gpu: str) -> tuple[ProfileRow, ...]:
    """The computations of a profile, each beside its truth.

    Args:
        profile_csv: As the planner wrote it.
        simulated: The job that it is of.
        gpu: The simulated GPUs' preset.
    """
    preset = find_preset(gpu)
    times = {(time.stage, time.kind): time for time in simulated.instruction_times()}
    rows = []
    for row in csv.DictReader(StringIO(profile_csv.decode())):
        stage, kind, clock_mhz = int(row["stage"]), kind_from_profile_name(row["instruction"]), int(row["frequency"])
        time = times.get((stage, kind))
        if time is None or time.kernel_class is None:
            continue
        has_clock = clock_mhz in preset.clocks_mhz  # the profile may be of an earlier job's GPUs
        true_time_s = preset.kernel_time_s(time.kernel_class, time.seconds, clock_mhz) if has_clock else 0.0
        true_w = preset.kernel_power_w(time.kernel_class, clock_mhz) if has_clock else 0.0
        rows.append(
            ProfileRow(
                stage=stage,
                kind=kind,
                clock_mhz=clock_mhz,
                time_s=float(row["time"]),
                energy_j=float(row["energy"]),
                true_time_s=true_time_s,
                true_energy_j=true_time_s * true_w,
                num_runs=int(float(row.get("samples") or 1)),
            )
        )
    return tuple(rows)
