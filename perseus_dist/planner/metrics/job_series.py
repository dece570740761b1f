"""The series of one job. Their number is bounded, however large a job is: by what a planner shows of each family."""

from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.measured_iterations import measured_iterations
from perseus_dist.planner.job.predicted_saving import predicted_saving, saving_interval
from perseus_dist.planner.metrics import catalogue
from perseus_dist.planner.metrics.page import Page
from perseus_dist.planner.metrics.rank_series import add_ranks
from perseus_dist.planner.metrics.straggler_series import add_stragglers

_MAX_TEXT = 64
_DIGEST_LENGTH = 12


def add_job(page: Page, job: Job) -> None:
    """Add a job as it stands."""
    name = job.job_id
    _add_info(page, job)
    page.add(catalogue.PHASE, 1.0, name, job.phase)
    page.add(catalogue.ATTACHED, job.num_attached, name)
    page.add(catalogue.RANKS, job.num_ranks, name)
    page.add(catalogue.TABLE, job.plan.revision if job.plan else 0, name)
    page.add(catalogue.SWITCH, job.switch.switch_revision if job.switch else 0, name)
    if job.target.deadline_s is not None:
        page.add(catalogue.TARGET_DEADLINE, job.target.deadline_s, name)
    else:
        page.add(catalogue.TARGET_SLOWDOWN, job.target.slowdown or 1.0, name)
    page.add(catalogue.MESSAGES, job.num_messages, name)
    page.add(catalogue.ITERATION, job.progress.iteration, name)
    _add_guard(page, job)
    _add_iterations(page, job)
    add_ranks(page, job)
    add_stragglers(page, job)


def _add_info(page: Page, job: Job) -> None:
    spec, first = job.spec, next(iter(job.members.ranks.values()), None)
    known = job.members.fingerprints.get(min(job.members.fingerprints, default=0))
    workload = known.fingerprint.workload if known else None
    page.add_info(
        catalogue.INFO,
        job.job_id,
        workload.framework[:_MAX_TEXT] if workload else "",
        known.fingerprint.gpu_name[:_MAX_TEXT] if known else "",
        workload.precision[:_MAX_TEXT] if workload else "",
        spec.schedule_digest[:_DIGEST_LENGTH] if spec else "",
        str(spec.pp_size if spec else 0),
        str(spec.dp_size if spec else 0),
        str(spec.tp_size if spec else 0),
        first.version[:_MAX_TEXT] if first else "",
    )


def _add_guard(page: Page, job: Job) -> None:
    name, guard, latest = job.job_id, job.enforcement.guard.figures, job.measured.self_check.latest
    page.add(catalogue.LOST_TIME, guard.lost_s, name)
    page.add(catalogue.PROBES, guard.probes, name)
    page.add(catalogue.FALLS, guard.falls, name)
    for iterations, found in (("full", latest.full), ("plan", latest.plan)):
        if found is not None:
            page.add(catalogue.DEGREE, found.time_degree, name, iterations, "time")
            page.add(catalogue.DEGREE, found.energy_degree, name, iterations, "energy")


def _add_iterations(page: Page, job: Job) -> None:
    name, history = job.job_id, job.history
    page.add_histogram(catalogue.ITERATION_TIME, history.iterations, name)
    page.add_histogram(catalogue.SWITCH_TIME, history.switch_confirmations, name)
    page.add(catalogue.ENERGY, history.energy_j, name)
    full, plan = job.measured.baseline, measured_iterations(job.measured.enforced)
    for iterations, found in (("full", full), ("plan", plan)):
        if found is not None and found.num_iterations:
            page.add(catalogue.MEDIAN_TIME, found.time_s, name, iterations)
            if found.energy_j > 0:
                page.add(catalogue.MEDIAN_ENERGY, found.energy_j, name, iterations)
    if job.switch is not None:
        page.add(catalogue.PREDICTED_SAVING, predicted_saving(job), name)
    if interval := saving_interval(job):
        page.add(catalogue.PREDICTED_SAVING_LOW, interval[0], name)
        page.add(catalogue.PREDICTED_SAVING_HIGH, interval[1], name)
    if full is not None and full.energy_j > 0 and plan.energy_j > 0:
        page.add(catalogue.MEASURED_SAVING, 1 - plan.energy_j / full.energy_j, name)
    page.add(catalogue.SAVED, job.measured.saving.saved_j, name)
    page.add(catalogue.SAVED_DOUBT, job.measured.saving.doubt_j, name)
