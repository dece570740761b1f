"""Exit codes of the command line, whoever reads what it prints, and the logs that a failure leaves."""

import os
import sys
from pathlib import Path

import pytest

from perseus_dist.cli.main import main
from perseus_dist.messages.job_status import MeasuredIterations
from perseus_dist.simulation import wall_run
from perseus_dist.simulation.outcome import Outcome


def test_a_reader_that_leaves_hides_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "__stdout__", stdout)
        assert main(["health", "--planning-worker", "not-there", "--json"]) == 1


@pytest.mark.parametrize(("num_planned", "num_locked", "code"), [(9, 0, 0), (0, 0, 1), (9, 1, 1)])
def test_the_logs_of_a_simulated_run_stay_only_where_it_failed(
    num_planned: int,
    num_locked: int,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folders: list[Path] = []

    def run_wall(*_: object, folder: Path, **__: object) -> Outcome:
        folders.append(folder)
        return Outcome(
            baseline=MeasuredIterations(num_iterations=5, time_s=1.0, energy_j=1.0),
            enforced=MeasuredIterations(num_iterations=num_planned, time_s=1.0, energy_j=1.0),
            predicted_saving=0.1,
            predicted_saving_low=0.0,
            predicted_saving_high=0.0,
            num_profiled_clocks=4,
            reason="",
            troubles=(),
            planner_restarts=0,
            clocks_left_locked=num_locked,
            is_virtual=False,
        )

    monkeypatch.setattr(wall_run, "run_wall", run_wall)
    assert main(["simulate", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4"]) == code
    (folder,) = folders
    said = capsys.readouterr().err
    assert (folder.exists(), f"logs are in {folder}\n" in said) == (code == 1, code == 1)
    if folder.exists():
        folder.rmdir()
