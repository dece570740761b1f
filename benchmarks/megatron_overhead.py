"""What the adapter costs a Megatron job: iteration time with and without it, side by side in one run; and its import.

``python benchmarks/megatron_overhead.py`` starts two pipeline stages on megatron-core's own schedule, 1F1B. Their
forwards and backwards sleep for 50 ms each, so that nothing but the host's own work can make iterations longer. Both
ranks go with the adapter and with Megatron's functions as they were in turn, agents included, block by block. The
import is what activation adds to the start of a Python process that then imports nothing else.
"""

from collections.abc import Callable
from typing import Any

from overhead import MEGATRON, NUM_STAGES, TORCHRUN, Times, measure, sleeping, time_in_turn, with_path

_NUM_MICROBATCHES = 4
_SIZE = 8
_ACTIVATION = "from perseus_dist.megatron.activation import start; start()"


def main() -> None:
    """Print the tables."""
    launcher = [*TORCHRUN, "-m", "perseus_dist.simulation.megatron_on_cpu"]
    measure(__doc__, __file__, launcher, _be_rank, environment=with_path(MEGATRON), activation=_ACTIVATION)


def _be_rank(num_blocks: int, num_iterations: int) -> Times:
    """One rank of the job."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import schedules

    import perseus_dist.megatron
    from perseus_dist.training.options import PerseusOptions

    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=NUM_STAGES)
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
        num_iterations=num_iterations,
    )
    detach()
    return times_s


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

    sleep = sleeping()

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
            return sleep(self.linear(batch if self.received is None else self.received))

    return Stage(
        TransformerConfig(
            num_layers=NUM_STAGES,
            hidden_size=_SIZE,
            num_attention_heads=1,
            pipeline_model_parallel_size=NUM_STAGES,
            pipeline_dtype=torch.float32,
            params_dtype=torch.float32,
            use_cpu_initialization=True,
        )
    )


if __name__ == "__main__":
    main()
