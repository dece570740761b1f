"""Three weeks under a price policy, with seeded noise: carbon, cost and finish time against always T_min.

    python benchmarks/price_weeks.py [../shared/data] [--record]

Whole days of a signal of carbon, or three weeks of a tariff, are repeated to three weeks. What is paid is the signal
times noise, which is correlated from slot to slot (0.95 after an hour) and whose deviation is 10 %; what is expected is
MISO's own forecast, else the signal without noise. A job has three weeks for as many iterations as it would do at 1.05
times its full-clock time. *Always T_min* is the fastest plan, which is done before. *Chase's rule* and *known ahead*
know all that will be paid; *the planner* is its price policies' own code, which knows what is paid now and the
forecasts. *Constant* finishes when the planner does.
"""

import argparse
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from measuring import print_table, record_result
from policies import DEFAULT_DATA, PROFILES, TARIFF_START, chase_pace, planner_pace, points_of

from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.pace import Pace, Slot, constant_pace, pace
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.signals import JOULES_PER_KWH, pieces_from, read_signal
from perseus_dist.policies.tariff import Tariff

SIGNALS = ("miso_carbon_2022-10.csv", "carbon_history_file1.json", "price_virginia.json", "price_ann_arbor.json")
DAY_S, WEEKS_S = 86_400.0, 21 * 86_400.0
SEEDS = (1, 2, 3)
SLOWDOWN = 1.05
DEVIATION, KEPT_AN_HOUR = 0.1, 0.95
TICK_S = 60.0
WAYS = ("Chase's rule", "constant", "the planner", "known ahead")
COLUMNS = ("job", "signal", "pace", "carbon or cost [%]", "of seeds", "energy [%]", "time [%]", "hours")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=DEFAULT_DATA, help="the folder with sosp24/ and signals/")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/price_weeks.json")
    args = parser.parse_args()
    rows = []
    for name, file, watts in PROFILES:
        points = points_of(args.data / "sosp24" / "stage_profile" / file, watts)
        for signal in SIGNALS:
            rows += rows_of(name, points, signal, three_weeks(args.data / "signals" / signal))
    print("Against always T_min, over three weeks:")
    print_table(COLUMNS, rows)
    if args.record:
        record_result("price_weeks", command="python benchmarks/price_weeks.py --record", columns=COLUMNS, rows=rows)


def three_weeks(file: Path) -> list[Piece]:
    """A signal of three weeks, with a forecast of each piece."""
    signal = read_signal(file)
    if isinstance(signal, Tariff):
        pieces = list(pieces_from(signal, TARIFF_START, WEEKS_S))
    else:
        known_s = sum(piece.duration_s for piece in signal)
        days = pieces_from(signal, None, known_s // DAY_S * DAY_S)
        pieces, at = [], days[0].start
        while len(pieces) == 0 or (at - days[0].start).total_seconds() < WEEKS_S:
            for piece in days:
                pieces.append(replace(piece, start=at))
                at += timedelta(seconds=piece.duration_s)
        pieces = list(pieces_from(tuple(pieces), None, WEEKS_S))
    return [replace(piece, forecast=piece.value if piece.forecast is None else piece.forecast) for piece in pieces]


def noisy(pieces: Sequence[Piece], seed: int) -> list[Piece]:
    """The same with other values."""
    rng = random.Random(seed)
    found, noise = [], rng.gauss(0, DEVIATION)
    for piece in pieces:
        found.append(replace(piece, value=piece.value * max(0.0, 1 + noise)))
        kept = KEPT_AN_HOUR ** (piece.duration_s / 3600)
        noise = kept * noise + (1 - kept**2) ** 0.5 * rng.gauss(0, DEVIATION)
    return found


def rows_of(name: str, points: OperatingPoints, signal: str, pieces: Sequence[Piece]) -> list[tuple[str, ...]]:
    """A row for each way to go, the mean over seeds."""
    iterations = WEEKS_S / (points.full_time_s * SLOWDOWN)
    found: dict[str, list[tuple[float, float, float, float]]] = {way: [] for way in WAYS}
    for seed in SEEDS:
        paid = noisy(pieces, seed)
        slots = [Slot(duration_s=piece.duration_s, price=piece.value / JOULES_PER_KWH) for piece in paid]
        fast = constant_pace(points, slots, iterations, iterations * points.times_s[0])
        planned = planner_pace(points, paid, iterations, is_known_ahead=False, tick_s=TICK_S)
        ways = {
            "Chase's rule": chase_pace(points, slots, iterations),
            "constant": constant_pace(points, slots, iterations, planned.finish_s),
            "the planner": planned,
            "known ahead": pace(points, slots, iterations),
        }
        for way, gone in ways.items():
            if gone.iterations < iterations - 1.5:  # the planner counts whole ones
                raise SystemExit(
                    f"{name}, {signal}, {way}: {gone.iterations:.0f} of {iterations:.0f} iterations are done"
                )
            found[way].append(against(gone, fast))
    return [row_of(name, signal, way, seen) for way, seen in found.items()]


def against(way: Pace, fast: Pace) -> tuple[float, float, float, float]:
    """Cost, energy and time more than always T_min [%], and hours."""
    more = (way.cost / fast.cost, way.energy_j / fast.energy_j, way.finish_s / fast.finish_s)
    cost, energy, time = (100 * (one - 1) for one in more)
    return cost, energy, time, way.finish_s / 3600


def row_of(name: str, signal: str, way: str, seen: Sequence[tuple[float, float, float, float]]) -> tuple[str, ...]:
    """Means, and of the cost the least and the most of the seeds."""
    cost, energy, time, hours = (statistics.fmean(column) for column in zip(*seen, strict=True))
    costs = [one[0] for one in seen]
    spread = f"{min(costs):+.2f} to {max(costs):+.2f}"
    return name, signal, way, f"{cost:+.3f}", spread, f"{energy:+.2f}", f"{time:+.2f}", f"{hours:.1f}"


if __name__ == "__main__":
    main()
