"""Malformed input for every argument and every file: all of it is refused with exit 2 and one line, nothing written.

    python tests/stress/malformed_input.py --count 10000 --seed 0

prints what was refused and what was taken by kind, and every input that did neither as it should; exit 1 if any did.
SIGTERM ends it early, with what was tried until then.
"""

import argparse
import signal
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from malformed.judge import Tally, cases, judge, workplace


def main() -> int:
    """Draw, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="generators whose name has this in it")
    args = parser.parse_args()
    warnings.simplefilter("error")  # a warning would be a second line
    is_stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: is_stopped.append(number))
    tally, began_s = Tally(), time.perf_counter()
    with TemporaryDirectory() as folder, workplace(Path(folder)) as generators:
        chosen = {name: draw for name, draw in generators.items() if args.only in name}
        for case in cases(chosen, args.seed, args.count):
            judge(case, Path(folder), tally)
            if is_stopped:
                break
    for fault in tally.faults:
        print(fault)
    for name, counted in (("refused", tally.refused), ("taken, as it may be", tally.taken)):
        print(f"{name}: {counted.total()}")
        for kind, number in sorted(counted.items()):
            print(f"  {number:6} {kind}")
    print(
        f"{len(tally.faults)} faults; {time.perf_counter() - began_s:.0f} s; slowest {tally.slowest_s:.2f} s, "
        f"memory grew by at most {tally.grown_mib:.0f} MiB"
    )
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
