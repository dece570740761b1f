"""What a power budget costs on fleets of one GPU model and of several, beside power limits that keep the same cap.

    python benchmarks/power_budget_fleets.py [--record]

Sixteen jobs of the four shapes of ``power_budget_steps.py``, four of each copy's GPU model, in virtual time. Caps are
shares of what the jobs draw at full clocks without plans, and of what they draw under their own targets' plans. *Lost*
is throughput, the mean over the jobs, against their own targets' plans, which take as long as full clocks; *power
limits* is the same for one share of each GPU's default power limit, without plans, against full clocks. All keep the
guard band.
"""

import argparse
from contextlib import ExitStack
from multiprocessing import Pool
from pathlib import Path
from tempfile import TemporaryDirectory

from measuring import print_table, record_result
from power_budget_steps import (
    GUARD_BAND,
    SHAPES,
    Limited,
    limited,
    lost,
    mean_power_w,
    one_slowdown,
    profile_of,
    simulated,
)

from perseus_dist.planner.job.facts.policies import BudgetSet
from perseus_dist.planner.job.job import Phase
from perseus_dist.simulation.virtual.fleet import VirtualFleet
from perseus_dist.simulation.virtual.run import virtual_job
from perseus_dist.simulator.presets import find_preset

FLEETS = (
    ("a100",) * 4,
    ("a100", "a100", "a40", "a40"),
    ("a100", "a40", "h100", "h100"),
)
CUTS = (0.1, 0.25)
STEP_S = 30.0
COLUMNS = (
    "GPUs",
    "power",
    "of what is drawn",
    "cap [W]",
    "measured [W]",
    "lost [%]",
    "one slowdown [%]",
    "power limits [%]",
    "less lost [%]",
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/power_budget_fleets.json")
    args = parser.parse_args()
    with Pool(2) as pool:
        rows = [row for of_fleet in pool.imap(rows_of, FLEETS, chunksize=1) for row in of_fleet]
    print_table(COLUMNS, rows)
    if args.record:
        command = "python benchmarks/power_budget_fleets.py --record"
        record_result("power_budget_fleets", command=command, columns=COLUMNS, rows=rows)


def rows_of(presets: tuple[str, ...]) -> list[tuple[str, ...]]:
    """A row for each cap; a preset for each copy of the shapes."""
    full = all_limited(presets, 1.0)
    rows: list[tuple[str, ...]] = []
    with TemporaryDirectory() as folder, ExitStack() as jobs:
        fleet = fleet_of(presets, Path(folder), jobs)
        while any(
            one.planner.job.phase is not Phase.ENFORCING or one.planner.job.awaits_frontier for one in fleet.jobs
        ):
            fleet.run_until(fleet.now_s + 5)
        fleet.run_until(fleet.now_s + STEP_S)
        own_s = [job.iterations[-1].time_s for job in fleet.jobs]
        own_w = mean_power_w(fleet, fleet.now_s - STEP_S / 2, fleet.now_s)
        for drawn, reference_w in (("at full clocks", full.power_w), ("under plans", own_w)):
            for cut in CUTS:
                cap_w = (1 - cut) * reference_w
                fleet.governor.apply(BudgetSet(name="all", watts=cap_w, guard_band=GUARD_BAND))
                fleet.evaluate()
                fleet.run_until(fleet.now_s + STEP_S)
                measured_w = mean_power_w(fleet, fleet.now_s - STEP_S / 3, fleet.now_s)
                share = lost(own_s, [job.iterations[-1].time_s for job in fleet.jobs])
                of_limits = lost(full.times_s, highest_limits(presets, cap_w).times_s)
                rows.append(
                    (
                        ", ".join(f"{4 * presets.count(one)} {one.upper()} jobs" for one in dict.fromkeys(presets)),
                        f"-{100 * cut:.0f} %",
                        drawn,
                        f"{cap_w:,.0f}",
                        f"{measured_w:,.0f}",
                        f"{100 * share:.2f}",
                        one_slowdown(fleet, cap_w, own_s),
                        f"{100 * of_limits:.2f}",
                        f"{100 * (1 - share / of_limits):.0f}",
                    )
                )
    return rows


def fleet_of(presets: tuple[str, ...], folder: Path, jobs: ExitStack) -> VirtualFleet:
    """Jobs with the profiles that they would measure."""
    profiles = {
        (preset, shape): profile_of(shape, folder / f"{preset}-{number}.csv", preset)
        for preset in set(presets)
        for number, shape in enumerate(SHAPES)
    }
    return VirtualFleet(
        [
            jobs.enter_context(
                virtual_job(simulated(shape, f"job-{number}-{copy}", profiles[preset, shape]), preset, quick_plans=True)
            )
            for copy, preset in enumerate(presets)
            for number, shape in enumerate(SHAPES)
        ]
    )


def highest_limits(presets: tuple[str, ...], cap_w: float) -> Limited:
    """The jobs under the highest share of the default power limit that keeps the cap."""
    low, high = 0.2, 1.0
    while high - low > 2e-3:
        middle = (low + high) / 2
        if all_limited(presets, middle).power_w <= cap_w * (1 - GUARD_BAND):
            low = middle
        else:
            high = middle
    return all_limited(presets, low)


def all_limited(presets: tuple[str, ...], share: float) -> Limited:
    """All jobs, each GPU at a share of its default power limit, or at the least that it takes."""
    found = []
    for preset in presets:
        least_w, default_w, _ = find_preset(preset).power_limits_w
        found.append(limited(max(least_w, share * default_w), preset))
    return Limited(
        power_w=sum(one.power_w for one in found), times_s=tuple(time_s for one in found for time_s in one.times_s)
    )


if __name__ == "__main__":
    main()
