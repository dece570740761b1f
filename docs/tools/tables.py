"""Write the tables of committed benchmark results into README.md and the pages of docs/.

    python docs/tools/tables.py [--check]

A page says ``<!-- table: NAME -->`` and ``<!-- end of table -->``; what stands between them is made from
``benchmarks/results/NAME.json``: the table, and the line with command, machine, date and commit that it came from. With
``--check`` nothing is written, and the exit code is 1 where a page is not what its results give.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def pages() -> list[Path]:
    """README.md and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def read_result(name: str) -> dict[str, Any]:
    """One file of benchmarks/results: command, machine, date, commit, columns, rows of cells."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    if any(len(row) != len(result["columns"]) for row in result["rows"]):
        raise ValueError(f"{name}.json: saw a row that has not as many cells as there are columns; make them equal")
    return result


def table_text(name: str) -> str:
    """One result in markdown, with where it came from."""
    result = read_result(name)
    columns = result["columns"]
    lines = [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *result["rows"])]
    origin = f"`{result['command']}`; {result['machine']}; {result['date']}, commit `{result['commit']}`"
    return "\n".join(["", *lines, "", f"*Source: {origin}.*", "", ""])


def filled(page: str) -> str:
    """A page with its tables made anew."""
    return _TABLE.sub(lambda found: found[1] + table_text(found[2]) + found[3], page)


def main() -> int:
    """Fill in the tables, or check that they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page would change")
    args = parser.parse_args()
    used: set[str] = set()
    stale = []
    for page in pages():
        text = page.read_text()
        used.update(found[2] for found in _TABLE.finditer(text))
        if filled(text) != text:
            stale.append(page.relative_to(ROOT))
            if not args.check:
                page.write_text(filled(text))
    if unused := sorted({file.stem for file in RESULTS.glob("*.json")} - used):
        print(f"no page shows {', '.join(unused)} of benchmarks/results: show or remove it", file=sys.stderr)
        return 1
    if args.check and stale:
        names = ", ".join(map(str, stale))
        print(f"not what benchmarks/results give: {names}; run {Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
