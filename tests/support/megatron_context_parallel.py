"""``examples/megatron_gpt.py`` with context parallelism on the CPU.

Each rank has a part of every sequence, and attends to all of it with a part of the heads: Megatron's own all-to-alls
change one into the other. Its local attention is otherwise for one context-parallel rank alone. Microbatches of one.
"""

import copy
import sys
from pathlib import Path
from typing import Any

from megatron.core import parallel_state
from megatron.core.models.gpt import gpt_layer_specs
from megatron.core.tensor_parallel.mappings import all_to_all_hp2sp, all_to_all_sp2hp
from megatron.core.transformer.dot_product_attention import DotProductAttention

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import megatron_gpt  # type: ignore[import-not-found]

forward_step = megatron_gpt.forward_step


class ExchangedAttention(DotProductAttention):  # type: ignore[misc] # Megatron is Any
    """Attention of a part of the heads to whole sequences."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        own = copy.copy(config)
        own.context_parallel_size = 1
        own.num_attention_heads //= config.context_parallel_size
        own.num_query_groups //= config.context_parallel_size
        super().__init__(own, *args, **kwargs)

    def forward(self, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        group = parallel_state.get_context_parallel_group()

        def whole(part: Any) -> Any:
            length, _, _, width = part.shape
            return all_to_all_sp2hp(part.reshape(length, -1), group).view(length * group.size(), 1, -1, width)

        context = super().forward(whole(query), whole(key), whole(value), *args, **kwargs)
        return all_to_all_hp2sp(context.squeeze(1), group).unsqueeze(1)


class PartOfModel:
    """The model, called with whole sequences: it gets this rank's part of them."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.training = model.training

    def __call__(self, tokens: Any, positions: Any, is_future: Any, *, labels: Any) -> Any:
        rank, size = parallel_state.get_context_parallel_rank(), parallel_state.get_context_parallel_world_size()
        parts = (whole.chunk(size, dim=1)[rank] for whole in (tokens, positions, labels))
        tokens, positions, labels = parts
        return self._model(tokens, positions, is_future, labels=labels)


def forward_part(data_iterator: Any, model: Any) -> Any:
    """As the example's."""
    return forward_step(data_iterator, PartOfModel(model))


if __name__ == "__main__":
    gpt_layer_specs.LocalSpecProvider.core_attention = lambda _self: ExchangedAttention
    megatron_gpt.forward_step = forward_part
    megatron_gpt.main()
