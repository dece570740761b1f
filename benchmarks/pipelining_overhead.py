"""What the adapter costs a torch.distributed.pipelining job: iteration time with and without it, side by side.

``python benchmarks/pipelining_overhead.py --record`` starts two stages in torch's ``Schedule1F1B``. Their forwards and
backwards sleep for 50 ms each, so that nothing but the host's own work can make iterations longer. Both ranks go with
and without the adapter in turn, agents included, block by block.
"""

from typing import Any

from overhead import NUM_STAGES, TORCHRUN, Times, measure, sleeping, time_in_turn

_NUM_MICROBATCHES = 4
_SIZE = 8


def main() -> None:
    """Print the table."""
    measure(__doc__, __file__, TORCHRUN, _be_rank)


def _be_rank(num_blocks: int, num_iterations: int) -> Times:
    """One rank of the job."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    import perseus_dist.pipelining

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = PipelineStage(_make_layer(), rank, NUM_STAGES, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=_NUM_MICROBATCHES, loss_fn=torch.nn.MSELoss())
    batch = torch.ones(_NUM_MICROBATCHES, _SIZE)

    def iterate() -> None:
        schedule.step(*([batch] if rank == 0 else []), **({"target": batch} if rank == NUM_STAGES - 1 else {}))

    times_s = time_in_turn(
        iterate,
        dist.barrier,
        {
            "without": lambda: perseus_dist.pipelining.detach(schedule),
            "with": lambda: perseus_dist.pipelining.attach(schedule),
        },
        num_blocks=num_blocks,
        num_iterations=num_iterations,
    )
    perseus_dist.pipelining.detach(schedule)
    return times_s


def _make_layer() -> Any:
    import torch

    sleep = sleeping()

    class Layer(torch.nn.Module):  # type: ignore[misc] # torch is Any
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(_SIZE, _SIZE)

        def forward(self, x: Any) -> Any:
            return sleep(self.linear(x))

    return Layer()


if __name__ == "__main__":
    main()
