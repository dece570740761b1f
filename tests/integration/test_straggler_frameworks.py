"""A GPU overheats in mid-run, overheats more and cools down: real DeepSpeed and real Megatron-LM on simulated GPUs."""

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.report.run_report import build_report
from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.megatron_run import LAYOUTS, MegatronRun
from perseus_dist.simulation.frameworks.throttled_run import ThrottledRun
from perseus_dist.simulation.frameworks.training_run import TrainingRun
from perseus_dist.simulation.simulated_profile import simulated_profile
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.throttle import Throttle
from perseus_dist.simulator.work import WorkTimes

EXAMPLES = Path(__file__).parents[2] / "examples"
MEGATRON = Path(os.environ.get("PERSEUS_TEST_MEGATRON", Path(__file__).parents[2] / "build" / "megatron")) / "0.17.1"
PP_SIZE, DP_SIZE = 2, 2
SLOW_GPU, SLOW_PIPELINE = 3, 1  # the last stage of the second pipeline
WORK = WorkTimes(forward_s=0.03, backward_s=0.055, imbalance=0.3)
CONSTANTS_S = {"REDUCE": 0.004, "STEP": 0.008}
COMMON: Mapping[str, Any] = {
    "num_steps": 80,
    "preset": "a100",
    "forward_s": WORK.forward_s,
    "backward_s": WORK.backward_s,
    "imbalance": WORK.imbalance,
    "throttles": (
        Throttle(at=32, gpu=SLOW_GPU, cap_mhz=1110),
        Throttle(at=48, gpu=SLOW_GPU, cap_mhz=900),
        Throttle(at=64, gpu=SLOW_GPU, cap_mhz=None),
    ),
}


def saved_profile(folder: Path, constants_s: Mapping[str, float]) -> tuple[str, str]:
    """Options of a run that need not sweep."""
    path = folder / "saved.csv"
    path.write_text(simulated_profile(PRESETS["a100"], WORK, pp_size=PP_SIZE, constants_s=constants_s))
    return "--perseus-profile", str(path)


def check(run: TrainingRun, num_locked: int) -> None:
    """A machine that does other things too makes waiting of it: bounds are wide."""
    assert num_locked == 0
    log = (run.folder / "training.log").read_text()
    ran = ThrottledRun.read(run.folder)
    told = "\n".join(f"{event.iteration}: {event.sentence}" for event in ran.events) + log[-2000:]
    assert ran.slow_pipeline == SLOW_PIPELINE
    verdicts = {(event.rank, event.cause) for event in ran.events if event.kind == "verdict"}
    # A busy machine makes others slow as well, by another cause.
    by_heat = {(rank, cause) for rank, cause in verdicts if cause == "thermal"}
    assert by_heat == {(SLOW_GPU, "thermal")}, told
    before, *injected = ran.stretches
    for stretch in injected:
        told_after, switched_after = ran.told_after(stretch), ran.switched_after(stretch)
        assert told_after is not None, told
        assert told_after <= 4, told
        assert switched_after is not None, told
        assert switched_after <= 6, told
    waiting = ran.pipelines.dp_ranks.index(1 - SLOW_PIPELINE)
    followed = {int(number): int(ran.pipelines.point[waiting, i]) for i, number in enumerate(ran.pipelines.number)}
    planned = {number: point for number, point in followed.items() if point != NO_POINT}  # those of a probe are not
    points = [planned[max(number for number in planned if number <= stretch.last)] for stretch in ran.stretches]
    assert points[0] == points[3] < points[1] < points[2], told
    assert ran.energy_j(injected[1]) < ran.energy_j(before)  # though it lasts longer
    assert build_report(run.folder).document()["stragglers"]


@pytest.mark.soak
@pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_deepspeed_waits_as_long_as_it_lasts(tmp_path: Path) -> None:
    run = DeepSpeedRun(
        script=EXAMPLES / "deepspeed_gpt.py",
        config=EXAMPLES / "deepspeed_gpt.json",
        num_stages=PP_SIZE,
        num_pipelines=DP_SIZE,
        folder=tmp_path,
        launcher="perseus-deepspeed",
        perseus_options=saved_profile(tmp_path, {"LOAD": 0.0005, "TIED": 0.00002, **CONSTANTS_S}),
        **COMMON,
    )
    check(run, run.train())


@pytest.mark.alone
@pytest.mark.stress
@pytest.mark.skipif(not (MEGATRON / "megatron" / "training").is_dir(), reason=f"no megatron.training in {MEGATRON}")
def test_megatron_waits_as_long_as_it_lasts(tmp_path: Path) -> None:
    run = MegatronRun(
        script=EXAMPLES / "megatron_gpt.py",
        layout=replace(LAYOUTS["PP2 x DP2"], num_microbatches=8),
        megatron=MEGATRON,
        folder=tmp_path,
        perseus_options=saved_profile(tmp_path, CONSTANTS_S),
        **COMMON,
    )
    check(run, run.train())
