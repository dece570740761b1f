"""What the adapter costs a DeepSpeed job: iteration time with and without it, side by side in one run; and its import.

``python benchmarks/deepspeed_overhead.py`` starts a job of two pipeline stages with the ``deepspeed`` launcher. Its
forwards and backwards sleep for 50 ms each, so that nothing but the host's own work can make iterations longer. Both
ranks go with and without the adapter in turn, agents included, block by block. The import is what activation adds to
the start of a Python process that then imports nothing else.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import conditions
from overhead import print_import, print_overhead, time_in_turn

_INSTRUCTION_S = 0.05
_NUM_MICROBATCHES = 4
_NUM_SETTLING = 10  # iterations of half a second, until agents have started, or ended
_ACTIVATION = "from perseus_dist.deepspeed.activation import activate; activate('e30=')"  # no option said


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=4, help="blocks of iterations of each sort")
    parser.add_argument("--iterations", type=int, default=15, help="iterations in a block")
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--figures", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.figures is not None:
        _be_rank(args.blocks, args.iterations, args.figures)
        return
    print(f"{conditions()}\n")
    _print_overhead(args.blocks, args.iterations)
    print()
    print_import(_ACTIVATION)


def _print_overhead(num_blocks: int, num_iterations: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        launcher = Path(sys.executable).with_name("deepspeed")
        command = [str(launcher), "--num_gpus", "2", __file__, "--figures", str(figures)]
        command += ["--blocks", str(num_blocks), "--iterations", str(num_iterations)]
        environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        print_overhead(json.loads(figures.read_text()))


def _be_rank(num_blocks: int, num_iterations: int, figures: Path) -> None:
    """One rank of the job; rank 0 writes what it measured."""
    import deepspeed
    import deepspeed.ops
    import torch

    from perseus_dist.deepspeed import attach, detach

    torch.set_num_threads(1)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiled for a minute, and never called here
    deepspeed.init_distributed()
    engine = _make_engine()
    data = _batches()
    times_s = time_in_turn(
        lambda: engine.train_batch(data),
        torch.distributed.barrier,
        {"without": lambda: detach(engine), "with": lambda: attach(engine)},
        num_blocks=num_blocks,
        num_settling=_NUM_SETTLING,
        num_iterations=num_iterations,
    )
    detach(engine)
    if torch.distributed.get_rank() == 0:
        figures.write_text(json.dumps(times_s))
    torch.distributed.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends


def _make_engine() -> Any:
    import deepspeed
    import torch
    from deepspeed.pipe import LayerSpec, PipelineModule

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
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return Sleep.apply(self.linear(x))

    module = PipelineModule(
        layers=[LayerSpec(Layer), LayerSpec(Layer)],
        num_stages=2,
        loss_fn=torch.nn.MSELoss(),
        partition_method="uniform",
    )
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": _NUM_MICROBATCHES,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
    }
    engine, *_ = deepspeed.initialize(model=module, model_parameters=list(module.parameters()), config=config)
    return engine


def _batches() -> Iterator[Any]:
    import torch

    while True:
        yield torch.ones(1, 8), torch.ones(1, 8)


if __name__ == "__main__":
    main()
