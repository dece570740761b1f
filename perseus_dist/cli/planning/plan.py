"""``perseus-dist plan``: from a profile and a schedule to the frontier, a plan and its pictures."""

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from perseus_dist.cli.output_option import Output
from perseus_dist.cli.planning.deadline_option import (
    add_deadline_arguments,
    add_fastest_argument,
    deadline_ps_from_args,
    naming_deadline_option,
)
from perseus_dist.cli.planning.output import shown_progress, staged_output
from perseus_dist.cli.planning.problem_options import (
    add_problem_arguments,
    problem_from_args,
    switch_latency_ps_from_args,
)
from perseus_dist.library.pictures import can_draw, draw_frontier, draw_timeline
from perseus_dist.library.plan_table import (
    AT_T_MIN,
    FASTEST,
    by_time,
    format_plans,
    gap_text,
    interval_note,
    plans_that_matter,
    problem_text,
)
from perseus_dist.planning.coarse.coarse_frontier import plan_by
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.frontier_csv import write_frontier_csv
from perseus_dist.planning.frontier.frontier_file import save_frontier
from perseus_dist.planning.frontier.plan import Plan, latency_figures, plan_document, plan_figures, plan_for_deadline
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.units import j_from_uj, s_from_ps

FRONTIER_NPZ, FRONTIER_CSV, PLAN_JSON, TRACE_JSON = "frontier.npz", "frontier.csv", "plan.json", "trace.json"
FRONTIER_SVG, TIMELINE_SVG = "frontier.svg", "timeline.svg"
RESULTS = (FRONTIER_CSV, FRONTIER_NPZ, PLAN_JSON, TRACE_JSON, FRONTIER_SVG, TIMELINE_SVG)

_EPILOG = """\
example:
  perseus-dist plan profile.csv --schedule 1f1b --pp 4 --microbatches 16 --blocking-power-w 80 --out plans
  perseus-dist plan profile.csv --schedule 1f1b --pp 4 --microbatches 16 --blocking-power-w 80 --slowdown 1.05

Energies are those of one pipeline, all GPUs drawing blocking power until the iteration ends. Slowdown and saving are
against all-max, every computation at the maximum clock; "above bound" is against the exact optimum for the same time,
for large pipelines against a bound certified to lie at most 0.01 % below it. With --granularity phase or rank, for jobs
whose instructions cannot be seen while they run, instructions share clocks, and the bound is that of all such plans.
The interval is where a saving is likely to lie, two standard deviations to either side of what is expected, by the
profile's errors: repeated measurements and how they spread (samples, time_std, energy_std), otherwise the scatter of
times and energies over clocks, and the latency of clock changes between median and 90th percentile.
The chosen plan is that for T_min, the least energy no later than all-max, unless you ask for another. DIR gets:

  frontier.csv   the plans worth choosing, from the fastest to that at T*, the time of least energy
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
    add_fastest_argument(add_deadline_arguments(parser))
    parser.add_argument(
        "--granularity",
        choices=[str(granularity) for granularity in Granularity],
        default=str(Granularity.INSTRUCTION),
        help="a clock for each instruction, for each rank and phase (warm-up, steady state, cool-down), or for each "
        "rank (default: instruction)",
    )
    parser.add_argument("--out", action=Output, names=RESULTS, metavar="DIR", help="write the results into this folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plan an iteration."""
    problem = problem_from_args(args)
    latency_ps = switch_latency_ps_from_args(args)
    deadline_ps = deadline_ps_from_args(args, replay_all_max(problem, switch_latency_ps=latency_ps).time_ps)
    granularity = Granularity(args.granularity)
    schedule_name = args.schedule or Path(args.schedule_file).name
    title, written = f"{Path(args.profile).name}: {schedule_name}, {problem_text(problem, latency_ps, granularity)}", []
    with nullcontext() if args.out is None else staged_output(args.out, RESULTS) as staging:
        with shown_progress() as progress:
            frontier = plan_by(
                problem,
                granularity,
                switch_latency_ps=latency_ps,
                deadlines_ps=[] if deadline_ps is None else [deadline_ps],
                progress=progress,
            )
        with naming_deadline_option(args):
            plan, name = _chosen(frontier, deadline_ps, is_fastest=args.fastest)
        if staging is not None:
            written = _write(plan, staging, title=title, name=f"plan {name}")
    if args.json:
        shown = {"source": args.profile, **_frontier_figures(frontier), "plan": plan_figures(plan)}
        print(json.dumps({**shown, "files": [str(args.out / file) for file in written]}))
        return 0
    print(f"{title}\n\n{_table(frontier, plan, name)}\n{gap_text(frontier)}")
    if note := interval_note(problem):
        print(note)
    if written:
        print(f"Written to {args.out}: {', '.join(written)}.")
    return 0


def _chosen(frontier: Frontier, deadline_ps: int | None, *, is_fastest: bool) -> tuple[Plan, str]:
    """The plan that the options ask for, and what it is called."""
    if is_fastest:
        return plan_for_deadline(frontier, frontier.fastest_ps), FASTEST
    if deadline_ps is None:
        return plan_for_deadline(frontier, frontier.baseline.time_ps), AT_T_MIN
    return plan_for_deadline(frontier, deadline_ps), f"within {float(s_from_ps(deadline_ps)):.6f} s"


def _write(plan: Plan, folder: Path, *, title: str, name: str) -> list[str]:
    """Write all results, pictures only where they can be drawn; returns the names of the files."""
    from perseus_dist.report.trace.trace import write_trace

    write_frontier_csv(plan.frontier, folder / FRONTIER_CSV)
    save_frontier(plan.frontier, folder / FRONTIER_NPZ)
    write_output(folder / PLAN_JSON, json.dumps(plan_document(plan)).encode() + b"\n")
    write_trace([("all-max", plan.frontier.baseline), (name, plan.execution)], folder / TRACE_JSON)
    if can_draw():
        from perseus_dist.report.plots.theme import figure_bytes

        frontier_figure = draw_frontier(plan.frontier, chosen=(name, plan.execution), title=title)
        write_output(folder / FRONTIER_SVG, figure_bytes(frontier_figure))
        write_output(folder / TIMELINE_SVG, figure_bytes(draw_timeline(plan, name=name)))
    else:
        print(
            f"perseus-dist: {FRONTIER_SVG} and {TIMELINE_SVG} are left out, because matplotlib is not installed; "
            "pip install 'perseus-dist[report]'",
            file=sys.stderr,
        )
    return [file for file in RESULTS if (folder / file).exists()]


def _table(frontier: Frontier, chosen: Plan, name: str) -> str:
    """All-max, and the plans at the times that matter, from the fastest to the slowest, with the chosen one."""
    plans = plans_that_matter(frontier)
    plans.pop(name, None)
    return format_plans(by_time({f"{name}, chosen": chosen, **plans}))


def _frontier_figures(frontier: Frontier) -> dict[str, Any]:
    """All that ``--json`` prints of the frontier."""
    problem, baseline = frontier.problem, frontier.baseline
    gaps_percent = 100 * frontier.gaps[frontier.deadline_points]
    return {
        "num_gpus": problem.dag.schedule.num_ranks * problem.tensor_parallel,
        "num_instructions": problem.num_instructions,
        "granularity": frontier.granularity,
        **latency_figures(problem, frontier.switch_latency_ps),
        "bound_tolerance_percent": 100 * frontier.bound.tolerance,
        "baseline_time_s": float(s_from_ps(baseline.time_ps)),
        "baseline_energy_j": float(j_from_uj(baseline.total_uj)),
        "fastest_s": float(s_from_ps(frontier.fastest_ps)),
        "t_star_s": float(s_from_ps(frontier.t_star_ps)),
        "saving_at_fastest_percent": _saving_percent(frontier, frontier.fastest_ps),
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
