"""The PostgreSQL database of the planner of a state folder."""

import logging
import secrets
from pathlib import Path

from perseus_dist.planner.access.private_file import write_private
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts
from perseus_dist.planner.store.state_dir import DATABASE, STATE_ID
from perseus_dist.planner.store.state_lock import lock_state_dir

_ASIDE = "planner.postgresql"

_log = logging.getLogger(__name__)


def open_postgres(address: PostgresAddress, state_dir: Path, advertise: str = "") -> PostgresFacts:
    """Open it, waiting for a database that cannot be reached yet and for another planner to end.

    Args:
        address: Of the database.
        state_dir: Where tokens and the audit record are, and what tells the database that a planner is this one again.
        advertise: Where agents and commands reach this planner as one of several replicas; empty for the only one.

    Raises:
        StoreError: The folder has another planner, or the database is of no use.
        OutputError: The folder cannot be written to.
    """
    path = state_dir / DATABASE
    lock = lock_state_dir(path)
    try:
        if path.exists():
            _log.warning("%s: is not used; --store names the database", path)
        return PostgresFacts(
            address,
            state_id=_state_id(state_dir / STATE_ID),
            aside=state_dir / _ASIDE,
            lock=lock,
            advertise=advertise,
        )
    except BaseException:
        lock.release()
        raise


def _state_id(path: Path) -> str:
    try:
        if found := path.read_text("ascii").strip():
            return found
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); remove it") from error
    made = secrets.token_hex(16)
    write_private(path, made + "\n")
    return made
