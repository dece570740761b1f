"""Stragglers of a run in tables and sentences, for the terminal and for the page alike."""

from collections.abc import Sequence

from perseus_dist.report.analysis.episodes import Episode, Step, later
from perseus_dist.report.analysis.stragglers import StragglerFigures
from perseus_dist.report.analysis.waits import IterationWindow, StragglerPeriod, StragglerWait, share_of

EPISODE_HEADERS = ("straggler", "cause", "slower by", "injected", "detected", "all switched", "over", "full speed")
PERIOD_HEADERS = (
    "",
    "iterations",
    "T' [s]",
    "iteration time [s]",
    "straggler [s]",
    "others [s]",
    "energy [J]",
    "if only waiting [J]",
    "promised [J]",
    "reached",
)
MAX_ROWS = 64
"""Of a table; report.json has them all."""


def episode_rows(figures: StragglerFigures) -> list[tuple[str, ...]]:
    """A row for each step of each straggler, below ``EPISODE_HEADERS``; iterations, and how many later they are."""
    rows: list[tuple[str, ...]] = []
    for one in figures.episodes:
        for place, step in enumerate(one.steps):
            names = ("", "") if place else (_who(one), one.cause.replace("_", " "))
            ends = ("", "") if step is not one.steps[-1] else _ends(one)
            rows.append((*names, f"{100 * (step.degree - 1):.1f} %", *_begins(step), *ends))
    return rows


def period_rows(figures: StragglerFigures) -> list[tuple[str, ...]]:
    """Rows for each time that pipelines waited, below ``PERIOD_HEADERS``: before, each plan, after."""
    rows: list[tuple[str, ...]] = []
    for period in figures.periods:
        rows.append(_stretch_row("before", period.before))
        rows += [_wait_row(period, wait) for wait in period.waits]
        rows.append(_stretch_row("after", period.after))
    return rows


def sentences(figures: StragglerFigures, *, is_simulated: bool) -> list[str]:
    """Results in sentences, and the meaning of the second table's columns."""
    said = []
    waits = [wait for period in figures.periods for wait in period.waits]
    if waits:
        promised, planned = share_of(waits, "promised_j"), share_of(waits, "planned_j")
        if promised is not None and planned is not None:
            of_promise = "of what the frontier promises for"
            said += [
                f"{100 * promised:.0f} % {of_promise} the best plans within the time that the straggler took",
                f"{100 * planned:.0f} % {of_promise} the plans that were chosen for T'",
            ]
        num_later, num = sum(wait.num_later for wait in waits), sum(wait.measured.num_iterations for wait in waits)
        said.append(f"in {num_later} of {num} iterations a pipeline was later than the straggler it waited for")
    if is_simulated:
        said.append("all of this on simulated GPUs")
    return said


def _who(one: Episode) -> str:
    return f"rank {one.rank}, pipeline {one.dp_rank}" if one.rank >= 0 else f"pipeline {one.dp_rank}"


def _begins(step: Step) -> tuple[str, str, str]:
    injected = "" if step.injected_iteration is None else f"{step.injected_iteration} ({step.thermal_cap_mhz} MHz)"
    detected = _counted(step.detected_iteration, step.injected_iteration)
    return injected, detected, _counted(step.switched_iteration, step.since)


def _ends(one: Episode) -> tuple[str, str]:
    return _counted(one.over_iteration, one.lifted_iteration), _counted(one.full_speed_iteration, one.end)


def _counted(iteration: int | None, since: int | None) -> str:
    """An iteration, and how much later it is than what it is counted from."""
    after = later(iteration, since)
    return "-" if iteration is None else f"{iteration}" + ("" if after is None else f" ({after:+d})")


def _stretch_row(name: str, stretch: IterationWindow | None) -> tuple[str, ...]:
    if stretch is None:
        return (name, "-", *[""] * 8)
    times = ("", f"{stretch.time_s:.4f}", "", f"{stretch.own_time_s:.4f}")
    return (name, _iterations(stretch), *times, _joules(stretch.energy_j), "", "", "")


def _wait_row(period: StragglerPeriod, wait: StragglerWait) -> tuple[str, ...]:
    share = share_of([wait], "promised_j")
    return (
        f"waiting for pipeline {_listed(period.straggling)}",
        _iterations(wait.measured),
        f"{wait.t_prime_s:.4f}",
        f"{wait.measured.time_s:.4f}",
        f"{wait.straggler_time_s:.4f}",
        f"{wait.others_time_s:.4f}",
        _joules(wait.measured.energy_j),
        _joules(wait.waiting_j),
        _joules(wait.promised_j),
        "" if share is None else f"{100 * share:.0f} %",
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:4])) + (", ..." if len(numbers) > 4 else "")


def _iterations(stretch: IterationWindow) -> str:
    return f"{stretch.first_iteration}-{stretch.last_iteration}"


def _joules(energy_j: float | None) -> str:
    return "" if energy_j is None else f"{energy_j:,.1f}"
