"""The emulation by the paper's own definition of T', and the tables that are recorded of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BY_PAPER = {  # by an independent computation: saving [%] without a straggler and with each of 1.05, 1.1, 1.2, 1.5
    ("GPT-3 175B, A100", "12"): [16.0, 22.0, 24.9, 25.5, 23.8],
    ("Bloom 176B, A40", "12"): [8.3, 18.5, 21.1, 20.5, 18.8],
}


@pytest.fixture(scope="module")
def printed(shared_data: Path) -> str:
    """All tables that the benchmark prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / "emulation_table.py"), str(shared_data)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


@pytest.mark.parametrize("name", ["emulation", "emulation_by_paper", "emulation_extrinsic"])
def test_recorded_tables_are_what_is_printed(printed: str, name: str) -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    assert len(result["rows"]) >= 4
    for row in result["rows"]:
        assert f"| {' | '.join(row)} |\n" in printed


def test_ours_by_the_papers_definition() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "emulation_by_paper.json").read_text())["rows"]
    savings = {(row[0], row[1]): [float(cell.split()[0]) for cell in row[3:]] for row in rows}
    for key, theirs in BY_PAPER.items():  # other plans of as tight gaps: a tenth of a point between them is rounding
        assert savings[key] == pytest.approx(theirs, abs=0.11)
