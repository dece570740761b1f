"""A run in words and in a small table: what was measured beside what was predicted, and what of it was simulated."""

from collections.abc import Iterable
from typing import NamedTuple

from perseus_dist.interval_text import interval_text
from perseus_dist.messages.job_status import JobFigures, MeasuredIterations
from perseus_dist.rank_text import told_once
from perseus_dist.report.analysis.figures import RunReport
from perseus_dist.report.analysis.straggler_text import (
    EPISODE_HEADERS,
    MAX_ROWS,
    PERIOD_HEADERS,
    episode_rows,
    period_rows,
    sentences,
)
from perseus_dist.report.analysis.stragglers import StragglerFigures

HEADERS = ("", "iteration time [s]", "spread", "energy [J]", "spread", "saving", "slowdown", "iterations")


_MAX_LINES = 8  # of one sort; a thousand ranks mostly share one cause
_TARGETS = {"": "T_min", "t_min": "T_min"}


class Row(NamedTuple):
    """One line of the comparison; a text is empty where something is not known or makes no sense."""

    name: str
    time: str
    time_spread: str = ""
    energy: str = ""
    energy_spread: str = ""
    saving: str = ""
    slowdown: str = ""
    num_iterations: str = ""


def comparison(report: RunReport) -> list[Row]:
    """Measured figures, then predicted ones; saving and slowdown are against the baseline of the same kind."""
    found = [_measured("measured baseline", report.baseline, None, None)]
    if report.is_planned:
        found.append(_measured("measured plan", report.planned, report.saving_percent, report.slowdown_percent))
    if report.predicted_baseline is not None and report.predicted is not None:
        found.append(_predicted("predicted baseline", report.predicted_baseline, None, None))
        saved = report.predicted_saving_percent, report.predicted_slowdown_percent
        found.append(_predicted("predicted plan", report.predicted, *saved))
    return found


def summary_text(report: RunReport) -> str:
    """For a terminal; some lines, without a line break at the end."""
    job = report.job
    lines = [f"{job.job_id}: {shape(report)}", "", *_table((HEADERS, *comparison(report))), ""]
    if not report.is_planned:
        lines.append(why_no_plan(report))
    lines += [*reality(report), *checks(report)]
    if report.stragglers is not None:
        lines += ["", *_stragglers(report.stragglers, is_simulated=report.job.is_simulated)]
    if troubles(report):
        lines += ["", *(f"trouble: {line}" for line in troubles(report))]
    lines += [f"note: {line}" for line in report.notes[:_MAX_LINES]]
    if len(report.notes) > _MAX_LINES:
        lines.append(f"note: and {len(report.notes) - _MAX_LINES} more, in report.json")
    return "\n".join(lines)


def shape(report: RunReport) -> str:
    """On what it ran, and how large it was."""
    job = report.job
    sizes = [f"{job.pp_size} pipeline stages"]
    if job.dp_size > 1:
        sizes.append(f"{job.dp_size} pipelines")
    if job.tp_size > 1:
        sizes.append(f"{job.tp_size} GPUs to a tensor-parallel group")
    target = _TARGETS.get(job.target, job.target)
    simulated = "simulated " if job.is_simulated else ""
    return f"{job.num_ranks} {simulated}GPUs ({report.gpu_name}), {', '.join(sizes)}, target {target}"


def reality(report: RunReport) -> list[str]:
    """Which parts were simulated and which were real, a sentence each."""
    if not report.job.is_simulated:
        return ["real: everything; energies are those of the GPUs' own counters"]
    return [
        "simulated: the GPUs, which is how long kernels take, what they draw, and the clocks that are set",
        "real: everything else, from the training and its losses to agents, profile, planner and plan",
    ]


def checks(report: RunReport) -> list[str]:
    """Results of further checks, a sentence each."""
    said = []
    if report.losses_equal is not None:
        equal = "equal" if report.losses_equal else "NOT equal"
        said.append(f"losses: {equal}, bit by bit, with and without Perseus")
    if report.clocks_left_locked is not None:
        said.append(f"clocks left locked: {report.clocks_left_locked}")
    if report.job.saved_j:
        doubt = f", give or take {report.job.saved_doubt_j:,.0f} J" if report.job.saved_doubt_j else ""
        said.append(f"saved since the first plan, against all-maximum clocks: {report.job.saved_j:,.0f} J{doubt}")
    per_token = ((report.planned_per_token_j, "under the plan"), (report.baseline_per_token_j, "at the baseline"))
    if told := [f"{energy_j:.4g} J {where}" for energy_j, where in per_token if energy_j is not None]:
        said.append(f"energy per token: {', '.join(told)}")
    if interval := report.predicted_saving_interval_percent:
        said.append(f"predicted saving: likely {interval_text(*interval)} %{_where(report, interval)}")
    said += _self_check(report.job)
    guard = report.job.guard
    if guard.probes:
        lost = f"time lost under plans, against full clocks: {guard.lost_s:.2f} s, by {guard.probes} probes"
        said.append(f"{lost}; plans given up for it: {guard.falls}")
    return said


def _where(report: RunReport, interval: tuple[float, float]) -> str:
    """Where the measured saving lies; empty where it is not known."""
    measured = report.saving_percent
    if measured is None:
        return ""
    low, shown, high = (round(one, 1) for one in (interval[0], measured, interval[1]))  # as they are printed
    place = "below" if shown < low else "above" if shown > high else "inside"
    return f"; the measured one, {measured:z.1f} %, lies {place}" + (" it" if place != "inside" else "")


def _self_check(job: JobFigures) -> list[str]:
    """Measured over predicted, where it is known; ``troubles`` say what explains more than 1 %."""
    pairs = (
        ("at full clocks", job.full_time_degree, job.full_energy_degree),
        ("under the plan", job.plan_time_degree, job.plan_energy_degree),
    )
    told = [
        f"{where} {100 * (time - 1):+.1f} % time" + (f" and {100 * (energy - 1):+.1f} % energy" if energy else "")
        for where, time, energy in pairs
        if time
    ]
    return [f"self-check, measured against predicted: {'; '.join(told)}"] if told else []


def why_no_plan(report: RunReport) -> str:
    """Why no iteration ran under a plan."""
    job = report.job
    reason = f"{job.phase}: {job.reason}" if job.reason else job.phase
    decided = [one for one in job.phases if one.phase not in ("done", "registering")][-1:]
    before = [f" (before: {one.phase}: {one.reason})" for one in decided if one.reason not in reason]
    return "".join([f"no iteration ran under a plan; {reason}", *before])


def troubles(report: RunReport) -> list[str]:
    """Failures, a sentence each."""
    job = report.job
    counts = ((job.missed_clocks, "clocks came too late"), (job.lost_boundaries, "boundaries were lost"))
    told = " ".join(job.troubles)  # the planner has often had the same message
    refused = told_once(
        {gpu.rank: f"its clocks are not set: {gpu.refusal}" for gpu in report.gpus if gpu.refusal not in told}
    )
    more = [f"{len(refused) - _MAX_LINES} more reasons why clocks are not set"] if len(refused) > _MAX_LINES else []
    return [*report.troubles, *refused[:_MAX_LINES], *more, *(f"{count:,} {what}" for count, what in counts if count)]


def _stragglers(figures: StragglerFigures, *, is_simulated: bool) -> list[str]:
    lines = ["stragglers, by iteration:"]
    for headers, rows in ((EPISODE_HEADERS, episode_rows(figures)), (PERIOD_HEADERS, period_rows(figures))):
        if rows:
            lines += [*_table((headers, *rows[:MAX_ROWS])), ""]
        if len(rows) > MAX_ROWS:
            lines[-1:] = [f"and {len(rows) - MAX_ROWS} more, in report.json", ""]
    return lines + sentences(figures, is_simulated=is_simulated)


def _measured(name: str, measured: MeasuredIterations, saving: float | None, slowdown: float | None) -> Row:
    return Row(
        name=name,
        time=f"{measured.time_s:.4f}" if measured.time_s else "-",
        time_spread=f"{measured.time_spread_s:.4f}" if measured.time_s else "",
        energy=f"{measured.energy_j:,.1f}" if measured.energy_j else "-",
        energy_spread=f"{measured.energy_spread_j:,.1f}" if measured.energy_j else "",
        saving=_percent(saving, 1),
        slowdown=_percent(slowdown, 2),
        num_iterations=str(measured.num_iterations),
    )


def _predicted(name: str, predicted: tuple[float, float], saving: float | None, slowdown: float | None) -> Row:
    time_s, energy_j = predicted
    return Row(
        name=name,
        time=f"{time_s:.4f}",
        energy=f"{energy_j:,.1f}",
        saving=_percent(saving, 1),
        slowdown=_percent(slowdown, 2),
    )


def _percent(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:z.{digits}f} %"


def _table(lines: Iterable[tuple[str, ...]]) -> list[str]:
    """The first column to the left, numbers to the right."""
    lines = list(lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
