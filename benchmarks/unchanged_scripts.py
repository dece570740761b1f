"""torchtitan and Hugging Face models on simulated A100s, their scripts and sources unchanged: what Perseus saves.

``python benchmarks/unchanged_scripts.py --torchtitan FOLDER --record`` trains each job with Perseus, from the baseline
over the sweep of clocks to the plan, and without. FOLDER holds torchtitan 0.3.0 and what it needs beside torch. The
bars, in every run: losses equal bit by bit, no clock left locked, a plan. The exit code is 1 if one is missed.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import conditions, print_table, record_result

from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report, write_report
from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.pipelining_run import PipeliningRun
from perseus_dist.simulation.frameworks.torchtitan_run import TorchtitanRun
from perseus_dist.simulation.frameworks.training_run import TrainingFailedError, TrainingRun

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NUM_MICROBATCHES = 4
COLUMNS = ("job", "full clocks [s]", "[J]", "plan [s]", "[J]", "slowdown [%]", "saving [%]", "predicted [%]")
WORK: dict[str, Any] = {"preset": "a100", "forward_s": 0.1, "backward_s": 0.2, "imbalance": 0.3}


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torchtitan", type=Path, required=True, help="folder that holds torchtitan")
    parser.add_argument("--steps", type=int, default=55, help="iterations of each run (default: %(default)s)")
    parser.add_argument("--record", action="store_true", help="write the table that the documentation shows")
    args = parser.parse_args()
    print(f"{conditions()}\n", flush=True)
    reports = {}
    for job, make in jobs(args.torchtitan.absolute(), args.steps).items():
        with tempfile.TemporaryDirectory() as folder:
            reports[job] = _train(make(Path(folder)))
        print(*_row(job, reports[job]), file=sys.stderr, flush=True)
    rows = [_row(job, report) for job, report in reports.items()]
    print_table(COLUMNS, rows)
    if args.record:
        command = "python benchmarks/unchanged_scripts.py --torchtitan FOLDER --record"
        record_result("unchanged_scripts", command=command, columns=COLUMNS, rows=rows)
    return 0 if all(map(_meets_bars, reports.values())) else 1


def jobs(torchtitan: Path, num_steps: int) -> dict[str, Callable[[Path], TrainingRun]]:
    """What is trained, by the name that the table has for it."""

    def titan(schedule: str, dp_size: int = 1) -> Callable[[Path], TrainingRun]:
        return lambda folder: TorchtitanRun(
            script=EXAMPLES / "torchtitan_llama.py",
            schedule=schedule,
            pp_size=2,
            dp_size=dp_size,
            num_microbatches=NUM_MICROBATCHES,
            torchtitan=torchtitan,
            num_steps=num_steps,
            folder=folder,
            **WORK,
        )

    def pipelining(model: str) -> Callable[[Path], TrainingRun]:
        return lambda folder: PipeliningRun(
            script=EXAMPLES / "transformers_pipelining.py",
            schedule="1F1B",
            pp_size=2,
            num_microbatches=NUM_MICROBATCHES,
            knows_perseus=False,
            num_steps=num_steps,
            folder=folder,
            options=("--model", model),
            **WORK,
        )

    def deepspeed(model: str) -> Callable[[Path], TrainingRun]:
        return lambda folder: DeepSpeedRun(
            script=EXAMPLES / "transformers_deepspeed.py",
            config=EXAMPLES / "deepspeed_gpt.json",
            num_stages=2,
            num_pipelines=1,
            launcher="perseus-deepspeed",
            num_steps=num_steps,
            folder=folder,
            options=("--model", model),
            **WORK,
        )

    return {
        "torchtitan, Llama, 1F1B": titan("1F1B"),
        "torchtitan, Llama, ZBVZeroBubble": titan("ZBVZeroBubble"),
        "torchtitan, Llama, Interleaved1F1B, 2 pipelines (FSDP)": titan("Interleaved1F1B", dp_size=2),
        "transformers, Llama, torch 1F1B": pipelining("llama"),
        "transformers, GPT-2, DeepSpeed, 8 microbatches": deepspeed("gpt2"),
    }


def _train(run: TrainingRun) -> dict[str, Any]:
    try:
        num_locked = run.train()
        run.train_without()
    except TrainingFailedError as error:
        sys.exit(f"{error}\n{error.log_tail}")
    are_equal = losses_equal(run.losses, run.reference_losses)
    report = build_report(run.folder, losses_equal=are_equal, clocks_left_locked=num_locked)
    return write_report(report, run.folder).document()


def _meets_bars(report: dict[str, Any]) -> bool:
    return bool(report["losses_equal"]) and report["clocks_left_locked"] == 0 and report["saving_percent"] is not None


def _row(job: str, report: dict[str, Any]) -> tuple[str, ...]:
    def figure(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    sides = [report["baseline"], report["planned"]]
    taken = [
        text for side in sides for text in (figure(side["iteration_time_s"], ".3f"), figure(side["energy_j"], ".0f"))
    ]
    return (
        job,
        *taken,
        figure(report["slowdown_percent"], "+.2f"),
        figure(report["saving_percent"], ".1f"),
        figure(report["predicted_saving_percent"], ".1f"),
    )


if __name__ == "__main__":
    sys.exit(main())
