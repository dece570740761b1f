"""What the adapter costs a Megatron-Bridge job: iteration time with and without it, side by side in one run.

``python benchmarks/bridge_overhead.py --record`` starts two pipeline stages under Bridge's own ``pretrain``. Their
forwards and backwards sleep for 50 ms each, so that nothing but the host's own work can make iterations longer. From
block to block, agents included, both ranks go with the adapter and with the functions of Bridge and Megatron as they
were. An iteration is a turn of Bridge's loop, its log included.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from megatron_overhead import detach
from overhead import MEGATRON, NUM_SETTLING, NUM_STAGES, TORCHRUN, Times, measure, sleeping, with_path

_ROOT = Path(__file__).resolve().parents[1]
_LAST = object()
_SCHEDULE = "forward_backward_pipelining_without_interleaving"


class _EnoughError(Exception):
    """Enough iterations are timed."""


def main() -> None:
    """Print the table."""
    launcher = [*TORCHRUN, "-m", "perseus_dist.simulation.megatron_on_cpu"]
    folders = (_ROOT / "build" / "megatron-bridge", MEGATRON, _ROOT / "tests" / "support")
    measure(__doc__, __file__, launcher, _be_rank, environment=with_path(*folders))


def _be_rank(num_blocks: int, num_iterations: int) -> Times:
    """One rank of the job."""
    import torch
    from bridge_gpt import config_of, forward_step
    from megatron.bridge.training import train as loop
    from megatron.bridge.training.callbacks import Callback
    from megatron.bridge.training.pretrain import pretrain
    from megatron.core.pipeline_parallel import schedules

    import perseus_dist.megatron
    from perseus_dist.training.options import PerseusOptions

    tables = [vars(schedules), vars(loop)]
    plain = [dict(table) for table in tables]
    perseus_dist.megatron.install(PerseusOptions())
    hooked = [
        {name: value for name, value in table.items() if value is not before.get(name)}
        for table, before in zip(tables, plain, strict=True)
    ]

    steps = {"without": plain[1]["train_step"], "with": hooked[1].pop("train_step")}
    in_force = {}

    def begin_with() -> None:
        in_force["step"] = steps["with"]
        for table, ours in zip(tables, hooked, strict=True):
            table.update(ours)

    def begin_without() -> None:
        detach()
        in_force["step"] = steps["without"]
        for table, before, ours in zip(tables, plain, hooked, strict=True):
            table.update({name: before[name] for name in ours})

    def run_schedule(**given: Any) -> Any:
        return vars(schedules)[_SCHEDULE](**given)

    def run_step(*given: Any, **named: Any) -> Any:
        return in_force["step"](*given, **named)

    # The loop looks both up once, before its first iteration.
    loop.get_forward_backward_func = lambda **_sizes: run_schedule
    loop.train_step = run_step
    begin_without()
    times_s: Times = {"without": [], "with": []}
    walk = _walk({"without": begin_without, "with": begin_with}, num_blocks, num_iterations, times_s)

    class Turns(Callback):  # type: ignore[misc] # Bridge is Any
        def on_train_step_start(self, context: Any) -> None:  # noqa: ARG002 - as Bridge calls it
            if next(walk, _LAST) is _LAST:
                raise _EnoughError

    options = argparse.Namespace(pp=NUM_STAGES, vp=None, dp=1, steps=10**6, tensorboard=None, save=None)
    options.save_interval, options.eval_interval, options.decentralized = None, 10**6, False
    sleep = sleeping()

    def sleeping_step(data_iterator: Any, model: Any) -> Any:
        output, loss = forward_step(data_iterator, model)
        return sleep(output), loss

    torch.set_num_threads(1)
    with suppress(_EnoughError):
        pretrain(config_of(options), sleeping_step, [Turns()])
    return times_s


def _walk(
    switch: dict[str, Callable[[], object]], num_blocks: int, num_iterations: int, times_s: Times
) -> Iterator[None]:
    """What happens between two iterations, as ``overhead.time_in_turn`` has it, until enough are timed."""
    import torch

    yield
    for _ in range(num_blocks):
        for name, begin_block in switch.items():
            begin_block()
            for _ in range(NUM_SETTLING):
                yield
            for _ in range(num_iterations):
                torch.distributed.barrier()
                begin_s = time.perf_counter()
                yield
                times_s[name].append(time.perf_counter() - begin_s)
    detach()


if __name__ == "__main__":
    main()
