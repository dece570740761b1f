"""What the adapter costs a DeepSpeed job: iteration time with and without it, side by side in one run; and its import.

``python benchmarks/deepspeed_overhead.py`` starts a job of two pipeline stages with the ``deepspeed`` launcher. Its
forwards and backwards sleep for 50 ms each, so that nothing but the host's own work can make iterations longer. Both
ranks go with and without the adapter in turn, agents included, block by block. The import is what activation adds to
the start of a Python process that then imports nothing else.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import conditions, print_table

OVERHEAD_LIMIT_PERCENT = 0.5
IMPORT_LIMIT_MS = 20
_INSTRUCTION_S = 0.05
_NUM_MICROBATCHES = 4
_SETTLING_S = 5.0  # until agents have started, or ended
_NUM_STARTS = 15
_PROGRAMS = {
    "nothing": "pass",
    "activation": "from perseus_dist.deepspeed.activation import activate; activate('e30=')",  # no option said
}


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
    _print_import()


def _print_overhead(num_blocks: int, num_iterations: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        launcher = Path(sys.executable).with_name("deepspeed")
        command = [str(launcher), "--num_gpus", "2", __file__, "--figures", str(figures)]
        command += ["--blocks", str(num_blocks), "--iterations", str(num_iterations)]
        environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        times_s: dict[str, list[float]] = json.loads(figures.read_text())
    without_s, with_s = times_s["without"], times_s["with"]
    rows = [
        [name, str(len(times)), f"{1e3 * statistics.median(times):.2f}", f"{1e3 * statistics.mean(times):.2f}"]
        for name, times in (("without the adapter", without_s), ("with it", with_s))
    ]
    print_table(["iterations", "number", "median [ms]", "mean [ms]"], rows)
    percent = 100 * (statistics.median(with_s) / statistics.median(without_s) - 1)
    verdict = "within" if percent <= OVERHEAD_LIMIT_PERCENT else "BEYOND"
    print(f"\nThe median iteration is {percent:.2f} % longer, {verdict} {OVERHEAD_LIMIT_PERCENT} %.")


def _print_import() -> None:
    times_ms: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
    for _ in range(_NUM_STARTS):
        for name, program in _PROGRAMS.items():
            begin_s = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            times_ms[name].append(1e3 * (time.perf_counter() - begin_s))
    medians_ms = {name: statistics.median(times) for name, times in times_ms.items()}
    print_table(["a process that imports", "median [ms]"], [[name, f"{ms:.1f}"] for name, ms in medians_ms.items()])
    added_ms = medians_ms["activation"] - medians_ms["nothing"]
    verdict = "within" if added_ms < IMPORT_LIMIT_MS else "BEYOND"
    print(f"\nActivation takes {added_ms:.1f} ms, {verdict} {IMPORT_LIMIT_MS} ms.")


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
    times_s: dict[str, list[float]] = {"without": [], "with": []}
    engine.train_batch(data)
    for _ in range(num_blocks):
        for name, seconds in times_s.items():
            (attach if name == "with" else detach)(engine)
            _train_for(engine, data, _SETTLING_S)
            for _ in range(num_iterations):
                torch.distributed.barrier()
                begin_s = time.perf_counter()
                engine.train_batch(data)
                seconds.append(time.perf_counter() - begin_s)
    detach(engine)
    if torch.distributed.get_rank() == 0:
        figures.write_text(json.dumps(times_s))
    torch.distributed.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends


def _train_for(engine: Any, data: Iterator[Any], seconds: float) -> None:
    """The same number of iterations on all ranks."""
    for _ in range(round(seconds / (2 * _INSTRUCTION_S * (_NUM_MICROBATCHES + 1)))):
        engine.train_batch(data)


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
