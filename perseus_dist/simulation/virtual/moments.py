"""When each of some actors has something to do next."""

from heapq import heappop, heappush


class Moments:
    """A queue of moments, one for each actor at a time; actors are numbered from 0."""

    def __init__(self, num_actors: int) -> None:
        self._due_ns: list[int | None] = [None] * num_actors
        self._queue: list[tuple[int, int]] = []  # some of them overtaken by what the actor did since

    def put(self, actor: int, due_ns: int | None) -> None:
        """From now on an actor is due then, and not before; None for not at all."""
        if due_ns != self._due_ns[actor]:
            self._due_ns[actor] = due_ns
            if due_ns is not None:
                heappush(self._queue, (due_ns, actor))

    def next_ns(self) -> int | None:
        """The first; None if none is due."""
        queue, due_ns = self._queue, self._due_ns
        while queue and due_ns[queue[0][1]] != queue[0][0]:
            heappop(queue)
        return queue[0][0] if queue else None

    def take_due(self, now_ns: int) -> int:
        """Actors that are due by now, as the bits that are set; each actor is to be ``put`` again."""
        queue, due_ns = self._queue, self._due_ns
        due = 0
        while queue and queue[0][0] <= now_ns:
            time_ns, actor = heappop(queue)
            if due_ns[actor] == time_ns:
                due |= 1 << actor
                due_ns[actor] = None
        return due
