"""Train a small GPT with Megatron-LM's own ``pretrain()``.

    torchrun --nproc_per_node 4 megatron_gpt.py --pipeline-model-parallel-size 4 --num-layers 8 --hidden-size 64 ...

All of Megatron's arguments are there, and ``--losses FILE``. Model, batch sizes, precision and optimizer are theirs;
the text is this script's own. For Megatron 0.13 and newer; of 0.17 and newer the package is enough.
"""

import argparse
import functools
import inspect
import json
import random
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.num_microbatches_calculator import get_num_microbatches
from megatron.training import get_args, pretrain
from megatron.training.arguments import core_transformer_config_from_args
from torch import Tensor
from torch.utils.data import Dataset

WORDS = ("the", "of", "and", "to", "in", "is", "was", "for", "with", "as", "his", "on", "be", "at", "by")
ARGS_DEFAULTS = {"tokenizer_type": "NullTokenizer", "vocab_size": 127}  # ASCII


class Corpus(Dataset[dict[str, Tensor]]):
    """Sequences of characters, each with the same sequence one character on. The same text at every run."""

    def __init__(self, num_samples: int, sequence_length: int, seed: int) -> None:
        text = " ".join(random.Random(seed).choices(WORDS, k=50_000))
        self.tokens = torch.tensor(list(text.encode("ascii")))
        self.num_samples = num_samples
        self.sequence_length = sequence_length

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        begin = index * self.sequence_length % (len(self.tokens) - self.sequence_length)
        window = self.tokens[begin : begin + self.sequence_length + 1]
        return {"tokens": window[:-1], "labels": window[1:]}


def datasets_provider(num_samples: list[int], vp_stage: int | None = None) -> list[Corpus | None]:  # noqa: ARG001
    """The text for training, validation and test."""
    args = get_args()
    return [Corpus(num, args.seq_length, args.seed + index) if num else None for index, num in enumerate(num_samples)]


datasets_provider.is_distributed = True  # every rank makes it


def model_provider(
    pre_process: bool = True,  # noqa: FBT001, FBT002 - as Megatron calls it
    post_process: bool = True,  # noqa: FBT001, FBT002
    vp_stage: int | None = None,
    config: Any = None,
    pg_collection: Any = None,
) -> GPTModel:
    """This rank's part of the model."""
    args = get_args()
    groups = {} if pg_collection is None else {"pg_collection": pg_collection}  # which 0.13 has under another name
    model = GPTModel(
        config=config or core_transformer_config_from_args(args),
        transformer_layer_spec=get_gpt_layer_local_spec(args.num_experts),
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=pre_process,
        post_process=post_process,
        parallel_output=True,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        vp_stage=vp_stage,
        **groups,
    )
    initialize_by_name(model, args)
    return model


@torch.no_grad()
def initialize_by_name(model: GPTModel, args: argparse.Namespace) -> None:
    """Weights that depend on what they are and not on where: so the losses do not depend on the layout."""
    layers = getattr(model.decoder, "layers", ())
    for local_name, parameter in model.named_parameters():
        name = re.sub(r"(?<=\.layers\.)\d+", lambda index: str(layers[int(index[0])].layer_number), local_name)
        if name == "output_layer.weight" and not args.untie_embeddings_and_output_weights:
            name = "embedding.word_embeddings.weight"
        if parameter.dim() == 1:  # of a norm, or a bias
            parameter.fill_("norm" in name and name.endswith("weight"))
            continue
        shape, dim = list(parameter.shape), getattr(parameter, "partition_dim", -1)
        is_sharded = getattr(parameter, "tensor_model_parallel", False) and dim >= 0
        if is_sharded:
            shape[dim] *= args.tensor_model_parallel_size
        weight = torch.randn(shape, generator=torch.Generator().manual_seed(args.seed + zlib.crc32(name.encode())))
        if is_sharded:
            weight = weight.chunk(args.tensor_model_parallel_size, dim)[parallel_state.get_tensor_model_parallel_rank()]
        parameter.copy_(args.init_method_std * weight)


def forward_step(
    data_iterator: Iterator[dict[str, Tensor]],
    model: Any,
    return_schedule_plan: bool = False,  # noqa: FBT001, FBT002 - as Megatron calls it
) -> tuple[Any, Any]:
    """One microbatch through this rank's part of the model, or the plan of it, where it is to run beside a backward."""
    batch = {name: tensor.cuda() for name, tensor in next(data_iterator).items()}
    tokens = batch["tokens"]
    length = tokens.size(1)
    positions = torch.arange(length, device=tokens.device).expand_as(tokens)
    is_future = torch.ones(1, 1, length, length, dtype=torch.bool, device=tokens.device).triu(1)
    run = model.build_schedule_plan if return_schedule_plan else model
    output = run(tokens, positions, is_future, labels=batch["labels"])
    return output, functools.partial(loss_func, is_training=model.training)


def loss_func(output: Tensor, *, is_training: bool) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The losses of a microbatch's tokens: their sum, their number, and both for the log. On the last stage."""
    total = output.float().sum()
    num_tokens = torch.tensor(output.numel(), dtype=torch.int, device=output.device)
    losses = open_losses()
    if losses is not None and is_training:
        losses.add(total.item() / output.numel())
    return total, num_tokens, {"lm loss": torch.stack([total.detach(), num_tokens.float()])}


class Losses:
    """The exact loss of every step, as JSON lines. Of the first pipeline's microbatches."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w")
        self.of_microbatches: list[float] = []
        self.step = 0

    def add(self, loss: float) -> None:
        """One microbatch more."""
        self.of_microbatches.append(loss)
        if len(self.of_microbatches) == get_num_microbatches():
            self.step += 1
            mean = sum(self.of_microbatches) / len(self.of_microbatches)
            print(json.dumps({"step": self.step, "loss": mean}), file=self.file, flush=True)
            self.of_microbatches.clear()


@functools.cache
def open_losses() -> Losses | None:
    """On the one rank that writes them."""
    args = get_args()
    is_first_pipeline = parallel_state.get_data_parallel_rank(with_context_parallel=True) == 0
    is_first_shard = parallel_state.get_tensor_model_parallel_rank() == 0
    return Losses(args.losses) if args.losses and is_first_pipeline and is_first_shard else None


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """This script's own, beside Megatron's."""
    group = parser.add_argument_group("small GPT")
    group.add_argument("--losses", type=Path, metavar="FILE", help="write each step's exact loss, a JSON line a step")
    return parser


def main() -> None:
    """Train."""
    common = {
        "train_valid_test_dataset_provider": datasets_provider,
        "model_provider": model_provider,
        "model_type": ModelType.encoder_or_decoder,
        "forward_step_func": forward_step,
    }  # in an order that differs by version
    if "cfg_container" in inspect.signature(pretrain).parameters:  # since 0.18
        from megatron.training.argument_utils import pretrain_cfg_container_from_args
        from megatron.training.arguments import parse_and_validate_args

        args = parse_and_validate_args(extra_args_provider=add_arguments, args_defaults=ARGS_DEFAULTS)
        pretrain(pretrain_cfg_container_from_args(args), **common)
    else:
        pretrain(**common, extra_args_provider=add_arguments, args_defaults=ARGS_DEFAULTS)


if __name__ == "__main__":
    main()
