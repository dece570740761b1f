"""The files that a measurement leaves: profile.csv, measure.json, measure.html."""

import json
import math
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perseus_dist.measure.measurement import Measurement
from perseus_dist.measure.results import tables
from perseus_dist.measure.saving import Noise, PipelineSaving
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.output_file import write_output

PROFILE_CSV, MEASURE_JSON, MEASURE_HTML = "profile.csv", "measure.json", "measure.html"
RESULTS = (PROFILE_CSV, MEASURE_JSON, MEASURE_HTML)
SCHEMA_VERSION = 1


def measure_document(measurement: Measurement, noise: Noise, saving: PipelineSaving | None) -> dict[str, Any]:
    """All of it, as JSON knows it: what was not told is null. Units are in the names."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "headline": tables.headline(measurement, saving),
        "noise": asdict(noise),
        "saving": None if saving is None else asdict(saving),
        "blocking_power_w": measurement.blocking_power_w,
        "switch_latency_s": measurement.switch_latency_s if measurement.latencies else None,
        **asdict(measurement),
    }
    shown: dict[str, Any] = _without_nan(document)
    return shown


def write_results(
    measurement: Measurement, noise: Noise, saving: PipelineSaving | None, frontier: Frontier | None, folder: Path
) -> None:
    """Write JSON and, where matplotlib is there, the page; the profile is written already where there is one.

    Raises:
        OutputError: The folder cannot be written to.
    """
    document = measure_document(measurement, noise, saving)
    write_output(folder / MEASURE_JSON, json.dumps(document, allow_nan=False, indent=1).encode() + b"\n")
    if find_spec("matplotlib") is None:
        return
    from perseus_dist.measure.results.page import measure_page
    from perseus_dist.measure.results.pictures import plot_curves, plot_latencies, plot_pipeline
    from perseus_dist.report.page.picture import inline_picture
    from perseus_dist.report.plots.theme import figure_bytes

    figures = {"curves": plot_curves(measurement)}
    if saving is not None and frontier is not None:
        figures["frontier"] = plot_pipeline(frontier, saving)
    if measurement.latencies:
        figures["latency"] = plot_latencies(measurement)
    pictures = {name: inline_picture(figure_bytes(shown), name, label=name) for name, shown in figures.items()}
    write_output(folder / MEASURE_HTML, measure_page(measurement, noise, saving, pictures).encode())


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
