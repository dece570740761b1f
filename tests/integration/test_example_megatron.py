"""``examples/megatron_gpt.py`` and ``megatron_gpt.sh`` as a Megatron user runs them, on the CPU."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from perseus_dist.simulation.frameworks.megatron_run import MegatronLayout, MegatronRun
from perseus_dist.simulation.frameworks.training_run import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT, LAUNCH = EXAMPLES / "megatron_gpt.py", EXAMPLES / "megatron_gpt.sh"
MEGATRON = Path(os.environ.get("PERSEUS_TEST_MEGATRON", Path(__file__).parents[2] / "build" / "megatron"))
NUM_STEPS = 5


def megatron(version: str) -> Path:
    if not (MEGATRON / version / "megatron" / "training").is_dir():
        pytest.skip(f"no megatron.training {version} in {MEGATRON}")
    return MEGATRON / version


def train(folder: Path, layout: MegatronLayout, version: str, options: Sequence[str]) -> list[float]:
    """The losses of a few steps."""
    folder.mkdir()
    run = MegatronRun(
        script=SCRIPT,
        layout=layout,
        megatron=megatron(version),
        num_steps=NUM_STEPS,
        folder=folder,
        preset="a100",  # for training on the CPU; nothing is simulated
        forward_s=1.0,
        backward_s=1.0,
        imbalance=0.0,
        options=tuple(options),
    )
    run.train_without()
    lines = [json.loads(line) for line in run.reference_losses.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, NUM_STEPS + 1))
    return [line["loss"] for line in lines]


def launch(*arguments: str, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the launch script in an environment of nothing else."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    job = subprocess.Popen(
        ["bash", str(LAUNCH), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": path, "HOME": os.environ.get("HOME", "/"), **(environment or {})},
        process_group=0,
    )
    try:
        output, errors = job.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGTERM)  # its ranks as well
        raise
    return subprocess.CompletedProcess(job.args, job.returncode, output, errors)


@pytest.mark.stress
def test_pipelines_train_as_one_process_does_whatever_the_version(tmp_path: Path) -> None:
    two_chunks_on_two_stages = train(tmp_path / "two", MegatronLayout(pp_size=2, num_chunks=2), "0.17.1", ())
    one_process = train(tmp_path / "one", MegatronLayout(pp_size=1), "0.19.2", ("--num-layers", "4"))
    assert two_chunks_on_two_stages == pytest.approx(one_process, rel=1e-5)
    assert one_process[-1] < 0.9 * one_process[0]


def test_it_knows_nothing_of_us() -> None:
    assert "perseus" not in SCRIPT.read_text().lower()


def test_a_launch_of_pretrain_gpt_gets_the_flag() -> None:
    done = launch("--dry-run", "--train-iters", "7", environment={"MEGATRON_PATH": "/opt/My Megatron"})
    command = shlex.split(done.stdout)
    assert done.returncode == 0
    assert command[0] == "torchrun"
    assert command[command.index("perseus_dist.megatron") + 1] == "/opt/My Megatron/pretrain_gpt.py"
    assert "--enable-perseus" in command
    assert command[-2:] == ["--train-iters", "7"]


def test_nodes_are_slurms() -> None:
    slurm = {"SLURM_NNODES": "4", "SLURM_NODEID": "2", "MASTER_ADDR": "node-0", "MEGATRON_PATH": "/opt/Megatron-LM"}
    text = launch("--dry-run", environment=slurm).stdout
    assert "--nnodes 4 --node_rank 2 --master_addr node-0 " in text
    assert "--global-batch-size 128 " in text


def test_without_a_checkout_it_says_what_to_set() -> None:
    done = launch()
    assert done.returncode == 2
    assert done.stderr == (
        "megatron_gpt.sh: MEGATRON_PATH is not set; set it to a checkout of Megatron-LM, or give --simulate\n"
    )


def test_without_a_checkout_simulated_gpus_are_no_use() -> None:
    done = launch("--simulate", environment={"MEGATRON_PATH": "/opt/none"})
    assert done.returncode == 2
    assert done.stderr == (
        "megatron_gpt.sh: there is no module megatron.training; set MEGATRON_PATH to a checkout of Megatron-LM\n"
    )


def test_it_trains_on_simulated_gpus(tmp_path: Path) -> None:
    environment = {"MEGATRON_PATH": str(megatron("0.17.1")), "REPORT": str(tmp_path), "MASTER_PORT": str(free_port())}
    environment |= {"GPUS": "2", **{name: os.environ[name] for name in ("PYTHONPATH", "TORCHDYNAMO_DISABLE")}}
    done = launch("--simulate", "--train-iters", "3", environment=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "lm loss" in done.stdout
    assert done.stdout.count("clock not locked") == 2
    assert (tmp_path / "report.html").is_file()
