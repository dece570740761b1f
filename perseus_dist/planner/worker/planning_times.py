"""How long planning takes on this machine, by what it has taken for pipelines of about the same size."""

from perseus_dist.planner.worker.plan_request import PlanningRequest

_SIMILAR = 2.0  # at most so many times larger or smaller
_NUM_KEPT = 256


class PlanningTimes:
    """Remembers the newest time by kind and size of request, without what it waited for its turn."""

    def __init__(self) -> None:
        self._times_s: dict[tuple[bool, bool, str, int], float] = {}  # the newest is last

    def add(self, request: PlanningRequest, time_s: float) -> None:
        """A request was planned in ``time_s`` [s]."""
        key = _kind_and_size(request)
        self._times_s.pop(key, None)
        self._times_s[key] = time_s
        if len(self._times_s) > _NUM_KEPT:
            del self._times_s[next(iter(self._times_s))]

    def expected_s(self, request: PlanningRequest) -> float | None:
        """[s] that a request may take, in proportion to the size; None where none of about its size was planned."""
        is_first, is_of_slow_ranks, granularity, size = _kind_and_size(request)
        kind = (is_first, is_of_slow_ranks, granularity)
        sizes = [of_size for *of_kind, of_size in self._times_s if tuple(of_kind) == kind]
        nearest = min(sizes, key=lambda of_size: max(of_size, size) / min(of_size, size), default=0)
        if not nearest or max(nearest, size) > _SIMILAR * min(nearest, size):
            return None
        return self._times_s[*kind, nearest] * size / nearest


def _kind_and_size(request: PlanningRequest) -> tuple[bool, bool, str, int]:
    """Whether a first plan is wanted, whether one of slow ranks, by what, and the instructions, more or less."""
    return request.is_first, bool(request.slow_ranks), request.granularity, len(request.schedule_text.split()) + 1
