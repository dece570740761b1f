"""One malformed input: a command line, the files that it finds, and what must come of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from random import Random


class Expected(StrEnum):
    """What must come of an input."""

    REFUSED = "refused"  # exit 2, one line that names the culprit, nothing written
    SAME = "refused, or as if undamaged"  # damage that may lie where nothing is read: bits of an archive
    TOLD = "refused, or left out and told"  # a part of a report folder, of which only job.json is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input.

    Attributes:
        kind: What was damaged, for the summary.
        argv: The command line.
        files: Written before the command runs, by path in the workplace.
        named: One of these must stand in the message.
        expected: What must come of it.
    """

    kind: str
    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    named: tuple[str, ...]
    expected: Expected = Expected.REFUSED

    @property
    def digest(self) -> bytes:
        """The same for two inputs only if they are the same."""
        parts = [*(word.encode(errors="surrogateescape") for word in self.argv)]
        parts += [part for name, data in sorted(self.files.items()) for part in (name.encode(), data)]
        return sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()


Generator = Callable[[Random], Case]
