"""When to read the energy counter, and when it was published: a reading tells energy only at a publication.

The driver publishes the counter every 20 to 100 ms. Between two readings of which the second is higher lies an *edge*.
Readings are dense only where the next edge is expected, so that an edge is known to about a millisecond for a few
readings a period. Whatever comes late (a sleep, NVML) makes an edge uncertain, never wrong.
"""

from typing import NamedTuple

_MIN_STEP_NS = 500_000
_MAX_STEP_NS = 1_000_000
_STEPS_PER_PERIOD = 40
_SEARCH_STEPS_PER_PERIOD = 8
_MAX_MISSES = 3  # edges in a row that were not where they were expected; then the phase is searched for anew
_PERIOD_GAIN = 0.3  # of what an edge says about the period, so that one late edge does not move it much
_MIN_PERIOD_NS = 1_000_000


class Edge(NamedTuple):
    """A publication of the counter.

    Attributes:
        earliest_ns, latest_ns: It lies in between.
        energy_mj: The value published [mJ].
        before_mj: [mJ] The value before it.
    """

    earliest_ns: int
    latest_ns: int
    energy_mj: int
    before_mj: int

    @property
    def time_ns(self) -> int:
        """[ns] The middle of the bounds."""
        return (self.earliest_ns + self.latest_ns) // 2

    @property
    def width_ns(self) -> int:
        """How far apart the bounds are."""
        return self.latest_ns - self.earliest_ns


class EdgeTracker:
    """Decides when to read, and finds the edges in what was read."""

    def __init__(self, period_ns: int) -> None:
        self._period_ns = max(period_ns, _MIN_PERIOD_NS)
        self._step_ns = _step_ns(self._period_ns)
        self._last: tuple[int, int] | None = None  # (before, energy) of the last reading
        self._located_ns: int | None = None  # the last edge that was well located
        self._expected_ns = 0  # the next one, while the last is known
        self._doubt_ns = 0  # how far from there it may lie
        self._misses = 0

    def add(self, before_ns: int, energy_mj: int, after_ns: int) -> Edge | None:
        """Take a reading made between ``before_ns`` and ``after_ns``; the edge that it shows, if any."""
        last, self._last = self._last, (before_ns, energy_mj)
        if last is None or energy_mj <= last[1]:
            return None
        edge = Edge(last[0], after_ns, energy_mj, last[1])
        if edge.width_ns <= self._period_ns // 4:
            self._locate(edge)
        elif self._located_ns is not None:
            self._miss(after_ns, self._located_ns)
        return edge

    def next_reading_ns(self, now_ns: int) -> int:
        """When to read again."""
        if self._located_ns is None or now_ns > self._expected_ns + self._period_ns // 4:
            return now_ns + self._period_ns // _SEARCH_STEPS_PER_PERIOD
        return max(self._expected_ns - self._doubt_ns, now_ns + self._step_ns)

    def pass_unchanged(self, now_ns: int, energy_mj: int, until_ns: int) -> int:
        """Take all readings from ``now_ns`` until ``until_ns`` of a counter that stands still meanwhile.

        The same as ``add`` and ``next_reading_ns`` for each of them, where readings take no time.

        Args:
            now_ns: When the first reading is due.
            energy_mj: What the reading before it showed, and what all of them show.
            until_ns: Before then.

        Returns:
            When the next reading is due, at ``until_ns`` or later.
        """
        if now_ns >= until_ns:
            return now_ns
        search_ns, step_ns = self._period_ns // _SEARCH_STEPS_PER_PERIOD, self._step_ns
        since_ns, late_ns = self._expected_ns - self._doubt_ns, self._expected_ns + self._period_ns // 4
        if self._located_ns is None:
            late_ns = -1
        read_ns = now_ns
        while now_ns < until_ns:
            read_ns = now_ns
            now_ns += search_ns if now_ns > late_ns else step_ns
            if read_ns <= late_ns and now_ns < since_ns:
                now_ns = since_ns
        self._last = (read_ns, energy_mj)
        return now_ns

    def _locate(self, edge: Edge) -> None:
        edge_ns = edge.time_ns
        if self._located_ns is None:
            doubt_ns = self._period_ns // _SEARCH_STEPS_PER_PERIOD
        else:
            doubt_ns = max(self._doubt_ns // 2, 2 * abs(edge_ns - self._expected_ns), 2 * self._step_ns)
            periods = max(1, round((edge_ns - self._located_ns) / self._period_ns))
            seen_ns = (edge_ns - self._located_ns) / periods
            self._period_ns += round(_PERIOD_GAIN * (seen_ns - self._period_ns))
            self._step_ns = _step_ns(self._period_ns)
        self._doubt_ns = min(doubt_ns, self._period_ns // 4)
        self._located_ns = edge_ns
        self._expected_ns = edge_ns + self._period_ns
        self._misses = 0

    def _miss(self, after_ns: int, located_ns: int) -> None:
        """The edge was over at the first reading: that one came late, or the edge early."""
        self._misses += 1
        if self._misses == _MAX_MISSES:
            self._located_ns = None
            self._misses = 0
            return
        self._doubt_ns = min(2 * self._doubt_ns, self._period_ns // 4)
        passed = int((after_ns - located_ns) / self._period_ns + 0.25)
        self._expected_ns = located_ns + (passed + 1) * self._period_ns


def _step_ns(period_ns: int) -> int:
    """Between two readings where an edge is expected."""
    return min(max(period_ns // _STEPS_PER_PERIOD, _MIN_STEP_NS), _MAX_STEP_NS)
