"""Findings of checks of a node, which ``perseus-dist doctor`` and agents make."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is: ``fail`` keeps perseus-dist from working, ``warn`` from working fully."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at.

    Attributes:
        level: How bad it is.
        subject: What was looked at.
        what: What was seen.
        remedy: What to do; empty if nothing.
    """

    level: Level
    subject: str
    what: str
    remedy: str = ""
