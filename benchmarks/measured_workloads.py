"""Measured workloads of the Perseus artifact, played through profile, DAG and replay: how far off are we?

    python benchmarks/measured_workloads.py DIR... [--json | --record]

Each DIR holds one workload: for every frequency plan N that was run, ``N.prof.json`` (what happened) and
``N.sched.json`` (the clocks), as in ``../shared/data/sosp24/measured``; a folder of such folders will do too. Of each:

- *profile*: mean time of every stage, instruction and clock over all plans, and powers that explain the energies of
  all ranks (least squares: per stage, forward and backward each straight lines between five clocks; one blocking
  power). Energies of a plan are predicted by powers that were fitted without that plan;
- *transfers*: one constant for every edge and both directions, so that the first two plans, the two lowest numbers,
  last as long as they did. Iteration times say no more than that;
- *following*: beside it the errors where each plan's constant is the one that explains the two plans before it, so
  that it follows what changes from run to run: the iteration time that a constant gives is interpolated between a few;
- *replay* of every plan, against the median of its measured iterations, the first of which is a warm-up;
- *saving* of the fastest plan that is not all-maximum, predicted with an interval and measured, and of all others how
  many lie in theirs. An interval is ``saving_intervals``', by how much the plans' mean times of an instruction differ
  at one clock, with twice the standard deviation of the other plans' energy errors and the scatter of the measured
  medians. Beside it what our own plan of least energy would have saved that is no later than that plan.

The artifact's trainer (Merak) runs 1F1B; each rank's clocks are listed per command: ``load`` and ``recv`` before each
warm-up forward, one exchange between the forwards and backwards of the steady state, three more commands at the end.
"""

import argparse
import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import print_table, record_result
from numpy.typing import NDArray
from workload_files import Workload, WorkloadError, folders_of, read_workload
from workload_power import PowerFit, Powers

from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay
from perseus_dist.planning.frontier.saving_interval import saving_intervals
from perseus_dist.planning.profile.profile import Measurements, Profile
from perseus_dist.planning.schedule.instruction import SEND_BACKWARD, SEND_FORWARD, Instruction, Kind
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.units import j_from_uj, s_from_ps, uw_from_w

Array = NDArray[np.float64]

COLUMNS = (
    "workload",
    "plans",
    "a transfer [ms]",
    "time error, median and worst [%]",
    "by the two plans before [%]",
    "its own in plans 0, 1, 2 and the last [ms]",
    "from plan 4 on, worst [%]",
    "energy error, median and worst [%]",
    "saving predicted [%]",
    "measured [%]",
    "savings inside",
    "half-width, median [points]",
    "our plan, as early [%]",
)

MIN_LOAD_S = 1e-4  # a rank that loads nothing takes microseconds for it
MAX_TRANSFER_S = 10.0
BISECTIONS = 25


def main() -> int:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a workload's folder, or a folder of them")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/measured_workloads.json")
    args = parser.parse_args()
    try:
        found = [figures(read_workload(folder)) for folder in folders_of(args.folders)]
    except WorkloadError as error:
        print(f"measured_workloads.py: error: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps({"workloads": found}, indent=1))
        return 0
    rows = [row(one) for one in found]
    print_table(COLUMNS, rows)
    if args.record:
        command = "python benchmarks/measured_workloads.py ../shared/data/sosp24/measured --record"
        record_result("measured_workloads", command=command, columns=COLUMNS, rows=rows)
    return 0


def row(one: dict[str, Any]) -> tuple[str, ...]:
    """A line of the table, of what ``figures`` says."""
    low, high = one["saving_interval_percent"]
    own_ms = list(one["transfer_of_plan_ms"].values())
    return (
        one["name"],
        str(one["plans"]),
        f"{one['transfer_ms']:.3g}",
        f"{one['time_error_median_percent']:.2f}, {one['time_error_worst_percent']:.2f}",
        f"{one['time_error_following_median_percent']:.2f}, {one['time_error_following_worst_percent']:.2f}",
        ", ".join(f"{own_ms:.3g}" for own_ms in [*own_ms[:3], own_ms[-1]]),
        f"{one['time_error_following_later_percent']:.2f}",
        f"{one['energy_error_median_percent']:.2f}, {one['energy_error_worst_percent']:.2f}",
        f"{one['saving_predicted_percent']:.1f} ({low:.1f} to {high:.1f})",
        f"{one['saving_measured_percent']:.1f}",
        f"{one['savings_inside']} of {one['savings_judged']}",
        f"{one['saving_half_width_median_percent']:.2f}",
        f"{one['own_saving_percent']:.1f}",
    )


def figures(workload: Workload) -> dict[str, Any]:
    """What one workload says of the model."""
    schedule = schedule_of(workload)
    fit = PowerFit(workload)
    powers = fit.powers()
    transfer_s = learnt_transfer_s(workload, schedule, powers)
    problem = problem_of_workload(workload, schedule, powers, transfer_s)
    played = [replay(problem, plan_indices(problem, workload, plan)) for plan in range(len(workload.numbers))]
    times_s = np.array([float(s_from_ps(one.time_ps)) for one in played])
    energies_j = np.array(
        [
            replayed_j(workload, schedule, transfer_s, plan, fit.powers(without=plan))
            for plan in range(len(workload.numbers))
        ]
    )
    measured_s = np.array([np.median(times) for times in workload.iteration_s])
    measured_j = np.array([np.median(energies) for energies in workload.iteration_j])
    time_error, energy_error = times_s / measured_s - 1, energies_j / measured_j - 1

    own_s, following = followed(workload, schedule, powers, transfer_s, measured_s)

    first = 0
    slower = [plan for plan in range(len(times_s)) if not workload.is_all_max(plan)]
    if not slower:
        raise WorkloadError(f"{workload.name}: saw all-maximum clocks alone, expected a plan that saves; add one")
    chosen = min(slower, key=lambda plan: times_s[plan])
    predicted, measured = 1 - energies_j / energies_j[first], 1 - measured_j / measured_j[first]
    lows, highs = intervals(workload, problem, energies_j, energy_error)
    is_inside = (lows <= measured) & (measured <= highs)
    frontier = plan_frontier(problem, deadlines_ps=[played[chosen].time_ps])
    own = frontier.point_for_deadline(max(played[chosen].time_ps, int(frontier.time_ps[0])))
    return {
        "name": workload.name,
        "plans": len(workload.numbers),
        "left_out": list(workload.left_out),
        "transfer_ms": 1e3 * transfer_s,
        "blocking_power_w": powers.blocking_w,
        "time_error_median_percent": _percent(np.median(np.abs(time_error))),
        "time_error_worst_percent": _percent(np.max(np.abs(time_error))),
        "transfer_of_plan_ms": {str(n): 1e3 * float(own) for n, own in zip(workload.numbers, own_s, strict=True)},
        "time_error_following_median_percent": _percent(np.median(following)),
        "time_error_following_worst_percent": _percent(np.max(following)),
        "time_error_following_later_percent": _percent(np.max(following[2:], initial=0.0)),
        "energy_error_median_percent": _percent(np.median(np.abs(energy_error))),
        "energy_error_worst_percent": _percent(np.max(np.abs(energy_error))),
        "plan": workload.numbers[chosen],
        "slowdown_predicted_percent": _percent(times_s[chosen] / times_s[first] - 1),
        "slowdown_measured_percent": _percent(measured_s[chosen] / measured_s[first] - 1),
        "saving_predicted_percent": _percent(predicted[chosen]),
        "saving_interval_percent": [_percent(lows[chosen]), _percent(highs[chosen])],
        "saving_measured_percent": _percent(measured[chosen]),
        "savings_inside": int(is_inside[slower].sum()),
        "savings_judged": len(slower),
        "saving_half_width_median_percent": _percent(np.median((highs - lows)[slower]) / 2),
        "own_saving_percent": _percent(1 - frontier.total_uj[own] / played[first].total_uj),
        "own_slowdown_percent": _percent(frontier.time_ps[own] / played[first].time_ps - 1),
        "time_error_percent": {str(n): _percent(e) for n, e in zip(workload.numbers, time_error, strict=True)},
        "energy_error_percent": {str(n): _percent(e) for n, e in zip(workload.numbers, energy_error, strict=True)},
    }


def intervals(
    workload: Workload, problem: PlanningProblem, energies_j: Array, energy_error: Array
) -> tuple[Array, Array]:
    """(num_plans) ends of the intervals of savings against the first plan; shares.

    Args:
        workload: What was measured.
        problem: The schedule with the profile.
        energies_j: (num_plans) [J] predicted.
        energy_error: (num_plans) predicted over measured, minus 1.
    """
    plans = range(len(energies_j))
    found = saving_intervals(problem, [plan_indices(problem, workload, plan) for plan in plans])
    if found is None:
        raise WorkloadError(f"{workload.name}: saw clocks of one plan alone, expected some of two; add plans")
    scatter = [
        math.sqrt(math.pi / 2 / len(of_plan)) * float(np.std(of_plan) / np.median(of_plan))
        for of_plan in workload.iteration_j
    ]
    lows, highs = np.empty((2, len(energies_j)))
    for plan in plans:
        left = 1 - energies_j[plan] / energies_j[0]
        others = np.delete(energy_error, [0, plan]) if len(energy_error) > 3 else energy_error
        doubt = 2 * (1 - left) * math.hypot(math.sqrt(2) * float(np.std(others)), scatter[0], scatter[plan])
        centre, half = (found[plan].low + found[plan].high) / 2, (found[plan].high - found[plan].low) / 2
        lows[plan], highs[plan] = centre - math.hypot(half, doubt), centre + math.hypot(half, doubt)
    return lows, highs


def _percent(share: float) -> float:
    return 100 * float(share)


def schedule_of(workload: Workload) -> Schedule:
    """1F1B with what each stage loads before its forwards."""
    loads = workload.load_s > MIN_LOAD_S
    ranks = []
    for stage, order in enumerate(workload.order):
        with_loads: list[Instruction] = []
        for kind, microbatch in order:
            if kind == Kind.FORWARD and loads[stage]:
                with_loads.append(Instruction(stage, "LOAD", microbatch))
            with_loads.append(Instruction(stage, kind, microbatch))
        ranks.append(tuple(with_loads))
    return Schedule(ranks=tuple(ranks))


def problem_of_workload(workload: Workload, schedule: Schedule, powers: Powers, transfer_s: float) -> PlanningProblem:
    """The schedule with the profile that all plans together are."""
    measurements = {}
    for stage in range(workload.pp):
        for kind in map(str, (Kind.FORWARD, Kind.BACKWARD)):
            clocks_mhz, times_s = workload.times[stage, kind]
            energies_j = times_s * powers.computing_w(stage, kind, clocks_mhz)
            num_plans, spreads_s = workload.time_spreads[stage, kind]
            measurements[stage, kind] = replace(
                _measurements(clocks_mhz, times_s, energies_j),
                num_samples=num_plans[None].astype(np.float64),
                time_std_s=spreads_s[None],
                energy_std_j=(energies_j * spreads_s / times_s)[None],  # as long as power is right
            )
    constant = partial(_measurements, np.zeros(1, dtype=np.int64))
    for stage, load_s in enumerate(workload.load_s.tolist()):
        if load_s > MIN_LOAD_S:
            measurements[stage, "LOAD"] = constant(np.array([load_s]), np.array([load_s * powers.blocking_w]))
    for stage in range(workload.pp):
        for send, receiver in ((SEND_FORWARD, stage + 1), (SEND_BACKWARD, stage - 1)):
            if transfer_s > 0 and 0 <= receiver < workload.pp:
                measurements[stage, send] = constant(np.array([transfer_s]), np.zeros(1))
    profile = Profile(source=workload.name, measurements=measurements)
    return make_problem(schedule, profile, blocking_uw_of_rank=[int(uw_from_w(powers.blocking_w))] * workload.pp)


def _measurements(clocks_mhz: NDArray[np.int64], times_s: Array, energies_j: Array) -> Measurements:
    unknown = np.full((1, len(times_s)), np.nan)
    return Measurements(
        clocks_mhz=clocks_mhz,
        gpus=("",),
        times_s=times_s[None],
        energies_j=energies_j[None],
        num_samples=np.ones((1, len(times_s))),
        time_std_s=unknown,
        energy_std_j=unknown,
    )


def plan_indices(problem: PlanningProblem, workload: Workload, plan: int) -> NDArray[np.int32]:
    """(num_instructions) the measured plan's clocks as choices of the problem."""
    clock_of = {
        Instruction(stage, kind, microbatch): clock
        for stage, (order, clocks) in enumerate(zip(workload.order, workload.clocks_mhz[plan], strict=True))
        for (kind, microbatch), clock in zip(order, clocks, strict=True)
    }
    menus = [{clock: index for index, clock in enumerate(curve.clocks_mhz.tolist())} for curve in problem.curves]
    chosen = [
        menus[curve][clock_of[one]] if one in clock_of else 0
        for curve, one in zip(problem.curve_of.tolist(), problem.dag.instructions, strict=True)
    ]
    return np.array(chosen, dtype=np.int32)


def learnt_transfer_s(workload: Workload, schedule: Schedule, powers: Powers) -> float:
    """[s] of every transfer, so that the first two plans last as long as measured; 0 where they do so without."""
    first = range(min(2, len(workload.numbers)))
    measured_s = np.array([np.median(workload.iteration_s[plan]) for plan in first])

    def error(transfer_s: float) -> float:
        problem = problem_of_workload(workload, schedule, powers, transfer_s)
        played = [replay(problem, plan_indices(problem, workload, plan)).time_ps for plan in first]
        return float(np.mean(s_from_ps(np.array(played)) / measured_s - 1))

    low, high = 0.0, 1e-3
    if error(low) >= 0:
        return 0.0
    while error(high) < 0:
        low, high = high, 2 * high
        if high > MAX_TRANSFER_S:
            raise WorkloadError(f"{workload.name}: no transfer up to {MAX_TRANSFER_S:g} s explains its first two plans")
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if error(middle) < 0 else (low, middle)
    return (low + high) / 2


def followed(
    workload: Workload, schedule: Schedule, powers: Powers, transfer_s: float, measured_s: Array
) -> tuple[Array, Array]:
    """Each plan's own constant, and how far off plans are by that of the two before them.

    Args:
        workload: What was measured.
        schedule: Its schedule.
        powers: Any; times do not depend on them.
        transfer_s: The constant that the first two plans give.
        measured_s: (num_plans) of an iteration.

    Returns:
        (num_plans) [s], within what is tried; (num_plans - 2, or 1) errors as shares, without a sign.
    """
    tried_s = np.array([0, 0.25, 0.5, 0.75, 1, 1.5]) * max(transfer_s, 1e-3)
    plans = range(len(measured_s))
    times_s = np.empty((len(tried_s), len(plans)))
    for row, constant_s in enumerate(tried_s.tolist()):
        problem = problem_of_workload(workload, schedule, powers, constant_s)
        played = [replay(problem, plan_indices(problem, workload, plan)).time_ps for plan in plans]
        times_s[row] = s_from_ps(np.array(played))
    own_s = np.array([np.interp(measured_s[plan], times_s[:, plan], tried_s) for plan in plans])
    errors = [
        abs(float(np.interp(own_s[plan - 2 : plan].mean(), tried_s, times_s[:, plan])) / measured_s[plan] - 1)
        for plan in plans[2:]
    ]
    return own_s, np.array(errors or [0.0])


def replayed_j(workload: Workload, schedule: Schedule, transfer_s: float, plan: int, powers: Powers) -> float:
    """[J] of a plan's replay."""
    problem = problem_of_workload(workload, schedule, powers, transfer_s)
    return float(j_from_uj(replay(problem, plan_indices(problem, workload, plan)).total_uj))


if __name__ == "__main__":
    sys.exit(main())
