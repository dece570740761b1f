"""Slurm's settings, as far as a job's environment and its node show them."""

from collections.abc import Iterator, Mapping

from perseus_dist.messages.finding import Finding, Level


def inspect_slurm(environ: Mapping[str, str]) -> Iterator[Finding]:
    """A clock that the job has asked Slurm for: it is locked as the step begins, and reset as it ends."""
    asked = [environ.get("SLURM_GPU_FREQ", ""), environ.get("SLURMD_TRES_FREQ", "").partition("gpu:")[2]]
    for clock in filter(None, asked[:1] if asked[0] else asked):
        yield Finding(
            level=Level.WARN,
            subject="Slurm",
            what=f"this job has asked Slurm for GPU frequency {clock!r}: slurmstepd locks clocks as a step begins, and "
            "resets them as it ends, which undoes what Perseus sets",
            remedy="leave out --gpu-freq (SLURM_GPU_FREQ, SBATCH_GPU_FREQ) where a job runs under Perseus",
        )
