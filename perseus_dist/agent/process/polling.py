"""How often to look for boundaries while training goes on: the GPU has no bell, and the trainer's is dear.

A clock is asked for when an instruction ends, so its end is looked for closely, and only when it is near. When the
next instruction begins matters less. While a rank waits for its peer that cannot be known, but it will hardly be much
sooner than lately at these clocks.
"""

from perseus_dist.agent.core.run_durations import Awaited

_CLOSE_NS = 500_000
_WAITING_NS = 2_000_000
_LONGEST_WAITING_NS = 8_000_000
_BEGIN_SHARE = 8  # of an instruction's length: so early its begin is seen, long before its end
_OVERDUE_NS = 50_000_000
_MARGIN_NS = 1_000_000
_MARGIN_SHARE = 0.1  # of what is left: the instruction may be faster than the last time, at another clock


def begin_delay_ns(awaited: Awaited | None, now_ns: int, *, is_device_ordered: bool) -> int:
    """How long to sleep until the next look while no instruction runs.

    In host order boundaries bear the trainer's own time: an instruction's begin may be seen late, if it is long before
    its end. In device order it would seem to have begun as late, so looks are close from nine tenths of the least wait
    on. However early it begins, it is seen long before its end; an iteration's end is seen some milliseconds late at
    most.

    Args:
        awaited: What is looked for; None if its times are not known.
        now_ns: Now.
        is_device_ordered: Whether boundaries have the time at which they are seen.
    """
    if awaited is None:
        return _WAITING_NS
    looked_for_ns = awaited.since_ns + round(awaited.wait_ns * (1 - _MARGIN_SHARE)) - _MARGIN_NS
    close_ns = awaited.duration_ns // _BEGIN_SHARE
    close_ns = _WAITING_NS if is_device_ordered else min(max(close_ns, _WAITING_NS), _LONGEST_WAITING_NS)
    return max(close_ns, min(looked_for_ns - now_ns, awaited.duration_ns // 2 or _LONGEST_WAITING_NS))


def poll_delay_ns(expected_ns: int | None, now_ns: int) -> int:
    """How long to sleep until the next look while an instruction runs.

    Args:
        expected_ns: When it should end; None if its length is not known.
        now_ns: Now.
    """
    if expected_ns is None:
        return _WAITING_NS
    left_ns = expected_ns - now_ns
    if left_ns < -_OVERDUE_NS:
        return _WAITING_NS
    return max(_CLOSE_NS, round(left_ns * (1 - _MARGIN_SHARE)) - _MARGIN_NS)
