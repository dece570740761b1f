"""Energy of iterations: the counter at their begins and ends, from publications on either side.

A reading tells what the counter stood at as it was published, up to a period ago: half of one on average. Where
iterations last nearly a whole number of periods, the error is the same in each. So the counter is watched from each
iteration's begin until it is published next, where periods are long and iterations short. If the publication is near,
the line through it and the one before gives the energy at the begin; else the mean power since the iteration before
does. Where none is seen, the reading counts.
"""

from perseus_dist.agent.core.ledger import Ledger
from perseus_dist.agent.measuring.counter import Edge
from perseus_dist.device.nvml.meter import MeterSample

_SHORT_NS = 50_000_000  # begins are seen so late; a period that is no longer is worth no watch
_PATIENCE_PERIODS = 2  # from when the begin was seen
_FEWEST_PERIODS = 1.0  # in an iteration; shorter ones would keep the watch on all the time
_MOST_PERIODS = 250  # of an iteration so long, a period's energy is of no account
_NEAR_PERIODS = 1.5  # further from a begin that was seen late, a rank may do something else than at the begin
_LOCATED_SHARE = 4  # a publication that is known to this part of a period, or better, is located


class EnergyPoints:
    """Finds what the ledger interpolates between.

    Args:
        ledger: Takes the points.
        period_ns: [ns] between two publications of the counter; 0 where it is always exact, or there is none.
    """

    def __init__(self, ledger: Ledger, period_ns: int) -> None:
        self._ledger = ledger
        self._period_ns = period_ns
        self._begin_ns = 0  # of the latest iteration
        self._is_sought = False  # the first publication in it
        self._until_ns: int | None = None  # None before the watch is asked for
        self._held: tuple[int, int] | None = None  # a reading that counts if no publication is seen

    def begin_iteration(self, time_ns: int) -> None:
        """An iteration begins, and the one before it is over."""
        self.give_up()
        num_periods = (time_ns - self._begin_ns) / self._period_ns if self._period_ns else 0
        self._begin_ns, self._until_ns = time_ns, None
        self._is_sought = self._period_ns > _SHORT_NS and _FEWEST_PERIODS <= num_periods <= _MOST_PERIODS

    def wants_edges(self, now_ns: int) -> bool:
        """Whether the counter is to be watched; what has not been seen by now is given up."""
        if self._until_ns is None:
            self._until_ns = now_ns + _PATIENCE_PERIODS * self._period_ns
        if self._is_sought and now_ns > self._until_ns:
            self.give_up()
        return self._is_sought

    def give_up(self) -> None:
        """No publication is waited for: the reading counts, if there is one."""
        self._is_sought = False
        if self._held is not None:
            self._ledger.add_energy(*self._held)
            self._held = None

    def add_sample(self, sample: MeterSample, *, is_watched: bool) -> None:
        """Take a reading; of little account while the counter is watched."""
        if sample.energy_mj is None:
            return
        middle_ns = (sample.time_before_ns + sample.time_after_ns) // 2
        point = (middle_ns - self._period_ns // 2, sample.energy_mj)
        if not is_watched:
            self._ledger.add_energy(*point)
        elif self._is_sought:
            self._held = point

    def add_edge(self, edge: Edge) -> None:
        """Take a publication that was seen."""
        if edge.width_ns > self._period_ns // _LOCATED_SHARE:
            return
        if self._is_sought and edge.latest_ns > self._begin_ns:
            self._is_sought, self._held = False, None
            since_ns = edge.time_ns - self._begin_ns
            if since_ns <= _NEAR_PERIODS * self._period_ns:
                step_mj = edge.energy_mj - edge.before_mj
                self._ledger.add_energy(self._begin_ns, edge.energy_mj - round(since_ns * step_mj / self._period_ns))
        self._ledger.add_energy(edge.time_ns, edge.energy_mj)
