"""What the adapter costs a Megatron-Bridge job: iteration time with and without it, side by side in one run.

``python benchmarks/bridge_overhead.py --record`` starts two pipeline stages under Bridge's own ``pretrain``. Their
forwards and backwards sleep for 50 ms each, so that nothing but the host's own work can make iterations longer. From
block to block, agents included, both ranks go with the adapter and with the functions of Bridge and Megatron as they
were. An iteration is a turn of Bridge's loop, its log included.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measuring import conditions
from megatron_overhead import detach
from overhead import print_overhead, record_overhead

_ROOT = Path(__file__).resolve().parents[1]
_FOLDERS = (_ROOT / "build" / "megatron-bridge", _ROOT / "build" / "megatron" / "0.16.1", _ROOT / "tests" / "support")
_SCHEDULE = "forward_backward_pipelining_without_interleaving"
_INSTRUCTION_S = 0.05
_NUM_STAGES = 2
_NUM_SETTLING = 10  # iterations of half a second, until agents have started, or ended


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
        command += ["-m", "perseus_dist.simulation.megatron_on_cpu", __file__, "--figures", str(figures)]
        command += ["--blocks", str(args.blocks), "--iterations", str(args.iterations)]
        path = os.pathsep.join(filter(None, [*map(str, _FOLDERS), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        times_s = json.loads(figures.read_text())
    print_overhead(times_s)
    if args.record:
        record_overhead("bridge_overhead", times_s)


def _be_rank(num_blocks: int, num_iterations: int, figures: Path) -> None:
    """One rank of the job; rank 0 writes what it measured."""
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
    walk = _walk({"without": begin_without, "with": begin_with}, num_blocks, num_iterations, figures)

    class Turns(Callback):  # type: ignore[misc] # Bridge is Any
        def on_train_step_start(self, context: Any) -> None:  # noqa: ARG002 - as Bridge calls it
            next(walk)

    options = argparse.Namespace(pp=_NUM_STAGES, vp=None, dp=1, steps=10**6, tensorboard=None, save=None)
    options.save_interval, options.eval_interval, options.decentralized = None, 10**6, False
    sleep = _sleeping()

    def sleeping_step(data_iterator: Any, model: Any) -> Any:
        output, loss = forward_step(data_iterator, model)
        return sleep(output), loss

    torch.set_num_threads(1)
    pretrain(config_of(options), sleeping_step, [Turns()])


def _walk(
    switch: dict[str, Callable[[], object]], num_blocks: int, num_iterations: int, figures: Path
) -> Iterator[None]:
    """What happens between two iterations, as ``overhead.time_in_turn`` has it; ends the process behind the last."""
    import torch

    times_s: dict[str, list[float]] = {name: [] for name in switch}
    yield
    for _ in range(num_blocks):
        for name, begin_block in switch.items():
            begin_block()
            for _ in range(_NUM_SETTLING):
                yield
            for _ in range(num_iterations):
                torch.distributed.barrier()
                begin_s = time.perf_counter()
                yield
                times_s[name].append(time.perf_counter() - begin_s)
    detach()
    if torch.distributed.get_rank() == 0:
        figures.write_text(json.dumps(times_s))
    torch.distributed.barrier()
    os._exit(0)


def _sleeping() -> Callable[[Any], Any]:
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

    sleep: Callable[[Any], Any] = Sleep.apply
    return sleep


if __name__ == "__main__":
    main()
