"""Hugging Face models, tiny and with random weights, under a plan: by torch's pipelining and by DeepSpeed."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from reduced_1f1b import NUM_MICROBATCHES, PP_SIZE, TIMES, saved_profile

from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report
from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.pipelining_run import PipeliningRun
from perseus_dist.simulation.frameworks.training_run import TrainingRun, free_port
from perseus_dist.simulation.simulated_profile import simulated_profile
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.work import WorkTimes

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")

EXAMPLES = Path(__file__).parents[2] / "examples"
NUM_STEPS = 40
QUICK = WorkTimes(forward_s=0.015, backward_s=0.03, imbalance=0.3)
CONSTANTS_S = {"LOAD": 0.0005, "TIED": 0.00002, "REDUCE": 0.004, "STEP": 0.008}


def pipelining_run(folder: Path, model: str) -> TrainingRun:
    return PipeliningRun(
        script=EXAMPLES / "transformers_pipelining.py",
        schedule="1F1B",
        pp_size=PP_SIZE,
        num_microbatches=NUM_MICROBATCHES,
        knows_perseus=False,
        num_steps=NUM_STEPS,
        folder=folder,
        preset="a100",
        forward_s=TIMES.forward_s,
        backward_s=TIMES.backward_s,
        imbalance=TIMES.imbalance,
        options=("--model", model),
        perseus_options=saved_profile(folder, constants_s={"REDUCE": 0.0005}),
    )


def deepspeed_run(folder: Path, model: str) -> TrainingRun:
    config = json.loads((EXAMPLES / "deepspeed_gpt.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"gradient_accumulation_steps": NUM_MICROBATCHES}))
    profile = folder / "saved.csv"
    profile.write_text(simulated_profile(PRESETS["a100"], QUICK, pp_size=PP_SIZE, constants_s=CONSTANTS_S))
    return DeepSpeedRun(
        script=EXAMPLES / "transformers_deepspeed.py",
        config=folder / "config.json",
        num_stages=PP_SIZE,
        num_pipelines=1,
        launcher="perseus-deepspeed",
        num_steps=NUM_STEPS,
        folder=folder,
        preset="a100",
        forward_s=QUICK.forward_s,
        backward_s=QUICK.backward_s,
        imbalance=QUICK.imbalance,
        options=("--model", model),
        perseus_options=("--perseus-profile", str(profile)),
    )


@pytest.mark.parametrize(
    ("make", "model"),
    [
        pytest.param(pipelining_run, "llama", marks=pytest.mark.stress),
        pytest.param(pipelining_run, "gpt2", marks=pytest.mark.soak),
        pytest.param(deepspeed_run, "llama", marks=[pytest.mark.soak, needs_deepspeed]),
        pytest.param(deepspeed_run, "gpt2", marks=[pytest.mark.soak, needs_deepspeed]),
    ],
)
def test_a_model_trains_under_a_plan_to_the_same_losses(make: object, model: str, tmp_path: Path) -> None:
    assert callable(make)
    run: TrainingRun = make(tmp_path, model)
    assert run.train() == 0
    run.train_without()
    assert losses_equal(run.losses, run.reference_losses)
    report = build_report(tmp_path)
    assert report.is_planned, f"{report.job.reason}\n{(tmp_path / 'training.log').read_text()[-3000:]}"
    losses = [json.loads(line)["loss"] for line in run.losses.read_text().splitlines()]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(
    "model", [pytest.param("llama", marks=pytest.mark.soak), pytest.param("gpt2", marks=pytest.mark.soak)]
)
def test_stages_train_as_the_whole_model_does(model: str, tmp_path: Path) -> None:
    """And the whole model, which has no pipeline, trains on after one warning."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERSEUS_")}
    losses = {}
    for num_ranks, schedule in ((2, "GPipe"), (1, "none")):
        path = tmp_path / f"{schedule}.jsonl"
        torchrun = [sys.executable, "-P", "-m", "torch.distributed.run", "--nproc_per_node", str(num_ranks)]
        torchrun += ["--master_port", str(free_port()), "-m", "perseus_dist.pipelining"]
        script = [str(EXAMPLES / "transformers_pipelining.py"), "--model", model, "--schedule", schedule]
        ran = subprocess.run(
            [*torchrun, *script, "--microbatches", "4", "--steps", "4", "--losses", str(path)],
            env=environment | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr.count("this job has no pipeline") == (schedule == "none")
        losses[schedule] = [json.loads(line)["loss"] for line in path.read_text().splitlines()]
    assert losses["GPipe"] == pytest.approx(losses["none"], rel=1e-5)
