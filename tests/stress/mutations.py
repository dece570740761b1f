"""Single mutations of the pure cores: how many of them do the tests notice?

    python tests/stress/mutations.py --map        # once: which unit tests reach which line (minutes)
    python tests/stress/mutations.py --count 200  # draw mutations and run the tests that reach each
    python tests/stress/mutations.py --map --add --tests tests/unit/test_new.py
    python tests/stress/mutations.py --again      # that draw's survivors, with the tests written for them

A mutation changes one comparison, one arithmetic or logical operator, or one constant. It is made in a copy of the
package, never in the checkout, and the unit tests that reach its line run against the copy until one fails: the quick
ones first, those that take a minute together. Lines that no unit test reaches are not drawn: branch coverage counts
them. Survivors are printed, to be read one by one; ``--record`` adds the draw to benchmarks/results/mutations.json.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from measuring import RESULTS, commit, record_result  # noqa: E402

WORK = ROOT / "build" / "mutations"
DURATIONS = WORK / "durations.jsonl"  # of every run of a test, in seconds
CORES = ("planner/lifecycle", "planner/job", "straggler", "device/lease/clock_slot.py", "agent/core", "planning")
TESTS_S = 60.0  # what the tests of one mutation take together, as they took when they were mapped
LONGEST_S = 300.0  # then the mutation is in a loop that does not end
DRAWN = ("seed", "date", "commit", "mutations", "noticed", "survive", "noticed [%]")
LATER = ("noticed, with the tests written since", "of these [%]")

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

# Tells coverage which test runs, and notes how long it takes. Coverage's own ``dynamic_context = test_function`` knows
# no test of hypothesis.
MAP_PLUGIN = """
import json
import time

import coverage
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    test = item.nodeid.partition("[")[0]
    coverage.Coverage.current().switch_context(test)
    begin = time.perf_counter()
    result = yield
    with open({durations!r}, "a") as file:
        print(json.dumps([test, time.perf_counter() - begin]), file=file)
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

    def text(self) -> str:
        """What it changes, for a reader."""
        source = (ROOT / self.path).read_text()
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


def write_map(tests: Sequence[str], *, is_added: bool) -> None:
    """Run the default tier's tests of files or folders once and note which of them reach which line, and how long."""
    WORK.mkdir(parents=True, exist_ok=True)
    settings = WORK / "coveragerc"
    included = "".join(f"    {path}\n" for path in modules())
    settings.write_text(f"[run]\ndata_file = {WORK / 'coverage'}\ninclude =\n{included}")
    if not is_added:
        DURATIONS.unlink(missing_ok=True)
    (WORK / "mutations_map.py").write_text(MAP_PLUGIN.format(durations=str(DURATIONS)))
    coverage = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", *["--append"] * is_added]
    plugins = ["-p", "mutations_map", "-p", "no:xdist", "-m", "not stress and not soak", *tests]
    environ = {**os.environ, "PYTHONPATH": str(WORK)}
    subprocess.run([*coverage, "-m", "pytest", *plugins], cwd=ROOT, env=environ, check=True)


def seconds_by_test() -> dict[str, float]:
    """How long each test (``path::function``) took with all its parameters, under coverage."""
    found: dict[str, float] = {}
    for line in DURATIONS.read_text().splitlines():
        test, duration_s = json.loads(line)
        found[test] = found.get(test, 0.0) + duration_s
    return found


def tests_by_line() -> dict[tuple[str, int], list[str]]:
    """The tests that reach each line, quick ones first, as many as take ``TESTS_S`` together, and at least one."""
    from coverage.numbits import numbits_to_nums

    found: dict[tuple[str, int], list[str]] = {}
    with sqlite3.connect(WORK / "coverage") as database:
        query = (
            "select file.path, context.context, line_bits.numbits from line_bits "
            "join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id "
            "where context.context != ''"
        )
        for path, context, bits in database.execute(query):
            for line in numbits_to_nums(bits):
                found.setdefault((str(Path(path).relative_to(ROOT)), line), []).append(context)
    durations_s = seconds_by_test()
    for tests in found.values():
        tests.sort(key=lambda test: (durations_s[test], test))
        ends_s = accumulate(durations_s[test] for test in tests)
        del tests[max(1, sum(end_s <= TESTS_S for end_s in ends_s)) :]
    return found


def run_tests(tests: Sequence[str], slot: int, *options: str, limit_s: float | None = None) -> tuple[bool, set[str]]:
    """Whether tests fail against a copy of the package, and those that do, as pytest names them without parameters."""
    plugins = ["-p", f"mutated_{slot}", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:longest_first"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=no", "-m", "not stress and not soak", *plugins, *options, *tests],
        cwd=ROOT,
        env={"PYTHONPATH": str(WORK), "PATH": sysconfig.get_path("scripts"), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=limit_s,
        check=False,
    )
    failed = set(re.findall(r"^(?:FAILED|ERROR) (tests/[^\s\[]+)", done.stdout, re.MULTILINE))
    return done.returncode != 0, failed  # more than 1 where a mutated module cannot even be imported


def is_noticed(mutation: Mutation, tests: list[str], slot: int) -> tuple[bool, set[str]]:
    """Whether one of the tests fails when the mutation is made, and which."""
    copy = WORK / f"copy-{slot}"
    source = (ROOT / mutation.path).read_text()
    target = copy / mutation.path
    target.write_text(source[: mutation.begin] + mutation.new + source[mutation.end :])
    try:
        return run_tests(tests, slot, "-x", limit_s=LONGEST_S)
    except subprocess.TimeoutExpired:
        return True, set()
    finally:
        target.write_text(source)


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


def play(mutations: Sequence[Mutation], reach: dict[tuple[str, int], list[str]], num_slots: int) -> list[Mutation]:
    """Those that no test notices.

    Raises:
        SystemExit: A test that noticed one fails without any, too.
    """
    make_copies(num_slots)
    slots = list(range(num_slots))
    noticing: set[str] = set()

    def is_seen(mutation: Mutation) -> bool:
        slot = slots.pop()
        try:
            is_seen, failed = is_noticed(mutation, reach[mutation.path, mutation.line], slot)
        finally:
            slots.append(slot)
        noticing.update(failed)
        print(f"{'noticed ' if is_seen else 'SURVIVES'} {mutation.text()} {' '.join(failed)}", flush=True)
        return is_seen

    with ThreadPoolExecutor(num_slots) as pool:
        seen = list(pool.map(is_seen, mutations))
    if noticing and (failed := run_tests(sorted(noticing), 0))[0]:
        raise SystemExit(f"without a mutation these fail, too; mend them and draw again: {' '.join(sorted(failed[1]))}")
    return [mutation for mutation, noticed in zip(mutations, seen, strict=True) if not noticed]


def record(seed: int, cells: dict[str, str]) -> None:
    """Write cells of a seed's row of benchmarks/results/mutations.json; the others of the row stay."""
    columns = (*DRAWN, *LATER)
    rows = {row[0]: row for row in json.loads((RESULTS / "mutations.json").read_text())["rows"]}
    row = dict(zip(columns, rows.get(str(seed), ["-"] * len(columns)), strict=True))
    rows[str(seed)] = list((row | cells).values())
    script = f"python {Path(__file__).relative_to(ROOT)}"
    command = f"{script} --map; {script} --seed SEED --record"
    record_result("mutations", command=command, columns=columns, rows=rows.values())


def percent(num: int, num_all: int) -> str:
    """Of the whole, as text."""
    return f"{100 * num / max(1, num_all):.1f}"


def main() -> int:
    """Read the command line; 1 if less than nine tenths are noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--map", action="store_true", help="find out which tests reach which line")
    parser.add_argument("--tests", nargs="+", default=["tests/unit"], help="with --map: these alone, files or folders")
    parser.add_argument("--add", action="store_true", help="with --map: beside what is mapped already")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="try the seed's survivors alone, with tests mapped since")
    parser.add_argument("--record", action="store_true", help="in benchmarks/results/mutations.json")
    args = parser.parse_args()
    if args.map:
        write_map(args.tests, is_added=args.add)
        return 0
    reach = tests_by_line()
    kept = WORK / f"survivors-{args.seed}.json"
    head = commit()
    if args.again:
        before = json.loads(kept.read_text())
        drawn = [Mutation(*fields) for fields in before["survivors"]]
        if [one.text() for one in drawn] != before["texts"]:
            raise SystemExit("the package has changed since the draw: draw again")
        num_all = before["drawn"]
    else:
        drawn = [one for path in modules() for one in mutations_of(path) if (one.path, one.line) in reach]
        drawn = random.Random(args.seed).sample(drawn, min(args.count, len(drawn)))
        num_all = len(drawn)
    survivors = play(drawn, reach, args.processes)
    num_noticed = num_all - len(survivors)
    cells = dict(zip(LATER, (str(num_noticed), percent(num_noticed, num_all)), strict=True))
    if not args.again:
        texts = [one.text() for one in survivors]
        kept.write_text(json.dumps({"drawn": num_all, "survivors": survivors, "texts": texts}, indent=1) + "\n")
        counts = (str(num_all), str(num_noticed), str(len(survivors)), percent(num_noticed, num_all))
        cells |= dict(zip(DRAWN, (str(args.seed), str(date.today()), head, *counts), strict=True))
    if args.record:
        record(args.seed, cells)
    print(
        f"{num_all} mutations, {len(survivors)} survive: {percent(num_noticed, num_all)} % noticed (seed {args.seed})"
    )
    return int(num_noticed < 0.9 * num_all)


if __name__ == "__main__":
    sys.exit(main())
