"""Prometheus metrics of jobs' stragglers. The number of series is bounded, however large a job is."""

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from perseus_dist.planner.job.job import Job
from perseus_dist.straggler.verdicts.causes import Cause

MAX_PIPELINES = 64
"""Of a job; one with more has no series of its pipelines at all, since a part of them would mislead."""


class StragglerMetrics:
    """Families that jobs are added to, one by one, of what an event loop goes on changing meanwhile."""

    def __init__(self) -> None:
        self._stragglers = GaugeMetricFamily(
            "perseus_job_stragglers", "Stragglers that the other pipelines wait for.", labels=["job"]
        )
        self._degree = GaugeMetricFamily(
            "perseus_job_straggler_degree", "Time over the time expected, of the slowest rank; 1: none.", labels=["job"]
        )
        self._t_prime = GaugeMetricFamily(
            "perseus_job_t_prime_seconds", "What pipelines wait for; 0 where none waits.", labels=["job"]
        )
        self._saved = CounterMetricFamily(
            "perseus_job_saved_joules", "Saved since the first plan, by measurement.", labels=["job"]
        )
        self._verdicts = CounterMetricFamily(
            "perseus_job_straggler_verdicts", "Stragglers found, by cause.", labels=["job", "cause"]
        )
        self._refused = CounterMetricFamily(
            "perseus_job_refused_reports", "Ranks' reports that could not be taken.", labels=["job"]
        )
        self._pipeline = GaugeMetricFamily(
            "perseus_job_pipeline_seconds",
            "A pipeline's latest iteration until gradient synchronisation.",
            labels=["job", "pipeline"],
        )

    @property
    def families(self) -> tuple[Metric, ...]:
        """All of them."""
        return (
            self._stragglers,
            self._degree,
            self._t_prime,
            self._saved,
            self._verdicts,
            self._refused,
            self._pipeline,
        )

    def add(self, job: Job) -> None:
        """Add a job as it stands."""
        labels = [job.job_id]
        verdicts, switch, watch = job.detection.verdicts, job.switch, job.detection.watch
        acted_upon = [verdict.degree.value for verdict in verdicts if verdict.is_acted_upon]
        self._stragglers.add_metric(labels, len(acted_upon))
        self._degree.add_metric(labels, max(acted_upon, default=1.0))
        self._t_prime.add_metric(labels, switch.t_prime_s if switch else 0.0)
        self._saved.add_metric(labels, max(0.0, job.measured.saving.saved_j))
        self._refused.add_metric(labels, job.num_refused_reports + (watch.num_refused if watch else 0))
        for cause in Cause:
            self._verdicts.add_metric([job.job_id, cause], job.history.num_verdicts[cause])
        pipelines = list(job.progress.pipelines)
        for dp_rank, pipeline in enumerate(pipelines if len(pipelines) <= MAX_PIPELINES else ()):
            latest = pipeline.latest
            self._pipeline.add_metric([job.job_id, str(dp_rank)], latest.pipeline_time_s if latest else 0.0)
