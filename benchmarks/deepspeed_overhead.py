"""What the adapter costs a DeepSpeed job: iteration time with and without it, side by side in one run; and its import.

``python benchmarks/deepspeed_overhead.py`` starts a job of two pipeline stages with the ``deepspeed`` launcher. Its
forwards and backwards sleep for 50 ms each, so that nothing but the host's own work can make iterations longer. Both
ranks go with and without the adapter in turn, agents included, block by block. The import is what activation adds to
the start of a Python process that then imports nothing else.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from overhead import NUM_STAGES, Times, measure, sleeping, time_in_turn

_NUM_MICROBATCHES = 4
_ACTIVATION = "from perseus_dist.deepspeed.activation import activate; activate('e30=')"  # no option said


def main() -> None:
    """Print the tables."""
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "--num_gpus", str(NUM_STAGES)]
    measure(__doc__, __file__, launcher, _be_rank, environment={"DS_ACCELERATOR": "cpu"}, activation=_ACTIVATION)


def _be_rank(num_blocks: int, num_iterations: int) -> Times:
    """One rank of the job."""
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
        num_iterations=num_iterations,
    )
    detach(engine)
    return times_s


def _make_engine() -> Any:
    import deepspeed
    import torch
    from deepspeed.pipe import LayerSpec, PipelineModule

    sleep = sleeping()

    class Layer(torch.nn.Module):  # type: ignore[misc] # torch is Any
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return sleep(self.linear(x))

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
