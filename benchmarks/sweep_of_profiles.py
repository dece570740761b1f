"""What plans save that know some clocks of a measured profile: those that a sweep chooses, and every fourth or fifth.

    python benchmarks/sweep_of_profiles.py [../shared/data] [--record]

The public stage profiles have every clock. From each, without noise, the sweep's rounds take their few clocks, and
plans use all clocks between these; "thinned" knows every fourth (A100) or fifth (A40) clock, as many as a sweep may
choose from, and no other. What plans save is counted on the whole profile, at all-max's time and 5 and 10 % later, with
how much later than asked for they are there. 8 stages, 12 microbatches, 1F1B.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from measuring import print_table, record_result

from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.sweeping.next_clocks import MeasuredCurve, first_clocks, next_clocks
from perseus_dist.planner.worker.unmeasured_clocks import with_clocks_between
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import UW_PER_W

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PP, MICROBATCHES = 8, 12
SLOWDOWNS = (1.0, 1.05, 1.1)
ERROR_SHARE = 0.001  # of a time and an energy, as the rounds are told
PROFILES = (  # name, file, blocking power [W] of one GPU, clocks that the whole GPU has
    ("GPT-3 175B, A100", "gpt3-175b+a100_sxm_bf16.csv", 83.64, 81),
    ("Bloom 176B, A40", "bloom+a40_bf16.csv", 70.38, 103),
)
COLUMNS = ("profile", "clocks known", "saved [%] at all-max's time", "1.05x", "1.1x", "latest [%]")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=DEFAULT_DATA, help="the folder with sosp24/")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/sweep_of_profiles.json")
    args = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    for name, file, blocking_power_w, num_of_gpu in PROFILES:
        whole = read_profile(args.data / "sosp24" / "stage_profile" / file)
        all_mhz = sorted(set.intersection(*(set(one.clocks_mhz.tolist()) for one in whole.measurements.values())))[::-1]
        menu_mhz = all_mhz[:: -(-num_of_gpu // Policy().max_sweep_clocks)]
        chosen_mhz = clocks_of_rounds(whole, menu_mhz, blocking_power_w)
        swept = {key: with_clocks_between(at(one, chosen_mhz), all_mhz) for key, one in whole.measurements.items()}
        thinned = {key: at(one, menu_mhz) for key, one in whole.measurements.items()}
        for known, num_known, measurements in (
            ("all", len(all_mhz), whole.measurements),
            ("thinned", len(menu_mhz), thinned),
            ("the sweep's", len(chosen_mhz), swept),
        ):
            found = saved_and_late(whole, Profile(source=known, measurements=measurements), blocking_power_w)
            savings = [f"{100 * saved:.2f}" for saved, _ in found]
            latest = max(late for _, late in found)
            rows.append((name, f"{known} ({num_known})", *savings, f"{100 * latest:+.2f}"))
    print_table(COLUMNS, rows)
    if args.record:
        command = "python benchmarks/sweep_of_profiles.py --record"
        record_result("sweep_of_profiles", command=command, columns=COLUMNS, rows=rows)


def clocks_of_rounds(whole: Profile, menu_mhz: Sequence[int], blocking_power_w: float) -> list[int]:
    """[MHz] descending, what one pipeline measures in all its rounds."""
    policy = Policy()
    clocks_mhz = list(first_clocks(menu_mhz, policy.num_first_clocks))
    for _ in range(policy.max_sweep_rounds - 1):
        curves = [curve(at(one, clocks_mhz), blocking_power_w) for one in whole.measurements.values()]
        room = max(0, policy.max_measured_clocks - len(clocks_mhz))
        found = next_clocks(menu_mhz, curves, max_doubt=policy.max_saving_doubt, num_clocks=room)
        if not found:
            break
        clocks_mhz = sorted({*clocks_mhz, *found}, reverse=True)
    return clocks_mhz


def at(measured: Measurements, clocks_mhz: Sequence[int]) -> Measurements:
    """What was measured at some of the clocks."""
    kept = [measured.clocks_mhz.tolist().index(clock) for clock in clocks_mhz]
    return Measurements(
        clocks_mhz=measured.clocks_mhz[kept],
        gpus=measured.gpus,
        times_s=measured.times_s[:, kept],
        energies_j=measured.energies_j[:, kept],
        num_samples=measured.num_samples[:, kept],
        time_std_s=measured.time_std_s[:, kept],
        energy_std_j=measured.energy_std_j[:, kept],
    )


def curve(measured: Measurements, blocking_power_w: float) -> MeasuredCurve:
    """As a sweep's rounds see it."""
    times_s, energies_j = tuple(measured.times_s.mean(axis=0).tolist()), tuple(measured.energies_j.sum(axis=0).tolist())
    return MeasuredCurve(
        clocks_mhz=tuple(measured.clocks_mhz.tolist()),
        times_s=times_s,
        energies_j=energies_j,
        time_errors_s=tuple(ERROR_SHARE * time for time in times_s),
        energy_errors_j=tuple(ERROR_SHARE * energy for energy in energies_j),
        blocking_power_w=blocking_power_w,
    )


def saved_and_late(whole: Profile, known: Profile, blocking_power_w: float) -> list[tuple[float, float]]:
    """For each slowdown, shares of all-max's energy and of the time asked for, on the whole profile."""
    blocking_uw_of_rank = [round(UW_PER_W * blocking_power_w)] * PP
    schedule = one_f_one_b(pp=PP, microbatches=MICROBATCHES)
    true, problem = (make_problem(schedule, one, blocking_uw_of_rank=blocking_uw_of_rank) for one in (whole, known))
    true_max, known_ps = replay_all_max(true), replay_all_max(problem).time_ps
    deadlines_ps = [round(slowdown * known_ps) for slowdown in SLOWDOWNS]
    frontier = plan_frontier(problem, deadlines_ps=deadlines_ps)
    index_of = [{clock: i for i, clock in enumerate(one.clocks_mhz.tolist())} for one in true.curves]
    found = []
    for slowdown, deadline_ps in zip(SLOWDOWNS, deadlines_ps, strict=True):
        clocks_mhz = problem.clocks_mhz(frontier.clock_indices[frontier.point_for_deadline(deadline_ps)])
        pairs = zip(true.curve_of.tolist(), clocks_mhz.tolist(), strict=True)
        played = replay(true, np.array([index_of[which][clock] for which, clock in pairs], dtype=np.int32))
        late = played.time_ps / (slowdown * true_max.time_ps) - 1
        found.append((1 - played.total_uj / true_max.total_uj, late))
    return found


if __name__ == "__main__":
    main()
