"""Real DeepSpeed and Megatron-LM on simulated A100s whose links are slow: does the plan know, and is it on time?

    python benchmarks/transfer_runs.py [--megatron DIR] [--transfer-ms 5 50] [--record]

Four stages in one pipeline train the frameworks' examples under a saved profile without transfers, so that these are
measured while training. What iterations take at full clocks and under the plan is held against what is predicted, and
the saving as well. Bars: iterations within 1 % of the prediction, the saving within 1 point.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from measuring import conditions, print_table, record_result

from perseus_dist.report.run_report import build_report
from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.megatron_run import LAYOUTS, MegatronRun
from perseus_dist.simulation.frameworks.training_run import TrainingFailedError, TrainingRun
from perseus_dist.simulation.simulated_profile import simulated_profile
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.work import WorkTimes

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
WORK = WorkTimes(forward_s=0.05, backward_s=0.1, imbalance=0.15)  # long beside the host's real work
CONSTANTS_S = {  # what they take on an idle machine
    "DeepSpeed": {"LOAD": 0.0005, "TIED": 0.00002, "REDUCE": 0.004, "STEP": 0.008},
    "Megatron-LM": {"REDUCE": 0.004, "STEP": 0.008},
}
NUM_STAGES, NUM_STEPS = 4, 45
COLUMNS = (
    "framework",
    "a transfer [ms]",
    "full clocks [s]",
    "over predicted [%]",
    "plan [s]",
    "over predicted [%]",
    "slowdown [%]",
    "saved [%]",
    "predicted [%]",
)


def main() -> int:
    """Train all, print the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megatron", type=Path, metavar="DIR", help="where the package megatron is, if not installed")
    parser.add_argument("--transfer-ms", type=float, nargs="+", default=[50.0], help="default: 50")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/transfer_runs.json")
    args = parser.parse_args()
    print(conditions(), flush=True)
    rows, is_met = [], True
    for framework in CONSTANTS_S:
        for transfer_ms in args.transfer_ms:
            row, is_within = _row(framework, transfer_ms / 1e3, args.megatron)
            rows.append(row)
            is_met &= is_within
            print(*row, file=sys.stderr, flush=True)
    print_table(COLUMNS, rows)
    if args.record:
        record_result(
            "transfer_runs", command="python benchmarks/transfer_runs.py --record", columns=COLUMNS, rows=rows
        )
    return 0 if is_met else 1


def _row(framework: str, transfer_s: float, megatron: Path | None) -> tuple[tuple[str, ...], bool]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = _run(framework, transfer_s, folder, megatron)
        try:
            num_locked = run.train()
        except TrainingFailedError as error:
            sys.exit(f"{error}\n{error.log_tail}")
        built = build_report(folder, losses_equal=None, clocks_left_locked=num_locked)
        full, plan, report = built.job.full_time_degree, built.job.plan_time_degree, built.document()
    saving, predicted = report["saving_percent"], report["predicted_saving_percent"]
    is_within = max(abs(full - 1), abs(plan - 1)) <= 0.01 and abs(saving - predicted) <= 1
    cells = (
        f"{report['baseline']['iteration_time_s']:.4f}",
        _over(full),
        f"{report['planned']['iteration_time_s']:.4f}",
        _over(plan),
        f"{report['slowdown_percent']:+.2f}",
        f"{saving:.2f}",
        f"{predicted:.2f}",
    )
    return (framework, f"{1e3 * transfer_s:g}", *cells), is_within


def _over(degree: float) -> str:
    return f"{100 * (degree - 1):+.2f}" if degree else "-"


def _run(framework: str, transfer_s: float, folder: Path, megatron: Path | None) -> TrainingRun:
    profile = folder / "saved.csv"
    profile.write_text(simulated_profile(PRESETS["a100"], WORK, pp_size=NUM_STAGES, constants_s=CONSTANTS_S[framework]))
    options = ("--perseus-profile", str(profile))
    if framework == "DeepSpeed":
        return DeepSpeedRun(
            script=EXAMPLES / "deepspeed_gpt.py",
            config=EXAMPLES / "deepspeed_gpt.json",
            num_stages=NUM_STAGES,
            num_pipelines=1,
            num_steps=NUM_STEPS,
            folder=folder,
            preset="a100",
            forward_s=WORK.forward_s,
            backward_s=WORK.backward_s,
            imbalance=WORK.imbalance,
            transfer_s=transfer_s,
            perseus_options=options,
        )
    return MegatronRun(
        script=EXAMPLES / "megatron_gpt.py",
        layout=LAYOUTS["PP4"],
        megatron=megatron,
        num_steps=NUM_STEPS,
        folder=folder,
        preset="a100",
        forward_s=WORK.forward_s,
        backward_s=WORK.backward_s,
        imbalance=WORK.imbalance,
        transfer_s=transfer_s,
        perseus_options=options,
    )


if __name__ == "__main__":
    sys.exit(main())
