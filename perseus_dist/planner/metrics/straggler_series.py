"""Series of a job's stragglers and pipelines."""

from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.enforcement.plan_choice import reported_pipelines
from perseus_dist.planner.metrics import catalogue
from perseus_dist.planner.metrics.page import Page
from perseus_dist.straggler.verdicts.causes import Cause

MAX_PIPELINES = 64
"""Of a job; one with more has no series of its pipelines at all, since a part of them would mislead."""


def add_stragglers(page: Page, job: Job) -> None:
    """Add what the others wait for, by detector and operators, and what pipelines take."""
    name, switch, watch = job.job_id, job.switch, job.detection.watch
    degrees = _degrees(job)
    page.add(catalogue.STRAGGLERS, len(degrees), name)
    page.add(catalogue.STRAGGLER_DEGREE, max(degrees, default=1.0), name)
    page.add(catalogue.T_PRIME, switch.t_prime_s if switch else 0.0, name)
    page.add(catalogue.REFUSED_REPORTS, job.num_refused_reports + (watch.num_refused if watch else 0), name)
    for cause in Cause:
        page.add(catalogue.VERDICTS, job.history.num_verdicts[cause], name, cause)
    if len(job.progress.pipelines) > MAX_PIPELINES:
        return
    for dp_rank, pipeline in enumerate(job.progress.pipelines):
        if pipeline.latest is not None:
            page.add(catalogue.PIPELINE_TIME, pipeline.latest.pipeline_time_s, name, str(dp_rank))


def _degrees(job: Job) -> list[float]:
    """Of stragglers, how slow each is, as the page of the fleet has them: an operator's word mutes the detector's."""
    muted = reported_pipelines(job)
    detected = (one for one in job.detection.verdicts if one.is_acted_upon and one.dp_rank not in muted)
    reported = (known.degree for known in job.stragglers.values() if known.degree > 1)
    return [*(verdict.degree.value for verdict in detected), *reported]
