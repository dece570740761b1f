"""A run's baseline, and its saving against it.

The baseline is measured at the run's begin, or by probes where a plan of an earlier run is in force by then. A GPU that
is slow just then makes it slow, and plans look better than they are; so probes, which run at full clocks ever after,
replace it by a faster one. A baseline never becomes slower.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median

from perseus_dist.messages.job_status import MeasuredIterations
from perseus_dist.planner.job.facts.runs import BaselineMeasured, SavingCounted
from perseus_dist.planner.job.facts.sweeps import SweepBegun
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.measured_iterations import measured_iterations
from perseus_dist.planner.job.saving.full_clocks import METER_SHARE, FullClocks
from perseus_dist.planner.job.state.measured import Measured
from perseus_dist.planner.job.state.progress import Iteration
from perseus_dist.planner.lifecycle.events import Effect, Log, Persist
from perseus_dist.planner.lifecycle.sweeping.cost import count_swept

_ORDINARY_SHARE = 0.02
_FASTER_SHARE = 0.005  # less, and what doubt there is, replaces no baseline
_ROUGH_SHARE = 0.02  # of energy, as a spread
_ALIKE_SHARE = 0.005
_Z = 3.0
_MIN_PROBED = 2


def count_iteration(job: Job, iteration: Iteration) -> None:
    """An iteration that every rank has reported: warm-up, baseline, probe, or one under a plan."""
    if not iteration.is_live:
        return
    count_swept(job, iteration)
    if iteration.is_planned:
        _count_saving(job, iteration)
    if job.switch is not None and iteration.followed == job.switch.directives:
        job.measured.enforced.append(iteration)
    if not iteration.is_released:
        return
    is_warm = job.switch is not None or job.measured.num_warm >= job.policy.num_warmup_iterations
    is_full = is_warm and not _is_swept(job, iteration.number)
    if is_full:
        _count_full(job, iteration)
    else:
        job.measured.saving.end_window()
    # With a plan in force only probes run without one, and clocks are on their way in the first iteration of each.
    is_settled = job.switch is None or job.progress.released_number == iteration.number - 1
    job.progress.released_number = iteration.number
    if not is_settled:
        return
    if job.switch is not None or job.measured.baseline is not None:
        if is_full:
            job.measured.probed.append(iteration)
    elif not job.is_swept:
        job.measured.num_warm += 1
        if job.measured.num_warm > job.policy.num_warmup_iterations:
            job.measured.baseline_iterations.append(iteration)


def record_baseline(job: Job) -> list[Effect]:
    """Keep the baseline once it has been measured, and a faster one once probes have shown it.

    A run that begins with the plan of an earlier one has no other baseline than that of its probes.
    """
    before = job.measured.baseline
    if before is None:
        measured = measured_baseline(job) or _probed_baseline(job.measured)
    else:
        measured = _faster_baseline(job, before)
        if measured is None and (longer := _longer_baseline(job, before)) is not None:
            job.measured.baseline = longer
            return [Persist(facts=(longer,))]
    if measured is None:
        return []
    effects: list[Effect] = []
    if before is not None:
        seen = f"{measured.time_s:.4f} s in {measured.num_iterations} iterations of probes"
        effects.append(Log(sentence=f"the baseline is {seen} instead of {before.time_s:.4f} s"))
    job.measured.baseline = measured
    if not job.measured.saving.is_known:
        begin_saving(job, measured)
    job.num_changes += 1
    return [*effects, Persist(facts=(measured,))]


def measured_baseline(job: Job) -> BaselineMeasured | None:
    """The baseline as soon as enough iterations are there: medians, because one slow iteration says nothing.

    Where their times lie far apart, or the energies of some are not known, the next ones are waited for; then the
    baseline is of all of them, or of the newest.
    """
    num, num_seen = baseline_length(job), len(job.measured.baseline_iterations)
    if num_seen < num:
        return None
    newest = job.measured.baseline_iterations[-num:]
    num_metered = sum(iteration.energy_j is not None for iteration in newest)
    if 0 < num_metered < num and num_seen < num * job.policy.max_baseline_attempts:
        return None
    measured = measured_iterations(newest)
    if measured.time_spread_s > job.policy.max_baseline_spread * measured.time_s:
        if num_seen < num * job.policy.max_baseline_attempts:
            return None
        newest = job.measured.baseline_iterations
    return _baseline_of(newest)


def baseline_length(job: Job) -> int:
    """Iterations of a baseline: more than usual where they are short beside the ticks of the energy counter."""
    usual, seen = job.policy.num_baseline_iterations, job.measured.baseline_iterations
    if not any(iteration.energy_j is not None for iteration in seen):
        return usual
    window_s = _Z * METER_SHARE * job.members.energy_period_s / _ROUGH_SHARE
    time_s = max(median(iteration.time_s for iteration in seen), 1e-6)
    return max(usual, min(math.ceil(window_s / time_s), job.policy.max_baseline_iterations))


def store_saving(job: Job, now_s: float, *, at_once: bool = False) -> list[Effect]:
    """Make the joules saved durable from time to time, so that a restarted planner counts on."""
    is_due = at_once or now_s >= job.measured.stored_saved_at_s + job.policy.saving_period_s
    if job.measured.saving.saved_j == job.measured.stored_saved_j or not is_due:
        return []
    saving = job.measured.saving
    job.measured.stored_saved_j, job.measured.stored_saved_at_s = saving.saved_j, now_s
    return [Persist(facts=(SavingCounted(saved_j=saving.saved_j, doubt_j=saving.doubt_j, kept=saving.keep()),))]


def begin_saving(job: Job, baseline: BaselineMeasured) -> None:
    """Compare with the baseline, as long as no probe knows better."""
    if baseline.energy_j > 0:
        num = baseline.num_iterations
        full = FullClocks(
            time_s=baseline.time_s,
            energy_j=baseline.energy_j,
            num_iterations=num,
            weight=float(num * num),
            meter_s=METER_SHARE * job.members.energy_period_s,
        )
        job.measured.saving.begin(full)


def _faster_baseline(job: Job, before: BaselineMeasured) -> BaselineMeasured | None:
    """A baseline of the fastest iterations of probes, if they are clearly faster; more of the same make it better.

    The fastest few of many are faster than the others by noise alone.
    """
    found = _probed_baseline(job.measured)
    if found is None:
        return None
    noise = job.enforcement.guard.guard.noise
    if found.num_iterations == len(job.measured.probed):  # a GPU that comes and goes is no noise of theirs
        noise = min(noise, _ORDINARY_SHARE)
    error = noise * math.sqrt(1 / found.num_iterations + 1 / before.num_iterations)
    by_choice = noise * math.sqrt(2 * math.log(len(job.measured.probed) / found.num_iterations))
    if found.time_s < (1 - _FASTER_SHARE - _Z * error - by_choice) * before.time_s:
        return found
    is_same = abs(found.time_s / before.time_s - 1) <= _ORDINARY_SHARE
    return found if before.is_probed and is_same and found.num_iterations > before.num_iterations else None


def _probed_baseline(measured: Measured) -> BaselineMeasured | None:
    """A baseline of the fastest iterations of probes that look alike."""
    least_s = min((iteration.time_s for iteration in measured.probed), default=0.0)
    alike = [iteration for iteration in measured.probed if iteration.time_s <= (1 + _ORDINARY_SHARE) * least_s]
    return _baseline_of(alike, is_probed=True) if len(alike) >= _MIN_PROBED else None


def _longer_baseline(job: Job, before: BaselineMeasured) -> BaselineMeasured | None:
    """The same with the energy of more iterations, where a counter's ticks make that of few rough.

    How far the energies of few lie apart does not tell: they share what the counter is read late or early by.
    """
    full = job.measured.saving.full_now
    read_s = _Z * METER_SHARE * job.members.energy_period_s
    doubt_j = max(before.energy_spread_j, read_s / (before.num_iterations * before.time_s) * before.energy_j)
    if full is None or doubt_j <= _ROUGH_SHARE * before.energy_j:
        return None
    is_longer = bool(full.weight) and full.num_iterations >= 2 * before.num_iterations
    if not is_longer or abs(full.time_s / before.time_s - 1) > _ALIKE_SHARE:
        return None
    return replace(before, num_iterations=full.num_iterations, energy_j=full.energy_j)


def _baseline_of(iterations: Sequence[Iteration], *, is_probed: bool = False) -> BaselineMeasured:
    measured = measured_iterations(iterations)
    return BaselineMeasured(
        num_iterations=measured.num_iterations,
        time_s=measured.time_s,
        time_spread_s=measured.time_spread_s,
        energy_j=_mean_energy_j(iterations, measured),
        energy_spread_j=measured.energy_spread_j,
        is_probed=is_probed,
    )


def _mean_energy_j(iterations: Sequence[Iteration], measured: MeasuredIterations) -> float:
    """[J] the mean of ordinary iterations: what the counter's steps add to one they take from the next.

    Those that lasted longer than usual drew more; they are left out, as in a median.
    """
    most_s = measured.time_s + max(measured.time_spread_s, _ORDINARY_SHARE * measured.time_s)
    known_j = [one.energy_j for one in iterations if one.energy_j is not None and one.time_s <= most_s]
    return fmean(known_j) if known_j else measured.energy_j


def _count_saving(job: Job, iteration: Iteration) -> None:
    """Of an iteration under a plan; one that keeps all clocks at their maximum saves nothing, whatever counters say."""
    if job.plan is None or job.switch is None:
        return
    plan = job.measured.saving.plans.at(iteration.number, iteration.followed)
    if plan is None:
        _count_full(job, iteration)
    else:
        job.measured.saving.record_planned(iteration.number, iteration.time_s, iteration.energy_j, plan=plan)


def _is_swept(job: Job, number: int) -> bool:
    """Whether a sweep may have held a lower clock in an iteration; it begins with the highest."""
    if not job.is_swept and number >= job.enforcement.guard.swept_until:
        return False
    newest = max(job.profiling.sweeps.values(), key=lambda ordered: ordered.sweep_id, default=None)
    if newest is None:
        return True
    of_series = [ordered for ordered in job.profiling.sweeps.values() if ordered.series == newest.series]
    return any(
        _first_lower(ordered) <= number and (ordered is newest or number < ordered.end_iteration)
        for ordered in of_series
    )


def _first_lower(ordered: SweepBegun) -> float:
    """The first iteration that may hold a lower clock than the highest, with which a series begins."""
    if ordered.sweep_id != ordered.series:
        return ordered.first_iteration
    is_highest_alone = len(ordered.clocks_mhz) == 1
    return math.inf if is_highest_alone else ordered.first_iteration + ordered.iterations_per_clock


def _count_full(job: Job, iteration: Iteration) -> None:
    job.measured.saving.record_full(
        iteration.number, iteration.time_s, iteration.energy_j, period_s=job.members.energy_period_s
    )
