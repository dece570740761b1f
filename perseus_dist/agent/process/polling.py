"""How often to look for boundaries while training goes on: the GPU has no bell, and the trainer's is dear.

A clock is asked for when an instruction ends. So an end behind which another clock is to be asked for is looked for
closely, and only when it is near; the others, and begins, matter less. While a rank waits for its peer that cannot be
known, but it will hardly be much sooner than lately at these clocks.
"""

from perseus_dist.agent.core.run_durations import Awaited, Running

_CLOSE_NS = 500_000
_WAITING_NS = 2_000_000
_LONGEST_WAITING_NS = 8_000_000
_BEGIN_SHARE = 8  # of an instruction's length: so early its begin is seen, long before its end
_WAITED_SHARE = 4  # of the wait beyond the least of lately: so late a begin may be seen
_OVERDUE_SHARE = 8  # of what an instruction takes beyond the least of lately: so late its end may be seen
_MARGIN_NS = 500_000
_MARGIN_SHARE = 0.05  # of what is left: the instruction may be faster than the last time, at another clock


def begin_delay_ns(awaited: Awaited | None, now_ns: int, *, is_device_ordered: bool, is_change_due: bool = True) -> int:
    """How long to sleep until the next look while no instruction runs.

    In host order boundaries bear the trainer's own time: an instruction's begin may be seen late, if it is long before
    its end. In device order it would seem to have begun as late, so looks are close from 95 % of the least wait on,
    and less so the longer the wait, where a clock is asked for at its end. However early it begins, it is seen
    long before its end; an iteration's end is seen some milliseconds late at most.

    Args:
        awaited: What is looked for; None if its times are not known.
        now_ns: Now.
        is_device_ordered: Whether boundaries have the time at which they are seen.
        is_change_due: Whether another clock is to be asked for at its begin or end, or its begin is measured.
    """
    if awaited is None:
        return _WAITING_NS
    looked_for_ns = awaited.since_ns + round(awaited.wait_ns * (1 - _MARGIN_SHARE)) - _MARGIN_NS
    close_ns = _loose_ns(awaited.duration_ns)
    if is_device_ordered and is_change_due:
        waited_ns = (now_ns - looked_for_ns) // _WAITED_SHARE
        close_ns = max(_WAITING_NS, min(close_ns, waited_ns))
    return max(close_ns, min(looked_for_ns - now_ns, awaited.duration_ns // 2 or _LONGEST_WAITING_NS))


def end_delay_ns(running: Running, now_ns: int, *, is_change_due: bool = True) -> int:
    """How long to sleep until the next look while an instruction runs.

    Args:
        running: What runs.
        now_ns: Now.
        is_change_due: Whether another clock is to be asked for at its end, or its end is measured.
    """
    left_ns = running.since_ns + running.duration_ns - now_ns
    if is_change_due:
        close_ns = min(max(_CLOSE_NS, -left_ns // _OVERDUE_SHARE), _WAITING_NS)
    else:
        close_ns = _loose_ns(running.duration_ns)
    return max(close_ns, round(left_ns * (1 - _MARGIN_SHARE)) - _MARGIN_NS)


def _loose_ns(duration_ns: int) -> int:
    return min(max(duration_ns // _BEGIN_SHARE, _WAITING_NS), _LONGEST_WAITING_NS)
