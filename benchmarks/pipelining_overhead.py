"""What the adapter costs a torch.distributed.pipelining job: iteration time with and without it, side by side.

``python benchmarks/pipelining_overhead.py --record`` starts two stages in torch's ``Schedule1F1B``. Their forwards and
backwards sleep for 50 ms each, so that nothing but the host's own work can make iterations longer. Both ranks go with
and without the adapter in turn, agents included, block by block.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import conditions
from overhead import print_overhead, record_overhead, time_in_turn

_INSTRUCTION_S = 0.05
_NUM_MICROBATCHES = 4
_NUM_STAGES = 2
_NUM_SETTLING = 10  # iterations of half a second, until agents have started, or ended
_SIZE = 8


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=4, help="blocks of iterations of each sort")
    parser.add_argument("--iterations", type=int, default=15, help="iterations in a block")
    parser.add_argument("--record", action="store_true", help="write the table that the documentation shows")
    parser.add_argument("--figures", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.figures is not None:
        _be_rank(args.blocks, args.iterations, args.figures)
        return
    print(f"{conditions()}\n")
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={_NUM_STAGES}"]
        command += [__file__, "--figures", str(figures)]
        command += ["--blocks", str(args.blocks), "--iterations", str(args.iterations)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        times_s = json.loads(figures.read_text())
    print_overhead(times_s)
    if args.record:
        record_overhead("pipelining_overhead", times_s)


def _be_rank(num_blocks: int, num_iterations: int, figures: Path) -> None:
    """One rank of the job; rank 0 writes what it measured."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    import perseus_dist.pipelining

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = PipelineStage(_make_layer(), rank, _NUM_STAGES, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=_NUM_MICROBATCHES, loss_fn=torch.nn.MSELoss())
    batch = torch.ones(_NUM_MICROBATCHES, _SIZE)

    def iterate() -> None:
        schedule.step(*([batch] if rank == 0 else []), **({"target": batch} if rank == _NUM_STAGES - 1 else {}))

    times_s = time_in_turn(
        iterate,
        dist.barrier,
        {
            "without": lambda: perseus_dist.pipelining.detach(schedule),
            "with": lambda: perseus_dist.pipelining.attach(schedule),
        },
        num_blocks=num_blocks,
        num_settling=_NUM_SETTLING,
        num_iterations=num_iterations,
    )
    perseus_dist.pipelining.detach(schedule)
    if rank == 0:
        figures.write_text(json.dumps(times_s))
    dist.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends


def _make_layer() -> Any:
    import torch

    class Sleep(torch.autograd.Function):  # type: ignore[misc] # torch is Any
        @staticmethod
        def forward(context: Any, x: Any) -> Any:  # noqa: ARG004
            time.sleep(_INSTRUCTION_S)
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:  # noqa: ARG004
            time.sleep(_INSTRUCTION_S)
            return gradient

    class Layer(torch.nn.Module):  # type: ignore[misc] # torch is Any
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(_SIZE, _SIZE)

        def forward(self, x: Any) -> Any:
            return Sleep.apply(self.linear(x))

    return Layer()


if __name__ == "__main__":
    main()
