"""A signal whose provider is asked again and again, in a thread of its own: the planner never waits for the network.

An answer counts until the next one comes; where none comes, until it is stale. A failed request is reported until the
next answer. The last answer is kept in a file, so that a planner that restarts while its provider cannot be reached
goes on with it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from perseus_dist.errors import PerseusError
from perseus_dist.planner.runtime.signals.kept_answer import KeptAnswer
from perseus_dist.policies.provider import Provider
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.tariff import Tariff

_RETRY_S = 60.0  # behind a failure, unless requests are more frequent than that


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Knowledge of a provider's signal.

    Attributes:
        content: Of the last answer; None where there is none, or it is stale.
        trouble: What is to say of it, in a clause; empty where nothing is.
    """

    content: tuple[Piece, ...] | Tariff | None
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """Answer of a provider, with the time of the request by the clock, and for people when it came or was asked for."""

    content: tuple[Piece, ...] | Tariff
    asked_s: float
    came_at: str


class FetchedSignal:
    """A provider and its last answer. To be used from one thread at a time; requests run in their own."""

    def __init__(
        self, provider: Provider, kept: KeptAnswer | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with the answer that was kept, if there is one.

        Args:
            provider: To be asked.
            kept: Where answers are kept; None keeps none.
            clock: [s] that tells when an answer is stale.
        """
        self._provider = provider
        self._kept = kept
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._due_s = clock()
        self._answer: _Answer | None = None
        self._failure = f"{provider.host} has not answered yet"
        if kept is not None and (found := kept.read(provider)) is not None:
            came_at = _local_time(found.asked_unix_s)
            self._answer = _Answer(content=found.content, asked_s=clock() - found.age_s, came_at=came_at)

    def look(self, wait_s: float = 0.0) -> Fetched:
        """Tell what is known now; a request is begun where one is due.

        Args:
            wait_s: [s] for which the request under way may take, before what is known without it counts.
        """
        thread = self._thread
        if (thread is None or not thread.is_alive()) and self._clock() >= self._due_s:
            self._due_s = self._clock() + self._provider.every_s
            thread = self._thread = threading.Thread(target=self._fetch, name="signal", daemon=True)
            thread.start()
        if wait_s and thread is not None:
            thread.join(wait_s)
        answer, failure = self._answer, self._failure
        if answer is None:
            return Fetched(content=None, trouble=failure)
        if self._clock() >= answer.asked_s + self._provider.stale_s:
            return Fetched(
                content=None, trouble=f"its last answer of {answer.came_at} is stale: {failure or 'none came'}"
            )
        trouble = f"its last answer is of {answer.came_at}: {failure}" if failure else ""
        return Fetched(content=answer.content, trouble=trouble)

    def _fetch(self) -> None:
        from perseus_dist.policies.provider_request import ask, read_answer  # of no use to planners without providers

        asked_s, asked_unix_s = self._clock(), time.time()
        try:
            data = ask(self._provider)
            content = read_answer(self._provider, data)
        except PerseusError as error:
            self._failure = str(error)
            self._due_s = min(self._due_s, self._clock() + _RETRY_S)
            return
        if self._answer is not None and content == self._answer.content:
            content = self._answer.content  # the same signal, for which no way is planned anew
        self._answer = _Answer(content=content, asked_s=asked_s, came_at=_local_time(time.time()))
        self._failure = ""
        if self._kept is not None:
            self._kept.write(self._provider, data, asked_unix_s)


def _local_time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s).astimezone().isoformat(timespec="seconds")
