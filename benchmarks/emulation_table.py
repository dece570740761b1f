"""Energy saved by a whole job, beside the figures published with Perseus (SOSP '24), as two tables in markdown.

    python benchmarks/emulation_table.py [../shared/data]

Two models on 8 pp_ranks, 1F1B. Every figure is a saving in percent against all-max at the same iteration time, the
published one in parentheses. First everything that is saved, at a fixed global batch: 1536 / M pipelines of M
microbatches. Then what reacting to the straggler saves on top of the plan without one, from 16 to 1,024 pipelines; of
that, the published frontiers say what would be published, by arithmetic that gives all printed figures to the last
digit. `perseus-dist emulate` prints the same for one row, and says what differs from the published method.
"""

import csv
import sys
from collections.abc import Iterable
from pathlib import Path

from perseus_dist.planning.emulation import DIFFERENCES_FROM_PUBLISHED, Emulation, Iteration, emulate
from perseus_dist.planning.frontier import Frontier, plan_frontier
from perseus_dist.planning.problem import PlanningProblem, make_problem
from perseus_dist.planning.profile import read_profile
from perseus_dist.planning.replay import replay_all_max
from perseus_dist.planning.schedule import one_f_one_b
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


def main(data: Path) -> None:
    """Print the tables."""
    together: list[list[str]] = []
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
            together.append([model, str(microbatches), *together_cells(frontier, PUBLISHED[model, microbatches])])
            file = data / "sosp24" / "frontier" / published.format(microbatches)
            if file.exists():
                extrinsic += [
                    [model, str(microbatches), str(pipelines), *extrinsic_cells(frontier, file, pipelines)]
                    for pipelines in PIPELINES
                ]
    stragglers = [f"{straggler:g}x" for straggler in STRAGGLERS]
    print_table(["model", "M", "pipelines", "no straggler", *stragglers], together)
    print("\nOurs (published), in percent. On top of the plan without a straggler:\n")
    print_table(["model", "M", "pipelines", *stragglers], extrinsic)
    print("\nWhat differs:\n")
    for difference in DIFFERENCES_FROM_PUBLISHED:
        print(f"- {difference}")


def together_cells(frontier: Frontier, published: tuple[float, ...]) -> list[str]:
    """The number of pipelines, and the whole saving [%] without and with each straggler."""
    pipelines = GLOBAL_BATCH // frontier.problem.dag.schedule.num_microbatches
    savings = [
        100 * emulate(frontier, pipelines=pipelines, straggler=straggler).saving_share
        for straggler in (1.0, *STRAGGLERS)
    ]
    return [
        str(pipelines),
        *(f"{ours:.1f} ({theirs:.1f})" for ours, theirs in zip(savings, published, strict=False)),
        *(f"{ours:.1f}" for ours in savings[len(published) :]),
    ]


def extrinsic_cells(frontier: Frontier, published: Path, pipelines: int) -> list[str]:
    """What reacting to each straggler saves [%]."""
    plans = read_published(published)
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


def emulate_published(
    problem: PlanningProblem, plans: list[Iteration], *, pipelines: int, straggler: float
) -> Emulation:
    """The published method: all-max is granted the time of the fastest plan, and nobody runs slower than T*."""
    fastest, all_max = plans[0], replay_all_max(problem)
    blocking_uw = problem.total_blocking_uw
    granted_uj = energy_uj(blocking_uw, all_max.time_ps - fastest.time_ps)
    reference = Iteration(time_ps=fastest.time_ps, total_uj=all_max.total_uj - granted_uj)
    t_star_ps = min(plans, key=lambda plan: plan.total_uj).time_ps
    limit_ps = min(round(straggler * reference.time_ps), t_star_ps)
    return Emulation(
        pipelines=pipelines,
        straggler=straggler,
        blocking_uw=blocking_uw,
        reference=reference,
        intrinsic=fastest,
        others=[plan for plan in plans if plan.time_ps <= limit_ps][-1],
    )


def print_table(heads: list[str], rows: Iterable[list[str]]) -> None:
    """In markdown."""
    for cells in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_DATA)
