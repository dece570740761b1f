"""Energy saved by a whole job, beside the figures published with Perseus (SOSP '24), as three tables in markdown.

    python benchmarks/emulation_table.py [../shared/data] [--record]

Two models on 8 pp_ranks, 1F1B. Every figure is a saving in percent against all-max at the same iteration time, the
published one in parentheses. First everything that is saved, at a fixed global batch: 1536 / M pipelines of M
microbatches. Then the same by the paper's own definition, where its frontiers were published. Then what reacting to the
straggler saves on top of the plan without one, from 16 to 1,024 pipelines; of that, the published frontiers say what
would be published, by arithmetic that gives all printed figures to the last digit. `perseus-dist emulate` prints the
first for one row, and says what differs from the published method. ``--record`` writes them to benchmarks/results.
"""

import argparse
import csv
from pathlib import Path

from measuring import print_table, record_result

from perseus_dist.planning.emulation import DIFFERENCES_FROM_PUBLISHED, Emulation, Iteration, emulate, iteration_at
from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import energy_uj, ps_from_s, uj_from_j

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
GLOBAL_BATCH = 1536
PP = 8
STRAGGLERS = (1.05, 1.1, 1.2, 1.5)
PIPELINES = (16, 64, 128, 256, 1024)
MODELS = (  # name, profile, published frontiers, blocking power [uW] of one GPU
    ("GPT-3 175B, A100", "gpt3-175b+a100_sxm_bf16.csv", "a100_sxm+gpt3-175b_bf16_mb{}.csv", 83_640_000),
    ("Bloom 176B, A40", "bloom+a40_bf16.csv", "a40+bloom_bf16_mb{}.csv", 70_380_000),
)
PUBLISHED = {  # (model, microbatches): saving [%] without a straggler, and for each of STRAGGLERS if it was published
    ("GPT-3 175B, A100", 12): (15.2, 21.6, 24.4, 24.8, 23.1),
    ("GPT-3 175B, A100", 24): (14.2,),
    ("GPT-3 175B, A100", 48): (13.6,),
    ("GPT-3 175B, A100", 96): (13.3, 20.6, 25.0, 27.0, 25.5),
    ("Bloom 176B, A40", 12): (7.0, 16.6, 19.3, 18.8, 17.2),
    ("Bloom 176B, A40", 24): (4.5,),
    ("Bloom 176B, A40", 48): (3.1,),
    ("Bloom 176B, A40", 96): (2.4, 11.6, 18.4, 21.1, 19.5),
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=DEFAULT_DATA, help="the folder with sosp24/")
    parser.add_argument("--record", action="store_true", help="write the tables into benchmarks/results")
    args = parser.parse_args()
    together, by_paper, extrinsic = tables(args.data)
    stragglers = [f"{straggler:g}x" for straggler in STRAGGLERS]
    for name, heads, rows in (
        ("emulation", ["model", "M", "pipelines", "no straggler", *stragglers], together),
        ("emulation_by_paper", ["model", "M", "pipelines", "no straggler", *stragglers], by_paper),
        ("emulation_extrinsic", ["model", "M", "pipelines", *stragglers], extrinsic),
    ):
        print(f"{name}, ours (published), in percent:\n")
        print_table(heads, rows)
        print()
        if args.record:
            record_result(name, command="python benchmarks/emulation_table.py --record", columns=heads, rows=rows)
    print("What differs:\n")
    for difference in DIFFERENCES_FROM_PUBLISHED:
        print(f"- {difference}")


def tables(data: Path) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Rows: all that is saved by our definition, the same by the paper's, and what reacting to the straggler adds."""
    together: list[list[str]] = []
    by_paper: list[list[str]] = []
    extrinsic: list[list[str]] = []
    for model, profile, published, blocking_uw in MODELS:
        for microbatches in (12, 24, 48, 96):
            problem = make_problem(
                one_f_one_b(pp=PP, microbatches=microbatches),
                read_profile(data / "sosp24" / "stage_profile" / profile),
                blocking_uw_of_rank=[blocking_uw] * PP,
            )
            all_max_ps = replay_all_max(problem).time_ps
            frontier = plan_frontier(problem, deadlines_ps=[round(one * all_max_ps) for one in (1.0, *STRAGGLERS)])
            figures = PUBLISHED[model, microbatches]
            pipelines = GLOBAL_BATCH // microbatches
            row = [model, str(microbatches), str(pipelines)]
            ours = [emulate(frontier, pipelines=pipelines, straggler=one) for one in (1.0, *STRAGGLERS)]
            together.append([*row, *together_cells(ours, figures)])
            file = data / "sosp24" / "frontier" / published.format(microbatches)
            if file.exists():
                plans = read_published(file)
                theirs = emulate_by_paper(problem, plans, pipelines=pipelines)
                by_paper.append([*row, *together_cells(theirs, figures)])
                extrinsic += [
                    [model, str(microbatches), f"{one:,}", *extrinsic_cells(frontier, plans, one)] for one in PIPELINES
                ]
    return together, by_paper, extrinsic


def together_cells(jobs: list[Emulation], published: tuple[float, ...]) -> list[str]:
    """The whole saving [%] without and with each straggler, and that published."""
    savings = [100 * job.saving_share for job in jobs]
    return [
        *(f"{ours:.1f} ({theirs:.1f})" for ours, theirs in zip(savings, published, strict=False)),
        *(f"{ours:.1f}" for ours in savings[len(published) :]),
    ]


def extrinsic_cells(frontier: Frontier, plans: list[Iteration], pipelines: int) -> list[str]:
    """What reacting to each straggler saves [%]."""
    cells = []
    for straggler in STRAGGLERS:
        ours = emulate(frontier, pipelines=pipelines, straggler=straggler)
        theirs = emulate_published(frontier.problem, plans, pipelines=pipelines, straggler=straggler)
        cells.append(f"{100 * ours.extrinsic_share:.1f} ({100 * theirs.extrinsic_share:.1f})")
    return cells


def read_published(file: Path) -> list[Iteration]:
    """The plans of a published frontier, the fastest first."""
    with file.open() as lines:
        plans = [
            Iteration(time_ps=int(ps_from_s(float(row["time"]))), total_uj=int(uj_from_j(float(row["energy"]))))
            for row in csv.DictReader(lines)
        ]
    return sorted(plans, key=lambda plan: plan.time_ps)


def emulate_by_paper(problem: PlanningProblem, plans: list[Iteration], *, pipelines: int) -> list[Emulation]:
    """Our plans by the paper's definition, without a straggler and with each of ``STRAGGLERS``.

    T' is the degree times the time of the fastest published plan, which all-max is granted too, and no pipeline runs
    slower than the published T*. Without a straggler, and as the straggler, a pipeline runs our plan at T_min.
    """
    reference, t_star_ps = published_reference(problem, plans)
    limits_ps = [min(round(straggler * reference.time_ps), t_star_ps) for straggler in STRAGGLERS]
    frontier = plan_frontier(problem, deadlines_ps=limits_ps)
    fastest = iteration_at(frontier, 0)
    others = [fastest, *(iteration_at(frontier, frontier.point_for_deadline(limit_ps)) for limit_ps in limits_ps)]
    return [
        Emulation(
            pipelines=pipelines,
            straggler=straggler,
            blocking_uw=problem.total_blocking_uw,
            reference=reference,
            intrinsic=fastest,
            others=plan,
        )
        for straggler, plan in zip((1.0, *STRAGGLERS), others, strict=True)
    ]


def emulate_published(
    problem: PlanningProblem, plans: list[Iteration], *, pipelines: int, straggler: float
) -> Emulation:
    """The published plans by the published method."""
    reference, t_star_ps = published_reference(problem, plans)
    limit_ps = min(round(straggler * reference.time_ps), t_star_ps)
    return Emulation(
        pipelines=pipelines,
        straggler=straggler,
        blocking_uw=problem.total_blocking_uw,
        reference=reference,
        intrinsic=plans[0],
        others=[plan for plan in plans if plan.time_ps <= limit_ps][-1],
    )


def published_reference(problem: PlanningProblem, plans: list[Iteration]) -> tuple[Iteration, int]:
    """All-max with the time of the fastest published plan, blocking power for less; and the published T* [ps]."""
    fastest, all_max = plans[0], replay_all_max(problem)
    granted_uj = energy_uj(problem.total_blocking_uw, all_max.time_ps - fastest.time_ps)
    reference = Iteration(time_ps=fastest.time_ps, total_uj=all_max.total_uj - granted_uj)
    return reference, min(plans, key=lambda plan: plan.total_uj).time_ps


if __name__ == "__main__":
    main()
