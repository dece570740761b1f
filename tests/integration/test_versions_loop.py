"""Each version of DeepSpeed and Megatron-LM that is at hand trains an example under a plan, and saves energy.

``PERSEUS_TEST_DEEPSPEED_OLD`` names folders with other versions of DeepSpeed, with colons between, and
``PERSEUS_TEST_MEGATRON`` the folder of Megatron's.
"""

import os
import shutil
import sys
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from deepspeed_loops import deepspeed_run_in
from deepspeed_loops import saved_profile as deepspeed_profile
from megatron_loops import MEGATRON, run_in, saved_profile
from python_path import python_path

from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report
from perseus_dist.simulation.frameworks.training_run import TrainingRun

pytestmark = pytest.mark.soak

NUM_STEPS = 45
DEEPSPEEDS = ("", *filter(None, os.environ.get("PERSEUS_TEST_DEEPSPEED_OLD", "").split(":")))
MEGATRONS = sorted(path.parent.parent.name for path in MEGATRON.glob("*/megatron/training"))


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
@pytest.mark.parametrize("folder", DEEPSPEEDS, ids=lambda folder: Path(folder).name or "installed")
def test_deepspeed_saves(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if folder:
        if "0.14" in folder and shutil.which("numactl") is None:
            pytest.skip("the launcher of DeepSpeed 0.14.5 counts a CPU's ranks by numactl, which is not installed")
        monkeypatch.setenv("PYTHONPATH", python_path(folder))
    run = deepspeed_run_in(tmp_path, num_steps=NUM_STEPS)
    name = Path(folder).name if folder else f"deepspeed {metadata.version('deepspeed')}"
    check(replace(run, perseus_options=deepspeed_profile(run)), name)


@pytest.mark.parametrize("version", MEGATRONS)
def test_megatron_saves(version: str, tmp_path: Path) -> None:
    run = run_in(tmp_path, "PP2 V2, overlapped", num_steps=NUM_STEPS, version=version)
    check(replace(run, perseus_options=saved_profile(run)), f"megatron {version}")


def check(run: TrainingRun, name: str) -> None:
    """Trained under a plan that saves, with the losses of the job without."""
    assert run.train() == 0
    report = build_report(run.folder)
    assert report.is_planned, report.job.reason
    assert report.saving_percent is not None
    assert report.predicted_saving_percent is not None
    found = f"{name}: saves {report.saving_percent:.1f} % (predicted {report.predicted_saving_percent:.1f} %)"
    sys.stdout.write(f"\n{found}\n")
    assert report.predicted_saving_percent > 3
    assert report.saving_percent > 1  # a machine that does other things too makes waiting of it
    run.train_without()
    assert losses_equal(run.losses, run.reference_losses)
