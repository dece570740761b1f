"""The last answer of a signal's provider, in a file of the state folder, behind a line that says whose it is."""

import json
import logging
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from perseus_dist.errors import OutputError, PlanningError
from perseus_dist.planning.output_file import replace_file
from perseus_dist.policies.provider import MAX_BYTES, Provider
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.tariff import Tariff

_MAX_HEAD_BYTES = 4096

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An answer that was kept.

    Attributes:
        asked_unix_s: Unix time of its request.
        age_s: [s] since then by the wall clock; not negative.
    """

    content: tuple[Piece, ...] | Tariff
    asked_unix_s: float
    age_s: float


class KeptAnswer:
    """One signal's file. An answer of another address is not read."""

    def __init__(self, folder: Path, name: str) -> None:
        """Begin.

        Args:
            folder: Is made where it is missing; its parent is there.
            name: Of the signal.
        """
        self._path = folder / name

    def read(self, provider: Provider) -> Kept | None:
        """The answer of that provider; None where there is none of use."""
        from perseus_dist.policies.provider_request import read_answer

        try:
            with self._path.open("rb") as file:
                head = json.loads(file.readline(_MAX_HEAD_BYTES))
                data = file.read(MAX_BYTES + 1)
            asked_unix_s = float(head["asked_unix_s"])
            if head["provider"] != _identity(provider) or not 0 < asked_unix_s < time.time() + provider.stale_s:
                return None
            content = read_answer(provider, data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, PlanningError) as error:
            _log.warning("%s: the answer that was kept cannot be read (%s)", self._path, error)
            return None
        return Kept(content=content, asked_unix_s=asked_unix_s, age_s=max(0.0, time.time() - asked_unix_s))

    def write(self, provider: Provider, data: bytes, asked_unix_s: float) -> None:
        """Keep an answer instead of the one before; where that fails, the log says so."""
        head = json.dumps({"provider": _identity(provider), "asked_unix_s": asked_unix_s}).encode()
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(self._path, head + b"\n" + data, mode=0o600)
        except (OSError, OutputError) as error:
            _log.warning("%s: an answer cannot be kept for a restart (%s)", self._path, error)


def _identity(provider: Provider) -> str:
    return sha256(provider.url.encode()).hexdigest()  # it may hold a key
