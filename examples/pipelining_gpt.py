"""Train a small GPT with torch.distributed.pipelining, under any of its schedules.

    torchrun --nproc_per_node 4 pipelining_gpt.py --schedule ZBVZeroBubble --perseus --perseus-report report

All processes are one pipeline, of one stage each, or two where the schedule has two. It also runs without GPUs.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.distributed.pipelining import PipelineStage
from torch.nn import functional

import perseus_dist.pipelining
from perseus_dist.training.options import add_options, is_asked_for, options_from_namespace

VOCABULARY_SIZE = 128  # ASCII
WORDS = ("the", "of", "and", "to", "in", "is", "was", "for", "with", "as", "his", "on", "be", "at", "by")
ONE_STAGE = ("1F1B", "GPipe")
TWO_STAGES = ("Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
V_SHAPED = ("ZBVZeroBubble", "DualPipeV")  # the first rank has the first stage and the last


class Embedding(nn.Module):
    """What each token means and where it stands."""

    def __init__(self, sequence_length: int, hidden_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY_SIZE, hidden_size)
        self.positions = nn.Parameter(0.02 * torch.randn(sequence_length, hidden_size))

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up."""
        return self.tokens(tokens) + self.positions[: tokens.size(1)]


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
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (batch, head, position, feature)
            for part in self.query_key_value(self.norm_attention(hidden)).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.projection(mixed.transpose(1, 2).flatten(2))
        return hidden + self.feed_forward(self.norm_feed_forward(hidden))


def loss_fn(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy of the next tokens."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def build_stage(args: argparse.Namespace, stage: int, num_stages: int) -> nn.Module:
    """The layers of a stage: blocks evenly, the embedding on the first, the head on the last."""
    torch.manual_seed(args.seed + stage)
    first, behind = (args.layers * place // num_stages for place in (stage, stage + 1))
    layers: list[nn.Module] = [Block(args.hidden, args.heads) for _ in range(first, behind)]
    if stage == 0:
        layers.insert(0, Embedding(args.sequence_length, args.hidden))
    if stage == num_stages - 1:
        layers += [nn.LayerNorm(args.hidden), nn.Linear(args.hidden, VOCABULARY_SIZE, bias=False)]
    return nn.Sequential(*layers)


@torch.no_grad()
def clip_norm(parameters: Iterable[Tensor], max_norm: float) -> None:
    """Scale gradients so that their norm over all stages is at most this: all ranks wait for one another here."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    total = torch.stack([gradient.float().square().sum() for gradient in gradients]).sum()
    dist.all_reduce(total)
    scale = (max_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale)


def stages_of(schedule: str, rank: int, num_ranks: int) -> list[int]:
    """The stages of a rank."""
    if schedule in ONE_STAGE:
        return [rank]
    return [rank, 2 * num_ranks - 1 - rank if schedule in V_SHAPED else num_ranks + rank]


def batches(args: argparse.Namespace) -> Iterator[Tensor]:
    """Sequences of characters, one longer than what is learned from. The same text at every run, on every rank."""
    text = " ".join(random.Random(args.seed).choices(WORDS, k=50_000))
    tokens = torch.tensor(list(text.encode("ascii")))
    sequences = tokens.unfold(0, args.sequence_length + 1, args.sequence_length)
    return cycle(sequences.split(args.microbatches * args.microbatch_size)[:-1])  # the last is shorter


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a small GPT with torch.distributed.pipelining.")
    parser.add_argument("--schedule", choices=(*ONE_STAGE, *TWO_STAGES), default="1F1B")
    parser.add_argument("--microbatches", type=int, default=8, help="in an iteration")
    parser.add_argument("--microbatch-size", type=int, default=2, help="sequences in a microbatch")
    parser.add_argument("--steps", type=int, default=50, help="optimizer steps")
    parser.add_argument("--layers", type=int, default=8, help="transformer blocks")
    parser.add_argument("--hidden", type=int, default=64, help="hidden size")
    parser.add_argument("--heads", type=int, default=4, help="attention heads")
    parser.add_argument("--sequence-length", type=int, default=32, help="tokens in a sequence")
    parser.add_argument("--clip-norm", type=float, metavar="NORM", help="clip gradients by their norm over all stages")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--losses", type=Path, metavar="FILE", help="write each step's exact loss, a JSON line a step")
    add_options(parser)  # --perseus and its options
    return parser.parse_args()


def main() -> None:
    """Train."""
    args = parse_args()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        torch.set_num_threads(1)  # all processes share this machine's cores
        dist.init_process_group("gloo")

    num_ranks = dist.get_world_size()
    mine = stages_of(args.schedule, dist.get_rank(), num_ranks)
    num_stages = num_ranks * len(mine)
    modules = nn.ModuleList(build_stage(args, stage, num_stages) for stage in mine).to(device)
    stages = [PipelineStage(modules[place], stage, num_stages, device) for place, stage in enumerate(mine)]
    schedule_class = getattr(pipelining, f"Schedule{args.schedule}")
    given = stages[0] if args.schedule in ONE_STAGE else stages
    schedule = schedule_class(given, args.microbatches, loss_fn=loss_fn)
    optimizer = torch.optim.AdamW(modules.parameters(), lr=1e-3)

    if is_asked_for(args):
        perseus_dist.pipelining.attach(schedule, options_from_namespace(args), optimizer=optimizer)

    has_first, has_last = 0 in mine, num_stages - 1 in mine
    with ExitStack() as stack:
        losses = stack.enter_context(args.losses.open("w")) if args.losses and has_last else None
        data = batches(args)
        for step in range(1, args.steps + 1):
            began_s = time.perf_counter()
            sequences = next(data).to(device)
            of_microbatches: list[Tensor] = []
            schedule.step(
                *([sequences[:, :-1]] if has_first else []),
                **({"target": sequences[:, 1:], "losses": of_microbatches} if has_last else {}),
                return_outputs=False,
            )
            if args.clip_norm is not None:
                clip_norm(modules.parameters(), args.clip_norm)
            optimizer.step()
            optimizer.zero_grad()
            if has_last:
                loss = torch.stack(of_microbatches).mean().item()
                print(f"step {step}/{args.steps}  loss {loss:.4f}  {time.perf_counter() - began_s:.2f} s", flush=True)
            if losses:
                print(json.dumps({"step": step, "loss": loss}), file=losses, flush=True)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
