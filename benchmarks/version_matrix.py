"""DeepSpeed 0.14.5 to 0.19 and Megatron-LM 0.13 to main on simulated A100s: what a job with each version saves.

``python benchmarks/version_matrix.py --record`` trains the examples, from a saved profile to the plan and without
Perseus, under each version that ``launch/versions`` has put into build/versions, and under the DeepSpeed that is
installed. The bars, in every row: a plan, equal losses, no clock left locked, at least 5 % saved by the
prediction and 3 % by the counters, at most 2 % slower. The exit code is 1 if one is missed.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

from framework_runs import COLUMNS, saving_cells, train_with_and_without
from measuring import RESULTS, commit, conditions, print_table, record_result

from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.megatron_run import LAYOUTS, MegatronRun
from perseus_dist.simulation.simulated_profile import simulated_profile
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.work import WorkTimes

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, VERSIONS = ROOT / "examples", ROOT / "build" / "versions"
WORK = WorkTimes(forward_s=0.06, backward_s=0.11, imbalance=0.3)
CONSTANTS_S = {"REDUCE": 0.004, "STEP": 0.008}
DEEPSPEED_S = {**CONSTANTS_S, "LOAD": 0.0005, "TIED": 0.00002}
NUM_STEPS = 40
MIN_SAVING, MIN_PREDICTED, MAX_SLOWDOWN = 3.0, 5.0, 2.0  # percent


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="this version; again for more")
    parser.add_argument("--record", action="store_true", help="write the table that the documentation shows")
    args = parser.parse_args()
    print(f"{conditions()}\n", flush=True)
    reports, failed = {}, []
    for name, train in jobs().items():
        if args.only and name not in args.only:
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                reports[name] = train(Path(folder))
        except SystemExit as ended:  # of this version's job alone
            print(f"{name}: {ended}", file=sys.stderr, flush=True)
            failed.append(name)
            continue
        print(name, *saving_cells(reports[name]), file=sys.stderr, flush=True)
    columns = ("version", *COLUMNS, "losses", "date", "commit")
    rows = [
        [name, *saving_cells(one), "equal" if one["losses_equal"] else "DIFFERENT", str(date.today()), commit()]
        for name, one in reports.items()
    ]
    print_table(columns, rows)
    if args.record:
        _record(columns, rows)
    missed = failed + [name for name, report in reports.items() if not _meets_bars(report)]
    print(f"\n{len(reports)} versions; bars missed by {', '.join(missed) or 'none'}")
    return int(bool(missed) or not reports)


def jobs() -> dict[str, Callable[[Path], dict[str, Any]]]:
    """What trains with each version, by the name that the table has for it."""
    found: dict[str, Callable[[Path], dict[str, Any]]] = {
        f"DeepSpeed {folder.name}": partial(_deepspeed, folder) for folder in _folders("deepspeed")
    }
    found[f"DeepSpeed {metadata.version('deepspeed')}"] = partial(_deepspeed, None)
    return found | {f"Megatron-LM {folder.name}": partial(_megatron, folder) for folder in _folders("megatron")}


def _record(columns: Sequence[str], rows: Sequence[list[str]]) -> None:
    """Versions that have not been run keep their last row, as long as they are there."""
    path = RESULTS / "version_matrix.json"
    known = {row[0]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}
    known |= {row[0]: row for row in rows}
    record_result(
        "version_matrix",
        command="python benchmarks/version_matrix.py --record",
        columns=columns,
        rows=[known[name] for name in jobs() if name in known],
    )


def _folders(framework: str) -> list[Path]:
    return sorted(path for path in (VERSIONS / framework).glob("*") if path.suffix != ".part")


def _deepspeed(version: Path | None, folder: Path) -> dict[str, Any]:
    run = DeepSpeedRun(
        script=EXAMPLES / "deepspeed_gpt.py",
        config=EXAMPLES / "deepspeed_gpt.json",
        num_stages=2,
        num_pipelines=1,
        num_steps=NUM_STEPS,
        folder=folder,
        preset="a100",
        forward_s=WORK.forward_s,
        backward_s=WORK.backward_s,
        imbalance=WORK.imbalance,
        perseus_options=_saved_profile(folder, WORK, num_chunks=1, constants_s=DEEPSPEED_S),
        launcher="perseus-deepspeed",
    )
    with patch.dict(os.environ, {} if version is None else {"PYTHONPATH": str(version)}):
        return train_with_and_without(run)


def _megatron(version: Path, folder: Path) -> dict[str, Any]:
    layout = replace(LAYOUTS["PP2 V2, overlapped"], num_microbatches=4)
    chunks = layout.num_chunks
    work = replace(WORK, forward_s=WORK.forward_s * chunks, backward_s=WORK.backward_s * chunks)
    run = MegatronRun(
        script=EXAMPLES / "megatron_gpt.py",
        layout=layout,
        megatron=version,
        num_steps=NUM_STEPS,
        folder=folder,
        preset="a100",
        forward_s=work.forward_s,
        backward_s=work.backward_s,
        imbalance=work.imbalance,
        perseus_options=_saved_profile(folder, work, num_chunks=chunks, constants_s=CONSTANTS_S),
    )
    return train_with_and_without(run)


def _saved_profile(folder: Path, work: WorkTimes, *, num_chunks: int, constants_s: dict[str, float]) -> tuple[str, str]:
    """Options of a run of two ranks that need not sweep."""
    path = folder / "saved.csv"
    path.write_text(simulated_profile(PRESETS["a100"], work, pp_size=2, num_chunks=num_chunks, constants_s=constants_s))
    return "--perseus-profile", str(path)


def _meets_bars(report: dict[str, Any]) -> bool:
    saving, predicted = report["saving_percent"], report["predicted_saving_percent"]
    return (
        None not in (saving, predicted)
        and saving >= MIN_SAVING
        and predicted >= MIN_PREDICTED
        and report["slowdown_percent"] <= MAX_SLOWDOWN
        and report["losses_equal"]
        and report["clocks_left_locked"] == 0
    )


if __name__ == "__main__":
    sys.exit(main())
