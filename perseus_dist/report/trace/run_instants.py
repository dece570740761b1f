"""Events of a job as instant events of its trace, on a track of their own: verdicts, reports, switches."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from perseus_dist.messages.job_status import JobEvent
from perseus_dist.report.trace.trace import Event
from perseus_dist.runlog.events import KeptEvent

PROCESS, TRACK = "job", "stragglers, reports and switches"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_POINTS = 64  # of a switch, to be read in a tooltip


def wall_ns(at: datetime) -> int:
    """[ns] since the epoch."""
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


def instants(events: Sequence[KeptEvent], *, pid: int, tid: int, zero_ns: int) -> Iterator[Event]:
    """Those whose time is known, after the names of their track; nothing without any.

    Args:
        events: Of the run.
        pid: Of a process that the trace does not have yet.
        tid: Of a thread likewise.
        zero_ns: [ns since the epoch] of the trace's zero.
    """
    known = [(at, event) for at, event in events if at is not None]
    if not known:
        return
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": PROCESS}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": 0}}
    yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": TRACK}}
    for at, event in known:
        ts = (wall_ns(at) - zero_ns) / 1e3
        of_thread = {"ph": "i", "s": "t", "pid": pid, "tid": tid, "ts": ts}
        yield {**of_thread, "name": _name(event), "cat": event.kind, "args": _args(event)}


def _name(event: JobEvent) -> str:
    if event.kind == "switch":
        waited = f" for T' {event.t_prime_s:.4g} s" if event.t_prime_s else ""
        return f"switch {event.switch_revision}{waited}"
    whose = f"rank {event.rank}" if event.rank >= 0 else f"pipeline {event.dp_rank}"
    told = " ".join(filter(None, (event.cause.replace("_", " "), f"x {event.degree:.3f}" if event.degree else "")))
    return f"{event.kind}: {whose} {told}".strip()


def _args(event: JobEvent) -> dict[str, Any]:
    args: dict[str, Any] = {"iteration": event.iteration, "sentence": event.sentence}
    if event.kind == "switch":
        args |= {
            "effective_iteration": event.effective_iteration,
            "t_prime_s": event.t_prime_s,
            "points": list(event.points[:_MAX_POINTS]),
        }
    elif event.degree:
        args |= {"degree": event.degree, "low": event.low, "high": event.high}
    return args
