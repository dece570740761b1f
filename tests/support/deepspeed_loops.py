"""Runs of real DeepSpeed on simulated GPUs, as tests start them."""

from pathlib import Path

from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.simulated_profile import simulated_profile
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.work import WorkTimes

EXAMPLES = Path(__file__).parents[2] / "examples"
WORK = WorkTimes(forward_s=0.03, backward_s=0.055, imbalance=0.3)
CONSTANTS_S = {"LOAD": 0.0005, "TIED": 0.00002, "REDUCE": 0.004, "STEP": 0.008}


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


def saved_profile(run: DeepSpeedRun) -> tuple[str, str]:
    """Options of a run that need not sweep."""
    path = run.folder / "saved.csv"
    path.write_text(simulated_profile(PRESETS["a100"], WORK, pp_size=run.num_stages, constants_s=CONSTANTS_S))
    return "--perseus-profile", str(path)
