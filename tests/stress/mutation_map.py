"""Which of the default tier's tests reach which line of the pure cores, and how long they take."""

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from mutation_draw import ROOT, modules

WORK = Path(os.environ.get("PERSEUS_MUTATIONS", ROOT / "build" / "mutations"))  # a folder for each of several plays
DURATIONS = WORK / "durations.jsonl"  # of every run of a test, in seconds
TESTS_S = 4.0  # what tests of one mutation take together, as they took when they were mapped
LONGEST_TEST_S = 8.0  # likewise; longer ones are not run

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

Reach = dict[tuple[str, int], list[str]]
"""By file and line, the tests that reach it."""


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


def tests_by_line(durations_s: dict[str, float], *, is_again: bool, files: Sequence[str]) -> Reach:
    """The tests that reach each line: those that reach few lines, then quick ones, each as many as take ``TESTS_S``.

    Args:
        durations_s: Of each test.
        is_again: All of them, the quick ones first.
        files: Likewise, but those of these files alone, unless there are none.
    """
    from coverage.numbits import numbits_to_nums

    found: Reach = {}
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
    if is_again:
        named = {test for test in durations_s if not files or test.partition("::")[0] in files}
        return {line: sorted(named & {*tests}, key=lambda test: durations_s[test]) for line, tests in found.items()}
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
