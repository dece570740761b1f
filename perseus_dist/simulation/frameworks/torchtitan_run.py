"""torchtitan's own ``torchtitan.train`` under ``torchrun``, with and without Perseus, on simulated GPUs."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.simulation.frameworks.training_run import TrainingRun, free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchtitanRun(TrainingRun):
    """A module of torchtitan's configurations, with one named ``tiny`` that has ``--metrics.losses``.

    Attributes:
        schedule: torch's name, without ``Schedule``.
        pp_size: Ranks of a pipeline; 1 for none.
        dp_size: Pipelines, which FSDP shards the weights over.
        num_microbatches: Of each pipeline in an iteration.
        torchtitan: Folder that holds the package and what it needs beside torch; None where it is installed.
    """

    schedule: str
    pp_size: int
    num_microbatches: int
    dp_size: int = 1
    torchtitan: Path | None = None

    @property
    def num_ranks(self) -> int:
        """One GPU each."""
        return self.pp_size * self.dp_size

    def command(self, *, with_perseus: bool) -> list[str]:
        """As a user would type it."""
        torchrun = [sys.executable, "-P", "-m", "torch.distributed.run"]
        torchrun += ["--nproc_per_node", str(self.num_ranks), "--master_port", str(free_port())]
        on_cpu = [] if self.preset is None else ["-m", "perseus_dist.simulation.torchtitan_on_cpu"]
        runner = ["-m", "perseus_dist.pipelining", "--perseus-report", str(self.folder), *self.perseus_options]
        losses = self.losses if with_perseus else self.reference_losses
        return [
            *torchrun,
            *on_cpu,
            *(runner if with_perseus else []),
            *("-m", "torchtitan.train", "--module", self.script.stem, "--config", "tiny"),
            *("--dump_folder", str(self.folder / "torchtitan"), "--metrics.losses", str(losses)),
            *("--training.steps", str(self.num_steps), "--training.local_batch_size", str(self.num_microbatches)),
            *("--parallelism.pipeline_parallel_degree", str(self.pp_size)),
            *("--parallelism.pipeline_parallel_schedule", self.schedule),
            *("--parallelism.data_parallel_shard_degree", str(self.dp_size)),
            *self.options,
        ]

    def framework_environment(self) -> dict[str, str]:
        """Where configuration and torchtitan are."""
        folders = [self.script.parent, *([] if self.torchtitan is None else [self.torchtitan])]
        paths = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
        return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONWARNINGS": "ignore"}
