"""Side by side with lowtime 0.3.0: the time to trace a frontier, and the energy of its plans against ours.

    python benchmarks/lowtime_race.py [--microbatches 96 --lowtime-limit-s 120]

Both get the same DAG and the same measured profile, in memory: reading, fitting and building the DAG count for neither.
lowtime's time is what its constructor and its iterator take until the last plan; ours is ``plan_frontier``, the exact
frontier and the realised plans apart. Cold is the first plan of a fresh process, warm a repeated one; medians of both.

lowtime plans on rounded times, so that its plans are realised first: the clocks it assigns, replayed on the measured
times. At the iteration time that comes out our plan is looked up, and its energy counts until then, waiting included.
"""

import argparse
import json
import logging
import statistics
import time
import warnings
from dataclasses import dataclass

import networkx as nx
import numpy as np
from lowtime.cost_model import ExponentialModel
from lowtime.graph_utils import add_sink_node, add_source_node
from lowtime.operation import CandidateExecutionOptions, ExecutionOption, OperationSpec
from lowtime.perseus.instruction import Backward, Forward
from lowtime.solver import PhillipsDessouky
from measuring import add_profile_arguments, conditions, in_fresh_process, print_table
from numpy.typing import NDArray

from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay
from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import energy_uj, s_from_ps, uw_from_w, w_from_uw

PP = 8
UNIT_S = 0.001  # lowtime's time step in the Perseus artifact, for this profile
COLD_RUNS, WARM_RUNS = 5, 21
BAR_RATIO = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LowtimeFrontier:
    """What lowtime found.

    Attributes:
        seconds: [s] that it worked.
        finished: Whether that was within the limit.
        plans: One array per plan: (num_instructions) indices into the clocks of each instruction's curve.
    """

    seconds: float
    finished: bool
    plans: list[NDArray[np.int32]]


def main() -> None:
    """Run the race, or with ``--cold`` only our part of it once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_profile_arguments(parser)
    parser.add_argument("--microbatches", type=int, default=12)
    parser.add_argument("--lowtime-limit-s", type=float, default=float("inf"), help="stop lowtime after so long")
    parser.add_argument("--cold", action="store_true", help="print our own times in this process as JSON, and stop")
    args = parser.parse_args()
    problem = make_problem(
        one_f_one_b(pp=PP, microbatches=args.microbatches),
        read_profile(args.profile),
        blocking_uw_of_rank=[int(uw_from_w(args.blocking_power_w))] * PP,
    )
    if args.cold:
        frontier = plan_frontier(problem)
        print(json.dumps({"solve": frontier.solve_seconds, "realise": frontier.realise_seconds}))
        return
    print(f"{args.profile.name}, 1F1B, PP{PP} M{args.microbatches}: {problem.num_instructions} instructions.")
    print(f"{conditions()}.\n", flush=True)
    own = ["--profile", args.profile, "--blocking-power-w", args.blocking_power_w]
    cold = [in_fresh_process(__file__, *own, "--microbatches", args.microbatches, "--cold") for _ in range(COLD_RUNS)]
    warm = [plan_frontier(problem) for _ in range(WARM_RUNS)]
    lowtime = lowtime_frontier(problem, limit_s=args.lowtime_limit_s)
    print_times(
        lowtime,
        num_plans=len(warm[0].time_ps),
        cold=[(run["solve"], run["realise"]) for run in cold],
        warm=[(run.solve_seconds, run.realise_seconds) for run in warm],
    )
    print_energies(warm[0], lowtime)


def lowtime_frontier(problem: PlanningProblem, *, limit_s: float) -> LowtimeFrontier:
    """Trace lowtime's frontier; collecting its plans does not count."""
    logging.disable(logging.CRITICAL)  # it logs every step
    graph = lowtime_graph(problem)
    nodes = sorted(node for node in graph if node >= 0)
    plans: list[NDArray[np.int32]] = []
    began = time.perf_counter()
    steps = iter(PhillipsDessouky(graph).run())
    seconds = time.perf_counter() - began
    while seconds < limit_s:
        began = time.perf_counter()
        step = next(steps, None)
        seconds += time.perf_counter() - began
        if step is None:
            return LowtimeFrontier(seconds=seconds, finished=True, plans=plans)
        plans.append(np.array([graph.nodes[node]["op"].assigned_knob for node in nodes], dtype=np.int32))
    return LowtimeFrontier(seconds=seconds, finished=False, plans=plans)


def lowtime_graph(problem: PlanningProblem) -> "nx.DiGraph[int]":
    """The same DAG as lowtime wants it: nodes are the instructions' indices, and -1 and -2 for source and sink."""
    specs = [lowtime_spec(curve, float(w_from_uw(problem.total_blocking_uw)) / PP) for curve in problem.curves]
    graph: nx.DiGraph[int] = nx.DiGraph()
    for index, instruction in enumerate(problem.dag.instructions):
        operation = Forward if instruction.kind == Kind.FORWARD else Backward
        spec = specs[problem.curve_of[index]]
        graph.add_node(
            index, op=operation(spec=spec, stage_id=instruction.stage, micro_batch_id=instruction.microbatch)
        )
    graph.add_edges_from(zip(problem.edge_from.tolist(), problem.edge_to.tolist(), strict=True))
    add_source_node(graph, -1)
    add_sink_node(graph, -2)
    graph.graph.update(source_node=-1, sink_node=-2)
    return graph


def lowtime_spec(curve: CostCurve, blocking_w: float) -> OperationSpec[int]:
    """A curve fitted as in the Perseus artifact: filtered on measured energy, and blocking power subtracted after."""
    candidates = CandidateExecutionOptions[int](
        options=[
            ExecutionOption[int](real_time=float(s_from_ps(time_ps)), unit_time=UNIT_S, cost=uj / 1e6, knob=index)
            for index, (time_ps, uj) in enumerate(zip(curve.durations_ps, curve.energies_uj.tolist(), strict=True))
        ]
    )
    for option in candidates.options:
        option.cost -= blocking_w * option.quant_time * UNIT_S
    with warnings.catch_warnings(action="ignore"):  # the fit tries many starting points, most of which fail
        model = ExponentialModel(candidates, search_strategy="best")
    return OperationSpec[int](options=candidates, cost_model=model)


def print_times(
    lowtime: LowtimeFrontier, *, num_plans: int, cold: list[tuple[float, float]], warm: list[tuple[float, float]]
) -> None:
    """The times [s] of lowtime and of ours, (exact frontier, realised plans) of each run, and how they compare."""
    at_least = "" if lowtime.finished else "> "
    rows = [[f"lowtime 0.3.0, {len(lowtime.plans)} plans", f"{at_least}{lowtime.seconds:.2f}", "", ""]]
    for name, runs in (("cold", cold), ("warm", warm)):
        exact = [solve for solve, _ in runs]
        both = [solve + realise for solve, realise in runs]
        for what, seconds in (("exact frontier", exact), (f"exact frontier and {num_plans} plans", both)):
            median = statistics.median(seconds)
            spread = f"{min(seconds):.4f} .. {max(seconds):.4f}"
            rows.append([f"{what}, {name}", f"{median:.4f}", spread, f"{at_least}{lowtime.seconds / median:,.0f}"])
    print_table([f"{COLD_RUNS} cold and {WARM_RUNS} warm runs", "s, median", "s, spread", "ratio"], rows)
    print(f"\nThe bar: exact frontier and plans {BAR_RATIO:,} times faster than lowtime.")


def print_energies(frontier: Frontier, lowtime: LowtimeFrontier) -> None:
    """How much more or less energy our plans take at the realised time of each of lowtime's plans."""
    problem = frontier.problem
    executions = [replay(problem, plan) for plan in lowtime.plans]
    excess_percent = []
    for theirs in executions:
        point = frontier.point_for_straggler(theirs.time_ps)
        ours_uj = int(frontier.effective_uj[point]) + energy_uj(problem.total_blocking_uw, theirs.time_ps)
        excess_percent.append(100 * (ours_uj / theirs.total_uj - 1))
    times_s = s_from_ps([execution.time_ps for execution in executions])
    print(
        f"\nEnergy of ours against lowtime's at its {len(executions)} realised iteration times, {times_s.min():.4f} .. "
        f"{times_s.max():.4f} s: from {min(excess_percent):+.3f} % to {max(excess_percent):+.3f} %, median "
        f"{statistics.median(excess_percent):+.3f} %; more than lowtime's at {sum(x > 0 for x in excess_percent)}."
    )


if __name__ == "__main__":
    main()
