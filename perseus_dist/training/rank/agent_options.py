"""The agent's options, of what was asked for with the training script."""

import os
import stat
from pathlib import Path

from perseus_dist.training.options import PerseusOptions


def agent_options(options: PerseusOptions) -> dict[str, str]:
    """By name, those that are set; the names are ``RankSpec.options``'."""
    said = {
        "tls_ca": options.tls_ca,
        "tls_cert": options.tls_cert,
        "tls_key": options.tls_key,
        "planner_stragglers": options.stragglers,
        "granularity": options.granularity,
        "cache": None if options.planner is not None else _cache_folder(options),
    }
    return {name: value for name, value in said.items() if value is not None}


def _cache_folder(options: PerseusOptions) -> str | None:
    """The folder that was asked for, or one beside the report, or the user's; None for none."""
    if options.cache is not None:
        return None if options.cache == "off" else options.cache
    if options.report is not None:
        return str(_cache_of_report(Path(options.report)))
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        return str((Path(named) if named else Path.home() / ".cache") / "perseus-dist")
    except RuntimeError:  # no home folder is known
        return None


def _cache_of_report(report: Path) -> Path:
    """Beside the report, where a start with another report finds it, too; within it where no folder of ours can be.

    What is around a volume that is mounted at the report is the container's, and gone with it. In a folder of
    everybody's, as /tmp, the first user's would be in the way of the others.
    """
    beside = report.parent / "perseus-cache"
    try:
        around = report.parent.stat()
        place = beside if beside.exists() else report.parent
        is_within = bool(around.st_mode & stat.S_ISVTX) or not os.access(place, os.W_OK | os.X_OK)
        is_within |= report.exists() and report.stat().st_dev != around.st_dev
    except FileNotFoundError:  # it is made with the report
        is_within = False
    except OSError:
        is_within = True
    return report / "cache" if is_within else beside
