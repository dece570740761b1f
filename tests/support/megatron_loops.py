"""Runs of real Megatron-LM on simulated GPUs, as tests start them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from perseus_dist.simulation.frameworks.megatron_run import LAYOUTS, MegatronRun
from perseus_dist.simulation.simulated_profile import simulated_profile
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.work import WorkTimes
from perseus_dist.training.rank.constant_kinds import REDUCE, STEP

MEGATRON = Path(os.environ.get("PERSEUS_TEST_MEGATRON", Path(__file__).parents[2] / "build" / "megatron"))
SCRIPT = Path(__file__).parents[2] / "examples" / "megatron_gpt.py"
CONTEXT_PARALLEL = Path(__file__).with_name("megatron_context_parallel.py")
OLDER, NEWER = "0.17.1", "0.19.2"
NUM_MICROBATCHES = 4
SEQUENCE_LENGTH = 16  # of a run's model
TIMES = WorkTimes(forward_s=0.03, backward_s=0.055, imbalance=0.3)  # of one layer
CONSTANTS_S = {REDUCE: 0.004, STEP: 0.008}


def run_in(folder: Path, name: str, *, num_steps: int, version: str = OLDER) -> MegatronRun:
    megatron = MEGATRON / version
    if not (megatron / "megatron" / "training").is_dir():
        pytest.skip(f"no megatron.training {version} in {MEGATRON}")
    layout = replace(LAYOUTS[name], num_microbatches=NUM_MICROBATCHES)
    return MegatronRun(
        script=SCRIPT,
        layout=layout,
        megatron=megatron,
        num_steps=num_steps,
        folder=folder,
        preset="a100",
        forward_s=TIMES.forward_s * layout.num_chunks,
        backward_s=TIMES.backward_s * layout.num_chunks,
        imbalance=TIMES.imbalance,
    )


def saved_profile(run: MegatronRun) -> tuple[str, str]:
    """Options of a run that need not sweep."""
    path, layout = run.folder / "saved.csv", run.layout
    work = WorkTimes(forward_s=run.forward_s, backward_s=run.backward_s, imbalance=run.imbalance)
    profile = simulated_profile(
        PRESETS["a100"], work, pp_size=layout.pp_size, num_chunks=layout.num_chunks, constants_s=CONSTANTS_S
    )
    path.write_text(profile)
    return "--perseus-profile", str(path)
