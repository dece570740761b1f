"""Energy and clocks in DeepSpeed's own monitor: TensorBoard, W&B, CSV, Comet."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perseus_dist.boundaries.agent_status import AgentStatus
    from perseus_dist.hooks import Hook

_PREFIX = "Train/Samples/perseus_"


def write_status(engine: Any, hook: "Hook") -> None:
    """Write the agent's newest figures where the engine writes its loss, as often as it prints.

    Args:
        engine: A ``PipelineEngine``; only rank 0's writes.
        hook: Of this rank.
    """
    if engine.global_rank != 0 or not engine.monitor.enabled:
        return
    steps_per_print = engine.steps_per_print()
    if steps_per_print and engine.global_steps % steps_per_print:
        return
    status = hook.status()
    if status is not None:
        samples = engine.global_samples
        engine.monitor.write_events([(_PREFIX + name, value, samples) for name, value in _values(status).items()])


def _values(status: "AgentStatus") -> dict[str, float]:
    """What is known yet, by the event's name."""
    values = {
        "iteration_time_s": status.job_time_s,
        "iteration_energy_j": status.job_energy_j,
        "gpu_iteration_energy_j": status.energy_j,
        "gpu_clock_mhz": status.clock_mhz,
        "predicted_saving": status.predicted_saving,
    }
    return {name: float(value) for name, value in values.items() if value}
