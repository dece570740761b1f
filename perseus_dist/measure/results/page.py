"""``measure.html``: one file with everything inside, for any screen, in light and dark."""

from collections.abc import Mapping
from html import escape

import perseus_dist
from perseus_dist.measure.measurement import Measurement
from perseus_dist.measure.results import tables
from perseus_dist.measure.saving import Noise, PipelineSaving
from perseus_dist.report.page.parts import bullets, figure, section, table
from perseus_dist.report.page.style import STYLE

_CAPTIONS = {
    "curves": "Forward and backward of the stage at each clock, downwards and upwards again; a cross marks a throttled "
    "point.",
    "frontier": "What plans of a whole pipeline of this stage take in time and energy, over the least that any plan "
    "could take. Computed from the measured curves, not measured.",
    "latency": "How long after a request a change of clocks was there, by its target.",
}

_MODEL = "The thin line is the simulator's closest model, through the point at the highest clock."


def measure_page(
    measurement: Measurement, noise: Noise, saving: PipelineSaving | None, pictures: Mapping[str, str]
) -> str:
    """The page.

    Args:
        measurement: Of the GPU.
        noise: Of one point.
        saving: Of the pipeline; None where it is not known.
        pictures: Markup by name: ``curves``, ``frontier``, ``latency``, as far as there is something to draw.
    """
    captions = dict(_CAPTIONS)
    if measurement.presets and measurement.has_curves:
        captions["curves"] += f" {_MODEL}"
    title = f"{measurement.gpu.name}, measured"
    badge = '<span class="badge">simulated GPU</span> ' if measurement.gpu.is_simulated else ""
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="shape">{badge}{escape(measurement.began_at)}</p>',
        _headline(measurement, saving),
        bullets(tables.facts(measurement, noise, saving)),
        *(figure(pictures[name], name, caption) for name, caption in captions.items() if name in pictures),
    ]
    for shown in tables.tables(measurement):
        note = f'<p class="key">{escape(shown.note)}</p>' if shown.note else ""
        parts.append(section(shown.title, table(shown.headers, shown.rows, texts=range(shown.num_texts)) + note))
    content = "\n".join(parts)
    of_profile = "; profile.csv is for 'perseus-dist plan'" if measurement.has_curves else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} - perseus-dist</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{content}
<footer>perseus-dist {perseus_dist.__version__}. measure.json has everything{of_profile}.</footer>
</main>
</body>
</html>
"""


def _headline(measurement: Measurement, saving: PipelineSaving | None) -> str:
    said = tables.headline(measurement, saving)
    if saving is None:
        return f'<p class="nothing">{escape(said)}</p>'
    tiles = (
        ("main", tables.saving_text(saving, "&plusmn;"), "saving", "planned"),
        ("main", f"{saving.slowdown_percent:z.2f} %", "slowdown", f"within noise {saving.late_percent:.2f} %"),
        ("", f"{measurement.blocking_power_w:.1f} W", "blocking power", "at the highest clock"),
        ("", f"{1e3 * measurement.switch_latency_s:.1f} ms", "change of clocks", "median target"),
    )
    shown = "".join(
        f'<div class="tile {kind}"><div class="label">{label}</div><div class="value">{value}</div>'
        f'<div class="below">{below}</div></div>'
        for kind, value, label, below in tiles
    )
    return f'<div class="tiles">{shown}</div><p>{escape(said)}</p>'
