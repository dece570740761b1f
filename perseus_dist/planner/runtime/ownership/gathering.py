"""Whether all jobs that the policies cover have come to the replica that keeps these, and has to count their power."""

import logging
from collections.abc import Collection

_PATIENCE_LEASES = 20.0  # times the lease: longer than another replica's claim, for which its releases wait
_MOST_NAMED = 8

_log = logging.getLogger(__name__)


class Gathering:
    """Looks at what is missing, from the moment on that a replica takes the policies.

    Args:
        lease_s: How long leases last [s]: for as long another replica that lives may not know who has the policies.

    Attributes:
        is_over: Whether all are there, or none of those that are missing has come for 20 lease times.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self.begin(0.0)

    def begin(self, now_s: float) -> None:
        """The policies are taken at ``now_s``, by the loop's clock."""
        self.is_over = False
        self._begun_s = self._moved_s = now_s
        self._missing: frozenset[str] | None = None

    def note(self, missing: Collection[str], asked_s: float, now_s: float) -> None:
        """A look has ended.

        Args:
            missing: Jobs that the policies cover, and that have leases and are not here.
            asked_s: When the table was asked for leases, by the loop's clock.
            now_s: By the same clock.
        """
        if self._missing is None or self._missing.difference(missing):
            self._moved_s = now_s
        self._missing = frozenset(missing)
        if not missing:
            self.is_over = asked_s >= self._begun_s + self._lease_s
        elif now_s >= self._moved_s + _PATIENCE_LEASES * self._lease_s:
            self.is_over = True
            named = sorted(missing)
            listed = ", ".join(named[:_MOST_NAMED]) + (", ..." if len(named) > _MOST_NAMED else "")
            _log.error(
                "policies: jobs may draw more from now on, although %d jobs that they cover have not come in %.0f s, "
                "and are not counted: %s",
                len(named),
                now_s - self._moved_s,
                listed,
            )
