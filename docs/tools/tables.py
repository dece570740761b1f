"""Write the tables and figures of committed benchmark results into README.md and the pages of docs/.

    python docs/tools/tables.py [--check]

A page says ``<!-- table: NAME -->`` and ``<!-- end of table -->``; what stands between them is made from
``benchmarks/results/NAME.json``: the table, and the line with command, machine, date and commit that it came from. With
``--check`` nothing is written, and the exit code is 1 where a page is not what its results give.

A figure within a sentence stands between two marks, on one line that does not begin with the first:

    saves <!-- figure: planners / EnvPipe / saving -->14.2 %<!-- end -->

NAME / the first cells of a row, as many as make it the only one / column. ``#2`` after the column takes the second
number of the cell alone, ``as .0f`` a number in that format. ``least``, ``most``, ``mean`` or ``median`` before the
name takes that of all rows that begin with the cells.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_FIGURE = re.compile(r"(<!-- figure: ([^\n]*?) -->)([^\n]*?)(<!-- end -->)")
_FIGURE_MARK = re.compile(r"<!-- figure: ")
_LINE_BEGINS = re.compile(r"^[\s>*+-]*<!-- figure: ", re.MULTILINE)  # makes all of the line HTML
_WANTED = re.compile(
    r"(?:(?P<of>least|most|mean|median) )?(?P<name>\w+) / (?:(?P<cells>.+) / )?"
    r"(?P<column>.+?)(?: #(?P<nth>[1-9]))?(?: as (?P<form>\.[0-9]f))?"
)
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_OF: dict[str, Callable[[Sequence[float]], float]] = {"least": min, "most": max, "mean": fmean, "median": median}


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


def figure_text(wanted: str) -> str:
    """A figure as it stands in a sentence, from NAME / CELL / COLUMN.

    Raises:
        ValueError: No result, row, column or number is as wanted, or several rows are.
    """
    match = _WANTED.fullmatch(wanted)
    if match is None or not (RESULTS / f"{match['name']}.json").is_file():
        raise ValueError(f"figure {wanted!r}: expected NAME / CELL / COLUMN, with a NAME.json in benchmarks/results")
    result = read_result(match["name"])
    if match["column"] not in result["columns"]:
        raise ValueError(f"figure {wanted!r}: expected a column of {', '.join(result['columns'])}")
    cells = match["cells"].split(" / ") if match["cells"] else []
    rows = [row for row in result["rows"] if row[: len(cells)] == cells]
    if not rows or (len(rows) > 1 and not match["of"]):
        raise ValueError(f"figure {wanted!r}: saw {len(rows)} rows that begin so, expected one; name more cells")
    texts = [row[result["columns"].index(match["column"])] for row in rows]
    if not (match["of"] or match["nth"] or match["form"]):
        return str(texts[0])
    numbers = [_NUMBER.findall(text)[int(match["nth"] or 1) - 1 :] for text in texts]
    if not all(numbers):
        raise ValueError(f"figure {wanted!r}: saw a cell without that number; name another column or row")
    firsts = [found[0] for found in numbers]
    values = [float(text.replace(",", "")) for text in firsts]
    value = _OF[match["of"] or "most"](values)
    written = {value: text.lstrip("+") for value, text in zip(values, firsts, strict=True)}
    return format(value, match["form"]) if match["form"] else written.get(value, f"{value:g}")


def filled(page: str) -> str:
    """A page with its tables and figures made anew.

    Raises:
        ValueError: A figure's marks are not as they should be.
    """
    if _LINE_BEGINS.search(page):
        raise ValueError(
            "saw a line that begins with the mark of a figure, which no markdown follows; begin it with a word"
        )
    if len(_FIGURE.findall(page)) != len(_FIGURE_MARK.findall(page)):
        raise ValueError("saw a figure without '<!-- end -->' on its line; close it")
    page = _TABLE.sub(lambda found: found[1] + table_text(found[2]) + found[3], page)
    return _FIGURE.sub(lambda found: found[1] + figure_text(found[2]) + found[4], page)


def main() -> int:
    """Fill in tables and figures, or check that they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page would change")
    args = parser.parse_args()
    used: set[str] = set()
    stale = {}
    for page in pages():
        text = page.read_text()
        used.update(found[2] for found in _TABLE.finditer(text))
        try:
            made = filled(text)
        except ValueError as error:
            print(f"{page.relative_to(ROOT)}: {error}", file=sys.stderr)
            return 1
        if made != text:
            stale[page] = made
    if unused := sorted({file.stem for file in RESULTS.glob("*.json")} - used):
        print(f"no page shows {', '.join(unused)} of benchmarks/results: show or remove it", file=sys.stderr)
        return 1
    if not args.check:
        for page, made in stale.items():
            page.write_text(made)
    elif stale:
        names = ", ".join(str(page.relative_to(ROOT)) for page in stale)
        print(f"not what benchmarks/results give: {names}; run {Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
