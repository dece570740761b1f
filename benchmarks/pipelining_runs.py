"""Real torch.distributed.pipelining on simulated A100s, each of its six schedules: what it takes, and what is saved.

``python benchmarks/pipelining_runs.py --record`` trains ``examples/pipelining_gpt.py`` on two stages in every schedule
with Perseus, from the baseline over the sweep of clocks to the plan, and without. ``--schedule 1F1B --record NAME``
makes a table of its own, as of a run that is repeated. The bars, in every run: slowdown at most 1 %, prediction within
1 point, losses equal bit by bit, no clock left locked. The exit code is 1 if one is missed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from framework_runs import COLUMNS, meets_bars, saving_cells, train_with_and_without
from measuring import conditions, print_table, record_result

from perseus_dist.simulation.frameworks.pipelining_run import PipeliningRun

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "pipelining_gpt.py"
SCHEDULES = ("GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
PP_SIZE, NUM_MICROBATCHES = 2, 4
IMBALANCE = 0.3


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", action="append", choices=SCHEDULES, help="only this one; again for more")
    parser.add_argument("--steps", type=int, default=60, help="iterations of each run (default: %(default)s)")
    parser.add_argument("--forward-ms", type=float, default=160.0, help="of a rank; a backward takes twice as long")
    parser.add_argument("--clip-norm", action="store_true", help="ranks wait for one another before each step")
    parser.add_argument(
        "--record", metavar="NAME", nargs="?", const="pipelining", help="write a table of the documentation"
    )
    args = parser.parse_args()
    print(f"{conditions()}\n", flush=True)
    reports = {}
    for schedule in args.schedule or SCHEDULES:
        with tempfile.TemporaryDirectory() as folder:
            reports[schedule] = train_with_and_without(_job(schedule, args, Path(folder)))
        print(schedule, *saving_cells(reports[schedule]), file=sys.stderr, flush=True)
    columns = ("schedule", *COLUMNS)
    rows = [(schedule, *saving_cells(report)) for schedule, report in reports.items()]
    print_table(columns, rows)
    if args.record:
        command = " ".join(["python benchmarks/pipelining_runs.py", *sys.argv[1:]])
        record_result(args.record, command=command, columns=columns, rows=rows)
    return 0 if all(map(meets_bars, reports.values())) else 1


def _job(schedule: str, args: argparse.Namespace, folder: Path) -> PipeliningRun:
    return PipeliningRun(
        script=SCRIPT,
        schedule=schedule,
        pp_size=PP_SIZE,
        num_microbatches=NUM_MICROBATCHES,
        num_steps=args.steps,
        folder=folder,
        preset="a100",
        forward_s=args.forward_ms * 1e-3,
        backward_s=args.forward_ms * 2e-3,
        imbalance=IMBALANCE,
        options=("--clip-norm", "1") if args.clip_norm else (),
    )


if __name__ == "__main__":
    sys.exit(main())
