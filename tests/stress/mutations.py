"""Single mutations of the pure cores: how many of them do the tests notice?

    python tests/stress/mutations.py --map        # once: which unit tests reach which line (minutes)
    python tests/stress/mutations.py --count 200  # draw mutations and run the tests that reach each

A mutation changes one comparison, one arithmetic or logical operator, or one constant. It is made in a copy of the
package, never in the checkout, and the unit tests that reach its line run against the copy until one fails. Lines that
no unit test reaches are not drawn: branch coverage counts them. Survivors are printed, to be read one by one.
"""

import argparse
import ast
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutations"
CORES = ("planner/lifecycle", "planner/job", "straggler", "device/lease/clock_slot.py", "agent/core", "planning")
LONGEST_S = 600.0

# What may stand for what. An equivalent mutant (a bound that no input reaches) is a survivor that a reader explains.
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is not": "is", "is": "is not"}
COMPARISONS |= {"not in": "in", "in": "not in"}
OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "//": "*",
    "%": "*",
    "**": "*",
    "and": "or",
    "or": "and",
    "|": "&",
    "&": "|",
}

# Imports the copy in place of the installed package.
PLUGIN = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__name__.startswith("ScikitBuild")]
sys.path.insert(0, {copy!r})
"""

# Tells coverage which test runs. Its own ``dynamic_context = test_function`` knows no test of hypothesis.
MAP_PLUGIN = """
import coverage
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    coverage.Coverage.current().switch_context(item.nodeid.partition("[")[0])
    result = yield
    coverage.Coverage.current().switch_context("")
    return result
"""


class Mutation(NamedTuple):
    """One change of one file: the text between two offsets."""

    path: str
    line: int
    begin: int
    end: int
    new: str

    def text(self, source: str) -> str:
        """What it changes, for a reader."""
        whole = source.split("\n")[self.line - 1].strip()
        return f"{self.path}:{self.line}: {source[self.begin : self.end]!r} -> {self.new!r} in {whole}"


def modules() -> list[Path]:
    """The files of the pure cores."""
    paths = [ROOT / "perseus_dist" / core for core in CORES]
    return sorted(file for path in paths for file in ([path] if path.suffix else path.rglob("*.py")))


def mutations_of(path: Path) -> list[Mutation]:
    """All mutations of a file."""
    source = path.read_text()
    starts = [0]
    for line in source.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    if not source.isascii():  # columns of ``ast`` count bytes
        return []
    name = str(path.relative_to(ROOT))
    found: list[Mutation] = []

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column

    def between(left: ast.expr, right: ast.expr, replacements: dict[str, str]) -> None:
        assert left.end_lineno is not None
        assert left.end_col_offset is not None
        begin, end = offset(left.end_lineno, left.end_col_offset), offset(right.lineno, right.col_offset)
        gap = source[begin:end]
        operator = " ".join(gap.strip(" ()\n\t").split())
        if operator in replacements and operator in gap:
            at = begin + gap.index(operator)
            line = source.count("\n", 0, at) + 1
            found.append(Mutation(name, line, at, at + len(operator), replacements[operator]))

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
                between(left, right, COMPARISONS)
        elif isinstance(node, ast.BinOp):
            between(node.left, node.right, OPERATORS)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                between(left, right, OPERATORS)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            begin, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
            new = str(not node.value) if isinstance(node.value, bool) else f"({source[begin:end]} + 1)"
            found.append(Mutation(name, node.lineno, begin, end, new))
    return found


def write_map(tests: Sequence[str]) -> None:
    """Run the default tier's tests of files or folders once and note which of them reach which line."""
    WORK.mkdir(parents=True, exist_ok=True)
    settings = WORK / "coveragerc"
    included = "".join(f"    {path}\n" for path in modules())
    settings.write_text(f"[run]\ndata_file = {WORK / 'coverage'}\ninclude =\n{included}")
    (WORK / "mutations_map.py").write_text(MAP_PLUGIN)
    coverage = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}"]
    plugins = ["-p", "mutations_map", "-p", "no:xdist", "-m", "not stress and not soak", *tests]
    environ = {**os.environ, "PYTHONPATH": str(WORK)}
    subprocess.run([*coverage, "-m", "pytest", *plugins], cwd=ROOT, env=environ, check=True)


def tests_by_line() -> dict[tuple[str, int], list[str]]:
    """The tests (``path::function``) that reach each line, those that reach few lines first: they are quick."""
    from coverage.numbits import numbits_to_nums

    found: dict[tuple[str, int], list[str]] = {}
    num_lines: Counter[str] = Counter()
    with sqlite3.connect(WORK / "coverage") as database:
        query = (
            "select file.path, context.context, line_bits.numbits from line_bits "
            "join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id "
            "where context.context != ''"
        )
        for path, context, bits in database.execute(query):
            for line in numbits_to_nums(bits):
                found.setdefault((str(Path(path).relative_to(ROOT)), line), []).append(context)
                num_lines[context] += 1
    for tests in found.values():
        tests.sort(key=lambda test: (num_lines[test], test))
    return found


def is_noticed(mutation: Mutation, tests: list[str], slot: int) -> bool:
    """Whether one of the tests fails when the mutation is made."""
    copy = WORK / f"copy-{slot}"
    source = (ROOT / mutation.path).read_text()
    target = copy / mutation.path
    target.write_text(source[: mutation.begin] + mutation.new + source[mutation.end :])
    plugins = ["-p", f"mutated_{slot}", "-p", "no:xdist", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", *plugins, *tests],
            cwd=ROOT,
            env={"PYTHONPATH": str(WORK), "PATH": sysconfig.get_path("scripts"), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        target.write_text(source)
    return done.returncode != 0  # more than 1 where a mutated module cannot even be imported


def make_copies(num: int) -> None:
    """One copy of the package, with the compiled solver, for each mutation that is tried at a time."""
    import perseus_dist._solver as solver

    for slot in range(num):
        copy = WORK / f"copy-{slot}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ROOT / "perseus_dist", copy / "perseus_dist", ignore=shutil.ignore_patterns("__pycache__"))
        library = Path(solver.__file__)
        shutil.copy(library, copy / "perseus_dist" / library.name)
        (WORK / f"mutated_{slot}.py").write_text(PLUGIN.format(copy=str(copy)))


def main() -> int:
    """Read the command line; 1 if less than nine tenths are noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--map", action="store_true", help="find out which tests reach which line")
    parser.add_argument("--tests", nargs="+", default=["tests/unit"], help="with --map: these alone, files or folders")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=WORK / "survivors.json")
    args = parser.parse_args()
    if args.map:
        write_map(args.tests)
        return 0
    reach = tests_by_line()
    drawn = [one for path in modules() for one in mutations_of(path) if (one.path, one.line) in reach]
    drawn = random.Random(args.seed).sample(drawn, min(args.count, len(drawn)))
    make_copies(args.processes)
    slots = list(range(args.processes))

    def play(mutation: Mutation) -> bool:
        slot = slots.pop()
        try:
            noticed = is_noticed(mutation, reach[mutation.path, mutation.line], slot)
        finally:
            slots.append(slot)
        text = mutation.text((ROOT / mutation.path).read_text())
        print(f"{'noticed ' if noticed else 'SURVIVES'} {text}", flush=True)
        return noticed

    with ThreadPoolExecutor(args.processes) as pool:
        noticed = list(pool.map(play, drawn))
    survivors = [one for one, seen in zip(drawn, noticed, strict=True) if not seen]
    args.out.write_text(json.dumps([one.text((ROOT / one.path).read_text()) for one in survivors], indent=1) + "\n")
    share = 1 - len(survivors) / max(1, len(drawn))
    print(f"{len(drawn)} mutations, {len(survivors)} survive: {share:.0%} noticed (seed {args.seed})")
    return int(share < 0.9)


if __name__ == "__main__":
    sys.exit(main())
