"""Figures in Megatron's own TensorBoard and W&B writers, made by Megatron and read back from what they left."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from python_path import python_path
from tensorboard_events import read_events

from perseus_dist.simulation.frameworks.megatron_run import MegatronLayout, MegatronRun

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "megatron_gpt.py"
MEGATRON = Path(__file__).resolve().parents[2] / "build" / "megatron"

# What Megatron's initialisation does on the last of two ranks, then six logged iterations; the agent is the program.
_PROGRAM = """
import json, os, sys
from dataclasses import replace
from types import SimpleNamespace

from perseus_dist.boundaries.agent_status import AgentStatus
from perseus_dist.boundaries.ring import RingReader, RingWriter
from perseus_dist.hooks import Hook
from perseus_dist.megatron.loops import writers
from perseus_dist.megatron.loops.training_loop import MegatronLoop

folder, project = sys.argv[1:]
ring = RingWriter()
agent = RingReader(os.dup(ring.fd))
hook = Hook(ring, os.eventfd(0, os.EFD_NONBLOCK))
loop = MegatronLoop()
seen = {"shows_job": [writers.shows_job(loop.writers)]}
writers.write_status(hook, 1, loop.writers)  # in a program whose own loop runs megatron-core
assert "megatron.training" not in sys.modules

import megatron.training
from megatron.training import global_vars

args = SimpleNamespace(
    rank=1, world_size=2, tensorboard_log_interval=2,
    tensorboard_dir="" if project else folder, tensorboard_queue_size=10,
    wandb_project=project, wandb_exp_name="run", wandb_save_dir=folder, wandb_entity="",
)
seen["shows_job"].append(writers.shows_job(loop.writers))
writers.write_status(hook, 2, loop.writers)  # a rank without writers
global_vars.set_args(args)
global_vars._set_tensorboard_writer(args)
global_vars._set_wandb_writer(args)
seen["shows_job"].append(writers.shows_job(loop.writers))

writers.write_status(hook, 2, loop.writers)  # nothing is known yet
own = AgentStatus(iteration=3, time_s=0.5, energy_j=90.5, clock_mhz=1290)
agent.set_status(own)
writers.write_status(hook, 4, loop.writers)
agent.set_status(replace(
    own, phase="enforcing", job_time_s=0.75, job_energy_j=181.25, predicted_saving=0.125, target="slowdown=1.05",
    num_stragglers=2, straggler_degree=1.25,
))
writers.write_status(hook, 5, loop.writers)
writers.write_status(hook, 6, loop.writers)
agent.set_status(AgentStatus(phase="enforcing", job_time_s=0.75, target="deadline_s=2.5"))
writers.write_status(hook, 8, loop.writers)
agent.set_status(AgentStatus(phase="stale", job_time_s=0.75, target="t_min"))
writers.write_status(hook, 10, loop.writers)

if project:
    import wandb

    global_vars.get_wandb_writer().log({"lm loss": 1.0}, 12)  # a step is done when another begins
    summary = wandb.run.summary._as_dict()
    seen["summary"] = {name: value for name, value in summary.items() if name.startswith("perseus/")}
    wandb.finish()
else:
    global_vars.get_tensorboard_writer().close()
    global_vars._GLOBAL_TENSORBOARD_WRITER = object()  # whatever a user has put there
    writers.write_status(hook, 12, loop.writers)
    writers.write_status(hook, 14, loop.writers)
print(json.dumps(seen))
"""


def megatron(version: str) -> Path:
    path = MEGATRON / version
    if not (path / "megatron" / "training").is_dir():
        pytest.skip(f"no Megatron-LM {version} in {path}")
    return path


def seen_in(version: str, folder: Path, project: str = "") -> dict[str, Any]:
    """What the program saw; ``said`` are its log's lines of ours."""
    path = megatron(version)
    shim = "from perseus_dist.simulation.megatron_on_cpu import enable; enable()\n"
    done = subprocess.run(
        [sys.executable, "-c", shim + _PROGRAM, str(folder), project],
        env={**os.environ, "PYTHONPATH": python_path(path), "WANDB_MODE": "offline"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()  # Megatron logs to standard output
    return {**json.loads(last), "said": [line for line in lines if "perseus:" in line]}


@pytest.mark.parametrize("version", [pytest.param("0.17.1", marks=pytest.mark.stress), "0.19.2"])
def test_tensorboard_has_every_figure_that_is_known_where_megatron_writes(version: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    seen = seen_in(version, tmp_path)
    assert seen["shows_job"] == [False, False, True]
    scalars, texts = read_events(tmp_path)
    assert {name: [(step, pytest.approx(value)) for step, value in points] for name, points in scalars.items()} == {
        "gpu_iteration_energy_j": [(4, 90.5), (6, 90.5)],
        "gpu_clock_mhz": [(4, 1290), (6, 1290)],
        "iteration_time_s": [(6, 0.75), (8, 0.75), (10, 0.75)],
        "iteration_energy_j": [(6, 181.25)],
        "predicted_saving": [(6, 0.125), (8, 0), (10, 0)],
        "num_stragglers": [(6, 2), (8, 0), (10, 0)],
        "straggler_degree": [(6, 1.25), (8, 1), (10, 1)],
        "target_slowdown": [(6, 1.05), (10, 1)],
        "target_time_s": [(8, 2.5)],
    }
    assert texts == {"phase": [(6, "enforcing"), (10, "stale")]}
    (warning,) = seen["said"]
    assert "nothing more is written" in warning


@pytest.mark.alone
@pytest.mark.stress
def test_the_last_rank_of_a_job_shows_all_of_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "tensorboard"
    run = MegatronRun(
        script=EXAMPLE,
        num_steps=80,
        folder=tmp_path,
        preset="a100",
        forward_s=0.010,
        backward_s=0.020,
        imbalance=0.0,
        options=("--tensorboard-dir", str(folder)),
        perseus_options=("--perseus-target", "slowdown=1.1"),
        layout=MegatronLayout(pp_size=2, num_microbatches=4),
        megatron=megatron("0.17.1"),
    )
    assert run.train() == 0
    scalars, texts = read_events(folder)
    assert texts["phase"][0][1] in ("registering", "warming_up")
    assert scalars["target_slowdown"][-1][1] == pytest.approx(1.1)
    assert scalars["num_stragglers"][-1] == (run.num_steps, 0)
    iterations = [json.loads(line) for line in (tmp_path / "rank-1.jsonl").read_text().splitlines()]
    step, energy_j = scalars["gpu_iteration_energy_j"][-1]
    assert step == run.num_steps
    assert energy_j in [pytest.approx(iteration["energy_j"]) for iteration in iterations[-20:]]
    # Both GPUs did the same.
    assert scalars["iteration_energy_j"][-1][1] == pytest.approx(2 * energy_j, rel=0.5)
    assert 0.15 < scalars["iteration_time_s"][-1][1] < 1.0


def test_wandb_has_the_newest_figures(tmp_path: Path) -> None:
    if importlib.util.find_spec("wandb") is None:  # importing it here would leave its service behind
        pytest.skip("wandb is not installed")
    seen = seen_in("0.17.1", tmp_path, project="gpt")
    assert seen["shows_job"] == [False, False, True]
    assert {name.removeprefix("perseus/"): value for name, value in seen["summary"].items()} == {
        "gpu_iteration_energy_j": 90.5,
        "gpu_clock_mhz": 1290,
        "iteration_time_s": 0.75,
        "iteration_energy_j": 181.25,
        "predicted_saving": 0,
        "num_stragglers": 0,
        "straggler_degree": 1,
        "target_slowdown": 1,
        "target_time_s": 2.5,
        "phase": "stale",
    }
    assert seen["said"] == []
