"""Submission of a job: its user, its project, and its names in the workload manager, from the environment."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass

MAX_TEXT = 128
"""Characters of one field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Who submitted a job, and as what; empty where that is not known.

    Attributes:
        user: Login name.
        project: ``PERSEUS_PROJECT``, else the Slurm account.
        cluster: Slurm's name of it.
        slurm_job_id: ``SLURM_JOB_ID``; of an array's job its own raw number.
        job_name: ``sbatch --job-name``.
    """

    user: str = ""
    project: str = ""
    cluster: str = ""
    slurm_job_id: str = ""
    job_name: str = ""


NO_SUBMISSION = Submission()


def submission_of(environ: Mapping[str, str]) -> Submission:
    """Of the job that this process belongs to.

    Args:
        environ: Of this process; Slurm sets ``SLURM_JOB_ID`` and others in each task.
    """
    return Submission(
        user=plain(environ.get("SLURM_JOB_USER") or _user()),
        project=plain(environ.get("PERSEUS_PROJECT") or environ.get("SLURM_JOB_ACCOUNT", "")),
        cluster=plain(environ.get("SLURM_CLUSTER_NAME", "")),
        slurm_job_id=plain(environ.get("SLURM_JOB_ID", "")),
        job_name=plain(environ.get("SLURM_JOB_NAME", "")),
    )


def plain(text: str) -> str:
    """A text that may stand on a terminal and in one cell of a table: at most 128 printable characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_TEXT])


def _user() -> str:
    user_id = os.geteuid()
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
