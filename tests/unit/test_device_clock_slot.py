"""The lease state machine, with invented instants and every order of events."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.device.lease.clock_slot import (
    READ_WINDOW_NS,
    RECHECK_INTERVAL_NS,
    RETRY_FIRST_NS,
    RETRY_LONGEST_NS,
    Action,
    Call,
    ClockSlot,
    Freed,
    Granted,
    Lost,
    Outcome,
    Phase,
    Refused,
    Reported,
    Request,
    RestoreFailed,
    SlotEvent,
)

CLOCKS_MHZ = (1410, 1395, 1380)


def held(now_ns: int = 0) -> ClockSlot:
    slot = ClockSlot()
    slot.acquire()
    assert slot.next_action(now_ns) == Action(call=Call.CHECK, first=True)
    assert slot.finish(Outcome(time_ns=now_ns, clocks_mhz=CLOCKS_MHZ)) == [Granted(clocks_mhz=CLOCKS_MHZ)]
    return slot


def locked(clock_mhz: int = 1380, now_ns: int = 0) -> ClockSlot:
    slot = held(now_ns)
    slot.request(Request(clock_mhz=clock_mhz, request_ns=now_ns))
    assert slot.next_action(now_ns) == Action(call=Call.SET, clock_mhz=clock_mhz, first=True)
    assert slot.finish(Outcome(time_ns=now_ns)) == []
    return slot


def reports(events: list[SlotEvent]) -> list[Reported]:
    return [event for event in events if isinstance(event, Reported)]


def test_a_refused_lease_is_free_again() -> None:
    slot = ClockSlot()
    slot.acquire()
    slot.next_action(0)
    assert slot.finish(Outcome(time_ns=0, error="MIG", fatal=True)) == [Refused(reason="MIG", retry=False), Freed()]
    assert slot.phase is Phase.FREE
    assert slot.next_action(0) is None


def test_clock_is_read_back_until_it_is_reached() -> None:
    slot = locked(1380, now_ns=5)
    assert slot.next_action(5) == Action(call=Call.READ)
    assert slot.finish(Outcome(time_ns=6, observed_mhz=1410)) == []
    assert slot.next_action(7) is None
    wake_ns = slot.wake_ns()
    assert wake_ns is not None
    assert slot.next_action(wake_ns) == Action(call=Call.READ)
    (event,) = slot.finish(Outcome(time_ns=wake_ns, observed_mhz=1380, event_reasons=2))
    assert isinstance(event, Reported)
    assert event.report.reached
    assert (event.report.set_ns, event.report.reached_ns, event.report.event_reasons) == (5, wake_ns, 2)


def test_a_clock_that_is_not_reached_is_reported_so() -> None:
    slot = locked(1380)
    slot.next_action(0)
    (event,) = slot.finish(Outcome(time_ns=READ_WINDOW_NS, observed_mhz=900, event_reasons=0x20))
    assert isinstance(event, Reported)
    assert not event.report.reached
    assert (event.report.observed_mhz, event.report.event_reasons, event.report.error) == (900, 0x20, "")


def test_newest_request_wins_and_the_overtaken_is_not_reported() -> None:
    slot = held()
    slot.request(Request(clock_mhz=1380, request_ns=1))
    slot.next_action(1)
    slot.request(Request(clock_mhz=1395, request_ns=2))
    slot.request(Request(clock_mhz=1410, request_ns=3))
    assert slot.finish(Outcome(time_ns=4)) == []
    assert slot.next_action(4) == Action(call=Call.SET, clock_mhz=1410)
    assert slot.finish(Outcome(time_ns=5)) == []
    slot.next_action(5)
    (event,) = slot.finish(Outcome(time_ns=6, observed_mhz=1410))
    assert isinstance(event, Reported)
    assert event.report.request_ns == 3


def test_end_waits_for_the_call_in_flight_and_resets_after_it() -> None:
    slot = held()
    slot.request(Request(clock_mhz=1380, request_ns=0))
    slot.next_action(0)
    assert slot.drop() == []
    assert slot.next_action(1) is None  # the set has not returned
    assert slot.finish(Outcome(time_ns=2)) == []
    assert slot.next_action(2) == Action(call=Call.RESET)
    assert slot.finish(Outcome(time_ns=3)) == [Freed()]


def test_end_of_an_untouched_lease_resets_nothing() -> None:
    assert held().drop() == [Freed()]


def test_end_while_checking_frees_when_the_check_returns() -> None:
    slot = ClockSlot()
    slot.acquire()
    slot.next_action(0)
    assert slot.drop() == []
    assert slot.finish(Outcome(time_ns=9, clocks_mhz=CLOCKS_MHZ)) == [Freed()]


def test_restore_is_tried_until_it_works_ever_less_often() -> None:
    slot = locked()
    slot.drop()
    now_ns, delays = 0, []
    for attempt in range(1, 12):
        assert slot.next_action(now_ns) == Action(call=Call.RESET)
        (event,) = slot.finish(Outcome(time_ns=now_ns, error="GPU is lost"))
        assert isinstance(event, RestoreFailed)
        assert event.num_failures == attempt
        wake_ns = slot.wake_ns()
        assert wake_ns is not None
        assert slot.next_action(wake_ns - 1) is None
        delays.append(wake_ns - now_ns)
        now_ns = wake_ns
    assert delays[0] == RETRY_FIRST_NS
    assert delays[-1] == RETRY_LONGEST_NS
    slot.next_action(now_ns)
    assert slot.finish(Outcome(time_ns=now_ns)) == [Freed()]


def test_no_permission_at_the_first_set_ends_the_lease_without_a_reset() -> None:
    slot = held()
    slot.request(Request(clock_mhz=1380, request_ns=0))
    slot.next_action(0)
    events = slot.finish(Outcome(time_ns=1, error="no permission", fatal=True, nothing_done=True))
    assert [type(event) for event in events] == [Reported, Lost, Freed]


def test_permission_lost_later_keeps_trying_to_restore() -> None:
    slot = locked()
    slot.request(Request(clock_mhz=1395, request_ns=1))
    slot.next_action(1)
    events = slot.finish(Outcome(time_ns=2, error="no permission", fatal=True, nothing_done=True))
    assert [type(event) for event in events] == [Reported, Lost]
    assert slot.next_action(2) == Action(call=Call.RESET)


def test_a_set_that_failed_is_followed_by_a_release() -> None:
    slot = locked()
    slot.request(Request(clock_mhz=1395, request_ns=1))
    slot.next_action(1)
    (event,) = slot.finish(Outcome(time_ns=2, error="timeout"))
    assert isinstance(event, Reported)
    assert event.report.error == "timeout"
    assert slot.phase is Phase.HELD
    assert slot.next_action(2) == Action(call=Call.RESET)


def test_release_within_a_lease() -> None:
    slot = locked()
    slot.request(Request(clock_mhz=None, request_ns=7))
    assert slot.next_action(7) == Action(call=Call.RESET)
    assert slot.finish(Outcome(time_ns=8)) == []
    assert slot.next_action(8) == Action(call=Call.READ)
    (event,) = slot.finish(Outcome(time_ns=9, observed_mhz=1410))
    assert isinstance(event, Reported)
    assert event.report.reached
    assert not slot.touched
    slot.request(Request(clock_mhz=1380, request_ns=10))
    assert slot.next_action(10) == Action(call=Call.SET, clock_mhz=1380, first=True)


def test_another_job_on_a_held_gpu_ends_the_lease() -> None:
    slot = locked()
    slot.next_action(0)
    slot.finish(Outcome(time_ns=0, observed_mhz=1380))
    assert slot.next_action(RECHECK_INTERVAL_NS - 1) is None
    assert slot.next_action(RECHECK_INTERVAL_NS) == Action(call=Call.CHECK)
    assert slot.finish(Outcome(time_ns=RECHECK_INTERVAL_NS, error="another job", fatal=True)) == [
        Lost(reason="another job")
    ]
    assert slot.next_action(RECHECK_INTERVAL_NS) == Action(call=Call.RESET)


@dataclass
class Gpu:
    """What really is on the GPU."""

    locked: bool = False
    is_leased: bool = True


# A failed call may have done its work all the same, unless the driver says that it has not.
RESULTS = (
    "worked",
    "failed",
    "failed, fatal",
    "failed, took hold",
    "failed, nothing done",
    "failed, nothing done, fatal",
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), st.sampled_from([None, *CLOCKS_MHZ])),
        st.tuples(st.just("drop"), st.none()),
        st.tuples(st.just("begin"), st.none()),
        st.tuples(st.just("finish"), st.sampled_from(RESULTS)),
        st.tuples(st.just("wait"), st.integers(0, 10**10)),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_happens_nothing_is_locked_after_the_lease(steps: list[tuple[str, object]]) -> None:
    slot, gpu, now_ns = ClockSlot(), Gpu(), 0
    slot.acquire()
    events: list[SlotEvent] = []
    for step, detail in steps:
        if step == "request":
            assert detail is None or isinstance(detail, int)
            slot.request(Request(clock_mhz=detail, request_ns=now_ns))
        elif step == "drop":
            gpu.is_leased = False
            events += slot.drop()
        elif step == "wait":
            assert isinstance(detail, int)
            now_ns += detail
        elif step == "begin" and slot.in_flight is None:
            action = slot.next_action(now_ns)
            if action is not None and action.call is Call.SET:
                assert gpu.is_leased, "a clock is set after the lease is over"
        elif step == "finish" and slot.in_flight is not None:
            events += _finish(slot, gpu, now_ns, str(detail))
        if any(isinstance(event, Lost) for event in events):
            gpu.is_leased = False
    # From now on everything works: the lease must come to its end, unlocked.
    events += slot.drop()
    for _ in range(10):
        if slot.in_flight is None:
            now_ns += RETRY_LONGEST_NS
            slot.next_action(now_ns)
        if slot.in_flight is not None:
            events += _finish(slot, gpu, now_ns, "worked")
    assert slot.phase is Phase.FREE
    assert not gpu.locked
    assert [type(event) for event in events].count(Freed) == 1
    assert isinstance(events[-1], Freed)


def _finish(slot: ClockSlot, gpu: Gpu, now_ns: int, result: str) -> list[SlotEvent]:
    action = slot.in_flight
    assert action is not None
    if result in ("worked", "failed, took hold"):
        if action.call is Call.SET:
            gpu.locked = True
        elif action.call is Call.RESET:
            gpu.locked = False
    events = slot.finish(
        Outcome(
            time_ns=now_ns,
            error="" if result == "worked" else result,
            fatal="fatal" in result,
            nothing_done="nothing done" in result,
            observed_mhz=1380,
            clocks_mhz=CLOCKS_MHZ,
        )
    )
    if any(isinstance(event, Freed) for event in events):
        assert not gpu.locked
    return events
