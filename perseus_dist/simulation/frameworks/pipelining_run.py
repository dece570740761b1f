"""The example of torch.distributed.pipelining trained by ``torchrun``, with and without Perseus, on simulated GPUs."""

import sys
from dataclasses import dataclass

from perseus_dist.simulation.frameworks.training_run import TrainingRun, free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeliningRun(TrainingRun):
    """A training script that takes ``--schedule``, ``--microbatches``, ``--steps``, ``--losses`` and ``--perseus``.

    Attributes:
        schedule: torch's name, without ``Schedule``.
        pp_size: Ranks of the one pipeline.
        num_microbatches: In an iteration.
    """

    schedule: str
    pp_size: int
    num_microbatches: int

    @property
    def num_ranks(self) -> int:
        """One GPU each."""
        return self.pp_size

    def command(self, *, with_perseus: bool) -> list[str]:
        """As a user would type it."""
        torchrun = [sys.executable, "-P", "-m", "torch.distributed.run"]
        torchrun += ["--nproc_per_node", str(self.num_ranks), "--master_port", str(free_port())]
        losses = self.losses if with_perseus else self.reference_losses
        script = [str(self.script), "--schedule", self.schedule, "--microbatches", str(self.num_microbatches)]
        script += ["--steps", str(self.num_steps), "--losses", str(losses), *self.options]
        perseus = ["--perseus", "--perseus-report", str(self.folder), *self.perseus_options]
        return [*torchrun, *script, *(perseus if with_perseus else [])]
