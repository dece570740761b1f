"""Jobs of this node that embed their planner: how operators find them by name, and what a killed job leaves behind.

```
 <state folder>/jobs/<boot id>-<random>.json     an entry: {"job": ..., "host": ..., "rendezvous": "/tmp/perseus-...",
                                                 "mounts": ...}, the last by newer versions
 <rendezvous>/perseus-planner-<job>.json         {"address": ..., "token": ..., "pid": ...}, mode 0600, and where
                                                 other nodes take part {"shared": {"address": ..., "certificate": ...}}
 <rendezvous>/planner-<hash of the job's name>-<random>/
   planner.sqlite*                               what the planner must remember
   shared.json, operator-token                   where other nodes find it, and what they show
```

The agent that embeds the planner, and the planner itself, hold a shared lock on the rendezvous folder. The kernel drops
it when both have ended, however they did: a rendezvous whose lock is free is dead, also where process ids say nothing,
as between containers. Entries and folders of other users are neither believed nor touched.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.boundaries.rank_spec import SharedPlanner
from perseus_dist.errors import PerseusError
from perseus_dist.planning.output_file import replace_file
from perseus_dist.rpc.state_folder import default_state_dir

RENDEZVOUS_PREFIX = "perseus-"
SHARED_PORT_FILE, TOKEN_FILE = "shared.json", "operator-token"

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RENDEZVOUS = re.compile(r"perseus-[a-z0-9_]{8}")  # as tempfile.mkdtemp names it
_TRACE = re.compile(r"perseus-planner-.+\.json|\.perseus-planner-.+\.json\.[0-9]+\.tmp")
_STATE = re.compile(r"planner-[0-9a-f]{8}-[a-z0-9_]{8}")
_STATE_FILE = re.compile(r"\.?(planner\.sqlite|shared\.json|operator-token).*")
_DEAD_EMPTY_S = 600.0  # a trainer makes the folder, and its agent locks it some seconds later
_LOCK_S = 1.0
_UNSEEN_S = 30 * 86_400.0  # longer than jobs run: the folder may be on the /tmp of another container


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerFile:
    """The content of a planner's address file.

    Attributes:
        shared: As other nodes reach it; None where none is to.
    """

    address: str
    token: str
    shared: SharedPlanner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """A job that embeds its planner.

    Attributes:
        job_id: Its name.
        rendezvous: The folder where its planner leaves address and token.
    """

    job_id: str
    rendezvous: Path

    def read_planner(self) -> PlannerFile | None:
        """Where the planner listens; None while it is starting."""
        return read_planner(address_file(self.rendezvous, self.job_id))


def address_file(folder: Path, job_id: str) -> Path:
    """Where a job's embedded planner leaves its address and token."""
    return folder / f"perseus-planner-{job_id}.json"


def state_prefix(job_id: str) -> str:
    """How the state folders of a job's embedded planners begin; several jobs may share a rendezvous."""
    return f"planner-{hashlib.sha256(os.fsencode(job_id)).hexdigest()[:8]}-"


def state_folders(folder: Path, job_id: str) -> list[Path]:
    """The state folders in a rendezvous that planners of a job have left, or still use."""
    return [path for path in folder.glob(f"{state_prefix(job_id)}*") if _STATE.fullmatch(path.name)]


def read_planner(path: Path) -> PlannerFile | None:
    """Read an address file; None where there is none, or another user owns it."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError), path.open(encoding="utf-8") as file:
        if os.fstat(file.fileno()).st_uid == os.geteuid():
            found = json.load(file)
            token, shared = str(found["token"]), found.get("shared")
            return PlannerFile(
                address=str(found["address"]),
                token=token,
                shared=None if shared is None else SharedPlanner(token=token, **shared),
            )
    return None


def hold_rendezvous(folder: Path) -> int | None:
    """Make the folder if it is missing, and lock it against removal.

    Returns:
        The descriptor that holds the lock, not inheritable; None where the file system has no such locks.

    Raises:
        OSError: The folder cannot be made.
    """
    until_s = time.monotonic() + _LOCK_S
    while time.monotonic() < until_s:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # it was swept this moment
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if _is_at(descriptor, folder):
                return descriptor
        except BlockingIOError:  # a process looks whether it is dead, which takes a moment
            time.sleep(0.01)
        except OSError:
            os.close(descriptor)
            return None
        os.close(descriptor)
    return None


def register_job(job_id: str, rendezvous: Path) -> Path:
    """Let operators find a job; returns the entry, which the caller removes when the job is over.

    Raises:
        OSError, PerseusError: The state folder cannot be written to.
    """
    folder = _entries_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    entry = folder / f"{_boot_id()}-{secrets.token_hex(4)}.json"
    document = {
        "job": job_id,
        "host": os.uname().nodename,
        "rendezvous": str(rendezvous.absolute()),
        "mounts": _mounts(),
    }
    replace_file(entry, json.dumps(document).encode())
    return entry


def running_jobs() -> list[NodeJob]:
    """Jobs of this user on this node whose planner's owner lives, by name."""
    jobs = []
    for _, job, _ in _entries():
        with _dead_folder(job.rendezvous) as descriptor:
            if descriptor is None and _is_seen(job.rendezvous):
                jobs.append(job)
    return sorted(jobs, key=lambda job: (job.job_id, str(job.rendezvous)))


def sweep_dead_jobs() -> None:
    """Remove what killed jobs of this user have left: tokens, databases, rendezvous folders, entries. Never raises.

    An entry whose rendezvous folder this process cannot see stays for a while, unless it was made where the same
    folders are seen and the folder is gone: Slurm's ``job_container/tmpfs`` and containers give each job a /tmp of its
    own, and share the home folder.
    """
    with suppress(OSError, PerseusError):
        for entry, job, sees_same in _entries():
            with suppress(OSError):  # another process sweeps at the same time
                is_known = _is_seen(job.rendezvous) or (sees_same and _is_gone(job.rendezvous))
                _sweep_folder(job.rendezvous)
                if not _is_held(job.rendezvous) and (is_known or time.time() > entry.stat().st_mtime + _UNSEEN_S):
                    entry.unlink(missing_ok=True)
        for path in Path(tempfile.gettempdir()).glob(f"{RENDEZVOUS_PREFIX}*"):
            if _RENDEZVOUS.fullmatch(path.name):
                with suppress(OSError):
                    _sweep_folder(path)


def _entries_folder() -> Path:
    return default_state_dir() / "jobs"


def _entries() -> Iterator[tuple[Path, NodeJob, bool]]:
    """Entries of this node, earlier boots included; other nodes may share the home folder.

    Each with its job, and whether it was made by a process that sees the same folders as this one.
    """
    with suppress(OSError, PerseusError):
        for path in sorted(_entries_folder().glob("*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                if path.stat().st_uid != os.geteuid():
                    continue
                found = json.loads(path.read_text(encoding="utf-8"))
                is_boot, is_host = path.name.startswith(_boot_id()), found["host"] == os.uname().nodename
                if is_boot or is_host:
                    sees_same = is_boot and is_host and found.get("mounts") == (_mounts() or "unknown")
                    job = NodeJob(job_id=str(found["job"]), rendezvous=Path(str(found["rendezvous"])))
                    yield path, job, sees_same


def _is_held(folder: Path) -> bool:
    with _dead_folder(folder) as descriptor:
        return descriptor is None and _is_seen(folder)


def _is_seen(folder: Path) -> bool:
    with suppress(OSError):  # a folder above it may be closed to this process
        return folder.is_dir()
    return False


def _is_gone(folder: Path) -> bool:
    try:
        folder.lstat()
    except FileNotFoundError:
        return True
    except OSError:  # as in _is_seen
        return False
    return False


@contextmanager
def _dead_folder(folder: Path) -> Iterator[int | None]:
    """A descriptor of a rendezvous folder of this user that no process holds, locked meanwhile; else None."""
    descriptor = None
    try:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        is_dead = False
        if descriptor is not None:
            with suppress(OSError):
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_dead = True
        yield descriptor if is_dead else None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _sweep_folder(folder: Path) -> None:
    """Remove our files, by their names alone, and the folders that are empty then."""
    with _dead_folder(folder) as descriptor:
        if descriptor is None:
            return
        names = os.listdir(descriptor)  # noqa: PTH208 - by the descriptor, which cannot be exchanged
        if not names and time.time() < os.fstat(descriptor).st_mtime + _DEAD_EMPTY_S:
            return
        for name in names:
            if _TRACE.fullmatch(name):
                with suppress(OSError):
                    os.unlink(name, dir_fd=descriptor)
            elif _STATE.fullmatch(name):
                sweep_state(name, descriptor)
        with suppress(OSError):  # files of others are in it
            folder.rmdir()


def sweep_state(name: str | Path, parent: int | None = None) -> None:
    """Remove a planner's files in its state folder, by their names alone, and the folder if it is empty then.

    Args:
        name: Of the folder.
        parent: Descriptor of the folder that the name is relative to.
    """
    with suppress(OSError):
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            for file in os.listdir(descriptor):  # noqa: PTH208 - likewise
                if _STATE_FILE.fullmatch(file):
                    with suppress(OSError):  # another process sweeps at the same time, or the planner itself ends
                        os.unlink(file, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        os.rmdir(name, dir_fd=parent)


def _is_at(descriptor: int, folder: Path) -> bool:
    """Whether a folder that was opened is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


def _boot_id() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return os.uname().nodename


def _mounts() -> str:
    """Mount namespace and root of this process: others of its boot see the same folders there; empty if unknown."""
    with suppress(OSError):
        namespace, root = Path("/proc/self/ns/mnt").stat(), Path("/").stat()
        return f"{namespace.st_ino}-{root.st_dev}-{root.st_ino}"
    return ""
