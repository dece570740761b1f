"""Ten thousand drawn histories, by hand or nightly: what was drawn, what broke by invariant, and seeds per core-hour.

    python benchmarks/chaos_campaign.py [--seeds 0-9999] [--processes 2] [--known FILE] [--out FILE] [--record]

Everything is simulated, in virtual time; the rate counts both runs of each seed, with Perseus and without, by process
CPU time. ``--out`` takes the whole result, with the scenario's size and the cost of every seed; ``--write-known`` takes
what broke in the form that ``perseus-dist simulate --known-failures`` reads. The exit code is 1 if a seed breaks an
invariant that ``--known`` does not list. ``--record`` adds the campaign to those of the documentation.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import append_result, conditions, print_table

from perseus_dist.cli.simulated.chaos_options import seeds
from perseus_dist.simulation.chaos.campaign import Campaign, run_campaign
from perseus_dist.simulation.chaos.known_failures import compare, format_known_failures, read_known_failures
from perseus_dist.simulation.chaos.trial import Trial

SEEDS_PER_CORE_HOUR = 2000
COLUMNS = (
    "date",
    "commit",
    "seeds",
    "played",
    "break",
    "[%]",
    "invariants that these break",
    "seeds per core-hour",
)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description="Play drawn histories, and say what broke.")
    parser.add_argument("--seeds", type=seeds, default=range(10_000), metavar="FIRST-LAST")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--known", type=Path, metavar="FILE", help="seeds that are known to break invariants")
    parser.add_argument("--write-known", type=Path, metavar="FILE", help="write what broke as such a file")
    parser.add_argument("--out", type=Path, default=Path("chaos-campaign.json"), metavar="FILE")
    parser.add_argument("--record", action="store_true", help="add a row to benchmarks/results/chaos_campaigns.json")
    args = parser.parse_args()
    known = {} if args.known is None else read_known_failures(args.known)

    print(conditions())
    campaign = run_campaign(args.seeds, processes=args.processes, progress=_progress(len(args.seeds)))
    comparison = compare(campaign.trials, known)
    document = {**campaign.document(), "conditions": conditions(), "trials": [_row(one) for one in campaign.trials]}
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    if args.write_known is not None:
        args.write_known.write_text(format_known_failures(campaign.trials))
    _print(campaign)
    if args.record:
        _record(args.seeds, campaign)
    print(comparison.text())
    return 1 if comparison.new else 0


def _progress(num_seeds: int) -> Callable[[Trial], None]:
    num_done = 0

    def progress(trial: Trial) -> None:
        nonlocal num_done
        num_done += 1
        if num_done % 100 == 0 or trial.broken:
            names = ", ".join(dict.fromkeys(one.name for one in trial.broken)) or "holds"
            print(f"{num_done}/{num_seeds}: seed {trial.seed}: {names}", file=sys.stderr, flush=True)

    return progress


def _print(campaign: Campaign) -> None:
    drawn, num = campaign.distribution(), max(1, len(campaign.trials))
    print_table(
        ("drawn", "share or mean"),
        [
            ("ranks", f"{drawn['mean_ranks']:.1f}"),
            ("16 ranks or more", _percent(drawn["share_of_16_ranks_or_more"])),
            ("iterations", f"{drawn['mean_iterations']:.1f}"),
            ("reached a plan", _percent(drawn["share_that_reached_a_plan"])),
            *((name, _percent(share)) for name, share in drawn["share_by_fault"].items()),
        ],
    )
    print_table(
        ("invariant", "seeds that broke it", "share"),
        [
            *((name, str(count), _percent(count / num)) for name, count in campaign.num_broken.items()),
            ("any", str(len(campaign.failing)), _percent(len(campaign.failing) / num)),
        ],
    )
    rate = campaign.seeds_per_core_hour
    print(f"{len(campaign.trials)} seeds, {rate:.0f} per core-hour (bar: {SEEDS_PER_CORE_HOUR})")


def _record(seeds_played: range, campaign: Campaign) -> None:
    num, num_failing = len(campaign.trials), len(campaign.failing)
    broken = sorted(campaign.num_broken.items(), key=lambda item: -item[1])
    append_result(
        "chaos_campaigns",
        command="python benchmarks/chaos_campaign.py --seeds FIRST-LAST --record",
        columns=COLUMNS,
        row=(
            f"{seeds_played[0]}-{seeds_played[-1]}",
            f"{num:,}",
            str(num_failing),
            f"{100 * num_failing / num:.1f}",
            ", ".join(f"{name} {count}" for name, count in broken if count) or "none",
            f"{campaign.seeds_per_core_hour:,.0f}",
        ),
    )


def _row(trial: Trial) -> dict[str, Any]:
    job = trial.scenario.job
    return {
        "seed": trial.seed,
        "ranks": job.num_ranks,
        "microbatches": job.microbatches,
        "iterations": trial.scenario.iterations,
        "faults": list(trial.faults),
        "broken": sorted({one.name for one in trial.broken}),
        "reached_plan": trial.reached_plan,
        "cpu_s": round(trial.cpu_s, 3),
    }


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    sys.exit(main())
