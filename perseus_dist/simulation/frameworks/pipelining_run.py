"""Examples of torch.distributed.pipelining trained by ``torchrun``, with and without Perseus, on simulated GPUs."""

import sys
from dataclasses import dataclass

from perseus_dist.simulation.frameworks.training_run import TrainingRun, free_port

_RUNNER = ("-m", "perseus_dist.pipelining")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeliningRun(TrainingRun):
    """A training script that takes ``--schedule``, ``--microbatches``, ``--steps`` and ``--losses``.

    Attributes:
        schedule: torch's name, without ``Schedule``.
        pp_size: Ranks of the one pipeline.
        num_microbatches: In an iteration.
        knows_perseus: Whether the script has ``--perseus``; otherwise ``-m perseus_dist.pipelining`` runs it.
    """

    schedule: str
    pp_size: int
    num_microbatches: int
    knows_perseus: bool = True

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
        if not with_perseus:
            return [*torchrun, *script]
        return [*torchrun, *script, *perseus] if self.knows_perseus else [*torchrun, *_RUNNER, *perseus, *script]
