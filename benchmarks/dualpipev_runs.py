"""Real DeepSpeed on simulated A100s, 1F1B and DualPipeV side by side: what each takes, and what is saved.

``python benchmarks/dualpipev_runs.py --record`` trains ``examples/deepspeed_gpt.py`` on two stages with either, with
Perseus, from the baseline over the sweep of clocks to the plan, and without. The bars, in either: slowdown at most 1 %,
prediction within 1 point, losses equal bit by bit, no clock left locked. The exit code is 1 if one is missed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from framework_runs import COLUMNS, meets_bars, saving_cells, train_with_and_without
from measuring import conditions, print_table, record_result

from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCHEDULES = {"1F1B": (), "DualPipeV": ("--dualpipev",)}
STAGES, IMBALANCE = 2, 0.3


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50, help="iterations of each run (default: %(default)s)")
    parser.add_argument("--forward-ms", type=float, default=15.0, help="of a rank; a backward takes twice as long")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/dualpipev_runs.json")
    args = parser.parse_args()
    print(f"{conditions()}\n", flush=True)
    reports = {}
    for schedule, options in SCHEDULES.items():
        with tempfile.TemporaryDirectory() as folder:
            job = DeepSpeedRun(
                script=EXAMPLES / "deepspeed_gpt.py",
                config=EXAMPLES / "deepspeed_gpt.json",
                num_stages=STAGES,
                num_pipelines=1,
                launcher="perseus-deepspeed",
                num_steps=args.steps,
                folder=Path(folder),
                preset="a100",
                forward_s=args.forward_ms * 1e-3,
                backward_s=args.forward_ms * 2e-3,
                imbalance=IMBALANCE,
                options=options,
            )
            reports[schedule] = train_with_and_without(job)
        print(schedule, *saving_cells(reports[schedule]), file=sys.stderr, flush=True)
    columns = ("schedule", *COLUMNS)
    rows = [(schedule, *saving_cells(report)) for schedule, report in reports.items()]
    print_table(columns, rows)
    if args.record:
        command = "python benchmarks/dualpipev_runs.py --record"
        record_result("dualpipev_runs", command=command, columns=columns, rows=rows)
    return 0 if all(map(meets_bars, reports.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
