"""A job's report, from the folder that its agents wrote into: figures, pictures, a trace and a page."""

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from perseus_dist.planning.output_file import remove_file, replace_file
from perseus_dist.report.analysis.figures import RunReport, build_report
from perseus_dist.report.analysis.summary import summary_text
from perseus_dist.report.page.page import run_page
from perseus_dist.report.trace.run_trace import run_trace_events
from perseus_dist.report.trace.trace import trace_bytes
from perseus_dist.runlog.file_names import REPORT_FILE

__all__ = ["REPORT_FILES", "RunReport", "build_report", "summary_text", "write_report"]

REPORT_JSON, REPORT_HTML, FRONTIER_SVG, TIMELINE_SVG, STRAGGLERS_SVG, TRACE_JSON = REPORT_FILES = (
    REPORT_FILE,
    "report.html",
    "frontier.svg",
    "timeline.svg",
    "stragglers.svg",
    "trace.json",
)


def write_report(report: RunReport, folder: Path) -> RunReport:
    """Write all of ``REPORT_FILES`` that there is something to say in; older ones go, so that all are of one run.

    Args:
        report: Of the run.
        folder: An existing one.

    Returns:
        The report with notes on what could not be made, as it was written.

    Raises:
        OutputError: The folder cannot be written to, or has a folder of such a name.
    """
    notes: list[str] = []
    svgs, markup = _pictures(report, notes)
    events = run_trace_events(report, notes)
    report = replace(report, output_notes=tuple(notes))
    contents: dict[str, bytes | None] = {
        REPORT_JSON: json.dumps(report.document(), indent=1).encode() + b"\n",
        REPORT_HTML: run_page(report, markup, has_trace=bool(events)).encode("utf-8", "backslashreplace"),
        FRONTIER_SVG: svgs.get("frontier"),
        STRAGGLERS_SVG: svgs.get("stragglers"),
        TIMELINE_SVG: svgs.get("timeline"),
        TRACE_JSON: trace_bytes(events) if events else None,
    }
    for name, content in contents.items():
        if content is None:
            remove_file(folder / name)
        else:
            replace_file(folder / name, content)
    return report


def _pictures(report: RunReport, notes: list[str]) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
    """By name: the files, and the markup for the page. Nothing without matplotlib, which a trainer need not have."""
    if find_spec("matplotlib") is None:
        notes.append("no pictures: matplotlib is missing; pip install 'perseus-dist[report]' and report again")
        return {}, {}
    from perseus_dist.report.page.picture import inline_picture
    from perseus_dist.report.plots.run_pictures import run_pictures

    svgs = run_pictures(report)
    return svgs, {
        name: inline_picture(svg, name, label=f"{name}; its figures are in the tables") for name, svg in svgs.items()
    }
