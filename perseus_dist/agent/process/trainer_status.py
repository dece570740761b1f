"""Status of the whole job as its trainer gets to know it."""

from dataclasses import replace

from perseus_dist.boundaries.agent_status import AgentStatus
from perseus_dist.messages.job_status import JobStatus
from perseus_dist.messages.target_text import format_target


def with_job(status: AgentStatus, job: JobStatus) -> AgentStatus:
    """The status with the whole job's newest figures."""
    energies_j = [pipeline.energy_j for pipeline in job.pipelines]
    degrees = [straggler.degree for straggler in job.stragglers if straggler.degree > 1]
    degrees += [verdict.degree for verdict in job.verdicts if verdict.is_acted_upon and not verdict.is_muted]
    are_both_known = job.baseline.energy_j > 0 and job.enforced.energy_j > 0
    return replace(
        status,
        phase=job.phase,
        job_time_s=max((pipeline.time_s for pipeline in job.pipelines), default=0.0),
        job_energy_j=sum(energies_j) if energies_j and all(energies_j) else None,
        predicted_saving=job.predicted_saving,
        target=format_target(job.target),
        num_stragglers=len(degrees),
        straggler_degree=max(degrees, default=1.0),
        table_revision=job.table_revision,
        switch_revision=job.switch_revision,
        measured_saving=1 - job.enforced.energy_j / job.baseline.energy_j if are_both_known else None,
        t_prime_s=job.t_prime_s,
        num_probes=job.guard.probes,
        num_falls=job.guard.falls,
    )
