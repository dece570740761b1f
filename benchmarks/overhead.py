"""What benchmarks of adapters share: iterations with and without the adapter in turn, and what it adds to an import."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from measuring import print_table, record_result

OVERHEAD_LIMIT_PERCENT = 0.5
IMPORT_LIMIT_MS = 20
_NUM_STARTS = 15
_COLUMNS = ("iterations", "number", "median [ms]", "mean [ms]")

Times = dict[str, list[float]]
"""Seconds of each iteration, ``without`` the adapter and ``with`` it."""


def time_in_turn(
    iterate: Callable[[], object],
    barrier: Callable[[], object],
    switch: Mapping[str, Callable[[], object]],
    *,
    num_blocks: int,
    num_settling: int,
    num_iterations: int,
) -> Times:
    """Time iterations on one rank, block by block.

    Args:
        iterate: An iteration.
        barrier: After it all ranks begin together.
        switch: What begins a block ``without`` and ``with``.
        num_blocks: Of each sort.
        num_settling: Iterations at the beginning of a block, until agents have started or ended.
        num_iterations: Iterations after those.
    """
    times_s: Times = {name: [] for name in switch}
    iterate()
    for _ in range(num_blocks):
        for name, begin_block in switch.items():
            begin_block()
            for _ in range(num_settling):
                iterate()
            for _ in range(num_iterations):
                barrier()
                begin_s = time.perf_counter()
                iterate()
                times_s[name].append(time.perf_counter() - begin_s)
    return times_s


def print_overhead(times_s: Times) -> None:
    """Print both sorts of iterations and by how much they differ."""
    print_table(_COLUMNS, _rows(times_s))
    percent = 100 * (statistics.median(times_s["with"]) / statistics.median(times_s["without"]) - 1)
    print(f"\nThe median iteration is {percent:.2f} % longer, {_verdict(percent, OVERHEAD_LIMIT_PERCENT)} %.")


def record_overhead(name: str, times_s: Times) -> None:
    """Write the same table for the documentation, under this name."""
    record_result(name, command=f"python benchmarks/{name}.py --record", columns=_COLUMNS, rows=_rows(times_s))


def _rows(times_s: Times) -> list[list[str]]:
    return [
        [name, str(len(times)), f"{1e3 * statistics.median(times):.2f}", f"{1e3 * statistics.mean(times):.2f}"]
        for name, times in (("without the adapter", times_s["without"]), ("with it", times_s["with"]))
    ]


def print_import(activation: str) -> None:
    """Print what a statement adds to the start of a Python process that then imports nothing else."""
    times_ms: dict[str, list[float]] = {"pass": [], activation: []}
    for _ in range(_NUM_STARTS):
        for program, times in times_ms.items():
            begin_s = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            times.append(1e3 * (time.perf_counter() - begin_s))
    without_ms, with_ms = (statistics.median(times) for times in times_ms.values())
    print_table(
        ["a process that imports", "median [ms]"],
        [["nothing", f"{without_ms:.1f}"], ["activation", f"{with_ms:.1f}"]],
    )
    added_ms = with_ms - without_ms
    print(f"\nActivation takes {added_ms:.1f} ms, {_verdict(added_ms, IMPORT_LIMIT_MS)} ms.")


def _verdict(value: float, limit: float) -> str:
    return f"{'within' if value <= limit else 'BEYOND'} {limit:g}"
