"""Real Megatron-Bridge, its own ``pretrain`` from configuration to the end, under a plan on simulated GPUs."""

import json
from pathlib import Path

import pytest
from bridge_loops import BridgeRun, run_in, saved_profile
from tensorboard_events import read_events

from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report


def check(run: BridgeRun, monkeypatch: pytest.MonkeyPatch, *, least_predicted: float) -> str:
    """Planned, losses as without Perseus. Returns the log."""
    monkeypatch.setenv("PERSEUS_REPORT", str(run.folder))
    if not run.has_callback:
        monkeypatch.setenv("PERSEUS_ENABLE", "1")
    assert run.train() == 0
    log = (run.folder / "training.log").read_text()
    report = build_report(run.folder)
    assert report.is_planned, f"{report.job.reason}\n{log[-3000:]}"
    assert report.predicted_saving_percent is not None
    assert report.predicted_saving_percent > least_predicted
    assert report.saving_percent is not None
    assert report.saving_percent > 1  # a machine that does other things too makes waiting of it
    assert json.loads((run.folder / "report.json").read_text())["simulated_gpus"] is True  # rank 0 has made it
    monkeypatch.delenv("PERSEUS_ENABLE", raising=False)
    run.train_without()
    assert len(run.losses.read_text().splitlines()) == run.num_steps
    assert losses_equal(run.losses, run.reference_losses)
    return log


@pytest.mark.stress
def test_the_callback_in_a_job_with_decentralized_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bridge's groups are in its collection alone; evaluation and checkpoints lie between iterations."""
    writes = tmp_path / "tensorboard"
    options = (
        *("--decentralized", "--tensorboard", str(writes), "--eval-interval", "20"),
        *("--save", str(tmp_path / "checkpoints"), "--save-interval", "30"),
    )
    run = run_in(tmp_path, num_steps=38, pp_size=2, has_callback=True, options=options)
    monkeypatch.setenv("PERSEUS_PROFILE", str(saved_profile(run)))
    check(run, monkeypatch, least_predicted=4)
    scalars, texts = read_events(writes)
    assert "enforcing" in [phase for _, phase in texts["phase"]]
    assert scalars["gpu_clock_mhz"]
    assert all(step % 2 == 0 for step, _ in scalars["iteration_time_s"])  # tensorboard_log_interval


@pytest.mark.soak
@pytest.mark.parametrize("fields", [{"pp_size": 2, "num_chunks": 2}, {"pp_size": 2, "dp_size": 2}])
def test_a_script_that_knows_nothing_of_it_is_swept(
    fields: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a machine with 15 runnable processes a core, sweep and planning have taken 78 iterations.
    check(run_in(tmp_path, num_steps=140, **fields), monkeypatch, least_predicted=3)
