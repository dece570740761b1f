"""A small GPT trained by Megatron-Bridge's own ``pretrain``, as its users' scripts do. Writes losses as JSON lines."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from megatron.bridge.models import GPTModelProvider
from megatron.bridge.models.gpt_provider import local_layer_spec
from megatron.bridge.training.callbacks import Callback
from megatron.bridge.training.config import (
    CheckpointConfig,
    ConfigContainer,
    DatasetBuildContext,
    DatasetProvider,
    DistributedDataParallelConfig,
    DistributedInitConfig,
    LoggerConfig,
    OptimizerConfig,
    SchedulerConfig,
    TrainingConfig,
)
from megatron.bridge.training.pretrain import pretrain
from megatron.bridge.training.tokenizers.config import TokenizerConfig
from torch.utils.data import Dataset

LENGTH, VOCABULARY, NUM_MICROBATCHES = 16, 128, 4


class Tokens(Dataset[dict[str, Any]]):  # type: ignore[misc]
    """Sequences of random tokens, the same at every run."""

    def __init__(self, num: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, VOCABULARY, (num, LENGTH + 1), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": self.tokens[index, :-1], "labels": self.tokens[index, 1:]}


class TokensProvider(DatasetProvider):  # type: ignore[misc]
    def build_datasets(self, context: DatasetBuildContext) -> tuple[Any, Any, Any]:
        numbers = context.train_samples, context.valid_samples, context.test_samples
        train, valid, test = (Tokens(num, seed) if num else None for seed, num in enumerate(numbers))
        return train, valid, test


class Losses(Callback):  # type: ignore[misc] # Any, as all of Bridge
    """The exact loss of every step, from the last rank; it is of the last stage."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_step_end(self, context: Any) -> None:
        is_last = torch.distributed.get_rank() == torch.distributed.get_world_size() - 1
        if context.loss_dict and is_last:
            line = {"step": context.state.train_state.step + 1, "loss": context.loss_dict["lm loss"].item()}
            with self.path.open("a") as file:
                print(json.dumps(line), file=file)


def forward_step(data_iterator: Any, model: Any) -> Any:
    """One microbatch."""
    batch = next(data_iterator)
    tokens = batch["tokens"].cuda()
    positions = torch.arange(LENGTH, device=tokens.device).expand_as(tokens)
    is_future = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool, device=tokens.device).triu(1)
    output = model(tokens, positions, is_future, labels=batch["labels"].cuda())
    return output, loss_of


def loss_of(output: Any) -> Any:
    """Sum and number of a microbatch's losses, and both for the log."""
    total = output.float().sum()
    num = torch.tensor(output.numel(), dtype=torch.int, device=output.device)
    return total, num, {"lm loss": torch.stack([total.detach(), num.float()])}


def config_of(options: argparse.Namespace) -> ConfigContainer:
    """Bridge's configuration, of a model and precision that a CPU can train."""
    model = GPTModelProvider(
        num_layers=options.pp * (options.vp or 1),
        hidden_size=32,
        num_attention_heads=4,
        ffn_hidden_size=64,
        seq_length=LENGTH,
        vocab_size=VOCABULARY,
        pipeline_model_parallel_size=options.pp,
        virtual_pipeline_model_parallel_size=options.vp,
        pipeline_dtype=torch.float32,
        params_dtype=torch.float32,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        transformer_layer_spec=local_layer_spec,
        share_embeddings_and_output_weights=False,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        cross_entropy_loss_fusion=options.decentralized,  # the other one wants megatron.core.parallel_state
        cross_entropy_fusion_impl="native",
        persist_layer_norm=False,
        apply_rope_fusion=False,
    )
    return ConfigContainer(
        model=model,
        train=TrainingConfig(
            micro_batch_size=1,
            global_batch_size=NUM_MICROBATCHES * options.dp,
            train_iters=options.steps,
            eval_interval=options.eval_interval,
            eval_iters=1,
        ),
        optimizer=OptimizerConfig(optimizer="adam", lr=1e-2, min_lr=1e-2, use_distributed_optimizer=options.dp > 1),
        scheduler=SchedulerConfig(
            lr_decay_style="constant", lr_warmup_iters=0, start_weight_decay=0.01, end_weight_decay=0.01
        ),
        ddp=DistributedDataParallelConfig(use_distributed_optimizer=options.dp > 1),
        dataset=TokensProvider(dataloader_type="single", num_workers=0, persistent_workers=False),
        logger=LoggerConfig(
            log_interval=1,
            tensorboard_dir=options.tensorboard,
            tensorboard_log_interval=2,
            log_timers_to_tensorboard=False,
        ),
        tokenizer=TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=VOCABULARY - 1),
        checkpoint=CheckpointConfig(
            save=options.save, save_interval=options.save_interval, ckpt_format="torch_dist", async_save=False
        ),
        dist=DistributedInitConfig(
            distributed_backend="gloo", use_decentralized_pg=options.decentralized, use_gloo_process_groups=False
        ),
    )


def main() -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--vp", type=int)
    parser.add_argument("--dp", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--losses", type=Path, required=True)
    parser.add_argument("--tensorboard")
    parser.add_argument("--save")
    parser.add_argument("--save-interval", type=int)
    parser.add_argument("--eval-interval", type=int, default=1_000_000)
    parser.add_argument("--decentralized", action="store_true")
    parser.add_argument("--callback", action="store_true", help="Perseus by its callback")
    options = parser.parse_args()
    callbacks: list[Any] = [Losses(options.losses)]
    if options.callback:
        from perseus_dist.megatron import PerseusCallback

        callbacks.append(PerseusCallback())
    pretrain(config_of(options), forward_step, callbacks)
