"""The execution as a Chrome trace: a file that https://ui.perfetto.dev and chrome://tracing open.

One process per execution, one thread per pp_rank (one per model chunk where a rank has several), one complete event per
instruction, and per rank two counters: the clock and the power of all its GPUs. A transfer under which its sender goes
on is an asynchronous event instead.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perseus_dist.planning.frontier.replay import Execution
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.schedule.instruction import SENDS, Kind
from perseus_dist.report.plots.timeline_layout import chunks_of
from perseus_dist.units import PS_PER_NS, IntArray, j_from_uj, w_from_uw

Event = dict[str, Any]

CATEGORIES: dict[str, str] = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.INPUT_GRADIENT: "input gradient",
    Kind.WEIGHT_GRADIENT: "weight gradient",
    Kind.FORWARD_BACKWARD: "forward and backward as one",
}


def write_trace(executions: Sequence[tuple[str, Execution]], path: Path) -> None:
    """Write a trace of the named executions. The same executions give the same bytes.

    Raises:
        OutputError: The folder is missing or cannot be written to.
    """
    write_output(path, trace_bytes(trace_events(executions)))


def trace_bytes(events: Sequence[Event]) -> bytes:
    """The file that holds these events."""
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":")).encode() + b"\n"


def trace_events(executions: Sequence[tuple[str, Execution]]) -> list[Event]:
    """The events of all executions: names and order first, then instructions and counters rank by rank.

    Times are microseconds with nanosecond digits, as the format has it. An instruction ends at the nanosecond at which
    its successor begins, because viewers drop events that overlap on one thread.
    """
    events: list[Event] = []
    first_tid = (
        len(executions) + 1
    )  # apart from the process numbers: a thread with its process's number is its main thread
    for pid, (name, execution) in enumerate(executions, start=1):
        chunk, num_chunks = chunks_of(execution.dag)
        first_tids = first_tid + np.cumsum(num_chunks) - num_chunks
        events += _names(pid, name, first_tids.tolist(), num_chunks.tolist())
        events += _instructions(pid, execution, first_tids[execution.dag.pp_rank] + chunk)
        for rank in range(execution.dag.schedule.num_ranks):
            events += _counters(pid, execution, rank)
        first_tid += int(num_chunks.sum())
    return events


def _names(pid: int, name: str, first_tids: Sequence[int], num_chunks: Sequence[int]) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
    for rank, (first, chunks) in enumerate(zip(first_tids, num_chunks, strict=True)):
        for chunk in range(chunks):
            tid = first + chunk
            thread = f"pp_rank {rank}" + (f" chunk {chunk}" if chunks > 1 else "")
            yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": thread}}
            yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _instructions(pid: int, execution: Execution, tids: IntArray) -> Iterator[Event]:
    start_ns, end_ns = _ns(execution.start_ps), _ns(execution.end_ps)
    columns = (start_ns / 1e3, (end_ns - start_ns) / 1e3, tids, execution.clocks_mhz, j_from_uj(execution.energy_uj))
    rows = zip(execution.dag.instructions, execution.dag.on_rank, *(c.tolist() for c in columns), strict=True)
    for instruction, on_rank, ts, dur, tid, clock_mhz, energy_j in rows:
        text = str(instruction)
        if not on_rank:
            category = "transfer" if instruction.kind in SENDS else "constant"
            one = {"pid": pid, "tid": tid, "name": text, "cat": category, "id": f"{pid} {text}"}
            yield {"ph": "b", "ts": ts, **one}
            yield {"ph": "e", "ts": ts + dur, **one}
            continue
        yield {
            "ph": "X",
            "pid": pid,
            "tid": tid,
            "name": text,
            "cat": CATEGORIES.get(instruction.kind, "constant"),
            "ts": ts,
            "dur": dur,
            "args": {
                "id": text,
                "stage": instruction.stage,
                "microbatch": instruction.microbatch,
                "clock_mhz": clock_mhz,
                "energy_j": energy_j,
            },
        }


def _counters(pid: int, execution: Execution, rank: int) -> Iterator[Event]:
    """Clock and power of one rank, an event wherever they change; a constant instruction keeps the clock it finds."""
    here = np.flatnonzero((execution.dag.pp_rank == rank) & execution.dag.on_rank)
    start_ps, end_ps = execution.start_ps[here], execution.end_ps[here]
    clock_mhz = execution.clocks_mhz[here]
    set_mhz = clock_mhz[clock_mhz > 0]
    changed = np.flatnonzero(clock_mhz > 0)[np.diff(set_mhz, prepend=0) != 0]
    name = f"pp_rank {rank} clock"
    for ts, value in zip((_ns(start_ps[changed]) / 1e3).tolist(), clock_mhz[changed].tolist(), strict=True):
        yield {"ph": "C", "pid": pid, "name": name, "ts": ts, "args": {"MHz": value}}

    waiting_w = float(w_from_uw(execution.blocking_uw[rank]))
    busy = end_ps > start_ps
    start_ps, end_ps = start_ps[busy], end_ps[busy]
    busy_w = execution.energy_uj[here][busy] / (end_ps - start_ps) * 1e6  # 1 uJ / 1 ps = 1e6 W
    # Waiting begins at 0 and at every end; an instruction that begins there at once takes its place.
    time_ns = np.concatenate([[0], _ns(end_ps), _ns(start_ps)])
    power_w = np.concatenate([np.full(1 + len(end_ps), waiting_w), busy_w])
    order = np.argsort(time_ns, kind="stable")
    time_ns, power_w = time_ns[order], np.round(power_w[order], 3)
    last = np.append(np.diff(time_ns) > 0, True)
    name = f"pp_rank {rank} power"
    for ts, value in zip((time_ns[last] / 1e3).tolist(), power_w[last].tolist(), strict=True):
        yield {"ph": "C", "pid": pid, "name": name, "ts": ts, "args": {"W": value}}


def _ns(time_ps: IntArray) -> IntArray:
    return (time_ps + PS_PER_NS // 2) // PS_PER_NS
