"""When a job will probably do what: drawn moments lie near these."""

import math
from dataclasses import dataclass

from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.simulation.chaos.scenario.scenario import SAVED, ScenarioJob
from perseus_dist.simulation.job import FULL_STAGE_S

_SWEPT_CLOCKS = {"a100": 11, "a40": 16, "h100": 14, "h200": 14}  # as sweeps were when seeds were drawn first
_PLANNING_S = 4.0  # samples on their way, and the planning worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Iterations at which the phases of a job begin, estimated.

    Attributes:
        begin: The job's first.
        sweep: The sweep's first; with a saved profile that of the one clock at which blocking power is measured.
        planning: The first after it.
        plan: The first under a plan.
        time_s: [s] an iteration.
    """

    begin: int
    sweep: int
    planning: int
    plan: int
    time_s: float


def estimated_phases(job: ScenarioJob, begin: int = 0) -> Phases:
    """Estimate when an undisturbed job does what.

    Args:
        job: The job.
        begin: Its first iteration.
    """
    policy, time_s = Policy(), estimated_time_s(job)
    presets = job.presets_of(range(job.pp))
    window_s = policy.num_energy_periods * max(preset.timing.energy_period_s for preset in presets)
    per_clock = min(math.ceil(window_s / time_s), policy.max_iterations_per_clock)
    num_clocks = 1 if job.profile == SAVED else max(_SWEPT_CLOCKS[preset.name] for preset in presets)
    sweep = begin + policy.num_warmup_iterations + policy.num_baseline_iterations + math.ceil(1 / time_s)
    planning = sweep + num_clocks * per_clock
    plan = planning + 1 + math.ceil(_PLANNING_S / time_s)
    return Phases(begin=begin, sweep=sweep, planning=planning, plan=plan, time_s=time_s)


def estimated_time_s(job: ScenarioJob) -> float:
    """[s] an undisturbed iteration: every microbatch on the heaviest stage, and once through the pipeline."""
    microbatch_s = job.time_scale * sum(FULL_STAGE_S[kind] for kind in ("F", "B"))
    return (job.microbatches * (1 + job.imbalance) + (job.pp - 1) * (1 + job.imbalance / 2) / job.chunks) * microbatch_s
