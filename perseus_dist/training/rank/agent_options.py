"""The agent's options, of what was asked for with the training script."""

import os
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
        return str(Path(options.report) / "cache")
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        return str((Path(named) if named else Path.home() / ".cache") / "perseus-dist")
    except RuntimeError:  # no home folder is known
        return None
