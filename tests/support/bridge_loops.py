"""Runs of real Megatron-Bridge on simulated GPUs, as tests start them.

``PERSEUS_TEST_BRIDGE`` names a folder with Megatron-Bridge 0.3.1 and what it needs; build/megatron-bridge otherwise.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from megatron_loops import CONSTANTS_S, MEGATRON, TIMES
from python_path import python_path

from perseus_dist.simulation.frameworks.training_run import TrainingRun, free_port
from perseus_dist.simulation.simulated_profile import simulated_profile
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.work import WorkTimes

BRIDGE = Path(os.environ.get("PERSEUS_TEST_BRIDGE", Path(__file__).parents[2] / "build" / "megatron-bridge"))
CORE = MEGATRON / "0.16.1"  # the newest that Bridge 0.3.1 takes
SCRIPT = Path(__file__).with_name("bridge_main.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeRun(TrainingRun):
    """A script that calls Bridge's ``pretrain``.

    Attributes:
        pp_size, dp_size: Ranks of pipeline and data parallelism.
        num_chunks: Virtual stages of each rank, of one layer each.
        has_callback: Whether the script has a ``PerseusCallback``; otherwise nothing but the environment asks for it.
    """

    pp_size: int
    dp_size: int = 1
    num_chunks: int = 1
    has_callback: bool = False

    @property
    def num_ranks(self) -> int:
        """One GPU each."""
        return self.pp_size * self.dp_size

    def command(self, *, with_perseus: bool) -> list[str]:
        """As a user would type it."""
        torchrun = [sys.executable, "-P", "-m", "torch.distributed.run"]
        torchrun += ["--nproc_per_node", str(self.num_ranks), "--master_port", str(free_port())]
        torchrun += ["-m", "perseus_dist.simulation.megatron_on_cpu"]
        asks = ["--callback"] if self.has_callback and with_perseus else []
        hooks = ["-m", "perseus_dist.megatron"] if with_perseus and not self.has_callback else []
        losses = self.losses if with_perseus else self.reference_losses
        losses.unlink(missing_ok=True)
        script = [str(self.script), "--pp", str(self.pp_size), "--dp", str(self.dp_size)]
        script += [] if self.num_chunks == 1 else ["--vp", str(self.num_chunks)]
        return [
            *torchrun,
            *hooks,
            *script,
            "--steps",
            str(self.num_steps),
            "--losses",
            str(losses),
            *asks,
            *self.options,
        ]

    def framework_environment(self) -> dict[str, str]:
        """Where Bridge and its megatron-core are."""
        return {
            "CUDA_DEVICE_MAX_CONNECTIONS": "1",
            "PYTHONPATH": python_path(BRIDGE, CORE),
            "PYTHONWARNINGS": "ignore",
        }


def run_in(folder: Path, *, num_steps: int, **fields: Any) -> BridgeRun:
    """A run; skips the test where Bridge is not there."""
    for path in (BRIDGE / "megatron" / "bridge", CORE / "megatron" / "core"):
        if not path.is_dir():
            pytest.skip(f"no {path}, which this test needs; see launch/test")
    return BridgeRun(
        script=SCRIPT,
        num_steps=num_steps,
        folder=folder,
        preset="a100",
        forward_s=TIMES.forward_s,
        backward_s=TIMES.backward_s,
        imbalance=TIMES.imbalance,
        **fields,
    )


def saved_profile(run: BridgeRun) -> Path:
    """A profile with which the run need not sweep."""
    path = run.folder / "saved.csv"
    work = WorkTimes(forward_s=run.forward_s, backward_s=run.backward_s, imbalance=run.imbalance)
    path.write_text(
        simulated_profile(
            PRESETS["a100"], work, pp_size=run.pp_size, num_chunks=run.num_chunks, constants_s=CONSTANTS_S
        )
    )
    return path
