"""``report.html``: one file with everything inside, for any screen, in light and dark."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape

import perseus_dist
from perseus_dist.report.page_style import STYLE
from perseus_dist.report.run_figures import RunReport
from perseus_dist.report.run_gpus import GpuFigures
from perseus_dist.report.run_summary import HEADERS, checks, comparison, reality, shape, troubles, why_no_plan

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


def run_page(report: RunReport, pictures: Mapping[str, str], *, has_trace: bool) -> str:
    """The page.

    Args:
        report: Of the run.
        pictures: Markup by name: ``iterations``, ``timeline``, ``frontier``, as far as there is something to draw.
        has_trace: Whether there is a trace beside it.
    """
    job = report.job
    captions = _CAPTIONS if report.is_planned else _CAPTIONS_WITHOUT_PLAN
    parts = (
        f"<h1>{escape(job.job_id)}</h1>",
        f'<p class="shape">{_badge(report)}{escape(shape(report))}{_when(report)}</p>',
        _headline(report),
        _table(HEADERS, [list(row) for row in comparison(report)]),
        _list([*reality(report), *checks(report)]),
        _section("Troubles", _list(troubles(report), kind="trouble")) if troubles(report) else "",
        *(_picture(pictures[name], name, caption) for name, caption in captions.items() if name in pictures),
        _section("Phases", _phases(report)),
        _section("GPUs", _gpus(report.gpus)),
        _section("Left out", _list(report.notes)) if report.notes else "",
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
    lasted = _seconds_between(job.started_at, job.updated_at)
    when = f", {_clock_time(job.started_at, with_date=True)}" if job.started_at else ""
    return escape(when + ("" if lasted is None else f", {_duration(lasted)}"))


def _headline(report: RunReport) -> str:
    """The figures that matter, saving and slowdown side by side; or why there are none."""
    baseline, planned = report.baseline, report.planned
    saving, slowdown = report.saving_percent, report.slowdown_percent
    if saving is None or slowdown is None:
        told = f'<p class="nothing">{escape(why_no_plan(report))}</p>' if not report.is_planned else ""
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


def _picture(markup: str, name: str, caption: str) -> str:
    return f'<figure><div class="picture {name}">{markup}</div><figcaption>{escape(caption)}</figcaption></figure>'


def _phases(report: RunReport) -> str:
    """Every decision of the planner, when, and how long it stood."""
    phases = report.job.phases
    ends = [*(phase.at for phase in phases[1:]), report.job.updated_at]
    rows = []
    for phase, end in zip(phases, ends, strict=True):
        lasted = _seconds_between(phase.at, end)
        is_over = phase.phase == "done"
        told = "" if lasted is None or is_over else _duration(lasted)
        rows.append([phase.phase.replace("_", " "), _clock_time(phase.at), told, phase.reason])
    return (
        _table(("phase", "at (UTC)", "lasted", "because"), rows, texts=(0, 3), wide=3)
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
    return _table(headers, rows, texts=(1, 2, 3, 10)) + more


def _foot(*, has_trace: bool) -> str:
    perfetto = '<a href="https://ui.perfetto.dev">ui.perfetto.dev</a>'
    trace = f", and trace.json, which {perfetto} opens: every kept iteration, as planned and as it ran" * has_trace
    version = escape(perseus_dist.__version__)
    return f"<footer>perseus-dist {version}. Beside this page: report.json with every figure{trace}.</footer>"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _list(sentences: Iterable[str], *, kind: str = "") -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="{kind}">{items}</ul>' if items else ""


def _table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Sequence[int] = (0,), wide: int | None = None
) -> str:
    """A table that scrolls by itself where the screen is narrow.

    Args:
        headers: Of the columns.
        rows: Their cells.
        texts: Columns that stand to the left, as texts do.
        wide: The column whose texts may break into lines.
    """

    def line(cells: Sequence[str], tag: str) -> str:
        classes = ["text" * (column in texts) + " wide" * (column == wide) for column in range(len(cells))]
        return "".join(
            f'<{tag} class="{kind.strip()}">{escape(cell)}</{tag}>' for kind, cell in zip(classes, cells, strict=True)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{line(headers, "th")}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _moment(at: str) -> datetime | None:
    try:
        return datetime.fromisoformat(at)
    except ValueError:
        return None


def _seconds_between(begin: str, end: str) -> float | None:
    first, last = _moment(begin), _moment(end)
    if first is None or last is None or (first.tzinfo is None) != (last.tzinfo is None):
        return None
    return max(0.0, (last - first).total_seconds())


def _clock_time(at: str, *, with_date: bool = False) -> str:
    moment = _moment(at)
    if moment is None:
        return at
    return f"{moment:%Y-%m-%d %H:%M} UTC" if with_date else f"{moment:%H:%M:%S}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
