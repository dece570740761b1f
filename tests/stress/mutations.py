"""Single mutations of the pure cores: how many of them do the tests notice?

    python tests/stress/mutations.py --map        # once: which unit tests reach which line (minutes)
    python tests/stress/mutations.py --count 200  # draw mutations and run the tests that reach each
    python tests/stress/mutations.py --map --add --tests tests/unit/test_new.py
    python tests/stress/mutations.py --again --tests tests/unit/test_new.py  # that draw's survivors, by new tests

A mutation changes one comparison, one arithmetic or logical operator, or one constant in the body of a function. The
unit tests are collected once; for each mutation a process is forked from there, which gives the functions of the file
their changed code, in memory alone, and runs tests that reach the line until one fails: those that reach few lines, and
then the quick ones, each as many as take four seconds together. Lines that no unit test of a few seconds reaches are
not drawn: branch coverage counts them. Survivors are printed, to be read one by one; ``--record`` adds the draw to
benchmarks/results/mutations.json.
"""

import argparse
import ast
import contextlib
import gc
import importlib
import json
import math
import os
import random
import resource
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date
from functools import cache
from inspect import CO_OPTIMIZED
from itertools import accumulate, islice
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from measuring import RESULTS, commit, record_result  # noqa: E402

WORK = ROOT / "build" / "mutations"
DURATIONS = WORK / "durations.jsonl"  # of every run of a test, in seconds
CORES = ("planner/lifecycle", "planner/job", "straggler", "device/lease/clock_slot.py", "agent/core", "planning")
TESTS_S = 4.0  # what tests of one mutation take together, as they took when they were mapped
LONGEST_TEST_S = 8.0  # likewise; longer ones are not run
LONGEST_S, LONGEST_CPU_S = 120.0, 30  # then the mutation is in a loop that does not end
_BROKEN, _NONE = "not played:", "none"
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

    def changed(self, source: str) -> str:
        """The file with the change."""
        return source[: self.begin] + self.new + source[self.end :]

    def text(self) -> str:
        """What it changes, for a reader."""
        source = source_of(self.path)
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


def tests_by_line(files: Sequence[str]) -> dict[tuple[str, int], list[str]]:
    """The tests that reach each line: those that reach few lines, then quick ones, each as many as take ``TESTS_S``.

    With files, all tests of these alone.
    """
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
    durations_s = seconds_by_test()
    if files:
        return {line: [test for test in tests if test.partition("::")[0] in files] for line, tests in found.items()}
    found = {line: [test for test in tests if durations_s[test] <= LONGEST_TEST_S] for line, tests in found.items()}
    found = {line: tests for line, tests in found.items() if tests}
    for tests in found.values():
        near = _first_of(sorted(tests, key=lambda test: (num_lines[test], test)), durations_s)
        others = sorted(set(tests) - set(near), key=lambda test: (durations_s[test], test))
        tests[:] = [*near, *_first_of(others, durations_s)]
    return found


def _first_of(tests: Sequence[str], durations_s: dict[str, float]) -> list[str]:
    """As many as take ``TESTS_S`` together, and at least one."""
    ends_s = accumulate(durations_s[test] for test in tests)
    return list(tests[: max(1, sum(end_s <= TESTS_S for end_s in ends_s))])


@cache
def source_of(path: str) -> str:
    """A file as it was when mutations were drawn."""
    return (ROOT / path).read_text()


def is_in_function(mutation: Mutation) -> bool:
    """Whether it is in the body of a function, and changes its code."""
    source = source_of(mutation.path)
    return _functions(source) != _functions(mutation.changed(source))


def _functions(source: str, path: str = "") -> dict[tuple[str, int], CodeType]:
    """The code of all functions of a module, by name and first line."""
    found: dict[tuple[str, int], CodeType] = {}
    open_codes = [compile(source, path, "exec", dont_inherit=True)]
    while open_codes:
        inner = [one for one in open_codes.pop().co_consts if isinstance(one, CodeType)]
        found |= {(one.co_qualname, one.co_firstlineno): one for one in inner if one.co_flags & CO_OPTIMIZED}
        open_codes += inner
    return found


def functions_of(mutations: Sequence[Mutation]) -> list[FunctionType]:
    """All functions of the modules that mutations change, as they are in this process."""
    paths = {mutation.path for mutation in mutations}
    for path in paths:
        importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    names = {str(ROOT / path) for path in paths}
    gc.unfreeze()  # or they would not be found
    found = [one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__code__.co_filename in names]
    gc.freeze()
    return found


def change_functions(mutation: Mutation, functions: Sequence[FunctionType]) -> None:
    """Give functions their changed code.

    Raises:
        LookupError: None of them is there.
    """
    path = ROOT / mutation.path
    num_changed = 0
    changed = _functions(mutation.changed(source_of(mutation.path)), str(path))
    for one in functions:
        if one.__code__.co_filename == str(path):
            code = changed.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
            if code is not None and code != one.__code__:
                one.__code__ = code
                num_changed += 1
    if not num_changed:
        raise LookupError(f"saw no function to change for {mutation.text()}")


class Player:
    """A plugin of pytest that, in place of the tests, plays mutations, each with the tests that reach it.

    Attributes:
        survivors: Those that no test notices, but for tests that fail without a mutation, too.
        num_played: Mutations that there was time for.
    """

    def __init__(self, mutations: Sequence[Mutation], reach: dict[tuple[str, int], list[str]], limit_s: float) -> None:
        self._mutations, self._reach = list(mutations), reach
        self._ends_s = time.monotonic() + limit_s
        self._failed: list[str] = []
        self._functions: list[FunctionType] = []
        self._items: dict[str, list[pytest.Item]] = {}
        self.survivors: list[Mutation] = []
        self.num_played = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take note of a failure."""
        if report.failed:
            self._failed.append(report.nodeid.partition("[")[0])

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Play all."""
        for item in session.items:
            self._items.setdefault(item.nodeid.partition("[")[0], []).append(item)
        self._functions = functions_of(self._mutations)
        noticed_by: dict[Mutation, str] = {}
        unusable: set[str] = set()
        again = list(self._mutations)
        while again:
            for mutation in again:
                if time.monotonic() > self._ends_s and mutation not in noticed_by:
                    break
                tests = [test for test in self._reach[mutation.path, mutation.line] if test not in unusable]
                noticed_by[mutation] = self._first_failure(tests, mutation)
                verdict = f"noticed  {mutation.text()} by" if noticed_by[mutation] else f"SURVIVES {mutation.text()}"
                print(f"{verdict} {noticed_by[mutation]}", flush=True)
            self._mutations = list(noticed_by)
            fail_always = {test for test in {*noticed_by.values()} - {""} if self._first_failure([test], None)}
            unusable |= fail_always
            again = [mutation for mutation in self._mutations if noticed_by[mutation] in fail_always]
            if fail_always:
                print(f"fail without a mutation, too: {' '.join(sorted(fail_always))}; {len(again)} once more")
        self.num_played = len(self._mutations)
        self.survivors = [mutation for mutation in self._mutations if not noticed_by[mutation]]
        return True

    def _first_failure(self, tests: Sequence[str], mutation: Mutation | None) -> str:
        """The first test that fails in a process of its own, or how it ended; empty if none fails."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_CPU_S, LONGEST_CPU_S))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            try:
                answer = self._play(tests, mutation) or _NONE
            except Exception as error:
                answer = f"{_BROKEN} {error!r}"
            except BaseException:
                answer = "end of the process"
            os.write(writing, answer.encode())
            os._exit(0)
        os.close(writing)
        ended, _, _ = select.select([reading], [], [], LONGEST_S)
        answer = (os.read(reading, 1000).decode() or "end of the process") if ended else "time"
        with contextlib.suppress(ProcessLookupError):  # and what its tests have started
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        if answer.startswith(_BROKEN):
            raise RuntimeError(answer)
        return "" if answer == _NONE else answer

    def _play(self, tests: Sequence[str], mutation: Mutation | None) -> str:
        if mutation is not None:
            change_functions(mutation, self._functions)
        items = [item for test in tests for item in self._items.get(test, [])]
        if not items:
            return ""
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return self._failed[0]
        return ""


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
    parser.add_argument(
        "--tests", nargs="+", default=["tests/unit"], help="these alone: folders or, with --again, files"
    )
    parser.add_argument("--add", action="store_true", help="with --map: beside what is mapped already")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit-s", type=float, default=math.inf, help="then play no more of them: the first are drawn"
    )
    parser.add_argument("--again", action="store_true", help="try the seed's survivors alone, with tests mapped since")
    parser.add_argument("--record", action="store_true", help="in benchmarks/results/mutations.json")
    args = parser.parse_args()
    if args.map:
        write_map(args.tests, is_added=args.add)
        return 0
    reach = tests_by_line([one for one in args.tests if one.endswith(".py")] if args.again else ())
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
        random.Random(args.seed).shuffle(drawn)
        drawn = list(islice(filter(is_in_function, drawn), args.count))
        num_all = 0
    player = Player(drawn, reach, args.limit_s)
    quiet = ["-q", "-s", "--no-header", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:longest_first"]
    pytest.main([*quiet, "-m", "not stress and not soak", *args.tests], plugins=[player])
    survivors = player.survivors
    num_all = num_all or player.num_played
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
