"""How often to look for boundaries while training goes on: the GPU has no bell, and the trainer's is dear.

A clock is asked for when an instruction ends, so its end is looked for closely, and only when it is near. When the
next instruction begins matters little, and while a rank waits for its peer that cannot be known.
"""

_CLOSE_NS = 500_000
_WAITING_NS = 2_000_000
_LONGEST_WAITING_NS = 8_000_000
_BEGIN_SHARE = 8  # of an instruction's length: so early its begin is seen, long before its end
_OVERDUE_NS = 50_000_000
_MARGIN_NS = 1_000_000
_MARGIN_SHARE = 0.1  # of what is left: the instruction may be faster than the last time, at another clock


def waiting_delay_ns(next_duration_ns: int | None, *, is_device_ordered: bool) -> int:
    """How long to sleep between looks while no instruction runs.

    In host order boundaries bear the trainer's own time: an instruction's begin may be seen late, if it is long before
    its end. In device order it would seem to have begun as late.

    Args:
        next_duration_ns: That the instruction that begins next may take at least; None if that is not known.
        is_device_ordered: Whether boundaries have the time at which they are seen.
    """
    if next_duration_ns is None or is_device_ordered:
        return _WAITING_NS
    return min(max(next_duration_ns // _BEGIN_SHARE, _WAITING_NS), _LONGEST_WAITING_NS)


def poll_delay_ns(expected_ns: int | None, now_ns: int, waiting_ns: int = _WAITING_NS) -> int:
    """How long to sleep until the next look.

    Args:
        expected_ns: When the instruction that runs should end; None if none runs, or its length is not known.
        now_ns: Now.
        waiting_ns: As of ``waiting_delay_ns``.
    """
    if expected_ns is None:
        return waiting_ns
    left_ns = expected_ns - now_ns
    if left_ns < -_OVERDUE_NS:
        return _WAITING_NS
    return max(_CLOSE_NS, round(left_ns * (1 - _MARGIN_SHARE)) - _MARGIN_NS)
