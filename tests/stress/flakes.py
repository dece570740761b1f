"""Repeats the default tier on a busy machine and counts which tests fail.

Eight processes that compute without end run beside it on the same two cores, SIGINT is ignored as it is under
nohup and in the background of many CI runners, and no process has a better scheduling class than any other.
``--threads`` has threads run in an order that finds races sooner: ``early``, as soon as they are started, ``late``,
long after that, or ``torn``, a few instructions each (``tests/support/thread_order.py``).
Arguments after ``--`` go to pytest. Every round's output is in ``build/flakes``, failures as they come; ``--record``
adds each round to ``benchmarks/results/flakes.json`` as the last one ends, since a test holds the docs against results.
"""

import argparse
import collections
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "benchmarks")]

from measuring import append_result  # noqa: E402
from thread_order import ORDERS, VARIABLE  # noqa: E402

LOGS = ROOT / "build" / "flakes"
NUM_CORES = 2
NUM_WORKERS = 6  # as launch/test
COLUMNS = ("date", "commit", "busy processes", "order of threads", "passed", "failed", "time [min]", "of these")


def main() -> int:
    """Read the command line; 1 if a test failed in any round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--busy", type=int, default=8, help="processes that compute beside the tests (default: 8)")
    parser.add_argument("--threads", choices=ORDERS, help="the order in which threads run (default: as they come)")
    parser.add_argument("--record", action="store_true", help="add the rounds to benchmarks/results/flakes.json")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    args = parser.parse_args()
    if args.rounds < 1 or args.busy < 0:
        parser.error("give one round or more, and no fewer busy processes than none")
    if args.threads is not None:
        os.environ[VARIABLE] = args.threads
    LOGS.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:NUM_CORES])
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # SIGTERM ends this

    failures: collections.Counter[str] = collections.Counter()
    rows: list[tuple[str, ...]] = []
    with ExitStack() as stack:
        stack.callback(record, rows)
        for _ in range(args.busy):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        for number in range(1, args.rounds + 1):
            began_s = time.monotonic()
            num_passed, failed = play(number, args.pytest)
            failures.update(failed)
            minutes = f"{(time.monotonic() - began_s) / 60:.1f}"
            print(f"round {number}: {num_passed} passed, {len(failed)} failed, {minutes} min", flush=True)
            for name in failed:
                print(f"  {name}", flush=True)
            if args.record:
                order = args.threads or "as they come"
                found = (f"{num_passed:,}", str(len(failed)), minutes, ", ".join(failed) or "-")
                rows.append((str(args.busy), order, *found))
    for name, count in failures.most_common():
        print(f"{count} of {args.rounds}: {name}")
    print(f"{args.rounds} rounds beside {args.busy} busy processes: {sum(failures.values())} failures")
    return int(bool(failures))


def record(rows: list[tuple[str, ...]]) -> None:
    """Add rounds to the results, and to the page that shows them: the next round's tests compare the two."""
    for row in rows:
        append_result("flakes", command="./launch/flakes --record", columns=COLUMNS, row=row)
    if rows:
        subprocess.run([sys.executable, "docs/tools/tables.py"], cwd=ROOT, check=True)


def play(number: int, arguments: list[str]) -> tuple[int, list[str]]:
    """Play one round and return how many tests passed in it, and the names of those that failed."""
    result = LOGS / f"{number}.xml"
    result.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "not stress and not soak",
        "-n",
        str(NUM_WORKERS),
        "--dist",
        "loadfile",
        "--instafail",
        *arguments,
    ]
    with (LOGS / f"{number}.log").open("w") as log:
        done = subprocess.run([*command, f"--junit-xml={result}"], cwd=ROOT, stdout=log, stderr=log, check=False)
    cases = list(ET.parse(result).getroot().iter("testcase")) if result.exists() else []
    if done.returncode not in (0, 1) or not cases:
        return 0, [f"pytest itself (exit {done.returncode}; {log.name})"]
    ended = {of: [case for case in cases if case.find(of) is not None] for of in ("failure", "error", "skipped")}
    failed = {f"{case.get('classname')}::{case.get('name')}": None for case in ended["failure"] + ended["error"]}
    return len(cases) - len(failed) - len(ended["skipped"]), list(failed)


if __name__ == "__main__":
    sys.exit(main())
