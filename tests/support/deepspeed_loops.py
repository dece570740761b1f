"""Runs of real DeepSpeed on simulated GPUs, as tests start them."""

from pathlib import Path

from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulator.work import WorkTimes

EXAMPLES = Path(__file__).parents[2] / "examples"
WORK = WorkTimes(forward_s=0.03, backward_s=0.055, imbalance=0.3)


def deepspeed_run_in(folder: Path, *, num_steps: int) -> DeepSpeedRun:
    return DeepSpeedRun(
        script=EXAMPLES / "deepspeed_gpt.py",
        config=EXAMPLES / "deepspeed_gpt.json",
        num_stages=2,
        num_pipelines=1,
        num_steps=num_steps,
        folder=folder,
        preset="a100",
        forward_s=WORK.forward_s,
        backward_s=WORK.backward_s,
        imbalance=WORK.imbalance,
        launcher="perseus-deepspeed",
    )
