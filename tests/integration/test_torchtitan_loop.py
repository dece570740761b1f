"""torchtitan's own trainer on simulated GPUs, under a plan, its source as it comes.

``PERSEUS_TEST_TORCHTITAN`` names a folder with torchtitan 0.3.0 and what it needs beside torch; otherwise it is looked
for in build/torchtitan.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from python_path import python_path
from reduced_1f1b import NUM_MICROBATCHES, PP_SIZE, TIMES, saved_profile

from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report
from perseus_dist.simulation.frameworks.torchtitan_run import TorchtitanRun

TORCHTITAN = Path(os.environ.get("PERSEUS_TEST_TORCHTITAN", Path(__file__).parents[2] / "build" / "torchtitan"))
CONFIGURATIONS = Path(__file__).parents[2] / "examples" / "torchtitan_llama.py"

pytestmark = pytest.mark.skipif(
    not (TORCHTITAN / "torchtitan").is_dir(),
    reason=f"no torchtitan in {TORCHTITAN}; PERSEUS_TEST_TORCHTITAN names another folder",
)

PLACES = """\
import itertools, os
from perseus_dist.simulation.torchtitan_on_cpu import enable
enable()
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchtitan.distributed import ParallelDims
from perseus_dist.pipelining.titan import place_in
layouts = (4, 1, 1, 1, 1, 1), (2, 1, 2, 1, 1, 1), (2, 2, 2, 2, 2, 1), (2, 1, 4, 1, 1, 4)
for pp, replicate, shard, cp, tp, ep in layouts:
    size = pp * replicate * shard * cp * tp
    for rank in range(size):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
        dims = ParallelDims(
            dp_replicate=replicate, dp_shard=shard, cp=cp, tp=tp, pp=pp, ep=ep, world_size=size,
            spmd_backend="partial_dtensor",
        )
        dims.build_mesh()
        place = place_in(dims, rank=rank, local_rank=0)
        mesh = {name: dims._single_axis_meshes[name].get_local_rank() for name in ("pp", "batch", "cp", "tp", "ep")}
        node = mesh["ep"] if ep > 1 else mesh["cp"] * tp + mesh["tp"]
        replica = mesh["batch"] // max(1, ep // (cp * tp))
        assert (place.pp_rank, place.dp_rank, place.tp_rank) == (mesh["pp"], replica, node), (place, mesh)
        dist.destroy_process_group()
print("as torchtitan's meshes")
"""


def run_in(folder: Path, schedule: str, *, num_steps: int, pp_size: int = PP_SIZE, dp_size: int = 1) -> TorchtitanRun:
    return TorchtitanRun(
        script=CONFIGURATIONS,
        schedule=schedule,
        pp_size=pp_size,
        dp_size=dp_size,
        num_microbatches=NUM_MICROBATCHES,
        torchtitan=TORCHTITAN,
        num_steps=num_steps,
        folder=folder,
        preset="a100",
        forward_s=TIMES.forward_s,
        backward_s=TIMES.backward_s,
        imbalance=TIMES.imbalance,
    )


@pytest.mark.stress
def test_a_job_runs_under_a_plan(tmp_path: Path) -> None:
    saved = saved_profile(tmp_path, constants_s={"REDUCE": 0.001, "STEP": 0.01})
    run = run_in(tmp_path, "1F1B", num_steps=40)
    check(replace(run, perseus_options=saved))


@pytest.mark.parametrize(
    ("schedule", "dp_size"),
    [
        pytest.param("Interleaved1F1B", 2, marks=pytest.mark.soak),  # FSDP's weights are sharded over both
        pytest.param("ZBVZeroBubble", 1, marks=pytest.mark.soak),
        pytest.param("DualPipeV", 1, marks=pytest.mark.soak),
    ],
)
def test_a_job_goes_from_baseline_to_plan(schedule: str, dp_size: int, tmp_path: Path) -> None:
    check(run_in(tmp_path, schedule, num_steps=75, dp_size=dp_size))


def check(run: TorchtitanRun) -> None:
    """Losses as without Perseus, and planned."""
    assert run.train() == 0
    run.train_without()
    assert len(run.losses.read_text().splitlines()) == run.num_steps
    assert losses_equal(run.losses, run.reference_losses)
    report = build_report(run.folder)
    assert report.is_planned, f"{report.job.reason}\n{(run.folder / 'training.log').read_text()[-3000:]}"


@pytest.mark.stress
def test_a_job_without_a_pipeline_is_warned_once_and_trains_on(tmp_path: Path) -> None:
    run = run_in(tmp_path, "1F1B", num_steps=3, pp_size=1)
    assert run.train() == 0
    log = (tmp_path / "training.log").read_text()
    assert log.count("this job has no pipeline of torch.distributed.pipelining") == 1
    assert len(run.losses.read_text().splitlines()) == 3


@pytest.mark.stress
def test_places_are_those_of_torchtitans_meshes() -> None:
    environment = {**os.environ, "PYTHONPATH": python_path(TORCHTITAN), "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        [sys.executable, "-c", PLACES], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.stdout == "as torchtitan's meshes\n", ran.stderr[-3000:]
