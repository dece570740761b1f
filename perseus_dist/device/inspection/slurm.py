"""Slurm's settings, as far as a job's environment and its node show them."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from perseus_dist.device.inspection.slurm_folders import inspect_hook_folders
from perseus_dist.messages.finding import Finding, Level

_TIMEOUT_S = 3.0
_SETTINGS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
_HOOKS = {
    "Prolog": "nodes are not checked, and a job's --comment=perseus has no effect",
    "TaskProlog": "tasks are without PERSEUS=1, and a job's --comment=perseus has no effect",
    "Epilog": "clocks that a killed job leaves locked stay so until clockd sees to them",
    "TaskEpilog": "the end of a step cuts agents off before their last word, and a job's comment tells nothing",
}


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


def inspect_slurm_settings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the settings of the cluster that this node belongs to, if it is one of Slurm's.

    Not within Slurm's own prolog and epilog, where commands of Slurm would put all nodes' load on its controller.
    """
    scontrol = shutil.which("scontrol", path=environ.get("PATH"))
    if scontrol is None or environ.get("SLURM_SCRIPT_CONTEXT"):
        return
    try:
        shown = subprocess.run([scontrol, "show", "config"], capture_output=True, text=True, timeout=_TIMEOUT_S)  # noqa: PLW1510 - its failure is a finding
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        shown = None
    if shown is not None and shown.returncode == 0:
        yield from judge_slurm_settings(shown.stdout)
        yield from inspect_hook_folders(shown.stdout)
    elif any(Path(path).exists() for path in (environ.get("SLURM_CONF", ""), *_SETTINGS) if path):  # a cluster's node
        what = "'scontrol show config' does not answer"
        yield Finding(level=Level.WARN, subject="Slurm", what=what, remedy="look at slurmctld, munge and slurm.conf")


def judge_slurm_settings(config: str) -> Iterator[Finding]:
    """Judge what ``scontrol show config`` prints: hooks that are missing, and a plugin that loses sight of agents."""
    lines = (line.partition("=") for line in config.splitlines())
    settings = {name.strip().partition("[")[0]: value.strip() for name, _, value in lines}
    unset = [name for name in _HOOKS if settings.get(name, "") in ("", "(null)")]
    for name in unset:
        remedy = "set it to the script of launch/slurm in slurm.conf, and run 'scontrol reconfigure'"
        yield Finding(level=Level.WARN, subject="Slurm", what=f"no {name}: {_HOOKS[name]}", remedy=remedy)
    if "Prolog" not in unset and "Alloc" not in settings.get("PrologFlags", ""):
        what = "PrologFlags is without Alloc: the prolog runs with a node's first step, not as the job begins"
        yield Finding(level=Level.WARN, subject="Slurm", what=what, remedy="add PrologFlags=Alloc to slurm.conf")
    tracking = settings.get("ProctrackType", "")
    if tracking and tracking.removeprefix("proctrack/") != "cgroup":
        what = f"ProctrackType is {tracking}, which loses sight of agents: they are sessions of their own"
        yield Finding(level=Level.WARN, subject="Slurm", what=what, remedy="set ProctrackType=proctrack/cgroup")
    if not unset:
        yield Finding(level=Level.OK, subject="Slurm", what="prolog, epilog and those of tasks are set")
