"""Histories of replicas in virtual time are drawn and played by the hundred; what they acknowledged is checked.

    python tests/stress/replica_histories.py [--seeds 0-999] [--processes 2]

The same checks as ``replica_kills.py`` makes of processes; ``tests/support/replica_history.py`` says what is drawn.

Prints the breaches with their seeds and a table, and exits with 1 if there is a breach.
"""

import argparse
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "benchmarks")]

from measuring import conditions, print_table  # noqa: E402
from replica_history import Played, play  # noqa: E402


def campaign(seeds: range, num_processes: int) -> bool:
    """Play the histories and print the table; whether everything held."""
    told, began_s = conditions(), time.monotonic()
    counts: Counter[str] = Counter()
    recoveries_s: list[float] = []
    num_broken = 0
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        for seed, played in zip(seeds, pool.map(_played, seeds), strict=True):
            counts.update(played.counts)
            recoveries_s.append(played.recovery_s)
            num_broken += bool(played.breaches)
            for breach in played.breaches:
                print(f"seed {seed}: {breach}", flush=True)
            if (seed - seeds.start + 1) % 100 == 0:
                print(f"{seed - seeds.start + 1}/{len(seeds)} histories, {num_broken} broken", flush=True)
    print(told)
    took_s = time.monotonic() - began_s
    rows = [["histories", f"{len(seeds):,}"], *([name, f"{number:,}"] for name, number in sorted(counts.items()))]
    text = f"{statistics.median(recoveries_s):.1f} s, {max(recoveries_s):.1f} s"
    rows += [
        ["from the last strike until each job has an owner and each rank its switch, median and the longest", text]
    ]
    rows += [["histories a core and hour", f"{len(seeds) / took_s / num_processes * 3600:,.0f}"]]
    print_table(("what", "number"), [*rows, ["histories with an acknowledgement that did not hold", str(num_broken)]])
    return not num_broken


def _played(seed: int) -> Played:
    played = play(seed)
    played.lines.clear()
    return played


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-999", metavar="FIRST-LAST")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    return 0 if campaign(range(int(first), int(last or first) + 1), args.processes) else 1


if __name__ == "__main__":
    sys.exit(main())
