"""What policies are worth on real signals and frontiers: carbon and price over time, and power budgets.

    python benchmarks/policies.py [../shared/data] [--record]

*Pace*: a job has so many hours for as many iterations as it would do at 1.05 and 1.1 times its full-clock time. Carbon
and price are compared with the constant pace that finishes at the same time, known ahead and by the signal's forecasts
(as far as there are any; else by yesterday's value at the same hour). *Chase's rule* takes in each slot the point of
least eta x carbon x energy + (1 - eta) x full power x mean carbon x time, with the eta that finishes in time. *The
planner* is its price policies' own code, told the signal ahead, in virtual time: whole plans, no pace for less than
20 s, a reserve before the deadline; it is compared with the constant pace that finishes when it does.
*Budget*: sixteen jobs of four shapes under a cap, against every job at one common slowdown, and the bound.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from measuring import print_table, record_result

from perseus_dist.planner.budget.demand import Demand
from perseus_dist.planner.budget.price_follower import PriceFollower, Signal
from perseus_dist.planner.job.facts.policies import PricePolicySet
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.lifecycle import new_job
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.pace import Pace, Slot, Stretch, constant_pace, follow, pace
from perseus_dist.policies.power_budget import Member, share_power
from perseus_dist.policies.rolling import rolling_pace
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.signals import JOULES_PER_KWH, pieces_from, read_signal
from perseus_dist.units import UW_PER_W, j_from_uj, s_from_ps

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PP, MICROBATCHES = 8, 12
PROFILES = (  # name, file, blocking power [W] of one GPU
    ("GPT-3 175B, A100", "gpt3-175b+a100_sxm_bf16.csv", 83.64),
    ("Bloom 176B, A40", "bloom+a40_bf16.csv", 70.38),
)
SIGNALS = ("miso_carbon_2022-10.csv", "carbon_history_file1.json", "price_virginia.json", "price_ann_arbor.json")
TARIFF_START, TARIFF_S = datetime(2026, 1, 5, tzinfo=UTC), 7 * 86400.0
SLOWDOWNS = (1.05, 1.1)
TICK_S = 30.0  # between looks of the planner, which looks once a second
LEAST_GAIN = 1e-3  # of the cost, for a share of it to mean something
CUTS = (0.1, 0.25)  # of the power at full speed under plans


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=DEFAULT_DATA, help="the folder with sosp24/ and signals/")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/policies_*.json")
    args = parser.parse_args()
    profiles = args.data / "sosp24" / "stage_profile"
    jobs = {name: points_of(profiles / file, watts) for name, file, watts in PROFILES}
    paces = [
        row
        for name, points in jobs.items()
        for signal in SIGNALS
        for row in pace_rows(name, points, signal, pieces_of(args.data / "signals" / signal))
    ]
    compared = ("known ahead [%]", "by forecasts [%]", "Chase's rule [%]", "the planner [%]", "its share of the gain")
    pace_columns = ("job", "signal", "time", "constant [%]", *compared)
    print("Cost against full speed under plans for T_min (constant pace), and against the constant pace (all others):")
    print_table(pace_columns, paces)
    budgets = [budget_row(list(jobs.values()), cut) for cut in CUTS]
    budget_columns = ("power", "mean slowdown [%]", "bound [%]", "all alike [%]")
    print_table(budget_columns, budgets)
    if args.record:
        command = "python benchmarks/policies.py --record"
        record_result("policies_pace", command=command, columns=pace_columns, rows=paces)
        record_result("policies_budget", command=command, columns=budget_columns, rows=budgets)


def points_of(profile: Path, blocking_power_w: float) -> OperatingPoints:
    """The operating points of a pipeline of 8 stages and 12 microbatches."""
    blocking_uw_of_rank = [round(UW_PER_W * blocking_power_w)] * PP
    schedule = one_f_one_b(pp=PP, microbatches=MICROBATCHES)
    planned = plan_frontier(make_problem(schedule, read_profile(profile), blocking_uw_of_rank=blocking_uw_of_rank))
    return OperatingPoints.of_plans(
        s_from_ps(planned.time_ps).tolist(),
        j_from_uj(planned.total_uj).tolist(),
        full_time_s=float(s_from_ps(planned.baseline.time_ps)),
        full_energy_j=float(j_from_uj(planned.baseline.total_uj)),
    )


def pieces_of(file: Path) -> tuple[Piece, ...]:
    """All of a signal, or a week of a tariff."""
    signal = read_signal(file)
    return signal if isinstance(signal, tuple) else pieces_from(signal, TARIFF_START, TARIFF_S)


def pace_rows(name: str, points: OperatingPoints, signal: str, pieces: Sequence[Piece]) -> list[tuple[str, ...]]:
    """A row for each slowdown."""
    slots = [Slot(duration_s=piece.duration_s, price=piece.value / JOULES_PER_KWH) for piece in pieces]
    horizon_s = sum(slot.duration_s for slot in slots)
    rows = []
    for slowdown in SLOWDOWNS:
        iterations = horizon_s / (points.full_time_s * slowdown)
        best = pace(points, slots, iterations)
        constant = constant_pace(points, slots, iterations, best.finish_s)
        fast = constant_pace(points, slots, iterations, iterations * points.times_s[0])
        rolled = rolling_pace(points, slots, iterations, lambda first: expected(pieces, first))
        chase = chase_pace(points, slots, iterations)
        against = (100 * (way.cost / constant.cost - 1) for way in (best, rolled, chase))
        planned = planner_pace(points, pieces, iterations)
        same_finish = constant_pace(points, slots, iterations, planned.finish_s)
        gain = constant.cost - best.cost
        rows.append(
            (
                name,
                signal,
                f"{slowdown:g}x",
                f"{100 * (constant.cost / fast.cost - 1):+.2f}",
                *(f"{one:+.3f}" for one in against),
                f"{100 * (planned.cost / same_finish.cost - 1):+.3f}",
                f"{(constant.cost - planned.cost) / gain:.3f}" if gain > LEAST_GAIN * constant.cost else "none to have",
            )
        )
    return rows


def expected(pieces: Sequence[Piece], first: int) -> list[float]:
    """Prices as they are known at a slot's begin: this one's, forecasts, or what was a day before."""
    day = round(86400 / pieces[first].duration_s)
    prices = [pieces[first].value]
    for index in range(first + 1, len(pieces)):
        forecast = pieces[index].forecast
        before = index - day * -(-(index - first) // day)
        prices.append(
            forecast if forecast is not None else pieces[before].value if before >= 0 else pieces[first].value
        )
    return [price / JOULES_PER_KWH for price in prices]


def planner_pace(
    points: OperatingPoints,
    pieces: Sequence[Piece],
    iterations: float,
    *,
    is_known_ahead: bool = True,
    tick_s: float = TICK_S,
) -> Pace:
    """The way of a job under a planner's price policy.

    Args:
        points: Of the job.
        pieces: What is paid, and was expected.
        iterations: To be done by the last piece's end.
        is_known_ahead: Whether the planner knows what will be paid, or goes by the pieces' forecasts.
        tick_s: [s] between its looks.
    """
    begin, horizon_s = pieces[0].start, sum(piece.duration_s for piece in pieces)
    content = tuple(replace(piece, forecast=None) for piece in pieces) if is_known_ahead else tuple(pieces)
    signal = Signal(content=content, version=1)
    deadline_s, count = begin.timestamp() + horizon_s, math.floor(iterations)
    policy = PricePolicySet(name="cheap", jobs=("job",), signal="signal", deadline_s=deadline_s, iterations=count)
    job, follower = new_job("job", Policy()), PriceFollower(policy, "job")
    follower.begin_at(None)
    paces = tuple(time_s / points.times_s[0] for time_s in points.times_s)
    slots: list[Slot] = []
    stretches: list[tuple[Stretch, ...]] = []
    done = asked = 0.0
    for piece in pieces:
        for tick in range(round(piece.duration_s / tick_s)):
            job.progress.iteration = int(done)
            follower.count(job)
            demand = Demand(
                job_id="job", points=points, paces=paces, reason="", pace=asked, measured_w=None, is_settled=True
            )
            asked = follower.step(piece.start + timedelta(seconds=tick * tick_s), demand, signal).pace
            point = demand.point_at(asked)
            done += tick_s / points.times_s[point]
            slots.append(Slot(duration_s=tick_s, price=piece.value / JOULES_PER_KWH))
            stretches.append((Stretch(duration_s=tick_s, point=point),))
    return follow(points, slots, stretches, iterations)


def chase_pace(points: OperatingPoints, slots: Sequence[Slot], iterations: float) -> Pace:
    """The rule with the largest eta, to a thousandth, that finishes in time."""
    mean = sum(slot.price for slot in slots) / len(slots)

    def way(eta: float) -> Pace:
        chosen = []
        for slot in slots:
            costs = [
                time_s * (eta * slot.price * power_w + (1 - eta) * mean * points.full_power_w)
                for time_s, power_w in zip(points.times_s, points.powers_w, strict=True)
            ]
            chosen.append((Stretch(duration_s=slot.duration_s, point=costs.index(min(costs))),))
        return follow(points, slots, chosen, iterations)

    low, high = 0.0, 1.0
    while high - low > 0.001:
        middle = (low + high) / 2
        if way(middle).iterations >= iterations * (1 - 1e-9):
            low = middle
        else:
            high = middle
    return way(low)


def budget_row(jobs: Sequence[OperatingPoints], cut: float) -> tuple[str, ...]:
    """Sixteen jobs, of one to four pipelines of each shape, at a cap below what they draw at full speed."""
    members = [
        Member(
            name=str(index),
            points=OperatingPoints(
                times_s=points.times_s,
                powers_w=tuple(size * power_w for power_w in points.powers_w),
                full_time_s=points.full_time_s,
                full_power_w=size * points.full_power_w,
            ),
        )
        for index, (points, size) in enumerate((points, size) for points in jobs for size in (1, 2, 4, 8, 1, 2, 4, 8))
    ]
    cap_w = (1 - cut) * sum(member.points.powers_w[0] for member in members)
    shares = share_power(members, cap_w)
    alike = 0.0
    while (
        sum(member.points.no_slower_than(alike).powers_w[-1] for member in members) > cap_w
    ):  # whatever is no slower than that, at its slowest
        alike += 1e-4
    each = len(members)
    return (
        f"-{100 * cut:.0f} %",
        f"{100 * shares.cost / each:.3f}",
        f"{100 * shares.cost_bound / each:.3f}",
        f"{100 * alike:.3f}",
    )


if __name__ == "__main__":
    main()
