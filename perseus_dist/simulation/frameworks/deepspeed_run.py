"""The example trained by the real ``deepspeed`` launcher, with and without Perseus, on simulated GPUs or real ones."""

from dataclasses import dataclass
from pathlib import Path

from perseus_dist.simulation.frameworks.training_run import TrainingRun, free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeedRun(TrainingRun):
    """A training script for DeepSpeed's pipeline engine; takes ``--stages``, ``--steps`` and ``--losses``.

    Attributes:
        config: DeepSpeed's.
        num_stages: Of the pipeline.
        num_pipelines: Data-parallel replicas.
        launcher: ``deepspeed`` in an environment that was enabled, else ``perseus-deepspeed``.
    """

    config: Path
    num_stages: int
    num_pipelines: int
    launcher: str = "deepspeed"

    @property
    def num_ranks(self) -> int:
        """One GPU each."""
        return self.num_stages * self.num_pipelines

    def command(self, *, with_perseus: bool) -> list[str]:
        """As a user would type it."""
        perseus = ["--perseus", "--perseus-report", str(self.folder), *self.perseus_options] if with_perseus else []
        losses = self.losses if with_perseus else self.reference_losses
        script = [str(self.script), "--deepspeed", "--deepspeed_config", str(self.config)]
        script += ["--stages", str(self.num_stages), "--steps", str(self.num_steps), "--losses", str(losses)]
        ranks = ["--num_gpus", str(self.num_ranks), "--master_port", str(free_port())]
        launcher = self.launcher if with_perseus else "deepspeed"
        return [launcher, *perseus, *ranks, *script, *self.options]

    def framework_environment(self) -> dict[str, str]:
        """DeepSpeed looks for GPUs unless the environment says otherwise."""
        return {} if self.preset is None else {"DS_ACCELERATOR": "cpu"}
