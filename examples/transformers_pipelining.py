"""Train a Hugging Face model (tiny, random weights) with torch.distributed.pipelining.

    torchrun --nproc_per_node 2 transformers_pipelining.py --model llama --schedule 1F1B

All processes are one pipeline, of one stage each. It also runs without GPUs. With ``--schedule none`` each process
trains the whole model by itself.
"""

import argparse
import json
import os
import time
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from transformers_layers import MODELS, batches, build_layers, loss_fn

SCHEDULES = {"1F1B": Schedule1F1B, "GPipe": ScheduleGPipe}


class Alone:
    """In the place of a schedule: the whole model, one microbatch after another."""

    def __init__(self, model: nn.Module, num_microbatches: int) -> None:
        self.model, self.num_microbatches = model, num_microbatches

    def step(self, tokens: Tensor, *, target: Tensor, losses: list[Tensor], return_outputs: bool) -> None:  # noqa: ARG002
        """Sum the gradients of a batch."""
        chunks = zip(tokens.chunk(self.num_microbatches), target.chunk(self.num_microbatches), strict=True)
        for some_tokens, labels in chunks:
            losses.append(loss_fn(self.model(some_tokens), labels))
            (losses[-1] / self.num_microbatches).backward()


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a Hugging Face model with torch.distributed.pipelining.")
    parser.add_argument("--model", choices=MODELS, default="llama")
    parser.add_argument("--schedule", choices=(*SCHEDULES, "none"), default="1F1B")
    parser.add_argument("--microbatches", type=int, default=8, help="in an iteration")
    parser.add_argument("--microbatch-size", type=int, default=2, help="sequences in a microbatch")
    parser.add_argument("--steps", type=int, default=50, help="optimizer steps")
    parser.add_argument("--layers", type=int, default=4, help="decoder layers")
    parser.add_argument("--hidden", type=int, default=64, help="hidden size")
    parser.add_argument("--sequence-length", type=int, default=32, help="tokens in a sequence")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--losses", type=Path, metavar="FILE", help="write each step's exact loss, a JSON line a step")
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

    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    layers = build_layers(args.model, num_layers=args.layers, hidden_size=args.hidden, seed=args.seed)
    if args.schedule == "none":
        model = nn.Sequential(*layers).to(device)
        schedule = Alone(model, args.microbatches)
        has_first = has_last = True
    else:
        first, behind = (len(layers) * place // num_ranks for place in (rank, rank + 1))
        model = nn.Sequential(*layers[first:behind]).to(device)
        stage = PipelineStage(model, rank, num_ranks, device)
        schedule = SCHEDULES[args.schedule](stage, args.microbatches, loss_fn=loss_fn)
        has_first, has_last = rank == 0, rank == num_ranks - 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    with ExitStack() as stack:
        losses = stack.enter_context(args.losses.open("w")) if args.losses and has_last else None
        data = batches(args.microbatches * args.microbatch_size, sequence_length=args.sequence_length, seed=args.seed)
        for step in range(1, args.steps + 1):
            began_s = time.perf_counter()
            tokens, labels = (tensor.to(device) for tensor in next(data))
            of_microbatches: list[Tensor] = []
            schedule.step(
                *([tokens] if has_first else []),
                **({"target": labels, "losses": of_microbatches} if has_last else {}),
                return_outputs=False,
            )
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
