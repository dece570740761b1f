"""``report.html``: one file with everything inside, for any screen, in light and dark."""

from collections.abc import Mapping, Sequence
from html import escape

import perseus_dist
from perseus_dist.report.analysis.figures import NO_BASELINE, RunReport
from perseus_dist.report.analysis.gpus import GpuFigures
from perseus_dist.report.analysis.straggler_text import (
    EPISODE_HEADERS,
    MAX_ROWS,
    PERIOD_HEADERS,
    episode_rows,
    period_rows,
    sentences,
)
from perseus_dist.report.analysis.stragglers import StragglerFigures
from perseus_dist.report.analysis.summary import HEADERS, checks, comparison, reality, shape, troubles, why_no_plan
from perseus_dist.report.page.parts import bullets, figure, section, table
from perseus_dist.report.page.style import STYLE
from perseus_dist.report.page.times import clock_time, duration, seconds_between

_MAX_GPUS = 256  # rows; report.json has them all

_CAPTIONS = {
    "iterations": "Time and energy of every iteration: what the job took by itself, what trying clocks took, and what "
    "it takes under the plan. Triangles at an edge lie beyond it.",
    "timeline": "One iteration before the plan and one under it, both as measured. Colour is the clock of each "
    "computation; grey is waiting, into which the plan stretches what delays nobody.",
    "frontier": "Predicted by the profile: what each plan takes in time and energy, over the least that any plan could "
    "take. Diamonds were measured.",
}
_CAPTIONS_WITHOUT_PLAN = _CAPTIONS | {
    "iterations": "Time and energy of every iteration. Triangles at an edge lie beyond it.",
    "timeline": "One iteration as measured. Colour is the clock of each computation; grey is waiting.",
}
_STRAGGLERS_CAPTION = (
    "Above: what an iteration took, and how long each pipeline computed in it before it waited for gradient "
    "synchronisation. Below: what each pipeline drew. T' is what the others were given plans for; the target is what "
    "they are given plans for otherwise."
)
_STRAGGLERS_KEY = (
    "An iteration is the newest that had begun; in brackets, how many later it is than the injection, the detection or "
    "the end. Times and energies are medians. Straggler, others: the slowest pipeline of each until it waits for "
    "gradient synchronisation. Energies are those of the pipelines that waited, together. If only waiting: under the "
    "plan of before, at blocking power for the rest of the iteration. Promised: by the frontier, for the best plan "
    "within the time that the straggler really took."
)


def run_page(report: RunReport, pictures: Mapping[str, str], *, has_trace: bool) -> str:
    """The page.

    Args:
        report: Of the run.
        pictures: Markup by name: ``iterations``, ``timeline``, ``frontier``, ``stragglers``, as far as there is
            something to draw.
        has_trace: Whether there is a trace beside it.
    """
    job = report.job
    captions = _CAPTIONS if report.is_planned else _CAPTIONS_WITHOUT_PLAN
    parts = (
        f"<h1>{escape(job.job_id)}</h1>",
        f'<p class="shape">{_badge(report)}{escape(shape(report))}{_when(report)}</p>',
        _headline(report),
        table(HEADERS, [list(row) for row in comparison(report)]),
        bullets([*reality(report), *checks(report)]),
        section("Troubles", bullets(troubles(report), kind="trouble")) if troubles(report) else "",
        *(figure(pictures[name], name, caption) for name, caption in captions.items() if name in pictures),
        _stragglers(report, pictures),
        section("Phases", _phases(report)),
        section("GPUs", _gpus(report.gpus)),
        section("Left out", bullets(report.notes)) if report.notes else "",
        _foot(has_trace=has_trace),
    )
    content = "\n".join(part for part in parts if part)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(job.job_id)} - perseus-dist</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{content}
</main>
</body>
</html>
"""


def _badge(report: RunReport) -> str:
    return '<span class="badge">simulated GPUs</span> ' if report.job.is_simulated else ""


def _when(report: RunReport) -> str:
    job = report.job
    lasted = seconds_between(job.started_at, job.updated_at)
    when = f", {clock_time(job.started_at, with_date=True)}" if job.started_at else ""
    return escape(when + ("" if lasted is None else f", {duration(lasted)}"))


def _headline(report: RunReport) -> str:
    """The figures that matter, saving and slowdown side by side; or why there are none."""
    baseline, planned = report.baseline, report.planned
    saving, slowdown = report.saving_percent, report.slowdown_percent
    if saving is None or slowdown is None:
        why = "" if report.is_planned else why_no_plan(report)
        if report.is_planned and not baseline.num_iterations:
            why = NO_BASELINE
        told = f'<p class="nothing">{escape(why)}</p>' if why else ""
        energies = [f"{baseline.energy_j:,.1f} J"] if baseline.energy_j else []
        times = [f"{baseline.time_s:.4f} s"] if baseline.time_s else []
        tiles = [
            _tile(value, "energy of an iteration", _spread(baseline.energy_spread_j, "J", 1)) for value in energies
        ]
        tiles += [_tile(value, "iteration time", _spread(baseline.time_spread_s, "s", 4)) for value in times]
        return told + _tiles(tiles)
    predicted = [
        "" if value is None else f"predicted {value:z.{digits}f} %"
        for value, digits in ((report.predicted_saving_percent, 1), (report.predicted_slowdown_percent, 2))
    ]
    return _tiles(
        [
            _tile(f"{saving:z.1f} %", "saving", predicted[0], is_main=True),
            _tile(f"{slowdown:z.2f} %", "slowdown", predicted[1], is_main=True),
            _tile(
                f"{baseline.energy_j:,.0f} J &rarr; {planned.energy_j:,.0f} J",
                "energy of an iteration, all GPUs",
                _spread(baseline.energy_spread_j, "J", 1, planned.energy_spread_j),
            ),
            _tile(
                f"{baseline.time_s:.4f} s &rarr; {planned.time_s:.4f} s",
                "iteration time",
                _spread(baseline.time_spread_s, "s", 4, planned.time_spread_s),
            ),
        ]
    )


def _spread(spread: float, unit: str, digits: int, other: float | None = None) -> str:
    told = f"{spread:,.{digits}f}" + ("" if other is None else f" and {other:,.{digits}f}")
    return f"median; interquartile range {told} {unit}"


def _tiles(tiles: Sequence[str]) -> str:
    return f'<div class="tiles">{"".join(tiles)}</div>' if tiles else ""


def _tile(value: str, label: str, below: str, *, is_main: bool = False) -> str:
    main = " main" if is_main else ""
    return (
        f'<div class="tile{main}"><div class="label">{label}</div><div class="value">{value}</div>'
        f'<div class="below">{below}</div></div>'
    )


def _stragglers(report: RunReport, pictures: Mapping[str, str]) -> str:
    """Each straggler's course, and what waiting for it took and saved; nothing where there was none."""
    figures = report.stragglers
    if figures is None:
        return ""
    said = bullets(sentences(figures, is_simulated=report.job.is_simulated))
    picture = figure(pictures["stragglers"], "stragglers", _STRAGGLERS_CAPTION) if "stragglers" in pictures else ""
    return section("Stragglers", said + picture + _straggler_tables(figures))


def _straggler_tables(figures: StragglerFigures) -> str:
    parts = []
    for headers, rows, texts in (
        (EPISODE_HEADERS, episode_rows(figures), (0, 1)),
        (PERIOD_HEADERS, period_rows(figures), (0,)),
    ):
        if rows:
            parts.append(table(headers, rows[:MAX_ROWS], texts=texts))
        if len(rows) > MAX_ROWS:
            parts.append(f"<p>and {len(rows) - MAX_ROWS} more, in report.json</p>")
    return "".join(parts) + f'<p class="key">{escape(_STRAGGLERS_KEY)}</p>'


def _phases(report: RunReport) -> str:
    """Every decision of the planner, when, and how long it stood."""
    phases = report.job.phases
    ends = [*(phase.at for phase in phases[1:]), report.job.updated_at]
    rows = []
    for phase, end in zip(phases, ends, strict=False):  # none where a damaged record has lost its phases
        lasted = seconds_between(phase.at, end)
        is_over = phase.phase == "done"
        told = "" if lasted is None or is_over else duration(lasted)
        rows.append([phase.phase.replace("_", " "), clock_time(phase.at), told, phase.reason])
    return (
        table(("phase", "at (UTC)", "lasted", "because"), rows, texts=(0, 3), wide=3)
        if rows
        else "<p>none was told</p>"
    )


def _gpus(gpus: Sequence[GpuFigures]) -> str:
    if not gpus:
        return "<p>no rank left anything</p>"
    headers = (
        "rank",
        "pp, dp, tp",
        "GPU",
        "clocks set by",
        "baseline [J]",
        "plan [J]",
        "saving",
        "waiting, baseline",
        "waiting, plan",
        "mean clock, plan [MHz]",
        "GPU's UUID",
    )
    rows = [
        [
            str(gpu.rank),
            ", ".join("?" if place is None else str(place) for place in (gpu.pp_rank, gpu.dp_rank, gpu.tp_rank)),
            gpu.name,
            f"{gpu.control}: {gpu.refusal}" if gpu.refusal else gpu.control,
            _number(gpu.baseline_j, ",.1f"),
            _number(gpu.planned_j, ",.1f"),
            _number(gpu.saving_percent, "z.1f", " %"),
            _share(gpu.baseline_waiting),
            _share(gpu.planned_waiting),
            _number(gpu.planned_clock_mhz, ".0f"),
            gpu.uuid,
        ]
        for gpu in gpus[:_MAX_GPUS]
    ]
    more = f"<p>and {len(gpus) - _MAX_GPUS} more, in report.json</p>" if len(gpus) > _MAX_GPUS else ""
    return table(headers, rows, texts=(1, 2, 3, 10)) + more


def _foot(*, has_trace: bool) -> str:
    perfetto = '<a href="https://ui.perfetto.dev">ui.perfetto.dev</a>'
    trace = f", and trace.json, which {perfetto} opens: every kept iteration, as planned and as it ran" * has_trace
    version = escape(perseus_dist.__version__)
    return f"<footer>perseus-dist {version}. Beside this page: report.json with every figure{trace}.</footer>"


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"
