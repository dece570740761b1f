"""Train a Hugging Face model (tiny, random weights) with DeepSpeed's pipeline engine.

    deepspeed --num_gpus 2 transformers_deepspeed.py --deepspeed --deepspeed_config deepspeed_gpt.json --stages 2

It also runs without GPUs: set DS_ACCELERATOR=cpu. Batch sizes, precision and optimizer are the configuration's.
"""

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.pipe import PipelineModule
from transformers_layers import MODELS, batches, build_layers, loss_fn


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a Hugging Face model with DeepSpeed's pipeline engine.")
    parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0")))
    parser.add_argument("--model", choices=MODELS, default="llama")
    parser.add_argument("--stages", type=int, default=2, help="pipeline stages")
    parser.add_argument("--steps", type=int, default=50, help="optimizer steps")
    parser.add_argument("--layers", type=int, default=4, help="decoder layers")
    parser.add_argument("--hidden", type=int, default=64, help="hidden size")
    parser.add_argument("--sequence-length", type=int, default=32, help="tokens in a sequence")
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

    layers = build_layers(args.model, num_layers=args.layers, hidden_size=args.hidden, seed=args.seed)
    model = PipelineModule(layers=layers, num_stages=args.stages, loss_fn=loss_fn, partition_method="type:^Layer$")
    engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
    microbatches = batches(
        engine.train_micro_batch_size_per_gpu(), sequence_length=args.sequence_length, seed=args.seed
    )

    is_first_rank = torch.distributed.get_rank() == 0
    with ExitStack() as stack:
        losses = stack.enter_context(args.losses.open("w")) if args.losses and is_first_rank else None
        for step in range(1, args.steps + 1):
            began_s = time.perf_counter()
            loss = engine.train_batch(data_iter=microbatches).item()
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
