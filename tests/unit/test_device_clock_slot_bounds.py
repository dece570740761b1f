"""The lease state machine at its limits: the instant before, and at it; what is called next, and reported of what."""

import pytest
from test_device_clock_slot import CLOCKS_MHZ, held, locked, reports

from perseus_dist.device.lease.clock_slot import (
    READ_INTERVAL_NS,
    READ_WINDOW_NS,
    RECHECK_INTERVAL_NS,
    RETRY_FIRST_NS,
    RETRY_LONGEST_NS,
    Action,
    Call,
    ClockSlot,
    Freed,
    Granted,
    Outcome,
    Phase,
    Refused,
    Reported,
    Request,
    RestoreFailed,
    SlotEvent,
)

READ, RESET, CHECK = Action(call=Call.READ), Action(call=Call.RESET), Action(call=Call.CHECK)


def only(events: list[SlotEvent]) -> Reported:
    (event,) = events
    assert isinstance(event, Reported)
    return event


@pytest.mark.parametrize(("fatal", "unusable"), [(True, True), (True, False), (False, False)])
def test_a_refusal_says_whether_another_try_may_help(*, fatal: bool, unusable: bool) -> None:
    slot = ClockSlot()
    slot.acquire()
    slot.next_action(0)
    events = slot.finish(Outcome(time_ns=3, error="why", fatal=fatal, unusable=unusable))
    assert events == [Refused(reason="why", retry=not fatal, unusable=unusable), Freed()]


def test_nothing_is_called_while_a_call_is_in_flight_and_nothing_wakes_then() -> None:
    slot = ClockSlot()
    assert slot.next_action(0) is None
    assert slot.wake_ns() is None
    slot.acquire()
    assert slot.wake_ns() is None
    slot.next_action(0)
    assert slot.next_action(RECHECK_INTERVAL_NS) is None
    assert slot.wake_ns() is None


def test_a_request_without_a_lease_is_nothing() -> None:
    slot = ClockSlot()
    slot.request(Request(clock_mhz=1380, request_ns=1))
    slot.acquire()
    slot.request(Request(clock_mhz=1380, request_ns=2))
    slot.next_action(3)
    assert slot.finish(Outcome(time_ns=3, clocks_mhz=CLOCKS_MHZ)) == [Granted(clocks_mhz=CLOCKS_MHZ)]
    assert slot.next_action(3) is None


def test_a_clock_is_read_at_once_and_then_every_so_often_until_the_window_ends() -> None:
    slot = locked(1380, now_ns=50)
    assert slot.wake_ns() == 50
    assert slot.next_action(49) is None
    now_ns = 50
    while now_ns < 50 + READ_WINDOW_NS:
        assert slot.next_action(now_ns) == READ
        assert slot.finish(Outcome(time_ns=now_ns, observed_mhz=1410)) == []
        assert slot.wake_ns() == now_ns + READ_INTERVAL_NS
        now_ns += READ_INTERVAL_NS
        assert slot.next_action(now_ns - 1) is None
    assert slot.next_action(now_ns) == READ
    report = only(slot.finish(Outcome(time_ns=now_ns, observed_mhz=1410, event_reasons=4))).report
    assert (report.requested_mhz, report.observed_mhz, report.event_reasons) == (1380, 1410, 4)
    assert (report.request_ns, report.set_ns, report.reached_ns, report.error) == (50, 50, None, "")
    assert slot.next_action(now_ns) is None


@pytest.mark.parametrize(("late_ns", "is_last"), [(-1, False), (0, True)])
def test_the_last_reading_is_the_first_at_the_end_of_the_window(late_ns: int, *, is_last: bool) -> None:
    slot = locked(1380, now_ns=50)
    slot.next_action(50)
    assert bool(slot.finish(Outcome(time_ns=50 + READ_WINDOW_NS + late_ns, observed_mhz=1410))) == is_last


def test_a_clock_that_cannot_be_read_back_is_reported_once_with_why() -> None:
    slot = locked(1380, now_ns=50)
    slot.next_action(50)
    report = only(slot.finish(Outcome(time_ns=60, error="gone"))).report
    assert (report.error, report.set_ns, report.reached_ns) == ("the clock cannot be read back: gone", 50, None)
    assert slot.next_action(61) is None


def test_a_newer_wish_is_served_before_the_clock_of_the_last_one_is_read() -> None:
    slot = locked(1380)
    slot.request(Request(clock_mhz=1395, request_ns=7))
    assert slot.next_action(7) == Action(call=Call.SET, clock_mhz=1395)
    slot.finish(Outcome(time_ns=8))
    slot.next_action(8)
    report = only(slot.finish(Outcome(time_ns=9, observed_mhz=1395))).report
    assert (report.request_ns, report.set_ns, report.reached_ns) == (7, 8, 9)
    assert slot.next_action(10) is None


def test_a_release_where_nothing_was_set_reads_the_clock_and_reports_that_at_once() -> None:
    slot = held()
    slot.request(Request(clock_mhz=None, request_ns=5))
    assert slot.next_action(5) == READ
    report = only(slot.finish(Outcome(time_ns=6, observed_mhz=1410))).report
    assert (report.requested_mhz, report.observed_mhz, report.request_ns, report.set_ns) == (None, 1410, 5, 6)
    assert not slot.touched


def test_a_held_gpu_is_looked_at_again_an_interval_after_each_look() -> None:
    slot = held(now_ns=10)
    due_ns = 10 + RECHECK_INTERVAL_NS
    for _ in range(2):
        assert slot.wake_ns() == due_ns
        assert slot.next_action(due_ns - 1) is None
        assert slot.next_action(due_ns) == CHECK
        assert slot.finish(Outcome(time_ns=due_ns + 3)) == []
        due_ns += 3 + RECHECK_INTERVAL_NS
    assert slot.phase is Phase.HELD


def test_it_wakes_for_whatever_is_due_first_and_reads_before_it_looks() -> None:
    slot, set_ns = held(), RECHECK_INTERVAL_NS - READ_INTERVAL_NS // 2
    slot.request(Request(clock_mhz=1380, request_ns=set_ns))
    slot.next_action(set_ns)
    slot.finish(Outcome(time_ns=set_ns))
    assert slot.wake_ns() == set_ns
    assert slot.next_action(set_ns) == READ
    assert slot.finish(Outcome(time_ns=set_ns, observed_mhz=1410)) == []
    assert slot.wake_ns() == RECHECK_INTERVAL_NS
    assert slot.next_action(set_ns + READ_INTERVAL_NS) == READ


def failed_release() -> ClockSlot:
    """A held GPU that was locked, and whose release failed at 20."""
    slot = locked(1380)
    slot.request(Request(clock_mhz=None, request_ns=9))
    assert slot.next_action(9) == RESET
    events = slot.finish(Outcome(time_ns=20, error="busy"))
    assert [type(event) for event in events] == [Reported, RestoreFailed]
    assert reports(events)[0].report.error == "busy"
    return slot


def test_a_release_that_failed_is_tried_again_after_a_while() -> None:
    slot = failed_release()
    assert slot.wake_ns() == 20 + RETRY_FIRST_NS
    assert slot.next_action(20 + RETRY_FIRST_NS - 1) is None
    assert slot.next_action(20 + RETRY_FIRST_NS) == RESET
    assert slot.finish(Outcome(time_ns=100)) == []
    assert not slot.touched
    assert slot.next_action(101) is None
    assert slot.wake_ns() == RECHECK_INTERVAL_NS


def test_a_newer_clock_makes_the_release_that_failed_needless() -> None:
    slot = failed_release()
    slot.request(Request(clock_mhz=1395, request_ns=30))
    assert slot.next_action(30) == Action(call=Call.SET, clock_mhz=1395, first=False)
    slot.finish(Outcome(time_ns=31))
    slot.next_action(31)
    only(slot.finish(Outcome(time_ns=32, observed_mhz=1395)))
    assert slot.next_action(20 + RETRY_FIRST_NS) is None


def test_failures_are_counted_anew_after_a_reset_that_worked() -> None:
    slot, now_ns = failed_release(), 20 + RETRY_FIRST_NS
    slot.next_action(now_ns)
    slot.finish(Outcome(time_ns=now_ns))
    for clock_mhz in (1380, None):
        slot.request(Request(clock_mhz=clock_mhz, request_ns=now_ns))
        call = slot.next_action(now_ns)
        events = slot.finish(Outcome(time_ns=now_ns, error="" if clock_mhz else "busy"))
    assert call == RESET
    assert events[1] == RestoreFailed(reason="busy", num_failures=1, retry_s=RETRY_FIRST_NS / 1e9)


def test_the_end_of_a_lease_is_tried_at_once_even_where_a_release_has_failed() -> None:
    slot = failed_release()
    assert slot.drop() == []
    assert slot.wake_ns() == 0
    assert slot.next_action(21) == RESET
    (event,) = slot.finish(Outcome(time_ns=22, error="busy"))
    assert isinstance(event, RestoreFailed)
    assert event.num_failures == 1
    assert slot.wake_ns() == 22 + RETRY_FIRST_NS


def test_waits_between_tries_double_up_to_the_longest() -> None:
    slot = ClockSlot()
    slot.restore()
    now_ns, waits_s = 0, []
    for _ in range(14):
        assert slot.next_action(now_ns) == RESET
        (event,) = slot.finish(Outcome(time_ns=now_ns, error="busy"))
        assert isinstance(event, RestoreFailed)
        waits_s.append(event.retry_s)
        now_ns += round(event.retry_s * 1e9)
        assert slot.wake_ns() == now_ns
    longest_s = RETRY_LONGEST_NS / 1e9
    assert waits_s == [min(longest_s, RETRY_FIRST_NS / 1e9 * 2**number) for number in range(14)]
    assert slot.next_action(now_ns) == RESET
    assert slot.finish(Outcome(time_ns=now_ns)) == [Freed()]
    assert slot.phase is Phase.FREE


@pytest.mark.parametrize(("nothing_done", "touched"), [(True, False), (False, True)])
def test_a_first_set_that_failed_is_undone_unless_it_certainly_did_nothing(
    *, nothing_done: bool, touched: bool
) -> None:
    slot = held()
    slot.request(Request(clock_mhz=1380, request_ns=0))
    slot.next_action(0)
    assert only(slot.finish(Outcome(time_ns=0, error="no", nothing_done=nothing_done))).report.error == "no"
    assert slot.touched == touched
    assert slot.next_action(0) == (RESET if touched else None)


def test_a_later_set_that_did_nothing_leaves_what_was_set_before() -> None:
    slot = locked(1380)
    slot.request(Request(clock_mhz=1395, request_ns=1))
    slot.next_action(1)
    slot.finish(Outcome(time_ns=2, error="no", nothing_done=True))
    assert slot.touched
    assert slot.next_action(2) == RESET


@pytest.mark.parametrize("error", ["", "no"])
def test_what_a_call_comes_to_after_the_end_of_the_lease_is_not_reported(error: str) -> None:
    for clock_mhz in (1395, None):
        slot = locked(1380)
        slot.request(Request(clock_mhz=clock_mhz, request_ns=1))
        slot.next_action(1)
        slot.drop()
        events = slot.finish(Outcome(time_ns=2, error=error))
        assert reports(events) == []
        assert (Freed() in events) == (clock_mhz is None and not error)


def test_the_end_of_a_lease_is_no_news_where_there_is_none_or_it_has_ended() -> None:
    assert ClockSlot().drop() == []
    slot = locked()
    slot.drop()
    assert slot.drop() == []
    slot.next_action(0)
    assert slot.finish(Outcome(time_ns=1)) == [Freed()]
    assert slot.drop() == []
    slot.acquire()
    assert slot.next_action(2) == Action(call=Call.CHECK, first=True)
