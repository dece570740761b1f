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

from framework_runs import COLUMNS, saving_cells, train_with_and_without
from measuring import conditions, print_table, record_result

from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.pipelining_run import PipeliningRun
from perseus_dist.simulation.frameworks.torchtitan_run import TorchtitanRun
from perseus_dist.simulation.frameworks.training_run import TrainingRun

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NUM_MICROBATCHES = 4
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
            reports[job] = train_with_and_without(make(Path(folder)))
        print(job, *saving_cells(reports[job]), file=sys.stderr, flush=True)
    columns = ("job", *COLUMNS)
    rows = [(job, *saving_cells(report)) for job, report in reports.items()]
    print_table(columns, rows)
    if args.record:
        command = "python benchmarks/unchanged_scripts.py --torchtitan FOLDER --record"
        record_result("unchanged_scripts", command=command, columns=columns, rows=rows)
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


def _meets_bars(report: dict[str, Any]) -> bool:
    return bool(report["losses_equal"]) and report["clocks_left_locked"] == 0 and report["saving_percent"] is not None


if __name__ == "__main__":
    sys.exit(main())
