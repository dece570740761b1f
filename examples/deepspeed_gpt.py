"""Train a small GPT with DeepSpeed's pipeline engine.

    deepspeed --num_gpus 4 deepspeed_gpt.py --deepspeed --deepspeed_config deepspeed_gpt.json --stages 4

What is not used for stages is data parallel: 4 processes with --stages 2 are two pipelines of two stages. It also runs
without GPUs: set DS_ACCELERATOR=cpu. Batch sizes, precision and optimizer are the configuration's.
"""

import argparse
import json
import os
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.utils import RepeatingLoader
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCABULARY_SIZE = 128  # ASCII
WORDS = ("the", "of", "and", "to", "in", "is", "was", "for", "with", "as", "his", "on", "be", "at", "by")


class Corpus(Dataset[tuple[Tensor, Tensor]]):
    """Sequences of characters, each with the same sequence one character on. The same text at every run."""

    def __init__(self, num_words: int, sequence_length: int, seed: int) -> None:
        text = " ".join(random.Random(seed).choices(WORDS, k=num_words))
        self.tokens = torch.tensor(list(text.encode("ascii")))
        self.sequence_length = sequence_length

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.sequence_length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        begin = index * self.sequence_length
        window = self.tokens[begin : begin + self.sequence_length + 1]
        return window[:-1], window[1:]


class TokenEmbedding(nn.Embedding):
    """What each token means; its weight can serve as the head as well."""

    def reset_parameters(self) -> None:
        """Start small, as a head's weight should."""
        nn.init.normal_(self.weight, std=0.02)


class PositionEmbedding(nn.Module):
    """Adds where in the sequence each token stands."""

    def __init__(self, sequence_length: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(sequence_length, hidden_size))

    def forward(self, hidden: Tensor) -> Tensor:
        """Add."""
        return hidden + self.weight[: hidden.size(1)]


class Block(nn.Module):
    """A transformer block: causal attention and a feed-forward network, each normalised before and added."""

    def __init__(self, hidden_size: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm_attention = nn.LayerNorm(hidden_size)
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.projection = nn.Linear(hidden_size, hidden_size)
        self.norm_feed_forward = nn.LayerNorm(hidden_size)
        self.feed_forward = nn.Sequential(
            nn.Linear(hidden_size, 4 * hidden_size), nn.GELU(), nn.Linear(4 * hidden_size, hidden_size)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Attend, then feed forward."""
        hidden = hidden + self.attend(self.norm_attention(hidden))
        return hidden + self.feed_forward(self.norm_feed_forward(hidden))

    def attend(self, hidden: Tensor) -> Tensor:
        """Let every position look at itself and at those before it."""
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (batch, head, position, feature)
            for part in self.query_key_value(hidden).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.projection(mixed.transpose(1, 2).flatten(2))


def tied_head(embedding: TokenEmbedding, hidden: Tensor) -> Tensor:
    """Logits by the embedding's own weight."""
    return functional.linear(hidden, embedding.weight)


def loss_fn(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy of the next tokens."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def build_model(args: argparse.Namespace) -> PipelineModule:
    """The GPT as a list of layers, which DeepSpeed spreads over the stages: as many blocks on each as possible."""
    blocks = [LayerSpec(Block, args.hidden, args.heads) for _ in range(args.layers)]
    if args.tied:
        embedding = TiedLayerSpec("embedding", TokenEmbedding, VOCABULARY_SIZE, args.hidden)
        head = TiedLayerSpec("embedding", TokenEmbedding, VOCABULARY_SIZE, args.hidden, forward_fn=tied_head)
    else:
        embedding = LayerSpec(TokenEmbedding, VOCABULARY_SIZE, args.hidden)
        head = LayerSpec(nn.Linear, args.hidden, VOCABULARY_SIZE, bias=False)
    positions = LayerSpec(PositionEmbedding, args.sequence_length, args.hidden)
    # With DualPipeV each rank holds two stages, and an iteration has two microbatches a rank at least.
    module_class = deepspeed.pipe.DualPipeVModule if args.dualpipev else PipelineModule
    return module_class(
        layers=[embedding, positions, *blocks, LayerSpec(nn.LayerNorm, args.hidden), head],
        num_stages=args.stages,
        loss_fn=loss_fn,
        seed_layers=True,  # a layer's weights do not depend on its stage
        seed_fn=torch.manual_seed,
        base_seed=args.seed,
        partition_method="type:Block",
        activation_checkpoint_interval=int(args.activation_checkpointing),
        checkpointable_layers=["Block"],
    )


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a small GPT with DeepSpeed's pipeline engine.")
    parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0")))
    parser.add_argument("--stages", type=int, default=4, help="pipeline stages")
    parser.add_argument("--steps", type=int, default=50, help="optimizer steps")
    parser.add_argument("--layers", type=int, default=8, help="transformer blocks")
    parser.add_argument("--hidden", type=int, default=64, help="hidden size")
    parser.add_argument("--heads", type=int, default=4, help="attention heads")
    parser.add_argument("--sequence-length", type=int, default=32, help="tokens in a sequence")
    parser.add_argument("--tied", action="store_true", help="the head shares the embedding's weight")
    parser.add_argument("--dualpipev", action="store_true", help="DualPipeV in place of 1F1B, from DeepSpeed 0.19.8 on")
    parser.add_argument("--activation-checkpointing", action="store_true", help="recompute blocks in the backward")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--losses", type=Path, metavar="FILE", help="write each step's exact loss, a JSON line a step")
    return deepspeed.add_config_arguments(parser).parse_args()


def main() -> None:
    """Train."""
    args = parse_args()
    on_cpu = get_accelerator().device_name() == "cpu"
    if on_cpu:
        torch.set_num_threads(1)  # all processes share this machine's cores
        # Spare a minute of compiling an operator that training does not use.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    else:
        get_accelerator().set_device(args.local_rank)
    deepspeed.init_distributed()

    model = build_model(args)
    engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
    corpus = Corpus(50_000, args.sequence_length, args.seed)
    sampler = DistributedSampler(
        corpus, engine.grid.get_data_parallel_world_size(), engine.grid.get_data_parallel_id(), shuffle=False
    )
    loader = DataLoader(corpus, engine.train_micro_batch_size_per_gpu(), sampler=sampler, drop_last=True)
    batches = RepeatingLoader(loader)

    is_first_rank = torch.distributed.get_rank() == 0
    with ExitStack() as stack:
        losses = stack.enter_context(args.losses.open("w")) if args.losses and is_first_rank else None
        for step in range(1, args.steps + 1):
            began_s = time.perf_counter()
            loss = engine.train_batch(data_iter=batches).item()
            if is_first_rank:
                print(f"step {step}/{args.steps}  loss {loss:.4f}  {time.perf_counter() - began_s:.2f} s", flush=True)
            if losses:
                print(json.dumps({"step": step, "loss": loss}), file=losses, flush=True)

    if on_cpu:
        # A thread of gloo may still hold a tensor while Python shuts down, and now and then aborts over it.
        torch.distributed.barrier()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
