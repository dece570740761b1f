"""Single mutations of the pure cores: how many of them do the tests notice?

    python tests/stress/mutations.py --map        # once: which tests reach which line (minutes)
    python tests/stress/mutations.py --count 200  # draw mutations and run the tests that reach each
    python tests/stress/mutations.py --map --add --tests tests/unit/test_new.py
    python tests/stress/mutations.py --again  # that draw's survivors, by all tests that reach them
    python tests/stress/mutations.py --again --tests tests/unit/test_new.py  # and by new tests

A mutation changes one comparison, one arithmetic or logical operator, or one constant in the body of a function. The
default tier's unit tests and oracles are collected once; for each mutation a process is forked from there, which gives
the functions of the file their changed code, in memory alone, and runs tests that reach the line until one fails: those
that reach few lines, and then the quick ones, each as many as take four seconds together. Lines that none of these of a
few seconds reaches are not drawn: branch coverage counts them. Survivors are printed, to be read one by one;
``--record`` adds the draw to benchmarks/results/mutations.json.
"""

import argparse
import contextlib
import json
import math
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Sequence
from datetime import date
from itertools import islice

import pytest
from mutation_draw import ROOT, Mutation, change_functions, functions_of, is_in_function, modules, mutations_of
from mutation_map import WORK, Reach, seconds_by_test, tests_by_line, write_map

sys.path.insert(0, str(ROOT / "benchmarks"))

from measuring import RESULTS, commit, record_result

LONGEST_S, LONGEST_CPU_S = 120.0, 30  # at least; then the mutation is in a loop that does not end
TIMES_AS_LONG = 4  # as the tests took when they were mapped, likewise
_BROKEN, _NONE = "not played:", "none"
_ENDED, _TIME = "end of the process", "time"  # in place of a test that fails
DRAWN = ("seed", "date", "commit", "mutations", "noticed", "survive", "noticed [%]")
LATER = ("noticed, with the tests written since", "of these [%]")


class Player:
    """A plugin of pytest that, in place of the tests, plays mutations, each with the tests that reach it.

    Attributes:
        survivors: Those that no test notices, but for tests that fail without a mutation, too.
        num_played: Mutations that there was time for.
    """

    def __init__(
        self, mutations: Sequence[Mutation], reach: Reach, durations_s: dict[str, float], limit_s: float
    ) -> None:
        self._mutations, self._reach, self._durations_s = list(mutations), reach, durations_s
        self._ends_s = time.monotonic() + limit_s
        self._failed: list[str] = []
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
            fail_always = {
                test for test in {*noticed_by.values()} - {"", _ENDED, _TIME} if self._first_failure([test], None)
            }
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
        usual_s = TIMES_AS_LONG * sum(self._durations_s[test] for test in tests)
        child = os.fork()
        if child == 0:
            os.setsid()
            longest_s = math.ceil(max(LONGEST_CPU_S, usual_s))
            resource.setrlimit(resource.RLIMIT_CPU, (longest_s, longest_s))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            try:
                answer = self._play(tests, mutation) or _NONE
            except Exception as error:
                answer = f"{_BROKEN} {error!r}"
            except BaseException:
                answer = _ENDED
            os.write(writing, answer.encode())
            os._exit(0)
        os.close(writing)
        ended, _, _ = select.select([reading], [], [], max(LONGEST_S, usual_s))
        answer = (os.read(reading, 1000).decode() or _ENDED) if ended else _TIME
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
    script = f"python {'tests/stress/mutations.py'}"
    command = f"{script} --map; {script} --seed SEED --record"
    record_result("mutations", command=command, columns=columns, rows=rows.values())


def percent(num: int, num_all: int) -> str:
    """Of the whole, as text."""
    return f"{100 * num / max(1, num_all):.1f}"


def main() -> int:
    """Read the command line; 1 if less than nine tenths are noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--map", action="store_true", help="find out which tests reach which line")
    folders = ["tests/unit", "tests/oracles"]
    parser.add_argument("--tests", nargs="+", default=folders, help="these alone: folders or, with --again, files")
    parser.add_argument("--add", action="store_true", help="with --map: beside what is mapped already")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit-s", type=float, default=math.inf, help="then play no more of them: the first are drawn"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="draw of files alone whose path contains this")
    parser.add_argument("--again", action="store_true", help="try the seed's survivors alone, by all tests")
    parser.add_argument("--record", action="store_true", help="in benchmarks/results/mutations.json")
    args = parser.parse_args()
    if args.map:
        write_map(args.tests, is_added=args.add)
        return 0
    durations_s = seconds_by_test()
    files = [one for one in args.tests if one.endswith(".py")]
    reach = tests_by_line(durations_s, is_again=args.again, files=files)
    kept = WORK / f"survivors-{args.seed}.json"
    head = commit()
    if args.again:
        before = json.loads(kept.read_text())
        drawn = [Mutation(*fields) for fields in before["survivors"]]
        if [one.text() for one in drawn] != before["texts"]:
            raise SystemExit("the package has changed since the draw: draw again")
        num_all = before["drawn"]
    else:
        paths = [path for path in modules() if args.only in str(path.relative_to(ROOT))]
        drawn = [one for path in paths for one in mutations_of(path) if (one.path, one.line) in reach]
        random.Random(args.seed).shuffle(drawn)
        drawn = list(islice(filter(is_in_function, drawn), args.count))
        num_all = 0
    player = Player(drawn, reach, durations_s, args.limit_s)
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
