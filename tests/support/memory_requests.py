"""The queue of planning requests in memory, on a virtual clock: what PostgreSQL's tables do."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import count

from virtual_loop import World

from perseus_dist.messages.planning_queue import PlanningQueue
from perseus_dist.planner.store.postgres.planning_requests import LEASE_S, MAX_TRIES, WISH_S
from perseus_dist.planner.store.request_queue import PATIENT, QueuedRequest, QueueError, RequestState, TakenRequest


@dataclass(slots=True)
class Row:
    """One request."""

    number: int
    urgency: int
    body: str
    wanted_until_s: float
    token: int = 0
    taken_until_s: float = -math.inf
    num_tries: int = 0
    answer: tuple[str, bytes] | None = None
    error: str = ""

    @property
    def is_done(self) -> bool:
        return bool(self.answer or self.error)


class RequestRows:
    """The table, with whoever listens to it.

    Attributes:
        rows: By digest.
        listeners: Called with what is notified.
        is_away: The database answers nobody.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.rows: dict[str, Row] = {}
        self.listeners: list[Callable[[str], object]] = []
        self.is_away = False
        self.numbers = count(1)

    def is_free(self, row: Row) -> bool:
        return not row.is_done and row.taken_until_s < self.world.now_s

    def is_given_up(self, row: Row) -> bool:
        return self.is_free(row) and row.num_tries >= MAX_TRIES

    def notify(self, text: str) -> None:
        for listener in self.listeners:
            listener(text)


class MemoryRequests:
    """A ``RequestQueue``."""

    name = "memory"

    def __init__(self, table: RequestRows) -> None:
        self._table = table

    def ask(self, request: QueuedRequest) -> None:
        table, rows = self._reach(), self._table.rows
        row = rows.get(request.digest)
        if row is not None and (row.error or table.is_given_up(row)):
            row = None
        if row is None:
            row = Row(next(table.numbers), request.urgency, request.body, 0.0)
            rows[request.digest] = row
        row.urgency, row.wanted_until_s = min(row.urgency, request.urgency), table.world.now_s + WISH_S
        table.notify("")

    def look(self, digests: Collection[str]) -> Mapping[str, RequestState]:
        table, found = self._reach(), {}
        for digest in digests:
            if (row := table.rows.get(digest)) is not None:
                row.wanted_until_s = table.world.now_s + WISH_S
                is_given_up = table.is_given_up(row)
                found[digest] = RequestState(
                    is_free=table.is_free(row) and not is_given_up,
                    is_done=row.is_done or is_given_up,
                    error="given up" if is_given_up else row.error,
                    is_transient=is_given_up,
                )
        return found

    def read(self, digest: str) -> tuple[str, bytes] | None:
        row = self._reach().rows.get(digest)
        return None if row is None else row.answer

    def take(self, *, least_urgency: int = PATIENT, digest: str = "") -> TakenRequest | None:
        table = self._reach()
        free = [
            (row.urgency, row.number, one)
            for one, row in table.rows.items()
            if table.is_free(row)
            and row.num_tries < MAX_TRIES
            and row.wanted_until_s > table.world.now_s
            and row.urgency <= least_urgency
            and digest in ("", one)
        ]
        if not free:
            return None
        *_, found = min(free)
        row = table.rows[found]
        row.token, row.num_tries = next(table.numbers), row.num_tries + 1
        row.taken_until_s = table.world.now_s + LEASE_S
        return TakenRequest(digest=found, body=row.body, token=row.token)

    def renew(self, taken: TakenRequest, _left_s: float | None) -> bool:
        table = self._reach()
        if (row := self._mine(taken)) is None:
            return False
        row.taken_until_s = table.world.now_s + LEASE_S
        return row.wanted_until_s > table.world.now_s

    def answer(self, taken: TakenRequest, body: str, blob: bytes) -> None:
        row = self._reach().rows.get(taken.digest)
        if row is not None and row.answer is None:
            row.answer, row.error = (body, blob), ""
        self._table.notify(taken.digest)

    def fail(self, taken: TakenRequest, error: str) -> None:
        self._reach()
        if (row := self._mine(taken)) is not None:
            row.error = error
        self._table.notify(taken.digest)

    def give_back(self, taken: TakenRequest, *, was_tried: bool) -> None:
        self._reach()
        if (row := self._mine(taken)) is not None:
            row.taken_until_s, row.token, row.num_tries = -math.inf, 0, row.num_tries - (not was_tried)
        self._table.notify("")

    def state(self) -> PlanningQueue:
        self._reach()
        return PlanningQueue()

    def report(self, _worker: str, _num_at_once: int) -> None:
        self._reach()

    def close(self) -> None:
        """Nothing is open."""

    def _reach(self) -> RequestRows:
        if self._table.is_away:
            raise QueueError("the database is away")
        return self._table

    def _mine(self, taken: TakenRequest) -> Row | None:
        row = self._table.rows.get(taken.digest)
        return row if row is not None and row.token == taken.token and not row.is_done else None
