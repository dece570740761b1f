"""A Llama so small that torchtitan 0.3.0 trains it without a GPU, by torchtitan's own way to add configurations.

    PYTHONPATH=examples torchrun --nproc_per_node 2 -m torchtitan.train --module torchtitan_llama --config tiny ...

On top of torchtitan's there is ``--metrics.losses FILE``. The text is this module's own; weights are random.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

WORDS = ("the", "of", "and", "to", "in", "is", "was", "for", "with", "as", "his", "on", "be", "at", "by")


class Characters(BaseTokenizer):
    """A token for each character."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """Nothing to choose."""

    def __init__(self, config: Config, *, tokenizer_path: str) -> None:  # noqa: ARG002 - as torchtitan builds it
        super().__init__()

    def encode(self, text: str) -> list[int]:
        """The characters of ASCII text."""
        return list(text.encode("ascii"))

    def decode(self, tokens: list[int]) -> str:
        """The inverse."""
        return bytes(tokens).decode("ascii")

    def get_vocab_size(self) -> int:
        """Of ASCII."""
        return 128


class Corpus(BaseDataLoader):
    """Sequences of characters, each with the same sequence one character on. The same text at every run."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """Nothing to choose."""

    def __init__(
        self,
        config: Config,  # noqa: ARG002 - as torchtitan builds it
        *,
        dp_world_size: int,
        dp_rank: int,
        tokenizer: Characters,
        seq_len: int,
        local_batch_size: int,
        **_: Any,
    ) -> None:
        text = " ".join(random.Random(1234).choices(WORDS, k=50_000))
        sequences = torch.tensor(tokenizer.encode(text)).unfold(0, seq_len + 1, seq_len)
        self.batches = sequences[dp_rank::dp_world_size].split(local_batch_size)[:-1]  # the last is shorter
        self.next_batch = 0

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        while True:
            batch = self.batches[self.next_batch % len(self.batches)]
            self.next_batch += 1
            positions = torch.arange(batch.size(1) - 1).expand(batch.size(0), -1)
            yield {"input": batch[:, :-1], "positions": positions}, batch[:, 1:]

    def state_dict(self) -> dict[str, int]:
        """Of a checkpoint."""
        return {"next_batch": self.next_batch}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """From a checkpoint."""
        self.next_batch = state_dict["next_batch"]


class LossFile(MetricsProcessor):
    """Also writes each step's exact loss, a JSON line a step, on the rank that has it."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):
        """Where to."""

        losses: str = ""

    def log(self, step: int, global_avg_loss: float, *args: Any, **kwargs: Any) -> None:
        """Log, and write."""
        super().log(step, global_avg_loss, *args, **kwargs)
        if self.config.losses and global_avg_loss >= 0.0:  # -1 where the last stage is not
            with Path(self.config.losses).open("w" if step == 1 else "a") as file:
                print(json.dumps({"step": step, "loss": global_avg_loss}), file=file)


def tiny() -> Trainer.Config:
    """Six layers of 256, in float32. Attention without a mask, since flex attention trains on GPUs alone."""
    spec = model_registry("debugmodel")
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return Trainer.Config(
        model_spec=spec,
        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec)),
        tokenizer=Characters.Config(),
        dataloader=Corpus.Config(),
        metrics=LossFile.Config(log_freq=1),
        optimizer=default_adamw(lr=8e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2),
        training=TrainingConfig(
            local_batch_size=4,
            seq_len=32,
            steps=50,
            mixed_precision_param="float32",
            mixed_precision_reduce="float32",
            disable_cuda_graphs=True,  # as torchtitan demands of pipelines
        ),
        parallelism=ParallelismConfig(
            pipeline_parallel_first_stage_less_layers=0,
            pipeline_parallel_last_stage_less_layers=0,
            spmd_backend="partial_dtensor",  # the others shard weights only with a torch newer than 2.13
        ),
        activation_checkpoint=None,
        debug=DebugConfig(seed=1234),
    )
