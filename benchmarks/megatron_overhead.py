"""What the adapter costs a Megatron job: iteration time with and without it, side by side in one run; and its import.

``python benchmarks/megatron_overhead.py`` starts two pipeline stages on megatron-core's own schedule, 1F1B. Their
forwards and backwards sleep for 50 ms each, so that nothing but the host's own work can make iterations longer. Both
ranks go with the adapter and with Megatron's functions as they were in turn, agents included, block by block. The
import is what activation adds to the start of a Python process that then imports nothing else.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import conditions
from overhead import print_import, print_overhead, time_in_turn

_MEGATRON = Path(__file__).resolve().parents[1] / "build" / "megatron" / "0.16.1"
_INSTRUCTION_S = 0.05
_NUM_MICROBATCHES = 4
_NUM_STAGES = 2
_NUM_SETTLING = 10  # iterations of half a second, until agents have started, or ended
_SIZE = 8
_ACTIVATION = "from perseus_dist.megatron.activation import start; start()"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=4, help="blocks of iterations of each sort")
    parser.add_argument("--iterations", type=int, default=15, help="iterations in a block")
    parser.add_argument("--megatron", type=Path, default=_MEGATRON, help="folder that megatron/core lies in")
    parser.add_argument("--figures", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.figures is not None:
        _be_rank(args.blocks, args.iterations, args.figures)
        return
    if not (args.megatron / "megatron" / "core").is_dir():
        parser.error(f"{args.megatron} has no megatron/core; name a folder that has one: --megatron FOLDER")
    print(f"{conditions()}\n")
    _print_overhead(args.megatron, args.blocks, args.iterations)
    print()
    print_import(_ACTIVATION)


def _print_overhead(megatron: Path, num_blocks: int, num_iterations: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={_NUM_STAGES}"]
        command += ["-m", "perseus_dist.simulation.megatron_on_cpu", __file__, "--figures", str(figures)]
        command += ["--blocks", str(num_blocks), "--iterations", str(num_iterations)]
        path = os.pathsep.join(filter(None, [str(megatron), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        print_overhead(json.loads(figures.read_text()))


def _be_rank(num_blocks: int, num_iterations: int, figures: Path) -> None:
    """One rank of the job; rank 0 writes what it measured."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import schedules

    import perseus_dist.megatron
    from perseus_dist.training.options import PerseusOptions

    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=_NUM_STAGES)
    plain = dict(vars(schedules))
    perseus_dist.megatron.install(PerseusOptions())
    hooked = {name: value for name, value in vars(schedules).items() if value is not plain.get(name)}

    def begin_without() -> None:
        detach()
        vars(schedules).update({name: plain[name] for name in hooked})

    begin_without()
    times_s = time_in_turn(
        _iterator(schedules),
        torch.distributed.barrier,
        {"without": begin_without, "with": lambda: vars(schedules).update(hooked)},
        num_blocks=num_blocks,
        num_settling=_NUM_SETTLING,
        num_iterations=num_iterations,
    )
    detach()
    if torch.distributed.get_rank() == 0:
        figures.write_text(json.dumps(times_s))
    torch.distributed.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends


def detach() -> None:
    """What takes part leaves, and what takes part next begins anew."""
    from perseus_dist.megatron import adapter
    from perseus_dist.megatron.attachment import Attachment

    adapter._attachment._leave()  # noqa: SLF001 - training never leaves by itself
    adapter._attachment = Attachment()  # noqa: SLF001


def _iterator(schedules: Any) -> Callable[[], object]:
    """What runs one iteration of this rank's stage."""
    import torch

    model = _make_stage()
    loss = torch.nn.MSELoss()

    def forward_step(batches: Any, model: Any) -> tuple[Any, Callable[[Any], tuple[Any, dict[str, Any]]]]:
        output = model(next(batches))

        def loss_func(output: Any) -> tuple[Any, dict[str, Any]]:
            value = loss(output, torch.ones_like(output))
            return value, {"loss": value.detach()}

        return output, loss_func

    def iterate() -> None:
        schedules.get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=iter([torch.ones(1, 1, _SIZE) for _ in range(_NUM_MICROBATCHES)]),
            model=model,
            num_microbatches=_NUM_MICROBATCHES,
            seq_length=1,
            micro_batch_size=1,
            forward_only=False,
        )

    return iterate


def _make_stage() -> Any:
    import torch
    from megatron.core.enums import ModelType
    from megatron.core.transformer.module import MegatronModule
    from megatron.core.transformer.transformer_config import TransformerConfig

    class Sleep(torch.autograd.Function):  # type: ignore[misc] # torch is Any
        @staticmethod
        def forward(context: Any, x: Any) -> Any:  # noqa: ARG004
            time.sleep(_INSTRUCTION_S)
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:  # noqa: ARG004
            time.sleep(_INSTRUCTION_S)
            return gradient

    class Stage(MegatronModule):  # type: ignore[misc] # Megatron is Any
        model_type = ModelType.encoder_or_decoder

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.linear = torch.nn.Linear(_SIZE, _SIZE)
            self.received: Any = None

        def set_input_tensor(self, received: Any) -> None:
            """From the stage before; None on the first."""
            self.received = received[0] if isinstance(received, list) else received

        def forward(self, batch: Any) -> Any:
            return Sleep.apply(self.linear(batch if self.received is None else self.received))

    return Stage(
        TransformerConfig(
            num_layers=_NUM_STAGES,
            hidden_size=_SIZE,
            num_attention_heads=1,
            pipeline_model_parallel_size=_NUM_STAGES,
            pipeline_dtype=torch.float32,
            params_dtype=torch.float32,
            use_cpu_initialization=True,
        )
    )


if __name__ == "__main__":
    main()
