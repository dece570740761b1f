"""What becomes of plans by rank and phase where clocks change by time since the iteration began, in markdown.

    python benchmarks/phase_by_time.py [../shared/data] [--record]

Instructions that cannot be seen, as in a CUDA graph, leave nothing but time to go by: each rank changes its clock when
the plan says that its next phase begins. The same plans as in granularity_table.py, on iterations that are not as
planned: all instructions take so much longer or shorter than the profile says, or each of them by chance (normal
deviation, means of 10 iterations). A change in mid-instruction counts from there on; changes take no time, unless a row
says by how much they are late: plans reckon with 12 ms then, and each change comes up to 10 ms later than that, in four
pipelines that wait for the slowest. Plans by instruction stand beside it as if their clocks came with the instructions.
Slowdown is beside the same iteration at all-maximum clocks, beyond what the plan was to take; savings are beside it
too. ``--record`` writes benchmarks/results/phase_by_time.json.
"""

import argparse
from pathlib import Path

import numpy as np
from emulation_table import DEFAULT_DATA, MODELS, PP
from measuring import print_table, record_result
from numpy.typing import NDArray

from perseus_dist.planning.coarse.coarse_frontier import plan_by
from perseus_dist.planning.frontier.plan import Plan, plan_for_deadline
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.granularity import Granularity, sharing
from perseus_dist.planning.schedule.schedule import one_f_one_b

MICROBATCHES = (12, 96)
SLOWDOWNS = (1.0, 1.05)
OFF_PERCENT = (0.0, -5.0, -1.0, 1.0, 5.0)
NOISE_PERCENT = 1.0
NUM_NOISY = 10
NUM_PIPELINES = 4
NAMES = {Granularity.RANK: "rank", Granularity.PHASE: "rank and phase", Granularity.INSTRUCTION: "instruction"}
LATENCY_PS, MOST_LATE_PS = 12 * 10**9, 10 * 10**9
COLUMNS = (
    *("model", "M", "a clock for each", "instructions take"),
    *("saved at T_min [%]", "slowdown [%]", "saved at 1.05x [%]", "slowdown beyond [%]"),
)

Factors = NDArray[np.float64]
Changes = list[list[tuple[float, int]]]


class Timeline:
    """Iterations of a problem in which each rank changes its clock by time alone."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._problem = problem
        num = problem.num_instructions
        self._before: list[list[int]] = [[] for _ in range(num)]
        after: list[list[int]] = [[] for _ in range(num)]
        for one, other in problem.dag.edges.tolist():
            self._before[other].append(one)
            after[one].append(other)
        missing = [len(before) for before in self._before]
        self._order = [node for node in range(num) if not missing[node]]
        for node in self._order:  # which grows
            for other in after[node]:
                missing[other] -= 1
                if not missing[other]:
                    self._order.append(other)

    def mean(self, changes: Changes, factors: Factors) -> tuple[float, float]:
        """As ``play``, the mean of iterations with these factors, (num_iterations, num_instructions)."""
        played = np.mean([self.play(changes, of_iteration) for of_iteration in factors], axis=0)
        return float(played[0]), float(played[1])

    def play(self, changes: Changes, factors: Factors) -> tuple[float, float]:
        """Time [ps] and energy [uJ] of an iteration.

        Args:
            changes: Of each rank, or of each instruction, ascending: from when [ps] on, and to what clock [MHz].
            factors: (num_instructions) by how much longer each takes than measured.
        """
        problem = self._problem
        end_ps = [0.0] * problem.num_instructions
        total_uj, busy_uj = 0.0, 0.0
        for node in self._order:
            curve = problem.curves[problem.curve_of[node]]
            pp_rank = int(problem.dag.pp_rank[node])
            now_ps = begin_ps = max((end_ps[before] for before in self._before[node]), default=0.0)
            left, own = 1.0, changes[node if len(changes) == problem.num_instructions else pp_rank]
            while left > 0:
                place = sum(from_ps <= now_ps for from_ps, _ in own) - 1
                until_ps = own[place + 1][0] if place + 1 < len(own) else np.inf
                at = 0 if len(curve.clocks_mhz) == 1 else curve.clocks_mhz.tolist().index(own[place][1])
                whole_ps = float(curve.durations_ps[at]) * float(factors[node])
                done = min(left, (until_ps - now_ps) / whole_ps) if whole_ps else left
                total_uj += done * float(curve.energies_uj[at]) * float(factors[node])
                left -= done
                now_ps = until_ps if left > 0 else now_ps + done * whole_ps
            end_ps[node] = now_ps
            busy_uj += float(problem.blocking_uw[pp_rank]) * (now_ps - begin_ps) / 1e12
        time_ps = max(end_ps)
        return time_ps, total_uj - busy_uj + problem.total_blocking_uw * time_ps / 1e12


def changes_of(plan: Plan) -> Changes:
    """When each rank's clock changes by the plan: at the end of the computation before, and with the plan's latency.

    Of a plan by instruction, the clock of each instruction, whenever it begins.
    """
    problem, execution = plan.frontier.problem, plan.execution
    if plan.frontier.granularity == Granularity.INSTRUCTION:
        return [[(0.0, int(clock_mhz))] for clock_mhz in execution.clocks_mhz]
    found: Changes = [[] for _ in problem.blocking_uw]
    begin_ps = dict.fromkeys(range(len(found)), 0.0)
    for group in sharing(problem.dag.schedule, plan.frontier.granularity):
        pp_rank = int(problem.dag.pp_rank[group[0]])
        found[pp_rank].append((begin_ps[pp_rank], int(execution.clocks_mhz[group[0]])))
        begin_ps[pp_rank] = float(execution.end_ps[group[-1]]) + plan.frontier.switch_latency_ps
    return found


def of_four_pipelines(timeline: Timeline, plan: Plan, full: Changes) -> tuple[float, float, float, float]:
    """Mean time [ps] and energy [uJ] under the plan, and at full clocks, where each change is late by chance."""
    random = np.random.default_rng(1)
    blocking_uw, num = plan.frontier.problem.total_blocking_uw, plan.frontier.problem.num_instructions
    sums = np.zeros(4)
    for _ in range(NUM_NOISY):
        played = []
        for _ in range(NUM_PIPELINES):
            factors = 1 + NOISE_PERCENT / 100 * random.standard_normal(num)
            late = [
                [(from_ps and from_ps + random.uniform(0, MOST_LATE_PS), clock) for from_ps, clock in own]
                for own in changes_of(plan)
            ]
            played.append((*timeline.play(late, factors), *timeline.play(full, factors)))
        times = np.array(played)
        for column in (0, 2):
            slowest_ps = times[:, column].max()
            waiting_uj = blocking_uw * (slowest_ps - times[:, column]).sum() / 1e12
            sums[column : column + 2] += slowest_ps, times[:, column + 1].sum() + waiting_uj
    time_ps, total_uj, full_ps, full_uj = (sums / NUM_NOISY).tolist()
    return time_ps, total_uj, full_ps, full_uj


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=DEFAULT_DATA, help="the folder with sosp24/")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/phase_by_time.json")
    args = parser.parse_args()
    rows = []
    for model, profile, _, blocking_uw in MODELS:
        measured = read_profile(args.data / "sosp24" / "stage_profile" / profile)
        for microbatches in MICROBATCHES:
            schedule = one_f_one_b(pp=PP, microbatches=microbatches)
            problem = make_problem(schedule, measured, blocking_uw_of_rank=[blocking_uw] * PP)
            rows += [[model, str(microbatches), *row] for row in rows_of(problem)]
    print_table(COLUMNS, rows)
    if args.record:
        record_result(
            "phase_by_time", command="python benchmarks/phase_by_time.py --record", columns=COLUMNS, rows=rows
        )


def rows_of(problem: PlanningProblem) -> list[list[str]]:
    """The rows of one pipeline."""
    timeline, all_max = Timeline(problem), replay_all_max(problem)
    full = [[(0.0, max(int(curve.clocks_mhz[0]) for curve in problem.curves))] for _ in problem.blocking_uw]
    deadlines_ps = [round(slowdown * all_max.time_ps) for slowdown in SLOWDOWNS]

    def plans_by(granularity: Granularity, latency_ps: int = 0) -> list[Plan]:
        frontier = plan_by(problem, granularity, switch_latency_ps=latency_ps, deadlines_ps=deadlines_ps)
        return [plan_for_deadline(frontier, deadline_ps) for deadline_ps in deadlines_ps]

    def cells(plan: Plan, time_ps: float, total_uj: float, full_ps: float, full_uj: float) -> list[str]:
        slowdown = time_ps / full_ps * all_max.time_ps / plan.execution.time_ps - 1
        return [f"{100 * (1 - total_uj / full_uj):z.1f}", f"{100 * slowdown:z.2f}"]

    rows = []
    for granularity, name in NAMES.items():
        cases = cases_of(problem.num_instructions)
        plans = plans_by(granularity)
        for how, factors in cases if granularity == Granularity.PHASE else (cases[0], cases[-1]):
            row = [name, how]
            for plan in plans:
                row += cells(plan, *timeline.mean(changes_of(plan), factors), *timeline.mean(full, factors))
            rows.append(row)
    row = [NAMES[Granularity.PHASE], "by chance, changes up to 10 ms late, 4 pipelines"]
    for plan in plans_by(Granularity.PHASE, LATENCY_PS):
        row += cells(plan, *of_four_pipelines(timeline, plan, full))
    return [*rows, row]


def cases_of(num_instructions: int) -> list[tuple[str, Factors]]:
    """How iterations differ from the profile, and by what factors, (num_iterations, num_instructions)."""
    cases = [
        (f"{off:+g} %" if off else "as planned", np.full((1, num_instructions), 1 + off / 100)) for off in OFF_PERCENT
    ]
    chance = np.random.default_rng(1).standard_normal((NUM_NOISY, num_instructions))
    return [*cases, (f"by chance +- {NOISE_PERCENT:g} % each", 1 + NOISE_PERCENT / 100 * chance)]


if __name__ == "__main__":
    main()
