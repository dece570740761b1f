"""Identity of a job that all ranks agree on before they attach: its name, and where an embedded planner is found.

Rank 0 leaves its word in the job's own key-value store and the others look there. No rank waits: in a framework whose
iterations every rank takes part in, rank 0 had begun an iteration, and so had left its word, before anybody else ended
that iteration. A rank that looks too early looks again at its next iteration. torchrun may keep the store when it
starts the ranks again; then a word that is found in the first iteration may be an earlier attempt's.
"""

import json
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from perseus_dist.boundaries.rank_spec import SharedPlanner
from perseus_dist.errors import PerseusError
from perseus_dist.rpc.node_jobs import address_file, read_planner

_MAX_STEM_LENGTH = 100
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")


class IdentityError(PerseusError):
    """Rank 0 does not attach, so no rank does."""


class Store(Protocol):
    """A key-value store that all ranks share: ``torch.distributed.Store``."""

    def set(self, key: str, value: str) -> None:
        """Set the value of a key, for all ranks."""

    def get(self, key: str) -> bytes:
        """The value of a key, waiting until a rank has set it."""

    def check(self, keys: list[str]) -> bool:
        """Whether all of them are there."""

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, and what it is then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    """Rank 0's word.

    Attributes:
        job: The job's name.
        rendezvous: Folder where the embedded planner leaves its address; None where the user named a planner.
        host_id: Of the host that rank 0 runs on, and its network.
        run_id: As in ``RankSpec``.
        is_shared: Whether rank 0 says later how other hosts reach the embedded planner.
    """

    job: str
    rendezvous: str | None
    host_id: str
    run_id: str
    is_shared: bool = False

    @property
    def is_within_reach(self) -> bool:
        """Whether this process could reach what rank 0 embeds: the same host, and the same files."""
        return self.rendezvous is None or (self.host_id == _host_id() and Path(self.rendezvous).is_dir())

    def discard(self) -> None:
        """Remove the rendezvous folder if it is unused."""
        if self.rendezvous is not None:
            with suppress(OSError):
                Path(self.rendezvous).rmdir()


def make_identity(*, job: str | None, is_planner_embedded: bool, is_shared: bool = False) -> JobIdentity:
    """Rank 0's word: the name that was given, or one after the script that runs.

    Raises:
        OSError: No temporary folder could be made.
    """
    return JobIdentity(
        job=job or f"{_script_stem()}-{secrets.token_hex(4)}",
        rendezvous=tempfile.mkdtemp(prefix="perseus-") if is_planner_embedded else None,
        host_id=_host_id(),
        run_id=secrets.token_hex(8),
        is_shared=is_shared,
    )


def leave_identity(store: Store, key: str, identity: JobIdentity) -> None:
    """Rank 0 says what it is. Raises what the store raises."""
    store.set(key, json.dumps(asdict(identity)))


def leave_refusal(store: Store, key: str, reason: str) -> None:
    """Rank 0 says that it does not attach. Raises what the store raises."""
    store.set(key, json.dumps({"refusal": reason}))


def find_identity(store: Store, key: str) -> JobIdentity | None:
    """The identity that rank 0 has published, or None before that. Raises what the store raises.

    Raises:
        IdentityError: It does not attach.
    """
    if not store.check([key]):
        return None
    word = json.loads(store.get(key))
    if "refusal" in word:
        raise IdentityError(word["refusal"])
    return JobIdentity(**word)


class PlannerAnnouncement:
    """Announces the planner that this rank embeds to other hosts, once it listens.

    Args:
        store: Where they look.
        key: Of the job there, in this attempt.
        identity: The job's.
    """

    def __init__(self, store: Store, key: str, identity: JobIdentity) -> None:
        assert identity.rendezvous is not None
        self._store = store
        self._word = f"{key}/planner"
        self._file = address_file(Path(identity.rendezvous), identity.job)

    def is_made(self) -> bool:
        """Announce it if it listens by now; whether nothing is left to do."""
        found = read_planner(self._file)
        if found is None:
            return False
        if found.shared is not None:
            self._store.set(self._word, json.dumps(asdict(found.shared)))
        else:
            leave_refusal(self._store, self._word, "rank 0's planner cannot listen for other nodes")
        return True


def announced_planner(store: Store, key: str) -> SharedPlanner | None:
    """The planner that rank 0 embeds, or None while it has not said. Raises what the store raises.

    Raises:
        IdentityError: Other hosts cannot reach it.
    """
    if not store.check([f"{key}/planner"]):
        return None
    word = json.loads(store.get(f"{key}/planner"))
    if "refusal" in word:
        raise IdentityError(word["refusal"])
    return SharedPlanner(**word)


def is_store_kept(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether what ranks leave in the store may still be there when their launcher starts them again."""
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def is_first_to_say(store: Store, key: str) -> bool:
    """True for the first rank of the job that asks, so that one speaks for all. Raises what the store raises."""
    return store.add(f"{key}/said", 1) == 1


def torch_store() -> Store:
    """The store of torch's default process group.

    Raises:
        ValueError: There is no process group.
    """
    from torch.distributed import distributed_c10d

    store: Store = distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no public name for it
    return store


def _script_stem() -> str:
    """The script's name, as far as a job's name may have its characters."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(sys.argv[0] if sys.argv else "").stem).strip("-.")
    return stem[:_MAX_STEM_LENGTH] or "job"


def _host_id() -> str:
    """Equal for processes that reach each other over the loopback interface."""
    try:
        host = _BOOT_ID.read_text().strip()
    except OSError:
        host = os.uname().nodename
    with suppress(OSError):
        return f"{host} {_NETWORK.stat().st_ino}"
    return host
