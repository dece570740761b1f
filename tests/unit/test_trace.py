import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perseus_dist.errors import OutputError
from perseus_dist.planning.frontier.replay import Execution
from perseus_dist.planning.schedule.dag import build_dag
from perseus_dist.planning.schedule.instruction import parse_instruction
from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.report.trace.trace import trace_events, write_trace


def one_after_another(schedule: Schedule, *, duration_ps: int = 2_000_000, lead_ps: int = 1_000_000) -> Execution:
    """Every rank waits ``lead_ps`` before each instruction; constants apart, clocks alternate; 100 W in all of them."""
    dag = build_dag(schedule)
    position = np.concatenate([np.arange(len(order)) for order in schedule.ranks])
    start_ps = position * (duration_ps + lead_ps) + lead_ps
    constant = np.array([instruction.is_constant for instruction in dag.instructions])
    num = len(dag.instructions)
    return Execution(
        dag=dag,
        clocks_mhz=np.where(constant, 0, 1410 - 15 * (position % 2)).astype(np.int64),
        start_ps=start_ps.astype(np.int64),
        end_ps=(start_ps + duration_ps).astype(np.int64),
        energy_uj=np.full(num, duration_ps // 10_000, dtype=np.int64),
        changes=np.zeros(schedule.num_ranks, dtype=np.int64),
        blocking_uw=np.full(schedule.num_ranks, 83_640_000, dtype=np.int64),
        time_ps=int((start_ps + duration_ps).max()),
        total_uj=123,
    )


@pytest.fixture
def small() -> Execution:
    return one_after_another(make_schedule("1f1b", pp=2, microbatches=2))


def of(events: list[dict[str, Any]], phase: str, name: str = "") -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == phase and name in event["name"]]


def test_every_instruction_is_one_complete_event(small: Execution) -> None:
    events = of(trace_events([("all-max", small), ("plan", small)]), "X")
    names = [str(instruction) for instruction in small.dag.instructions]
    assert [event["name"] for event in events if event["pid"] == 1] == names
    assert [event["name"] for event in events if event["pid"] == 2] == names


def test_complete_events_say_what_an_instruction_was(small: Execution) -> None:
    (event,) = of(trace_events([("all-max", small)]), "X", "1B0")
    assert event == {
        "ph": "X",
        "pid": 1,
        "tid": 3,
        "name": "1B0",
        "cat": "backward",
        "ts": 4.0,
        "dur": 2.0,
        "args": {"id": "1B0", "stage": 1, "microbatch": 0, "clock_mhz": 1395, "energy_j": 0.0002},
    }


def test_durations_add_up_to_the_time_of_the_execution(small: Execution) -> None:
    events = of(trace_events([("all-max", small)]), "X")
    worked_us = float((small.end_ps - small.start_ps).sum()) / 1e6
    assert sum(event["dur"] for event in events) == pytest.approx(worked_us)
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(small.time_ps / 1e6)


def test_neighbours_meet_at_the_nanosecond() -> None:
    schedule = make_schedule("1f1b", pp=2, microbatches=8)
    execution = one_after_another(schedule, duration_ps=1_234_567, lead_ps=0)
    events = of(trace_events([("all-max", execution)]), "X")
    for before, after in pairwise([event for event in events if event["tid"] == 2]):
        end_ns = round(before["ts"] * 1e3) + round(before["dur"] * 1e3)
        assert end_ns == round(after["ts"] * 1e3)


def test_processes_and_threads_are_named_and_sorted(small: Execution) -> None:
    events = trace_events([("baseline all-max", small), ("plan", small)])
    assert [e["args"]["name"] for e in of(events, "M", "process_name")] == ["baseline all-max", "plan"]
    threads = [(e["pid"], e["tid"], e["args"]["name"]) for e in of(events, "M", "thread_name")]
    assert threads == [(1, 3, "pp_rank 0"), (1, 4, "pp_rank 1"), (2, 5, "pp_rank 0"), (2, 6, "pp_rank 1")]
    for name in ("process_sort_index", "thread_sort_index"):
        order = [e["args"]["sort_index"] for e in of(events, "M", name)]
        assert order == sorted(order)
    assert {e["tid"] for e in of(events, "X")} == {tid for _, tid, _ in threads}
    assert {e["pid"] for e in events}.isdisjoint({tid for _, tid, _ in threads})


def test_chunks_are_threads_of_their_own() -> None:
    execution = one_after_another(make_schedule("interleaved", pp=2, microbatches=4, chunks=2))
    events = trace_events([("plan", execution)])
    names = {e["tid"]: e["args"]["name"] for e in of(events, "M", "thread_name")}
    assert list(names.values()) == [
        "pp_rank 0 chunk 0",
        "pp_rank 0 chunk 1",
        "pp_rank 1 chunk 0",
        "pp_rank 1 chunk 1",
    ]
    for event in of(events, "X"):
        rank, chunk = event["args"]["stage"] % 2, event["args"]["stage"] // 2
        assert names[event["tid"]] == f"pp_rank {rank} chunk {chunk}"


def test_clock_counter_changes_with_the_clock_and_constants_keep_it() -> None:
    ranks = (tuple(parse_instruction(token) for token in ("0LOAD0", "0F0", "0LOAD1", "0B0", "0STEP")),)
    execution = one_after_another(Schedule(ranks=ranks))
    counters = of(trace_events([("plan", execution)]), "C", "clock")
    assert [(event["ts"], event["args"]) for event in counters] == [(4.0, {"MHz": 1395})]


def test_power_counter_integrates_to_the_energy(small: Execution) -> None:
    events = trace_events([("plan", small)])
    for rank in range(2):
        counters = of(events, "C", f"pp_rank {rank} power")
        ts = [event["ts"] for event in counters] + [small.time_ps / 1e6]
        watts = [event["args"]["W"] for event in counters]
        assert ts[0] == 0
        assert ts == sorted(ts)
        joules = sum(power * (after - before) / 1e6 for power, (before, after) in zip(watts, pairwise(ts), strict=True))
        here = small.dag.pp_rank == rank
        worked_ps = int((small.end_ps - small.start_ps)[here].sum())
        waited_j = (small.time_ps - worked_ps) / 1e12 * 83.64
        assert joules == pytest.approx(small.energy_uj[here].sum() / 1e6 + waited_j, rel=1e-6)


def test_file_is_valid_and_the_same_every_time(small: Execution, tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        write_trace([("all-max", small)], tmp_path / name)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    trace = json.loads((tmp_path / "one.json").read_text())
    assert trace["traceEvents"] == trace_events([("all-max", small)])
    required = {"X": {"pid", "tid", "ts", "dur"}, "C": {"pid", "ts", "args"}, "M": {"pid", "args"}}
    assert all(required[event["ph"]] <= event.keys() for event in trace["traceEvents"])


def test_unwritable_folder_is_named(small: Execution, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="missing") as raised:
        write_trace([("all-max", small)], tmp_path / "missing" / "trace.json")
    assert "\n" not in str(raised.value)


@pytest.mark.stress
def test_a_large_iteration_is_written_whole(tmp_path: Path) -> None:
    execution = one_after_another(make_schedule("interleaved", pp=16, microbatches=256, chunks=4))
    assert len(execution.dag.instructions) == 32_768
    write_trace([("plan", execution)], tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 32_768
