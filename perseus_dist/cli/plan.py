"""``perseus-dist plan``: from a profile and a schedule to the frontier, a plan and its pictures."""

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from perseus_dist.cli.deadline_option import add_deadline_arguments, deadline_ps_from_args, naming_deadline_option
from perseus_dist.cli.output import shown_progress, staged_output
from perseus_dist.cli.pictures import FRONTIER_SVG, TIMELINE_SVG, can_draw, draw_plan
from perseus_dist.cli.plan_table import format_plans
from perseus_dist.cli.problem_options import add_problem_arguments, problem_from_args, switch_latency_ps_from_args
from perseus_dist.planning.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier_csv import write_frontier_csv
from perseus_dist.planning.frontier_file import save_frontier
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.plan import Plan, plan_document, plan_figures, plan_for_deadline
from perseus_dist.planning.problem import PlanningProblem
from perseus_dist.planning.replay import replay_all_max
from perseus_dist.units import j_from_uj, ms_from_ps, s_from_ps

FRONTIER_NPZ, FRONTIER_CSV, PLAN_JSON, TRACE_JSON = "frontier.npz", "frontier.csv", "plan.json", "trace.json"
RESULTS = (FRONTIER_CSV, FRONTIER_NPZ, PLAN_JSON, TRACE_JSON, FRONTIER_SVG, TIMELINE_SVG)

_EPILOG = """\
example:
  perseus-dist plan profile.csv --schedule 1f1b --pp 4 --microbatches 16 --blocking-power-w 80 --out plans
  perseus-dist plan profile.csv --schedule 1f1b --pp 4 --microbatches 16 --blocking-power-w 80 --slowdown 1.05

Energies are those of one pipeline, all GPUs drawing blocking power until the iteration ends. Slowdown and saving are
against all-max, every computation at the maximum clock; "above bound" is against the exact optimum for the same time.
The chosen plan is the fastest, at T_min, unless a slowdown or a deadline is given. DIR gets:

  frontier.csv   the plans worth choosing, from T_min to T*, the time of least energy
  frontier.npz   the same for 'perseus-dist lookup', with the clocks of every plan
  plan.json      the clocks of the chosen plan, for every pp_rank in execution order
  frontier.svg   the frontier beside all-max, EnvPipe and Zeus, that at its least energy no later than T*
  timeline.svg   all-max and the chosen plan, instruction by instruction
  trace.json     the same for https://ui.perfetto.dev
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "plan",
        help="plan the clocks of an iteration",
        description="Trace the time-energy frontier of an iteration, and choose a plan on it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_problem_arguments(parser)
    add_deadline_arguments(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the results into this folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plan an iteration."""
    problem = problem_from_args(args)
    deadline_ps = deadline_ps_from_args(args, replay_all_max(problem).time_ps)
    title, written = _title(args, problem), []
    with nullcontext() if args.out is None else staged_output(args.out, RESULTS) as staging:
        with shown_progress() as progress:
            frontier = plan_frontier(
                problem,
                switch_latency_ps=switch_latency_ps_from_args(args),
                deadlines_ps=[] if deadline_ps is None else [deadline_ps],
                progress=progress,
            )
        with naming_deadline_option(args):
            plan = plan_for_deadline(frontier, frontier.t_min_ps if deadline_ps is None else deadline_ps)
        name = "at T_min" if deadline_ps is None else f"within {float(s_from_ps(deadline_ps)):.6f} s"
        if staging is not None:
            written = _write(plan, staging, title=title, name=f"plan {name}")
    if args.json:
        shown = {"source": args.profile, **_frontier_figures(frontier), "plan": plan_figures(plan)}
        print(json.dumps({**shown, "files": [str(args.out / file) for file in written]}))
        return 0
    print(f"{title}\n\n{_table(frontier, plan, name)}\n{_frontier_text(frontier)}")
    if written:
        print(f"Written to {args.out}: {', '.join(written)}.")
    return 0


def _write(plan: Plan, folder: Path, *, title: str, name: str) -> list[str]:
    """Write all results, pictures only where they can be drawn; returns the names of the files."""
    from perseus_dist.report.trace import write_trace

    write_frontier_csv(plan.frontier, folder / FRONTIER_CSV)
    save_frontier(plan.frontier, folder / FRONTIER_NPZ)
    write_output(folder / PLAN_JSON, json.dumps(plan_document(plan)).encode() + b"\n")
    write_trace([("all-max", plan.frontier.baseline), (name, plan.execution)], folder / TRACE_JSON)
    if can_draw():
        draw_plan(plan, folder, title=title, name=name)
    else:
        print(
            f"perseus-dist: {FRONTIER_SVG} and {TIMELINE_SVG} are left out, because matplotlib is not installed; "
            "pip install 'perseus-dist[report]'",
            file=sys.stderr,
        )
    return [file for file in RESULTS if (folder / file).exists()]


def _title(args: argparse.Namespace, problem: PlanningProblem) -> str:
    """What is planned, in a line."""
    schedule = problem.dag.schedule
    chunks = schedule.num_stages // schedule.num_ranks
    parts = [
        f"{Path(args.profile).name}: {args.schedule or Path(args.schedule_file).name}",
        f"{schedule.num_ranks} pp_ranks" + (f" with {chunks} chunks" if chunks > 1 else ""),
        f"{schedule.num_microbatches} microbatches",
    ]
    if problem.tensor_parallel > 1:
        parts.append(f"tensor parallel {problem.tensor_parallel}")
    if args.switch_latency_ms:
        parts.append(f"{args.switch_latency_ms:g} ms per clock change")
    return ", ".join(parts)


def _table(frontier: Frontier, chosen: Plan, name: str) -> str:
    """All-max, and the plans at the times that matter, from the fastest to the slowest, with the chosen one."""
    deadlines_ps = {
        "at T_min": frontier.t_min_ps,
        "at the all-max time": frontier.baseline.time_ps,
        "at T*": frontier.t_star_ps,
    }
    plans = {key: plan_for_deadline(frontier, deadline_ps) for key, deadline_ps in deadlines_ps.items()}
    plans.pop(name, None)
    ordered = sorted([(f"{name}, chosen", chosen), *plans.items()], key=lambda item: item[1].execution.time_ps)
    return format_plans(dict(ordered))


def _frontier_text(frontier: Frontier) -> str:
    gaps = 100 * frontier.gaps[frontier.own]
    return (
        f"{len(gaps)} plans from T_min to T*, on average {gaps.mean():.3f} % above the exact lower bound and at worst "
        f"{gaps.max():.3f} %; solved in {frontier.solve_seconds:.3f} s, realised in {frontier.realise_seconds:.3f} s."
    )


def _frontier_figures(frontier: Frontier) -> dict[str, Any]:
    """All that ``--json`` prints of the frontier."""
    problem, baseline = frontier.problem, frontier.baseline
    gaps_percent = 100 * frontier.gaps[frontier.own]
    return {
        "num_gpus": problem.dag.schedule.num_ranks * problem.tensor_parallel,
        "num_instructions": problem.num_instructions,
        "switch_latency_ms": float(ms_from_ps(frontier.switch_latency_ps)),
        "baseline_time_s": float(s_from_ps(baseline.time_ps)),
        "baseline_energy_j": float(j_from_uj(baseline.total_uj)),
        "t_min_s": float(s_from_ps(frontier.t_min_ps)),
        "t_star_s": float(s_from_ps(frontier.t_star_ps)),
        "saving_at_t_min_percent": _saving_percent(frontier, frontier.t_min_ps),
        "saving_at_all_max_time_percent": _saving_percent(frontier, baseline.time_ps),
        "saving_at_t_star_percent": _saving_percent(frontier, frontier.t_star_ps),
        "points": len(gaps_percent),
        "max_gap_percent": float(gaps_percent.max()),
        "mean_gap_percent": float(gaps_percent.mean()),
        "solve_seconds": frontier.solve_seconds,
        "realise_seconds": frontier.realise_seconds,
    }


def _saving_percent(frontier: Frontier, deadline_ps: int) -> float:
    total_uj = int(frontier.total_uj[frontier.point_for_deadline(deadline_ps)])
    return 100 * (1 - total_uj / frontier.baseline.total_uj)
