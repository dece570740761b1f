"""What ``growth.py`` prints and draws of its figures: the table, the exponents, the bars that are met or missed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measuring import print_table, record_result

from perseus_dist.planning.output_file import write_output
from perseus_dist.report.plots import theme
from perseus_dist.units import FloatArray

Figures = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What grows: its name, its key in the figures, which a case that did not come so far lacks, and its unit."""

    name: str
    key: str
    unit: str


EXACT = Quantity(name="exact frontier", key="solve_s", unit="s")
REALISED = Quantity(name="realised plans", key="realise_s", unit="s")
BOTH = Quantity(name="exact frontier and realised plans", key="total_s", unit="s")
MEMORY = Quantity(name="peak memory", key="peak_mib", unit="MiB")
QUANTITIES = (EXACT, REALISED, BOTH, MEMORY)
BARS = (  # case, quantity, what it should stay below
    ("1F1B PP8 M96", EXACT, 0.5),
    ("1F1B PP8 M96", REALISED, 5.0),
    ("interleaved PP8 V4 M64", EXACT, 5.0),
    ("interleaved PP8 V4 M64", MEMORY, 1024.0),
    ("interleaved PP16 V4 M256", BOTH, 120.0),
    ("interleaved PP16 V4 M256", MEMORY, 4096.0),
)
COLUMNS = (  # header, key, format
    ("instructions", "num_instructions", ",d"),
    ("pieces", "pieces", ",d"),
    ("augmentations", "augmentations", ",d"),
    ("moves", "moves", ",d"),
    ("exact [s]", "solve_s", ".3f"),
    ("realised [s]", "realise_s", ".3f"),
    ("plans", "plans", "d"),
    ("mean gap [%]", "mean_gap_percent", ".3f"),
    ("worst gap [%]", "max_gap_percent", ".3f"),
    ("peak [MiB]", "peak_mib", ",.0f"),
)
TABLE_COLUMNS = ("family", "schedule", *(head for head, _, _ in COLUMNS))
EXPONENT_COLUMNS = ("family", "what", "exponent", "cases", "instructions")
BAR_COLUMNS = ("bar", "family", "measured", "verdict")
COLOURS = {"measured": theme.PLANS, "synthetic": theme.ACCENT}
TICKS = (192, 512, 2048, 8192, 32768)


def print_report(figures: Figures) -> None:
    """Print all of it in markdown."""
    print_table(TABLE_COLUMNS, _rows(figures))
    for figure in figures:
        if "reached" in figure:
            print(f"\n{figure['family']} {figure['case']}: {_given_up(figure)}.")
    print("\nGrowth with the number of instructions n, fitted:\n")
    print_table(EXPONENT_COLUMNS, _exponents(figures))
    print()
    print_table(BAR_COLUMNS, _against_bars(figures))
    print()
    for when in dict.fromkeys(_when(figure)[0] for figure in figures):
        loads = [load for at, load in map(_when, figures) if at == when]
        print(f"{when}; load average before a case {min(loads):.2f} .. {max(loads):.2f}.")


def record_report(figures: Figures) -> None:
    """Write the three tables of the documentation."""
    command = "python benchmarks/growth.py --record"
    record_result("growth", command=command, columns=TABLE_COLUMNS, rows=_rows(figures))
    record_result("growth_exponents", command=command, columns=EXPONENT_COLUMNS, rows=_exponents(figures))
    record_result("growth_bars", command=command, columns=BAR_COLUMNS, rows=_against_bars(figures))


def draw(figures: Figures, path: Path) -> None:
    """Each quantity against the number of instructions, both logarithmic, with the bars and the fitted laws."""
    finished = [figure["num_instructions"] for figure in figures if "reached" not in figure]
    with theme.style():
        fig = Figure(figsize=(9.0, 7.2))
        grid = {"left": 0.065, "right": 0.96, "bottom": 0.065, "top": 0.88, "wspace": 0.18, "hspace": 0.28}
        for ax, quantity in zip(fig.subplots(2, 2, gridspec_kw=grid).flat, QUANTITIES, strict=True):
            _panel(ax, figures, quantity)
        title = f"Planning time and memory, {min(finished):,} to {max(finished):,} instructions"
        fig.text(0.065, 0.955, title, fontsize=10.5, weight="bold")
        write_output(path, theme.figure_bytes(fig))


def _rows(figures: Figures) -> Iterator[list[str]]:
    for figure in figures:
        cells = [format(figure[key], form) if key in figure else "-" for _, key, form in COLUMNS]
        yield [str(figure["family"]), str(figure["case"]), *cells]


def _exponents(figures: Figures) -> Iterator[list[str]]:
    for family, quantity in ((family, quantity) for family in COLOURS for quantity in QUANTITIES[:3]):
        n, values = _series(figures, family, quantity)
        exponent, _ = _fit(n, values)
        yield [family, quantity.name, f"{exponent:.2f}", str(len(n)), f"{n[0]:,.0f} to {n[-1]:,.0f}"]


def _panel(ax: Axes, figures: Figures, quantity: Quantity) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    labels = []
    for family, colour in COLOURS.items():
        n, values = _series(figures, family, quantity)
        ax.plot(n, values, color=colour, marker="o", ms=4.5, mew=0, lw=0)
        if quantity is MEMORY:  # a constant and something that grows: no power law
            law, line = family, values
        else:
            exponent, offset = _fit(n, values)
            law, line = f"{family}, n^{exponent:.2f}", np.exp(offset) * n**exponent
        ax.plot(n, line, color=colour, lw=0.7)
        labels.append((values[-1], law, colour))
    for rank, (_, law, colour) in enumerate(sorted(labels, reverse=True)):
        ax.text(0.02, 0.94 - 0.07 * rank, law, color=colour, transform=ax.transAxes)
    for figure in figures:
        if quantity is BOTH and "reached" in figure:
            colour = COLOURS[figure["family"]]
            ax.plot(figure["num_instructions"], figure["limit_s"], marker="^", ms=6, mfc="white", mec=colour)
            _note(ax, figure["num_instructions"], figure["limit_s"], f"> {figure['limit_s']:g} s")
    for case, of, limit in BARS:
        if of is quantity:
            for n_of_bar in {figure["num_instructions"] for figure in figures if figure["case"] == case}:
                ax.plot(n_of_bar, limit, color=theme.INK, marker="_", ms=16, mew=1.4)
                _note(ax, n_of_bar, limit, f"bar: {limit:g} {quantity.unit}")
    ax.set_title(f"{quantity.name} [{quantity.unit}]", loc="left", fontsize=theme.BODY_PT, color=theme.INK)
    ax.set_xlabel("instructions")
    ax.set_xlim(130, 150_000)  # to the right there is room for what the marks mean
    ax.set_xticks(TICKS, [f"{n:,}" for n in TICKS])
    ax.set_xticks([], minor=True)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.yaxis.set_minor_formatter(lambda _value, _: "")
    ax.spines[["top", "right"]].set_visible(False)


def _note(ax: Axes, n: float, value: float, text: str) -> None:
    ax.annotate(text, (n, value), (9, -2.5), textcoords="offset points", fontsize=theme.SMALL_PT)


def _against_bars(figures: Figures) -> Iterator[list[str]]:
    for case, quantity, limit in BARS:
        for figure in figures:
            if figure["case"] != case:
                continue
            if quantity.key not in figure:
                value, verdict = _given_up(figure), "not known" if quantity is MEMORY else "missed"
            else:
                share = figure[quantity.key] / limit
                value = f"{figure[quantity.key]:,.3g} {quantity.unit}"
                verdict = f"{'met' if share < 1 else 'missed'}, {100 * share:,.1f} % of the bar"
            yield [f"{case}: {quantity.name} < {limit:g} {quantity.unit}", figure["family"], value, verdict]


def _series(figures: Figures, family: str, quantity: Quantity) -> tuple[FloatArray, FloatArray]:
    """(numbers of instructions, values) of the cases that came so far."""
    points = sorted(
        (figure["num_instructions"], figure[quantity.key])
        for figure in figures
        if figure["family"] == family and quantity.key in figure
    )
    n, values = np.array(points, dtype=np.float64).T
    return n, values


def _fit(n: FloatArray, values: FloatArray) -> tuple[float, float]:
    """(slope, offset) of the line through the logarithms."""
    slope, offset = np.polyfit(np.log(n), np.log(values), 1)
    return float(slope), float(offset)


def _given_up(figure: Mapping[str, Any]) -> str:
    reached = ", ".join(f"{phase} {100 * share:.0f} %" for phase, share in figure["reached"].items())
    return f"not finished within {figure['limit_s']:g} s ({reached}; {figure['peak_so_far_mib']:,.0f} MiB until then)"


def _when(figure: Mapping[str, Any]) -> tuple[str, float]:
    """When and where a case ran, and the load average before it."""
    when, _, load = figure["conditions"].rpartition(", load average before the run ")
    return when, float(load)
