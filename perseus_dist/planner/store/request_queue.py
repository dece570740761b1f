"""Protocol of the queue of planning requests by which planners of one database share their planning workers.

A request is asked under the digest of all that its answer depends on, so that an answer serves all who ask the same,
and one that comes late harms nothing. It stays in the queue while a planner renews the wish for it. A worker takes it
for as long as it renews that; the request of a worker that has died is taken again, a few times at most.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from perseus_dist.messages.planning_queue import PlanningQueue

URGENT, PATIENT = 0, 1
"""Urgencies: a job waits without a plan that fits; a job waits under one that is to become better."""


class QueueError(Exception):
    """The queue cannot be reached, or refuses, for now. Its text is a sentence for users.

    Attributes:
        is_passing: Whether a later attempt may succeed without a change of the address or of rights.
    """

    def __init__(self, sentence: str, *, is_passing: bool = True) -> None:
        super().__init__(sentence)
        self.is_passing = is_passing


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRequest:
    """A request as it stands in the queue; ``body`` is its text."""

    digest: str
    urgency: int
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenRequest:
    """A request that a worker has.

    Attributes:
        token: Greater than those of all workers that had it before.
    """

    digest: str
    body: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """How far a request is.

    Attributes:
        is_free: Whether a worker may take it.
        is_done: Whether there is an answer, or an error.
        error: Why there is no answer; a sentence.
        is_transient: Whether another attempt may succeed all the same.
        left_s: [s] until there will be an answer, by the worker's progress; None where that is not known.
    """

    is_free: bool = False
    is_done: bool = False
    error: str = ""
    is_transient: bool = False
    left_s: float | None = None


class RequestQueue(Protocol):
    """Used by one thread at a time. Each call may wait for the database, and raises ``QueueError`` where it fails."""

    @property
    def name(self) -> str:
        """The database's address, without a password."""

    def ask(self, request: QueuedRequest) -> None:
        """Put a request into the queue, unless it is there or has been answered; one that has failed is tried anew."""

    def look(self, digests: Collection[str]) -> Mapping[str, RequestState]:
        """Renew the wish for requests; by digest, how far they are, without those that are not in the queue."""

    def read(self, digest: str) -> tuple[str, bytes] | None:
        """The answer to a request that is done: its text and its bytes; None if it is gone."""

    def take(self, *, least_urgency: int = PATIENT, digest: str = "") -> TakenRequest | None:
        """Take the most urgent request that is free, or the one of a digest if it is; the oldest of several."""

    def renew(self, taken: TakenRequest, left_s: float | None) -> bool:
        """Keep a request; False if no planner wants it any more, or another worker has it."""

    def answer(self, taken: TakenRequest, body: str, blob: bytes) -> None:
        """Answer a request, also late; nothing changes if it has an answer."""

    def fail(self, taken: TakenRequest, error: str) -> None:
        """Say that a request cannot be planned, unless another worker has it."""

    def give_back(self, taken: TakenRequest, *, was_tried: bool) -> None:
        """Let another worker take a request at once, if it was not tried too often."""

    def state(self) -> PlanningQueue:
        """Requests that wait, and workers that are seen; forgets what is old."""

    def report(self, worker: str, num_at_once: int) -> None:
        """Be seen as a worker for some seconds; with 0 requests at once, no longer.

        Args:
            worker: Identifies the process.
            num_at_once: Requests that it plans at once.
        """

    def close(self) -> None:
        """Disconnect from the queue; requests stay in it."""
