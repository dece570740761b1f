"""The age of the newest backup of a planner on this node."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perseus_dist.cli.settings.effective import Setting
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.planner.store.last_backup import OLD_S, last_backup
from perseus_dist.planner.store.state_dir import DATABASE, RIGHTS
from perseus_dist.rpc.state_folder import default_state_dir

_OF_THE_UNIT = Path("/var/lib/perseus-dist")  # which perseus-planner.service gives on the command line


def planner_state_dir(settings: Sequence[Setting]) -> Path:
    """The state folder in the settings, else the default one, or the service's if a planner's state is there alone."""
    set_dir = next((one.value for one in settings if (one.section, one.key) == ("planner", "state-dir")), None)
    if isinstance(set_dir, Path):
        return set_dir
    own = default_state_dir()
    return _OF_THE_UNIT if _keeps_state(_OF_THE_UNIT) and not _keeps_state(own) else own


def is_planner_kept_here(settings: Sequence[Setting]) -> bool:
    """Whether a planner keeps its state in the folder; not where this user may not look into it."""
    return _keeps_state(planner_state_dir(settings))


def _keeps_state(state_dir: Path) -> bool:
    try:
        return os.access(state_dir, os.R_OK, effective_ids=True) and any(
            (state_dir / name).exists() for name in (DATABASE, RIGHTS)
        )
    except OSError:
        return False


def inspect_backup(settings: Sequence[Setting]) -> Iterator[Finding]:
    """Look at the planner's state folder; nothing where there is none, or where this user may not look into it."""
    state_dir = planner_state_dir(settings)
    if not is_planner_kept_here(settings):
        return
    found = last_backup(state_dir)
    days = None if found is None else max(0.0, time.time() - found.time_s) / 86400
    if found is not None and days is not None and days * 86400 <= OLD_S:
        what = f"{state_dir}: {found.file}, {days:.1f} days old"
        yield Finding(level=Level.OK, subject="backup", what=what)
        return
    what = f"{state_dir}: " + ("no backup is known" if found is None else f"the newest is {days:.0f} days old")
    remedy = f"run 'perseus-dist state backup FILE --state-dir {state_dir}', by a timer"
    yield Finding(level=Level.WARN, subject="backup", what=what, remedy=remedy)
