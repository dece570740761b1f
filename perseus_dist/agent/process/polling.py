"""How often to look for boundaries while training goes on: the GPU has no bell, and the trainer's is dear.

A clock is asked for when an instruction ends, so its end is looked for closely, and only when it is near. When the
next instruction begins matters little, and while a rank waits for its peer that cannot be known.
"""

_CLOSE_NS = 500_000
_WAITING_NS = 2_000_000
_OVERDUE_NS = 50_000_000
_MARGIN_NS = 1_000_000
_MARGIN_SHARE = 0.1  # of what is left: the instruction may be faster than the last time, at another clock


def poll_delay_ns(expected_ns: int | None, now_ns: int) -> int:
    """How long to sleep until the next look.

    Args:
        expected_ns: When the instruction that runs should end; None if none runs, or its length is not known.
        now_ns: Now.
    """
    if expected_ns is None:
        return _WAITING_NS
    left_ns = expected_ns - now_ns
    if left_ns < -_OVERDUE_NS:
        return _WAITING_NS
    return max(_CLOSE_NS, round(left_ns * (1 - _MARGIN_SHARE)) - _MARGIN_NS)
