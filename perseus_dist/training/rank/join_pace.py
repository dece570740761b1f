"""How soon the members that a process makes one after the other join: each start of agents must be worth a plan."""

_FIRST_WAIT = 2  # iterations; doubled at each member that is given up soon
_MAX_WAIT = 1024
_LASTING_WAITS = 4  # for which a member must have trained, so that the next one joins at once


class JoinPace:
    """Of one process. Ranks count alike, also those whose member has failed, so all wait equally long.

    A script may make its schedule anew for each step: then only the first one starts agents.
    """

    def __init__(self) -> None:
        self._wait = 0
        self._num_iterations = 0  # of the newest member

    def count_iteration(self) -> None:
        """The newest member begins an iteration."""
        self._num_iterations += 1

    def forget(self) -> None:
        """The script has given up the newest member by its own word: the next one joins at once."""
        self._wait = self._num_iterations = 0

    def next_wait(self) -> int:
        """Iterations that a new member is to train before it joins."""
        if self._num_iterations >= _LASTING_WAITS * max(self._wait, _FIRST_WAIT):
            self._wait = 0
        elif self._num_iterations:  # one that never trained does not count
            self._wait = min(2 * self._wait or _FIRST_WAIT, _MAX_WAIT)
        self._num_iterations = 0
        return self._wait
