"""Status of an agent's rank and job, as scalars for a training monitor."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseus_dist.boundaries.agent_status import AgentStatus


def scalars(status: "AgentStatus") -> dict[str, float]:
    """Every figure that is known, by its name.

    Of this rank's GPU: ``gpu_iteration_energy_j``, and ``gpu_clock_mhz`` where a clock is asked for. Of the whole job,
    once its planner has answered: ``iteration_time_s``, ``iteration_energy_j`` of all GPUs, ``predicted_saving`` as a
    share, ``target_slowdown`` (1 is the time at all-maximum clocks) or ``target_time_s``, ``num_stragglers`` and
    ``straggler_degree`` (1 without any).
    """
    figures: dict[str, float | None] = {
        "gpu_iteration_energy_j": status.energy_j,
        "gpu_clock_mhz": status.clock_mhz or None,
    }
    if status.phase:
        figures |= {
            "iteration_time_s": status.job_time_s or None,
            "iteration_energy_j": status.job_energy_j,
            # Zeros and ones too: a curve would otherwise stop at the last plan, or at the last straggler.
            "predicted_saving": status.predicted_saving,
            "num_stragglers": status.num_stragglers,
            "straggler_degree": status.straggler_degree,
            **_target(status.target),
        }
    return {name: float(value) for name, value in figures.items() if value is not None}


def _target(target: str) -> dict[str, float | None]:
    name, _, value = target.partition("=")
    match name:
        case "t_min":
            return {"target_slowdown": 1.0}
        case "slowdown":
            return {"target_slowdown": float(value)}
        case "deadline_s":
            return {"target_time_s": float(value)}
    return {}
