"""Which replica of a stage measures which clocks, and in which step of a sweep.

An iteration lasts as long as its slowest replica, so those of one step run at neighbouring clocks. With four replicas
or more every clock has two witnesses; so it has where replicas would be idle otherwise.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

_MIN_FOR_WITNESSES = 4  # replicas


def clocks_of_a_step(num_replicas: int) -> int:
    """How many clocks of a stage are measured at the same time."""
    return num_replicas if num_replicas < _MIN_FOR_WITNESSES else num_replicas // 2


def shares(
    clocks_mhz: Iterable[int], replicas: Sequence[int], seen_by: Mapping[int, Collection[int]]
) -> dict[int, tuple[int, ...]]:
    """Each replica's clocks, one for each step, descending.

    Args:
        clocks_mhz: [MHz] that a stage is to be measured at.
        replicas: Who can measure.
        seen_by: By clock, the replicas that have measured it: others take it where that can be.
    """
    if not replicas:
        return {}
    clocks = sorted(set(clocks_mhz), reverse=True)
    width = clocks_of_a_step(len(replicas))
    found: dict[int, list[int]] = {replica: [] for replica in replicas}
    for first in range(0, len(clocks), width):
        step = clocks[first : first + width]
        turns = [[step[(k + turn) % len(step)] for k in range(len(replicas))] for turn in range(len(step))]
        best = max(turns, key=lambda turn: _num_fresh(turn, replicas, seen_by))
        for replica, clock in zip(replicas, best, strict=True):
            found[replica].append(clock)
    return {replica: tuple(own) for replica, own in found.items() if own}


def _num_fresh(turn: Sequence[int], replicas: Sequence[int], seen_by: Mapping[int, Collection[int]]) -> int:
    """How many clocks have a witness that has not measured them before."""
    pairs = zip(turn, replicas, strict=True)
    return len({clock for clock, replica in pairs if replica not in seen_by.get(clock, ())})
