"""Signals of prices and carbon: files of a folder that the planner is given, by name, read again when they change.

A file that ends in ``.toml`` names a provider, which is asked again and again.
"""

import logging
import re
import stat
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from perseus_dist.errors import PerseusError
from perseus_dist.planner.budget.price_follower import Signal
from perseus_dist.planner.runtime.signals.fetched_signal import FetchedSignal
from perseus_dist.planner.runtime.signals.kept_answer import KeptAnswer
from perseus_dist.policies.provider import is_provider, read_provider
from perseus_dist.policies.signals import read_signal

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""Of a signal: its file's name in the folder, and never a path."""
_MAX_LISTED = 8
_WAIT_S = 11.0  # for an answer, of which each request has less

_log = logging.getLogger(__name__)


class SignalsFolderError(PerseusError):
    """A folder of signals that cannot be read."""


class SignalFiles:
    """A folder of signals. ``refresh`` reads files, and may be called on any one thread; the rest never blocks.

    Attributes:
        signals: By name, as they were last read.
    """

    def __init__(self, folder: Path | None, kept: Path | None = None) -> None:
        """Begin without any.

        Args:
            folder: That holds the files; None where the planner was given none.
            kept: Folder where providers' last answers are kept for the planner's next start; None keeps none.
        """
        self._folder = folder
        self._kept = kept
        self._read: dict[str, tuple[int, int, int, int]] = {}
        self._fetched: dict[str, FetchedSignal] = {}
        self._version = 0
        self.signals: dict[str, Signal] = {}

    def refresh(self, names: Collection[str], awaited: str = "") -> None:
        """Read what has changed since it was last read.

        Args:
            names: Of the signals that are wanted; others are forgotten.
            awaited: Name of a signal whose provider is waited for, if it has one and has not answered yet.
        """
        signals = {}
        for name in names:
            signal, known = self._refreshed(name), self.signals.get(name)
            if name == awaited and name in self._fetched and signal.content is None:
                signal = self._looked_at(name, _WAIT_S)
            if signal.trouble and (known is None or known.trouble != signal.trouble):
                _log.warning("%s", signal.trouble)
            signals[name] = signal
        self.signals = signals
        self._read = {name: read for name, read in self._read.items() if name in signals}
        self._fetched = {name: fetched for name, fetched in self._fetched.items() if name in signals}

    def _refreshed(self, name: str) -> Signal:
        if self._folder is None:
            return Signal(content=None, trouble="the planner was started without --signals DIR")
        if NAME.fullmatch(name) is None:
            return Signal(content=None, trouble=f"signal {name}: saw another name than a file's, such as day_ahead.csv")
        path = self._folder / name
        try:
            found = path.stat()
        except (OSError, ValueError) as error:
            self._forget(name)
            listed = f"; there are {', '.join(self._names()) or 'none'}" if isinstance(error, FileNotFoundError) else ""
            reason = getattr(error, "strerror", None) or error
            return Signal(content=None, trouble=f"signal {name} cannot be read: {reason}{listed}")
        if not stat.S_ISREG(found.st_mode):
            self._forget(name)
            return Signal(content=None, trouble=f"signal {name} cannot be read: it is no file")
        read = found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino  # ctime: another owner or mode
        if self._read.get(name) == read:
            return self._looked_at(name) if name in self._fetched else self.signals[name]
        self._version += 1
        self._fetched.pop(name, None)
        try:
            if is_provider(path):
                kept = None if self._kept is None else KeptAnswer(self._kept, name)
                self._fetched[name] = FetchedSignal(read_provider(path), kept)
                self._read[name] = read
                return self._looked_at(name)
            signal = Signal(content=read_signal(path), version=self._version)
        except PerseusError as error:
            reason = str(error).removeprefix(f"{path}: ")
            signal = Signal(content=None, trouble=f"signal {name} cannot be read: {reason}", version=self._version)
        self._read[name] = read
        return signal

    def _forget(self, name: str) -> None:
        """Have a file that cannot be looked at read again once it can, also where it is the same as before."""
        if name not in self._fetched:
            self._read.pop(name, None)

    def _looked_at(self, name: str, wait_s: float = 0.0) -> Signal:
        """A provider's signal as it is known now."""
        fetched, known = self._fetched[name].look(wait_s), self.signals.get(name)
        trouble = f"signal {name}: {fetched.trouble}" if fetched.trouble else ""
        if known is not None and fetched.content is known.content:
            return replace(known, trouble=trouble)
        self._version += 1
        return Signal(content=fetched.content, trouble=trouble, version=self._version)

    def _names(self) -> list[str]:
        assert self._folder is not None
        try:
            names = sorted(path.name for path in self._folder.iterdir() if NAME.fullmatch(path.name))
        except OSError:
            return []
        return [*names[:_MAX_LISTED], *(["more"] if len(names) > _MAX_LISTED else [])]


def check_folder(folder: Path) -> Path:
    """The folder, made absolute.

    Raises:
        SignalsFolderError: It is none, or cannot be read.
    """
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise SignalsFolderError(f"--signals {folder}: {error.strerror or error}") from None
    return folder.absolute()
