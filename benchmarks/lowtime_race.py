"""Side by side with lowtime 0.3.0: the time to trace a frontier, and the energy of its plans against ours.

    python benchmarks/lowtime_race.py [--only GPT-3] [--microbatches 96 --lowtime-limit-s 120] [--record]

Raced are the published profiles, GPT-3 A100 and Bloom A40, and ``realised_gaps``' exchanged ones in place of the two
that are not shared. Both get the same DAG and the same measured profile, in memory: reading, fitting and building the
DAG count for neither. Times are of the processor, on all threads, so that a busy machine changes little. lowtime's is
what its constructor and its iterator take until the last plan; ours is ``plan_frontier``, the exact frontier and the
realised plans. Cold is the first plan of a fresh process, warm a repeated one; medians of both.

lowtime plans on rounded times, so that its plans are realised first: the clocks it assigns, replayed on the measured
times. At the iteration time that comes out our plan is looked up, and its energy counts until then, waiting included.
"""

import argparse
import json
import logging
import statistics
import sys
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
from measuring import conditions, in_fresh_process, print_table, record_result
from numpy.typing import NDArray
from realised_gaps import profiles

from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay
from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import energy_uj, s_from_ps, uw_from_w, w_from_uw

PP = 8
UNIT_S = 0.001  # lowtime's time step in the Perseus artifact, for GPT-3 on A100
COLD_RUNS, WARM_RUNS = 5, 21
RACED = ("GPT-3 A100", "Bloom A40", "exchanged, clocks of A100", "exchanged, clocks of A40")
COLUMNS = (
    *("profile", "lowtime's plans", "lowtime [CPU-s]", "our plans", "frontier and plans, cold [CPU-s]", "ratio"),
    *("warm [CPU-s]", "ratio", "energy against lowtime's [%]"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LowtimeFrontier:
    """What lowtime found.

    Attributes:
        seconds: [s] of the processor that it took.
        finished: Whether that was within the limit.
        plans: One array per plan: (num_instructions) indices into the clocks of each instruction's curve.
    """

    seconds: float
    finished: bool
    plans: list[NDArray[np.int32]]


def main() -> None:
    """Run the race, or with ``--cold`` only our part of it once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="profiles with this text in their names")
    parser.add_argument("--microbatches", type=int, default=12)
    parser.add_argument("--lowtime-limit-s", type=float, default=float("inf"), help="stop lowtime after so long")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/lowtime_race.json")
    parser.add_argument("--cold", metavar="PROFILE", help="print our own time in this process as JSON, and stop")
    args = parser.parse_args()
    if args.cold:
        print(json.dumps({"seconds": planned(problem_of(args.cold, args.microbatches))[1]}))
        return
    print(f"1F1B, PP{PP} M{args.microbatches}. {conditions()}.\n", flush=True)
    rows = []
    for name in RACED:
        if args.only in name:
            rows.append(raced(name, args.microbatches, args.lowtime_limit_s))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print_table(COLUMNS, rows)
    if args.record:
        command = " ".join(["python benchmarks/lowtime_race.py", *sys.argv[1:]])
        record_result("lowtime_race", command=command, columns=COLUMNS, rows=rows)


def problem_of(name: str, microbatches: int) -> PlanningProblem:
    """1F1B with a profile of ``realised_gaps``."""
    profile, blocking_w = profiles()[name]
    schedule = one_f_one_b(pp=PP, microbatches=microbatches)
    return make_problem(schedule, profile, blocking_uw_of_rank=[int(uw_from_w(blocking_w))] * PP)


def raced(name: str, microbatches: int, limit_s: float) -> tuple[str, ...]:
    """A row of the table: both on one profile, one after the other."""
    problem = problem_of(name, microbatches)
    own = ("--cold", name, "--microbatches", microbatches)
    cold_s = statistics.median(in_fresh_process(__file__, *own)["seconds"] for _ in range(COLD_RUNS))
    warm = [planned(problem) for _ in range(WARM_RUNS)]
    frontier, warm_s = warm[0][0], statistics.median(seconds for _, seconds in warm)
    lowtime = lowtime_frontier(problem, limit_s=limit_s)
    at_least = "" if lowtime.finished else "> "
    ratios = [f"{at_least}{lowtime.seconds / one_s:,.0f}" for one_s in (cold_s, warm_s)]
    times = (f"{cold_s:.4f}", ratios[0], f"{warm_s:.4f}", ratios[1])
    counts = (f"{len(lowtime.plans)}", f"{at_least}{lowtime.seconds:.2f}", f"{len(frontier.time_ps)}")
    return (name, *counts, *times, energies(frontier, lowtime))


def planned(problem: PlanningProblem) -> tuple[Frontier, float]:
    """Our frontier, and the processor time [s] that it took."""
    began_s = time.process_time()
    frontier = plan_frontier(problem)
    return frontier, time.process_time() - began_s


def lowtime_frontier(problem: PlanningProblem, *, limit_s: float) -> LowtimeFrontier:
    """Trace lowtime's frontier; collecting its plans does not count."""
    logging.disable(logging.CRITICAL)  # it logs every step
    graph = lowtime_graph(problem)
    nodes = sorted(node for node in graph if node >= 0)
    plans: list[NDArray[np.int32]] = []
    began = time.process_time()
    steps = iter(PhillipsDessouky(graph).run())
    seconds = time.process_time() - began
    while seconds < limit_s:
        began = time.process_time()
        step = next(steps, None)
        seconds += time.process_time() - began
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


def energies(frontier: Frontier, lowtime: LowtimeFrontier) -> str:
    """How much more or less energy our plans take at the realised time of each of lowtime's plans [%], as a range."""
    problem = frontier.problem
    excess_percent = []
    for plan in lowtime.plans:
        theirs = replay(problem, plan)
        point = frontier.point_for_straggler(theirs.time_ps)
        ours_uj = int(frontier.effective_uj[point]) + energy_uj(problem.total_blocking_uw, theirs.time_ps)
        excess_percent.append(100 * (ours_uj / theirs.total_uj - 1))
    return f"{min(excess_percent):+.2f} to {max(excess_percent):+.2f}"


if __name__ == "__main__":
    main()
