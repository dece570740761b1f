"""The Megatron example trained by the real ``torchrun``, with and without Perseus, on simulated GPUs."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.simulation.frameworks.training_run import TrainingRun, free_port

_MODEL = (
    *("--hidden-size", "32", "--num-attention-heads", "4", "--seq-length", "16", "--max-position-embeddings", "16"),
    *("--make-vocab-size-divisible-by", "64", "--attention-dropout", "0", "--hidden-dropout", "0"),
)
"""So small that its real work is shorter than the simulated."""

_TRAINING = (
    *("--micro-batch-size", "1", "--lr", "0.01", "--min-lr", "0.01", "--num-workers", "0", "--log-interval", "1"),
    *("--eval-iters", "0", "--eval-interval", "1000000"),
)

_EXPERTS = ("--num-experts", "4", "--moe-token-dispatcher-type", "alltoall", "--disable-bias-linear", "--bf16")

_ON_CPU = (
    *("--distributed-backend", "gloo", "--use-cpu-initialization", "--transformer-impl", "local"),
    *("--no-masked-softmax-fusion", "--no-bias-gelu-fusion", "--no-bias-dropout-fusion", "--no-rope-fusion"),
    *("--no-gradient-accumulation-fusion", "--no-persist-layer-norm"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronLayout:
    """How a job is spread over its ranks.

    Attributes:
        pp_size, dp_size, tp_size, cp_size: How many ranks pipeline, data, tensor and context parallelism have.
        ep_size: How many of the data-parallel ranks share experts; 1: the model has none.
        is_ep_overlapped: Whether a forward and a backward run as one, and experts' transfers beside computations.
        num_chunks: Virtual stages on each rank; more than one is the interleaved schedule.
        num_microbatches: Of each pipeline in an iteration.
        is_p2p_overlapped: Whether the interleaved schedule's transfers run beside the computations.
    """

    pp_size: int
    dp_size: int = 1
    tp_size: int = 1
    cp_size: int = 1
    ep_size: int = 1
    is_ep_overlapped: bool = True
    num_chunks: int = 1
    num_microbatches: int = 8
    is_p2p_overlapped: bool = True

    @property
    def num_ranks(self) -> int:
        """One GPU each."""
        return self.pp_size * self.dp_size * self.tp_size * self.cp_size

    @property
    def arguments(self) -> list[str]:
        """Megatron's. Each virtual stage is one layer."""
        arguments = ["--pipeline-model-parallel-size", str(self.pp_size)]
        arguments += ["--tensor-model-parallel-size", str(self.tp_size)]
        arguments += ["--num-layers", str(self.pp_size * self.num_chunks)]
        arguments += ["--global-batch-size", str(self.dp_size * self.num_microbatches)]
        if self.num_chunks > 1:
            arguments += ["--num-virtual-stages-per-pipeline-rank", str(self.num_chunks)]
            arguments += [] if self.is_p2p_overlapped else ["--no-overlap-p2p-communication"]
        if self.cp_size > 1:
            arguments += ["--context-parallel-size", str(self.cp_size)]
        if self.ep_size > 1:
            arguments += ["--expert-model-parallel-size", str(self.ep_size), *_EXPERTS]
            arguments += ["--overlap-moe-expert-parallel-comm"] if self.is_ep_overlapped else []
        if self.dp_size > 1:
            arguments.append("--use-distributed-optimizer")
        return arguments


LAYOUTS = {
    "PP4": MegatronLayout(pp_size=4),
    "PP4 V2": MegatronLayout(pp_size=4, num_chunks=2, is_p2p_overlapped=False),
    "PP2 x TP2": MegatronLayout(pp_size=2, tp_size=2),
    "PP2 x DP2": MegatronLayout(pp_size=2, dp_size=2),
    "PP2 V2, overlapped": MegatronLayout(pp_size=2, num_chunks=2),
}
"""Cases that are measured and tested: each sort of parallelism that Megatron has of its own, on at most four ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronRun(TrainingRun):
    """A training script for ``megatron.training``; takes its arguments and ``--losses``.

    Attributes:
        layout: Over the ranks.
        megatron: Folder that holds the package ``megatron``; None where it is installed.
        length: Megatron's arguments that say how long it trains; ``num_steps`` iterations where there are none.
    """

    layout: MegatronLayout
    megatron: Path | None = None
    length: tuple[str, ...] = ()

    @property
    def num_ranks(self) -> int:
        """One GPU each."""
        return self.layout.num_ranks

    def command(self, *, with_perseus: bool) -> list[str]:
        """As a user would type it."""
        torchrun = [sys.executable, "-P", "-m", "torch.distributed.run"]
        torchrun += ["--nproc_per_node", str(self.num_ranks), "--master_port", str(free_port())]
        on_cpu = [] if self.preset is None else ["-m", "perseus_dist.simulation.megatron_on_cpu"]
        runner = ["-m", "perseus_dist.megatron"] if with_perseus else []
        losses = self.losses if with_perseus else self.reference_losses
        script = [str(self.script), *self.layout.arguments, *_MODEL, *_TRAINING]
        script += [] if self.preset is None else _ON_CPU
        script += self.length or ("--train-iters", str(self.num_steps))
        script += ["--losses", str(losses), *self.options]
        perseus = ["--enable-perseus", "--perseus-report", str(self.folder), *self.perseus_options]
        return [*torchrun, *on_cpu, *runner, *script, *(perseus if with_perseus else [])]

    def framework_environment(self) -> dict[str, str]:
        """Where Megatron is, and what it demands."""
        paths = [*([] if self.megatron is None else [str(self.megatron)]), os.environ.get("PYTHONPATH", "")]
        return {
            "CUDA_DEVICE_MAX_CONNECTIONS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONWARNINGS": "ignore",
        }
