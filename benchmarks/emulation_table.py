"""Energy saved by a whole job, beside the figures published with Perseus (SOSP '24), as a table in markdown.

    python benchmarks/emulation_table.py [../shared/data]

Two models on 8 pp_ranks, 1F1B. The global batch is fixed: 1536 / M pipelines of M microbatches. Every figure is a
saving in percent against all-max at the same iteration time, the published one in parentheses. `perseus-dist emulate`
prints the same for one row, and says what differs from the published method.
"""

import sys
from pathlib import Path

from perseus_dist.planning.emulation import DIFFERENCES_FROM_PUBLISHED, emulate
from perseus_dist.planning.frontier import plan_frontier
from perseus_dist.planning.problem import make_problem
from perseus_dist.planning.profile import Profile, read_profile
from perseus_dist.planning.replay import replay_all_max
from perseus_dist.planning.schedule import one_f_one_b

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
GLOBAL_BATCH = 1536
PP = 8
STRAGGLERS = (1.0, 1.05, 1.1, 1.2, 1.5)
MODELS = (  # name, profile, blocking power [uW] of one GPU
    ("GPT-3 175B, A100", "gpt3-175b+a100_sxm_bf16.csv", 83_640_000),
    ("Bloom 176B, A40", "bloom+a40_bf16.csv", 70_380_000),
)
PUBLISHED = {  # (model, microbatches): saving [%] for each of STRAGGLERS, as far as they were published
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
    """Print the table."""
    heads = ["model", "M", "pipelines", "no straggler", *(f"{straggler:g}x" for straggler in STRAGGLERS[1:])]
    print(_line(heads))
    print(_line(["---"] * len(heads)))
    for model, file_name, blocking_uw in MODELS:
        profile = read_profile(data / "sosp24" / "stage_profile" / file_name)
        for microbatches in (12, 24, 48, 96):
            savings = savings_percent(profile, microbatches, blocking_uw)
            published = PUBLISHED[model, microbatches]
            cells = [
                f"{saving:.1f} ({published[i]:.1f})" if i < len(published) else f"{saving:.1f}"
                for i, saving in enumerate(savings)
            ]
            print(_line([model, str(microbatches), str(GLOBAL_BATCH // microbatches), *cells]))
    print("\nOurs (published), in percent. What differs:\n")
    for difference in DIFFERENCES_FROM_PUBLISHED:
        print(f"- {difference}")


def savings_percent(profile: Profile, microbatches: int, blocking_uw: int) -> list[float]:
    """[%] saved by the whole job, for each of STRAGGLERS."""
    schedule = one_f_one_b(pp=PP, microbatches=microbatches)
    problem = make_problem(schedule, profile, blocking_uw_of_rank=[blocking_uw] * PP)
    all_max_ps = replay_all_max(problem).time_ps
    frontier = plan_frontier(problem, deadlines_ps=[round(straggler * all_max_ps) for straggler in STRAGGLERS])
    return [
        100 * emulate(frontier, pipelines=GLOBAL_BATCH // microbatches, straggler=straggler).saving_share
        for straggler in STRAGGLERS
    ]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_DATA)
