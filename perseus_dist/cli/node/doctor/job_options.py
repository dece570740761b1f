"""Options of training in this environment: those that are refused, a profile of no use, a cache that cannot be kept."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from perseus_dist.device.inspection.slurm_folders import folder_trouble
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.training.options import OptionError, check_profile, options_from_environment
from perseus_dist.training.rank.agent_options import agent_options


def inspect_job_options(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at them as a job that starts here would, and at the folder of its cache."""
    try:
        options = options_from_environment()
    except OptionError as error:
        remedy = "correct the variable: jobs that ask for Perseus are refused, or run without"
        yield Finding(level=Level.WARN, subject="options", what=str(error), remedy=remedy)
        return
    try:
        check_profile(options)
    except OptionError as error:
        what = f"PERSEUS_PROFILE: {str(error).removeprefix('--perseus-profile ')}"
        remedy = "name a profile CSV of an earlier report, or leave the variable out: jobs are measured anew"
        yield Finding(level=Level.WARN, subject="options", what=what, remedy=remedy)
    cache = agent_options(options).get("cache")
    if cache is None:
        return
    is_named = bool(environ.get("PERSEUS_CACHE"))
    if trouble := _cache_trouble(Path(cache)):
        what = f"{cache}, where jobs keep profile and plans for their next start, {trouble}"
        remedy = "name another folder with PERSEUS_CACHE, or off: each start is profiled anew without one"
        yield Finding(level=Level.WARN, subject="job cache", what=what, remedy=remedy)
    elif is_named:
        yield Finding(level=Level.OK, subject="job cache", what=f"{cache} can be written to")


def _cache_trouble(folder: Path) -> str:
    """As ``folder_trouble``, of a folder that the first job makes."""
    for place in (folder, *folder.parents):
        if os.path.lexists(place):
            trouble = folder_trouble(place, is_writer=True)
            return trouble if place == folder or not trouble else f"cannot be made: {place} {trouble}"
    return ""
