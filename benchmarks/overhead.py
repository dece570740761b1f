"""What benchmarks of adapters share: iterations with and without the adapter in turn, and what it adds to an import."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import conditions, print_table, record_result

NUM_STAGES = 2
INSTRUCTION_S = 0.05
NUM_SETTLING = 10  # iterations of half a second, until agents have started, or ended
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={NUM_STAGES}")
MEGATRON = Path(__file__).resolve().parents[1] / "build" / "megatron" / "0.16.1"

OVERHEAD_LIMIT_PERCENT = 0.5
IMPORT_LIMIT_MS = 20
_NUM_STARTS = 15
_COLUMNS = ("iterations", "number", "median [ms]", "mean [ms]", "longer, of blocks side by side [%]")

Times = dict[str, list[float]]
"""Seconds of each iteration, ``without`` the adapter and ``with`` it."""


def sleeping() -> Callable[[Any], Any]:
    """A function of a tensor that takes ``INSTRUCTION_S`` forward, and as long backward, and changes nothing."""
    import torch

    class Sleep(torch.autograd.Function):  # type: ignore[misc] # torch is Any
        @staticmethod
        def forward(context: Any, x: Any) -> Any:  # noqa: ARG004
            time.sleep(INSTRUCTION_S)
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:  # noqa: ARG004
            time.sleep(INSTRUCTION_S)
            return gradient

    sleep: Callable[[Any], Any] = Sleep.apply
    return sleep


def measure(
    description: str,
    file: str,
    launcher: Sequence[str],
    be_rank: Callable[[int, int], Times],
    *,
    environment: Mapping[str, str] | None = None,
    activation: str = "",
) -> None:
    """Run a benchmark as it was asked for on the command line: start its job, or be one of the job's ranks.

    Args:
        description: Of the benchmark.
        file: The benchmark's own, which the job's ranks run, too.
        launcher: What goes before it on the command line of the job.
        be_rank: Takes the number of blocks, and of iterations in each; times the rank's iterations.
        environment: Variables of the job, beside those that are there.
        activation: Statement whose import time is measured, too; empty for none.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12, help="blocks of iterations of each sort")
    parser.add_argument("--iterations", type=int, default=10, help="iterations in a block")
    parser.add_argument("--record", action="store_true", help="write the table that the documentation shows")
    parser.add_argument("--figures", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.figures is not None:
        times_s = be_rank(args.blocks, args.iterations)
        if os.environ["RANK"] == "0":
            args.figures.write_text(json.dumps(times_s))
        os._exit(0)  # gloo's threads may abort an interpreter that ends
    print(f"{conditions()}\n")
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        command = [*launcher, file, "--figures", str(figures)]
        command += ["--blocks", str(args.blocks), "--iterations", str(args.iterations)]
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        )
        times_s = json.loads(figures.read_text())
    rows, percent = _rows(times_s, args.blocks)
    print_table(_COLUMNS, rows)
    print(f"\nIterations are {percent:.2f} % longer, {_verdict(percent, OVERHEAD_LIMIT_PERCENT)} %.")
    if args.record:
        name = Path(file).stem
        record_result(name, command=f"python benchmarks/{name}.py --record", columns=_COLUMNS, rows=rows)
    if activation:
        print()
        print_import(activation)


def with_path(*folders: Path) -> dict[str, str]:
    """Variables by which Python finds what lies in these folders first."""
    for folder in folders:
        if not folder.is_dir():
            sys.exit(f"{folder} is not there: ./launch/test --stress installs it")
    path = os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}


def time_in_turn(
    iterate: Callable[[], object],
    barrier: Callable[[], object],
    switch: Mapping[str, Callable[[], object]],
    *,
    num_blocks: int,
    num_iterations: int,
) -> Times:
    """Time iterations on one rank, block by block.

    Args:
        iterate: An iteration.
        barrier: After it all ranks begin together.
        switch: What begins a block ``without`` and ``with``.
        num_blocks: Of each sort.
        num_iterations: In each of them, behind those in which agents start or end.
    """
    times_s: Times = {name: [] for name in switch}
    iterate()
    for _ in range(num_blocks):
        for name, begin_block in switch.items():
            begin_block()
            for _ in range(NUM_SETTLING):
                iterate()
            for _ in range(num_iterations):
                barrier()
                begin_s = time.perf_counter()
                iterate()
                times_s[name].append(time.perf_counter() - begin_s)
    return times_s


def _rows(times_s: Times, num_blocks: int) -> tuple[list[list[str]], float]:
    """The table, and [%] by how much iterations are longer with the adapter, of which the table has the standard error.

    A machine is not as fast in one minute as in the next: each block is compared with the one beside it.
    """
    without_s, with_s = (
        [statistics.median(block) for block in _blocks(times_s[name], num_blocks)] for name in ("without", "with")
    )
    percents = [100 * (with_it / without - 1) for without, with_it in zip(without_s, with_s, strict=True)]
    percent = statistics.mean(percents)
    error = statistics.stdev(percents) / num_blocks**0.5 if num_blocks > 1 else math.nan
    rows = [
        [name, str(len(times)), f"{1e3 * statistics.median(times):.2f}", f"{1e3 * statistics.mean(times):.2f}", longer]
        for name, times, longer in (
            ("without the adapter", times_s["without"], ""),
            ("with it", times_s["with"], f"{percent:.2f} ± {error:.2f}"),
        )
    ]
    return rows, percent


def _blocks(times_s: Sequence[float], num_blocks: int) -> list[Sequence[float]]:
    size = len(times_s) // num_blocks
    return [times_s[begin : begin + size] for begin in range(0, len(times_s), size)]


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
