"""What the benchmarks share: the measured profile, the conditions of a run, fresh processes, and tables in markdown."""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

A100_PROFILE = (
    Path(__file__).resolve().parents[2] / "shared/data/sosp24/stage_profile/gpt3-175b+a100_sxm_bf16.csv"
)  # GPT-3 175B, 8 stages, 38 clocks, from the artifact of the Perseus paper
A100_BLOCKING_W = 83.64
RESULTS = Path(__file__).resolve().parent / "results"
_NO_RESULTS = ":(exclude,top)benchmarks/results"  # a path from the root: git excludes no absolute one


def add_profile_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--profile`` and ``--blocking-power-w``, which default to the measured GPT-3 175B on A100."""
    parser.add_argument("--profile", type=Path, default=A100_PROFILE, help="measured profile of 8 stages")
    parser.add_argument("--blocking-power-w", type=float, default=A100_BLOCKING_W, help="of one GPU that waits")


def conditions() -> str:
    """When and where this runs, and how busy the machine already is."""
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    return (
        f"{date.today()}, {os.cpu_count()} cores, {system}, {platform.python_implementation()} "
        f"{platform.python_version()}, load average before the run {os.getloadavg()[0]:.2f}"
    )


def in_fresh_process(script: str, *arguments: object) -> dict[str, Any]:
    """What a script prints as one JSON object in a process of its own, where nothing is warm yet."""
    command = [sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def commit() -> str:
    """The commit that is checked out, with ``+`` behind it where files differ from it, results apart."""
    git = ["git", "-C", str(RESULTS.parent)]
    head = subprocess.run([*git, "rev-parse", "--short=9", "HEAD"], check=True, capture_output=True, text=True).stdout
    is_changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ":/", _NO_RESULTS], check=False).returncode != 0
    return head.strip() + "+" * is_changed


def record_result(name: str, *, command: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write benchmarks/results/NAME.json, from which docs/tools/tables.py makes a table of the documentation."""
    head = {
        "command": command,
        "machine": conditions().split(", ", 1)[1].rpartition(", ")[0],
        "date": str(date.today()),
        "commit": commit(),
        "columns": columns,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    cells = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    lines.append(f'  "rows": [\n{cells}\n  ]')
    (RESULTS / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def append_result(name: str, *, command: str, columns: Sequence[str], row: Sequence[str]) -> None:
    """Add a run to benchmarks/results/NAME.json, below those before; its first two cells are to be date and commit.

    Raises:
        ValueError: The file has other columns.
    """
    path = RESULTS / f"{name}.json"
    before: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"columns": list(columns), "rows": []}
    if before["columns"] != list(columns):
        raise ValueError(f"{path}: saw other columns than {', '.join(columns)}; record all of its rows again")
    rows = [*before["rows"], [str(date.today()), commit(), *row]]
    record_result(name, command=command, columns=columns, rows=rows)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table in markdown."""
    for cells in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(cells)} |")
