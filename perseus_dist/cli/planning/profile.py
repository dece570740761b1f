"""``perseus-dist profile``: look at a profile before planning with it."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perseus_dist.cli.number_options import whole
from perseus_dist.cli.output_option import Output
from perseus_dist.cli.planning.blocking_option import add_blocking_argument, blocking_uw_from_args
from perseus_dist.errors import OutputError, ProfileError
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.profile.cost_curve import CostCurve, cost_curve
from perseus_dist.planning.profile.noise import Noise, noise
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.planning.profile.profile_csv import MAX_STAGE, Row
from perseus_dist.planning.profile.samples import RejectedRow
from perseus_dist.planning.schedule.instruction import Kind, profile_name
from perseus_dist.units import j_from_uj, s_from_ps, w_from_uw

_EPILOG = """\
example:
  perseus-dist profile show profile.csv --blocking-power-w 83.64 --out curves.svg

Energy is that of the whole tensor-parallel group if the file tells its GPUs apart (column gpu), else of one GPU.
"least at" is the clock that costs least energy once blocking power is subtracted: it "saves" that much of the energy at
the maximum clock, waiting accounted for, and is that much "slower". "non-monotone" is the share of steps to the next
lower clock in which the time falls. A plan is made from the Pareto choices as they were measured, not smoothed.
"""
_FORMATS = (".svg", ".png")
_TABLE = (  # header, key of a record, format
    ("stage", "stage", "d"),
    ("instruction", "instruction", "s"),
    ("clocks", "num_clocks", "d"),
    ("from\n[MHz]", "min_clock_mhz", "d"),
    ("to\n[MHz]", "max_clock_mhz", "d"),
    ("samples", "num_samples", "d"),
    ("time at\nmax [s]", "time_at_max_clock_s", ".6f"),
    ("energy at\nmax [J]", "energy_at_max_clock_j", ".3f"),
    ("least at\n[MHz]", "least_energy_clock_mhz", "d"),
    ("saves\n[%]", "saving_percent", ".1f"),
    ("slower\n[%]", "slowdown_percent", ".1f"),
    ("Pareto\nchoices", "num_choices", "d"),
    ("hull\nvertices", "num_hull_vertices", "d"),
    ("non-mono-\ntone [%]", "non_monotone_percent", ".1f"),
    ("rejected\nrows", "num_rejected", "d"),
    ("suspicious\npoints", "num_suspicious", "d"),
)
_WIDTH = 1000  # wider than any table: rows are neither cut in pipes, which have no width, nor squeezed on a terminal
_MAX_NOTES = 20


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser("profile", help="look at a time and energy profile", description=__doc__)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    show = actions.add_parser(
        "show",
        help="print what each instruction takes, and draw its cost curve",
        description="Print what each instruction takes at its clocks, how noisy that is, and draw the cost curves.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show.add_argument("profile", metavar="PROFILE.csv", help="columns stage,instruction,frequency,time,energy")
    add_blocking_argument(show, default_w=0.0, each="stage")
    show.add_argument(
        "--stage", type=whole(0, MAX_STAGE, "a stage: 0, 1, 2, ..."), metavar="N", help="show this stage only"
    )
    show.add_argument("--out", action=Output, metavar="FILE", help="draw the cost curves into this .svg or .png file")
    show.add_argument("--json", action="store_true", help="print one JSON object")
    show.set_defaults(run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """All there is to show about one instruction."""

    curve: CostCurve
    measurements: Measurements
    noise: Noise
    rejected: Sequence[RejectedRow]
    blocking_w: float


def run(args: argparse.Namespace) -> int:
    """Show a profile."""
    if args.out is not None and args.out.suffix not in _FORMATS:
        raise OutputError(f"--out: saw {args.out.name!r}, expected a file name that ends in .svg or .png; rename it")
    profile = read_profile(args.profile)
    if args.stage is not None and args.stage >= profile.num_stages:
        raise ProfileError(f"--stage: saw {args.stage}, expected one of the profile's, 0 to {profile.num_stages - 1}")
    blocking_uw = blocking_uw_from_args(args, profile.num_stages, each="stage")
    items = [
        _item(profile, stage, kind, blocking_uw[stage])
        for stage, kind in profile.measurements
        if args.stage in (None, stage)
    ]
    if args.out is not None:
        powers = ", ".join(f"{power:g}" for power in dict.fromkeys(w_from_uw(blocking_uw).tolist()))
        title = f"{Path(profile.source).name}: energy above a blocking power of {powers} W"
        _draw(items, args.out, title=title)
    records = [_record(item) for item in items]
    rejected = [_rejected_record(rejection) for item in items for rejection in item.rejected]
    suspicious = [record for item in items for record in _suspicious_records(item)]
    if args.json:
        shown = {
            "source": profile.source,
            "num_stages": profile.num_stages,
            "blocking_power_w": w_from_uw(blocking_uw).tolist(),
            "instructions": records,
            "rejected": rejected,
            "suspicious": suspicious,
        }
        print(json.dumps(shown))
        return 0
    _print_table(records)
    _print_notes(profile.source, rejected, suspicious)
    return 0


def _item(profile: Profile, stage: int, kind: str, blocking_uw: int) -> _Item:
    measurements = profile.measurements[stage, kind]
    return _Item(
        curve=cost_curve(
            measurements, stage=stage, kind=kind, blocking_uw=blocking_uw, tensor_parallel=len(measurements.gpus)
        ),
        measurements=measurements,
        noise=noise(measurements),
        rejected=[found for found in profile.rejected if (found.row.stage, found.row.kind) == (stage, kind)],
        blocking_w=float(w_from_uw(blocking_uw)),
    )


def _record(item: _Item) -> dict[str, Any]:
    """One instruction's figures. A constant instruction has one choice, so its clocks are null."""
    curve, clocks_mhz = item.curve, item.measurements.clocks_mhz
    constant = curve.kind not in set(Kind)
    return {
        "stage": curve.stage,
        "instruction": profile_name(curve.kind),
        "num_gpus": len(item.measurements.gpus),
        "num_clocks": len(curve.clocks_mhz),
        "min_clock_mhz": None if constant else int(clocks_mhz[-1]),
        "max_clock_mhz": None if constant else int(clocks_mhz[0]),
        "num_samples": int(item.measurements.num_samples.sum()),
        "time_at_max_clock_s": float(s_from_ps(curve.durations_ps[curve.at_max])),
        "energy_at_max_clock_j": float(j_from_uj(curve.energies_uj[curve.at_max])),
        "least_energy_clock_mhz": None if constant else int(curve.clocks_mhz[curve.at_least_energy]),
        "saving_percent": 100 * curve.saving_share,
        "slowdown_percent": 100 * curve.slowdown_share,
        "num_choices": len(curve.choices),
        "num_hull_vertices": len(curve.hull),
        "non_monotone_percent": 100 * item.noise.non_monotone_share,
        "num_rejected": len(item.rejected),
        "num_suspicious": len(item.noise.suspicious),
    }


def _rejected_record(rejection: RejectedRow) -> dict[str, Any]:
    row = rejection.row
    return {
        "line": row.line,
        "stage": row.stage,
        "instruction": profile_name(row.kind),
        "clock_mhz": row.clock_mhz,
        "gpu": row.gpu,
        "time_s": row.time_s,
        "energy_j": row.energy_j,
        "median_time_s": rejection.median_time_s,
        "median_energy_j": rejection.median_energy_j,
    }


def _suspicious_records(item: _Item) -> list[dict[str, Any]]:
    return [
        {
            "stage": item.curve.stage,
            "instruction": profile_name(item.curve.kind),
            "clock_mhz": int(item.measurements.clocks_mhz[point.index]),
            "gpu": item.measurements.gpus[point.gpu],
            "quantity": point.quantity,
            "deviation_percent": 100 * point.deviation,
        }
        for point in item.noise.suspicious
    ]


def _print_table(records: Sequence[dict[str, Any]]) -> None:
    console = Console(highlight=False, width=_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header, _, form in _TABLE:
        table.add_column(Text(header), justify="left" if form == "s" else "right", vertical="bottom")
    for record in records:
        table.add_row(*("-" if record[key] is None else format(record[key], form) for _, key, form in _TABLE))
    with console.capture() as text:
        console.print(table)
    print(text.get(), end="")  # not by rich itself, which exits when the reader of a pipe has left


def _print_notes(source: str, rejected: Sequence[dict[str, Any]], suspicious: Sequence[dict[str, Any]]) -> None:
    """One line for each row and point that needs a second look."""
    notes = [
        f"{source}:{row['line']}: rejected row, {_place(row)}: {row['time_s']:g} s, {row['energy_j']:g} J; the median "
        f"of its rows is {row['median_time_s']:g} s, {row['median_energy_j']:g} J"
        for row in rejected
    ]
    notes += [
        f"{source}: suspicious point, {_place(point)}: {point['quantity']} {point['deviation_percent']:+.1f} % off the "
        "trend of its neighbours; measured once, measure it again"
        for point in suspicious
    ]
    for note in notes[:_MAX_NOTES]:
        print(note)
    if len(notes) > _MAX_NOTES:
        print(f"and {len(notes) - _MAX_NOTES} more; --json lists all")


def _place(record: dict[str, Any]) -> str:
    gpu = f" gpu {record['gpu']}" if record["gpu"] else ""
    return f"stage {record['stage']} {record['instruction']} at {record['clock_mhz']} MHz{gpu}"


def _draw(items: Sequence[_Item], path: Path, *, title: str) -> None:
    """Draw the cost curves of computations; a constant instruction has none."""
    try:
        from perseus_dist.report.plots.cost_curve_plot import Panel, plot_cost_curves
        from perseus_dist.report.plots.theme import figure_bytes
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
        raise OutputError(
            "--out needs matplotlib, which is not installed; pip install 'perseus-dist[report]'"
        ) from None
    panels = [
        Panel(
            curve=item.curve,
            suspicious=sorted({point.index for point in item.noise.suspicious}),
            rejected=[(found.row.time_s, _effective_j(found.row, item)) for found in item.rejected],
        )
        for item in items
        if item.curve.kind in set(Kind)
    ]
    write_output(path, figure_bytes(plot_cost_curves(panels, title=title), path.suffix.removeprefix(".")))


def _effective_j(row: Row, item: _Item) -> float:
    """[J] the row's effective energy for the whole tensor-parallel group, if all its GPUs were like this one."""
    return len(item.measurements.gpus) * (row.energy_j - item.blocking_w * row.time_s)
