"""The profile against the job: why it must be measured again, or is taken as it is.

Iterations at full clocks cannot be shorter than the profile says that they are; whatever else they differ by
``enforcement.prediction_check`` says.
"""

import csv
import math
from collections import defaultdict
from io import StringIO

from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planning.profile.sweep_steps import ClockTime, largest_step
from perseus_dist.planning.schedule.instruction import Kind, profile_name
from perseus_dist.units import PS_PER_S

_COMPUTATIONS = frozenset(map(profile_name, Kind))
_TOO_SLOW_SHARE = 0.01
_Z = 3.0
_MAX_STEP_SWEEPS = 2
_MAX_MISSTATED_SWEEPS = 2


def doubt(job: Job) -> str:
    """Why the profile must be measured again; empty where nothing speaks for it, or where it has been in this run.

    What a profile does not know, such as transfers, makes iterations longer than it says. If they are shorter, GPUs
    were slow when the highest clocks were measured, on all replicas alike, as under a power limit of a whole node.
    All iterations of the machines' newest state say so together, and the newest probe agrees: by itself it would say it
    only of a profile that is off by far more than noise.
    """
    full, reference_s = job.measured.saving.full_now, job.enforcement.guard.guard.reference_s
    if (
        job.plan is None
        or full is None
        or not full.num_iterations
        or reference_s is None
        or job.profiling.reprofiled_at_s is not None
        or job.stragglers
    ):
        return ""
    modelled_s = _modelled_s(job.plan)
    noise = job.enforcement.guard.guard.noise / math.sqrt(full.num_iterations)
    is_clear = modelled_s > (1 + _TOO_SLOW_SHARE + _Z * noise) * full.time_s
    if not is_clear or modelled_s <= (1 + _TOO_SLOW_SHARE) * reference_s:
        return ""
    return (
        f"iterations at full clocks take {full.time_s:.4f} s, and {modelled_s:.4f} s by the profile, which was "
        "measured while GPUs were slow: sweeping all ranks again"
    )


def step_in_sweep(job: Job) -> str:
    """Why a profile must be measured again that was swept while all GPUs of a stage were slow for a while; else empty.

    Plans of such a profile may be on time, and save little. Each sweep of the run is looked at once; where the next one
    has a step as well, GPUs come and go, and the profile is taken as it is.
    """
    profiling, plan = job.profiling, job.plan
    if plan is None or not profiling.is_unchecked or job.num_attached < job.num_ranks:
        return ""
    profiling.is_unchecked = False
    if profiling.num_step_sweeps >= _MAX_STEP_SWEEPS:
        return ""
    times: defaultdict[tuple[int, str], list[ClockTime]] = defaultdict(list)
    for row in csv.DictReader(StringIO(plan.profile_csv.decode())):
        if row["instruction"] in _COMPUTATIONS:
            clock_mhz = int(row["frequency"])
            num_runs = int(float(row.get("samples") or 1))
            at_clock = ClockTime(clock_mhz=clock_mhz, time_s=float(row["time"]), num_runs=num_runs)
            times[int(row["stage"]), row["instruction"]].append(at_clock)
    step = largest_step(times)
    if step is None:
        return ""
    profiling.num_step_sweeps += 1
    direction = "longer" if step.share > 0 else "shorter"
    return (
        f"computations of stage {step.stage} at {step.clock_mhz} MHz take {100 * abs(step.share):.1f} % {direction} "
        "than they can beside the clock above: GPUs were slow for a part of the sweep; sweeping all ranks again"
    )


def misstated(job: Job) -> dict[int, float]:
    """By pp_rank to be measured again, the largest share by which computations in probes are off the profile's times.

    All its replicas say so: they were slow as they were swept, as by a power cap that is over, or have become slow for
    long, and none is known to straggle. Where a stage has time to spare, plans of such a profile may be on time. Where
    that happens again GPUs come and go, and the profile is taken as it is.
    """
    guard, num_before = job.enforcement.guard, job.profiling.num_misstated_sweeps
    shares = guard.misstated
    if not shares or not guard.has_heard_all or not may_be_misstated(job) or job.spec is None:
        return {}
    of_stages: defaultdict[int, list[float]] = defaultdict(list)
    for rank, share in shares.items():
        place = job.members.places[rank]
        if job.straggler_plan_in_force(place.dp_rank) is None:  # else it is not compared with the profile
            of_stages[place.pp_rank].append(share)
    may_be_slow = not (num_before or job.detection.verdicts or job.stragglers)
    return {
        pp_rank: max(of_stage, key=abs)
        for pp_rank, of_stage in of_stages.items()
        if len(of_stage) == job.num_ranks // job.spec.pp_size
        and (max(of_stage) < 0 or (min(of_stage) > 0 and may_be_slow))
    }


def may_be_misstated(job: Job) -> bool:
    """Whether stages may be swept again because the profile, however new it is, was measured while they were slow."""
    return job.profiling.num_misstated_sweeps < _MAX_MISSTATED_SWEEPS


def is_too_slow(job: Job) -> bool:
    """Whether iterations at full clocks, as they are now, are shorter than the profile says that they can be."""
    guard = job.enforcement.guard.guard
    if job.plan is None or guard.reference_s is None:
        return False
    modelled_s = _modelled_s(job.plan)
    return modelled_s > (1 + _TOO_SLOW_SHARE + _Z * guard.noise) * guard.reference_s


def _modelled_s(plan: JobPlan) -> float:
    """[s] an iteration at full clocks by the profile alone, without what was learnt beside it, which may be over."""
    return (plan.summary.baseline_time_ps - plan.summary.gained_ps) / PS_PER_S - plan.extra_s
