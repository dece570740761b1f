"""What benchmarks of real frameworks share: a job trained with Perseus and without, and a row of what it has saved."""

import sys
from typing import Any

from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report, write_report
from perseus_dist.simulation.frameworks.training_run import TrainingFailedError, TrainingRun

MAX_SLOWDOWN, MAX_ERROR = 1.0, 1.0  # percent, points
COLUMNS = ("full clocks [s]", "[J]", "plan [s]", "[J]", "slowdown [%]", "saving [%]", "predicted [%]")


def train_with_and_without(run: TrainingRun) -> dict[str, Any]:
    """The document of ``report.json``, with whether losses are equal and how many clocks were left locked.

    Ends the process with the end of the job's log where training fails.
    """
    try:
        num_locked = run.train()
        run.train_without()
    except TrainingFailedError as error:
        sys.exit(f"{error}\n{error.log_tail}")
    are_equal = losses_equal(run.losses, run.reference_losses)
    report = build_report(run.folder, losses_equal=are_equal, clocks_left_locked=num_locked)
    return write_report(report, run.folder).document()


def meets_bars(report: dict[str, Any]) -> bool:
    """Whether a job was on time and saved what was predicted, with equal losses and no clock left locked."""
    saving, predicted = report["saving_percent"], report["predicted_saving_percent"]
    return (
        report["losses_equal"]
        and report["clocks_left_locked"] == 0
        and None not in (saving, predicted)
        and report["slowdown_percent"] <= MAX_SLOWDOWN
        and abs(saving - predicted) <= MAX_ERROR
    )


def saving_cells(report: dict[str, Any]) -> list[str]:
    """A job's cells of ``COLUMNS``."""
    cells = []
    for side in (report["baseline"], report["planned"]):
        cells += [figure(side["iteration_time_s"], ".3f"), figure(side["energy_j"], ".0f")]
    return [
        *cells,
        figure(report["slowdown_percent"], "+.2f"),
        figure(report["saving_percent"], ".1f"),
        figure(report["predicted_saving_percent"], ".1f"),
    ]


def figure(value: float | None, form: str) -> str:
    """A figure as text, ``-`` where it is unknown."""
    return "-" if value is None else format(value, form)
