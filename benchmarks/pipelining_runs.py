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
from typing import Any

from measuring import conditions, print_table, record_result

from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report, write_report
from perseus_dist.simulation.frameworks.pipelining_run import PipeliningRun
from perseus_dist.simulation.frameworks.training_run import TrainingFailedError

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "pipelining_gpt.py"
SCHEDULES = ("GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
PP_SIZE, NUM_MICROBATCHES = 2, 4
IMBALANCE = 0.3
MAX_SLOWDOWN, MAX_ERROR = 1.0, 1.0  # percent, points
COLUMNS = ("schedule", "full clocks [s]", "[J]", "plan [s]", "[J]", "slowdown [%]", "saving [%]", "predicted [%]")


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
            reports[schedule] = _train(schedule, args, Path(folder))
        print(*_row(schedule, reports[schedule]), file=sys.stderr, flush=True)
    rows = [_row(schedule, report) for schedule, report in reports.items()]
    print_table(COLUMNS, rows)
    if args.record:
        command = " ".join(["python benchmarks/pipelining_runs.py", *sys.argv[1:]])
        record_result(args.record, command=command, columns=COLUMNS, rows=rows)
    return 0 if all(map(_meets_bars, reports.values())) else 1


def _train(schedule: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    run = PipeliningRun(
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
    try:
        num_locked = run.train()
        run.train_without()
    except TrainingFailedError as error:
        sys.exit(f"{error}\n{error.log_tail}")
    are_equal = losses_equal(run.losses, run.reference_losses)
    report = build_report(folder, losses_equal=are_equal, clocks_left_locked=num_locked)
    return write_report(report, folder).document()


def _meets_bars(report: dict[str, Any]) -> bool:
    saving, predicted = report["saving_percent"], report["predicted_saving_percent"]
    return (
        report["losses_equal"]
        and report["clocks_left_locked"] == 0
        and None not in (saving, predicted)
        and report["slowdown_percent"] <= MAX_SLOWDOWN
        and abs(saving - predicted) <= MAX_ERROR
    )


def _row(schedule: str, report: dict[str, Any]) -> tuple[str, ...]:
    def figure(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    sides = [report["baseline"], report["planned"]]
    taken = [
        text for side in sides for text in (figure(side["iteration_time_s"], ".3f"), figure(side["energy_j"], ".0f"))
    ]
    return (
        schedule,
        *taken,
        figure(report["slowdown_percent"], "+.2f"),
        figure(report["saving_percent"], ".1f"),
        figure(report["predicted_saving_percent"], ".1f"),
    )


if __name__ == "__main__":
    sys.exit(main())
