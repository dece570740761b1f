"""``examples/deepspeed_gpt.py`` as a DeepSpeed user runs it: the real launcher, on the CPU."""

import json
import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "deepspeed_gpt.py"
CONFIG = EXAMPLES / "deepspeed_gpt.json"
NUM_STEPS = 4

needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")


def train(folder: Path, *, num_ranks: int, num_stages: int, num_microbatches: int) -> list[float]:
    """The losses of a few steps."""
    config = folder / f"config-{num_ranks}.json"
    config.write_text(json.dumps({**json.loads(CONFIG.read_text()), "gradient_accumulation_steps": num_microbatches}))
    losses = folder / f"losses-{num_ranks}.jsonl"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "--num_gpus", str(num_ranks), "--master_port", port]
    rank = {}
    if num_ranks == 1:  # which needs no launcher
        launcher = [sys.executable]
        rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    script = [str(SCRIPT), "--deepspeed", "--deepspeed_config", str(config), "--stages", str(num_stages)]
    options = ["--tied", "--steps", str(NUM_STEPS), "--losses", str(losses)]
    environment = {
        **os.environ,
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **rank,
    }
    job = subprocess.Popen(
        [*launcher, *script, *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = job.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)  # its ranks as well
        raise
    assert job.returncode == 0, output[-4000:]
    assert output.count(f"/{NUM_STEPS}  loss ") == NUM_STEPS  # one rank tells
    lines = [json.loads(line) for line in losses.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, NUM_STEPS + 1))
    return [line["loss"] for line in lines]


@pytest.mark.stress
@needs_deepspeed
def test_pipelines_train_as_one_process_does(tmp_path: Path) -> None:
    two_pipelines_of_two_stages = train(tmp_path, num_ranks=4, num_stages=2, num_microbatches=2)
    one_process = train(tmp_path, num_ranks=1, num_stages=1, num_microbatches=4)
    assert two_pipelines_of_two_stages == pytest.approx(one_process, rel=1e-5)
    assert one_process[-1] < 0.95 * one_process[0]


def test_it_knows_nothing_of_us() -> None:
    assert "perseus" not in (SCRIPT.read_text() + CONFIG.read_text()).lower()
