"""Real Megatron-LM with ``--enable-perseus`` on simulated A100s, in five layouts: what each saves, and at what price.

``python benchmarks/megatron_runs.py --megatron DIR``, where DIR holds the package ``megatron`` if it is not installed,
trains ``examples/megatron_gpt.py`` in every layout with Perseus, from the baseline over the sweep of clocks to the
plan, and without. Bars, each at the median of a layout's runs: saving at least 6 %, slowdown at most 2 %, prediction
within 2 points; in every run the losses are equal bit by bit and no clock is left locked. The exit code is 1 if one is
missed.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from framework_runs import figure, train_with_and_without
from measuring import conditions, print_table

from perseus_dist.simulation.frameworks.megatron_run import LAYOUTS, MegatronRun

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "megatron_gpt.py"
FORWARD_S, BACKWARD_S = 0.035, 0.065  # of one layer: a rank's chunks are as heavy as the one of a rank without
IMBALANCE = 0.15  # the last stage has the head
MIN_SAVING, MAX_SLOWDOWN, MAX_ERROR = 6.0, 2.0, 2.0  # percent, percent, points

Figures = dict[str, Any]


def main() -> int:
    """Print the tables; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megatron", type=Path, metavar="DIR", help="where the package megatron is, if not installed")
    parser.add_argument("--layout", action="append", choices=LAYOUTS, help="only this one; again for more")
    parser.add_argument("--runs", type=int, default=3, help="of each layout (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=60, help="iterations of each run (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    args = parser.parse_args()
    print(f"{conditions()}\n", flush=True)
    runs = []
    layouts = args.layout or list(LAYOUTS)
    for layout in layouts:
        for number in range(args.runs):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(_train(layout, number + 1, args.steps, args.megatron, Path(folder)))
            print(f"{layout}, run {number + 1}: {_short(runs[-1])}", file=sys.stderr, flush=True)
    summaries = [
        _summary(layout, [run for run in runs if run["layout"] == layout]) for layout in args.layout or LAYOUTS
    ]
    _print_runs(runs)
    print()
    _print_summaries(summaries)
    if args.json:
        args.json.write_text(json.dumps({"conditions": conditions(), "runs": runs, "layouts": summaries}, indent=1))
    return 0 if all(summary["is_passed"] for summary in summaries) else 1


def _train(name: str, number: int, num_steps: int, megatron: Path | None, folder: Path) -> Figures:
    layout = LAYOUTS[name]
    run = MegatronRun(
        script=SCRIPT,
        layout=layout,
        megatron=megatron,
        num_steps=num_steps,
        folder=folder,
        preset="a100",
        forward_s=FORWARD_S * layout.num_chunks,
        backward_s=BACKWARD_S * layout.num_chunks,
        imbalance=IMBALANCE,
    )
    began_s = time.monotonic()
    report = train_with_and_without(run)
    return {"layout": name, "run": number, "took_s": time.monotonic() - began_s, **report}


def _summary(layout: str, runs: Sequence[Figures]) -> Figures:
    """Medians, and whether the bars are met. A run that never came under a plan meets none."""
    is_planned = all(run["saving_percent"] is not None and run["predicted_saving_percent"] is not None for run in runs)
    summary: Figures = {"layout": layout, "num_runs": len(runs), "is_passed": False}
    if not is_planned:
        return summary
    medians = {
        name: statistics.median(run[name] for run in runs)
        for name in ("saving_percent", "slowdown_percent", "predicted_saving_percent")
    }
    error = statistics.median(abs(run["saving_percent"] - run["predicted_saving_percent"]) for run in runs)
    is_harmless = all(run["losses_equal"] and run["clocks_left_locked"] == 0 for run in runs)
    is_within = medians["saving_percent"] >= MIN_SAVING and medians["slowdown_percent"] <= MAX_SLOWDOWN
    is_passed = is_harmless and is_within and error <= MAX_ERROR
    return {**summary, **medians, "prediction_error_points": error, "is_passed": is_passed}


def _print_runs(runs: Sequence[Figures]) -> None:
    heads = ("layout", "run", "baseline [s]", "plan [s]", "slowdown [%]", "saving [%]", "predicted [%]", "losses")
    rows = (
        (
            run["layout"],
            str(run["run"]),
            figure(run["baseline"]["iteration_time_s"], ".4f"),
            figure(run["planned"]["iteration_time_s"], ".4f"),
            figure(run["slowdown_percent"], "+.2f"),
            figure(run["saving_percent"], ".2f"),
            figure(run["predicted_saving_percent"], ".2f"),
            "equal" if run["losses_equal"] else "DIFFERENT",
            str(run["clocks_left_locked"]),
            f"{run['took_s']:.0f}",
        )
        for run in runs
    )
    print_table((*heads, "left locked", "with and without [s]"), rows)


def _print_summaries(summaries: Sequence[Figures]) -> None:
    heads = ("layout, medians", "runs", "saving [%]", "slowdown [%]", "error of the prediction [points]", "bars")
    rows = (
        (
            summary["layout"],
            str(summary["num_runs"]),
            figure(summary.get("saving_percent"), ".2f"),
            figure(summary.get("slowdown_percent"), "+.2f"),
            figure(summary.get("prediction_error_points"), ".2f"),
            "met" if summary["is_passed"] else "MISSED",
        )
        for summary in summaries
    )
    print_table(heads, rows)


def _short(run: Figures) -> str:
    saving, slowdown = figure(run["saving_percent"], ".2f"), figure(run["slowdown_percent"], "+.2f")
    return f"saving {saving} %, slowdown {slowdown} %, {run['took_s']:.0f} s; {run['phase']}: {run['reason']}"


if __name__ == "__main__":
    sys.exit(main())
