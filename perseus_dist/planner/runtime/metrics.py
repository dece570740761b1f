"""Prometheus metrics, made when they are asked for from what the planner has counted."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from perseus_dist.planner.job.job import Phase
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.metrics_stragglers import StragglerMetrics
from perseus_dist.planner.store.store import Store


def planner_registry(jobs: Jobs, store: Store) -> CollectorRegistry:
    """The planner's metrics and its process's."""
    registry = CollectorRegistry()
    registry.register(_PlannerCollector(jobs, store))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class _PlannerCollector(Collector):
    """Called by the metrics server's threads: takes snapshots of what the event loop changes, and waits for nothing."""

    def __init__(self, jobs: Jobs, store: Store) -> None:
        self._jobs = jobs
        self._store = store

    def collect(self) -> Iterator[Metric]:
        counters = self._jobs.counters
        yield _counted("received_messages", "Messages of agents.", "kind", counters.received)
        yield _counted("sent_messages", "Messages to agents.", "kind", counters.sent)
        yield _counted("operator_calls", "Operators' calls.", "method", counters.calls)
        yield _counted("refusals", "Streams and calls that ended in another status than OK.", "code", counters.refused)
        yield _counted("plans", "Plans that were asked for.", "outcome", counters.plans)
        yield CounterMetricFamily("perseus_streams", "Agents' streams begun.", value=counters.streams)
        yield CounterMetricFamily(
            "perseus_store_failures", "Commits that the disk did not take.", value=counters.store_failures
        )
        yield CounterMetricFamily(
            "perseus_tick_failures", "Ticks of jobs that failed, by a defect.", value=counters.tick_failures
        )
        yield GaugeMetricFamily("perseus_open_streams", "Agents' streams now.", value=self._jobs.num_streams)
        yield GaugeMetricFamily(
            "perseus_store_in_trouble", "1 while the disk takes no commits.", value=float(bool(self._store.trouble))
        )
        yield GaugeMetricFamily(
            "perseus_loop_lag_seconds", "How late the event loop was, at its latest tick.", value=counters.loop_lag_s
        )
        yield from self._job_metrics()

    def _job_metrics(self) -> Iterator[Metric]:
        phases = GaugeMetricFamily("perseus_jobs", "Jobs, by phase of their life.", labels=["phase"])
        attached = GaugeMetricFamily("perseus_job_attached_ranks", "Ranks attached.", labels=["job"])
        ranks = GaugeMetricFamily("perseus_job_ranks", "Ranks of the job, attached or not.", labels=["job"])
        table = GaugeMetricFamily("perseus_job_table_revision", "Newest plan table.", labels=["job"])
        switch = GaugeMetricFamily("perseus_job_switch_revision", "Newest switch.", labels=["job"])
        messages = CounterMetricFamily("perseus_job_messages", "Messages of the job's agents.", labels=["job"])
        missed = CounterMetricFamily(
            "perseus_job_missed_clocks", "Clocks that GPUs granted and did not reach.", labels=["job"]
        )
        lost = CounterMetricFamily(
            "perseus_job_lost_boundaries", "Boundaries that agents were too late to read.", labels=["job"]
        )
        lost_s = CounterMetricFamily(
            "perseus_job_lost_seconds", "By which iterations under plans took longer than allowed.", labels=["job"]
        )
        probes = CounterMetricFamily("perseus_job_probes", "Probes at full clocks.", labels=["job"])
        falls = CounterMetricFamily("perseus_job_falls", "Plans given up because they took too long.", labels=["job"])
        degree = GaugeMetricFamily(
            "perseus_job_measured_over_predicted",
            "An iteration's time or energy by measurement, over what the profile predicts.",
            labels=["job", "iterations", "quantity"],
        )
        jobs = [actor.job for actor in self._jobs.all()]
        num_in_phase = Counter(job.phase for job in jobs)
        for phase in Phase:
            phases.add_metric([phase], num_in_phase[phase])
        stragglers = StragglerMetrics()
        for job in jobs:
            labels = [job.job_id]
            stragglers.add(job)
            attached.add_metric(labels, job.num_attached)
            ranks.add_metric(labels, job.num_ranks)
            table.add_metric(labels, job.plan.revision if job.plan else 0)
            switch.add_metric(labels, job.switch.switch_revision if job.switch else 0)
            messages.add_metric(labels, job.num_messages)
            missed.add_metric(labels, job.num_missed_clocks)
            lost.add_metric(labels, job.num_lost_boundaries)
            guard = job.enforcement.guard.figures
            lost_s.add_metric(labels, guard.lost_s)
            probes.add_metric(labels, guard.probes)
            falls.add_metric(labels, guard.falls)
            latest = job.measured.self_check.latest
            for iterations, found in (("full", latest.full), ("plan", latest.plan)):
                if found is not None:
                    degree.add_metric([*labels, iterations, "time"], found.time_degree)
                    degree.add_metric([*labels, iterations, "energy"], found.energy_degree)
        yield from (phases, attached, ranks, table, switch, messages, missed, lost, lost_s, probes, falls, degree)
        yield from stragglers.families


def _counted(name: str, documentation: str, label: str, counts: "Counter[str]") -> Metric:
    family = CounterMetricFamily(f"perseus_{name}", documentation, labels=[label])
    for key, value in counts.copy().items():
        family.add_metric([key], value)
    return family
