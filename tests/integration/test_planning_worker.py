"""The planning worker as a real process: plans, errors, cancelling, dying."""

import asyncio
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from plan_requests import LONG, request
from waiting import wait_until

from perseus_dist.errors import ProfileError
from perseus_dist.messages.from_planner import PlanTable
from perseus_dist.planner.job.facts.plans import TableAhead
from perseus_dist.planner.worker.made_ahead import answer_made_ahead
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planner.worker.planning_worker import PlanningWorker, PlanningWorkers, WorkerDiedError
from perseus_dist.rpc.codec import decode_planner_message
from perseus_dist.rpc.violations import InvalidMessageError


def with_worker(test: Callable[[PlanningWorker], Awaitable[None]]) -> None:
    async def run() -> None:
        worker = PlanningWorker()
        try:
            await test(worker)
        finally:
            await worker.close()

    asyncio.run(run())


async def pid_of(worker: PlanningWorker) -> int:
    while worker._process is None:
        await asyncio.sleep(0.01)
    return worker._process.pid


def test_plans_come_back_encoded_and_requests_take_turns() -> None:
    async def test(worker: PlanningWorker) -> None:
        results = await asyncio.gather(*(worker.plan(request(request_id=i)) for i in (1, 2, 3)))
        assert [result.request_id for result in results] == [1, 2, 3]
        table = decode_planner_message(results[0].tables[1])
        assert isinstance(table, PlanTable)
        assert (table.revision, table.num_instructions, table.num_points) == (5, 4, len(results[0].summary.time_ps))
        assert os.getpriority(os.PRIO_PROCESS, await pid_of(worker)) > os.getpriority(os.PRIO_PROCESS, 0)

    with_worker(test)


@pytest.mark.stress
def test_how_long_the_first_plan_of_a_size_takes_is_told_while_it_is_made() -> None:
    async def test(worker: PlanningWorker) -> None:
        told_s: list[float] = []
        twice = asyncio.Event()

        def expect(left_s: float) -> None:
            told_s.append(left_s)
            if len(told_s) > 1:
                twice.set()

        planning = asyncio.create_task(worker.plan(LONG, expect))
        await twice.wait()
        assert min(told_s) > 0
        in_turn_s = worker.expected_s(request())  # of what is behind it nothing is known
        assert in_turn_s is None
        planning.cancel()
        with suppress(asyncio.CancelledError):
            await planning
        told_s.clear()
        result = await worker.plan(request(request_id=2), expect)  # the next answer is its own
        assert result.request_id == 2

    with_worker(test)


def test_how_long_planning_takes_is_known_from_another_of_the_size_and_counts_those_before_it() -> None:
    async def test(worker: PlanningWorker) -> None:
        asked = request(pp=2, microbatches=16)
        assert worker.expected_s(asked) is None
        began_s = time.monotonic()
        await worker.plan(asked)
        expected_s = worker.expected_s(asked)
        assert expected_s is not None
        assert 0 < expected_s <= time.monotonic() - began_s
        assert worker.expected_s(replace(asked, is_first=True)) is None
        assert worker.expected_s(request(pp=2, microbatches=100)) is None
        running = asyncio.create_task(worker.plan(LONG))
        await asyncio.sleep(0)
        assert worker.expected_s(asked) is None  # of what is before it nothing is known
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert worker.expected_s(asked) == expected_s
        waiting = [asyncio.create_task(worker.plan(asked)) for _ in range(3)]
        await asyncio.sleep(0)
        in_turn_s = worker.expected_s(asked)
        assert in_turn_s is not None
        assert 3 * expected_s <= in_turn_s <= 4 * expected_s
        await asyncio.gather(*waiting)

    with_worker(test)


def test_a_job_that_has_no_plan_does_not_wait_for_another_ones_whole_frontier() -> None:
    async def run() -> None:
        workers = PlanningWorkers()
        whole = asyncio.create_task(workers.plan(LONG))
        await pid_of(workers._patient)
        first = await workers.plan(replace(request(request_id=2), is_first=True))
        assert (first.request_id, whole.done()) == (2, False)
        whole.cancel()
        with suppress(asyncio.CancelledError):
            await whole
        await workers.close()

    asyncio.run(run())


def test_plans_made_ahead_wait_for_all_others_and_leave_no_process_behind() -> None:
    async def run() -> None:
        workers = PlanningWorkers()
        whole = asyncio.create_task(workers.plan(LONG))
        await pid_of(workers._patient)
        ahead = asyncio.create_task(workers.plan(replace(request(request_id=3), is_ahead=True, is_first=True)))
        first = await workers.plan(replace(request(request_id=2), is_first=True))
        assert (first.request_id, ahead.done(), workers._ahead.is_busy) == (2, False, False)
        whole.cancel()
        with suppress(asyncio.CancelledError):
            await whole
        pid = await pid_of(workers._ahead)
        while not Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"idle\0"):  # before it is another program
            await asyncio.sleep(0.01)
        while os.sched_getscheduler(pid) != os.SCHED_IDLE:
            await asyncio.sleep(0.01)
        ahead.cancel()  # on a busy machine it might not be made before long
        with suppress(asyncio.CancelledError):
            await ahead
        assert not _is_running(pid)
        await workers.close()

    asyncio.run(run())


def test_the_answer_to_the_same_request_is_the_same_under_its_own_numbers() -> None:
    async def test(worker: PlanningWorker) -> None:
        asked = replace(request(), revision=7, request_id=5, job_id="another")
        assert asked.digest == request().digest != replace(asked, tp_size=2).digest
        result = await worker.plan(replace(request(), revision=1, is_ahead=True))
        made = TableAhead(
            digest=asked.digest,
            summary=result.summary,
            tables=result.tables,
            frontier_npz=result.frontier_npz,
            profile_csv=result.profile_csv,
            is_first=result.is_first,
        )
        again = await worker.plan(asked)
        answer = answer_made_ahead(asked, made)
        said = {name: getattr(again, name) for name in ("summary", "frontier_npz")}  # with the time that it took
        assert replace(answer, **said) == again
        for useless in (replace(made, tables=made.tables[:1]), replace(made, tables=(b"", b""))):
            with pytest.raises((ValueError, InvalidMessageError), match="expected"):
                answer_made_ahead(asked, useless)

    with_worker(test)


def test_a_first_plan_is_on_time_and_small() -> None:
    async def test(worker: PlanningWorker) -> None:
        asked = request(pp=4, microbatches=8)
        first, full = [await worker.plan(replace(asked, is_first=is_first)) for is_first in (True, False)]
        assert first.summary.time_ps[0] <= first.summary.baseline_time_ps == full.summary.baseline_time_ps
        assert first.summary.total_uj[0] < first.summary.baseline_uj
        assert len(first.summary.time_ps) <= 3 < len(full.summary.time_ps)
        assert len(first.tables[0]) < len(full.tables[0])

    with_worker(test)


@pytest.mark.stress
def test_a_first_plan_is_made_of_large_pipelines_alone() -> None:
    async def test(worker: PlanningWorker) -> None:
        asked = replace(request(pp=4, microbatches=8), is_first=True)  # 64 instructions
        small, large = [await worker.plan(replace(asked, whole_up_to=number)) for number in (64, 63)]
        whole = await worker.plan(replace(asked, is_first=False, revision=6))
        assert (small.is_first, large.is_first, whole.is_first) == (False, True, False)
        assert small.summary.time_ps == whole.summary.time_ps
        tables = [decode_planner_message(result.tables[3]) for result in (large, whole)]
        assert all(isinstance(table, PlanTable) and table.num_instructions == 16 for table in tables)
        assert [table.revision for table in tables if isinstance(table, PlanTable)] == [5, 6]

    with_worker(test)


def test_what_cannot_be_planned_is_said_and_the_process_goes_on() -> None:
    async def test(worker: PlanningWorker) -> None:
        good = request()
        bad = PlanningRequest(
            request_id=2,
            job_id="job",
            revision=1,
            schedule_text=good.schedule_text,
            contributions=(),
            blocking_power_w=(80.0, 80.0),
            tp_size=1,
            switch_latency_s=0.0,
        )
        with pytest.raises(ProfileError, match="not measured"):
            await worker.plan(bad)
        pid = await pid_of(worker)
        assert isinstance(await worker.plan(good), PlanResult)
        assert await pid_of(worker) == pid

    with_worker(test)


def test_a_cancelled_request_frees_the_worker_at_once() -> None:
    async def test(worker: PlanningWorker) -> None:
        task = asyncio.create_task(worker.plan(LONG))
        waiting = asyncio.create_task(worker.plan(request(request_id=2)))
        pid = await pid_of(worker)
        await asyncio.sleep(0.5)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert not _is_running(pid)
        async with asyncio.timeout(60):
            assert (await waiting).request_id == 2

    with_worker(test)


def test_a_killed_process_is_replaced_once_and_then_the_request_fails() -> None:
    async def test(worker: PlanningWorker) -> None:
        task = asyncio.create_task(worker.plan(LONG))
        for _ in range(2):
            pid = await pid_of(worker)
            await asyncio.sleep(0.3)
            os.kill(pid, signal.SIGKILL)
            while worker._process is not None and worker._process.pid == pid:
                await asyncio.sleep(0.01)
        with pytest.raises(WorkerDiedError, match="status -9"):
            await task
        assert (await worker.plan(request(request_id=3))).request_id == 3

    with_worker(test)


PLANNER = """
import asyncio, pickle, sys
from perseus_dist.planner.worker.planning_worker import PlanningWorker

async def main():
    worker = PlanningWorker()
    task = asyncio.create_task(worker.plan(pickle.loads(sys.stdin.buffer.read())))
    while worker._process is None:
        await asyncio.sleep(0.01)
    print(worker._process.pid, flush=True)
    await task

asyncio.run(main())
"""


@pytest.mark.parametrize("delay_s", [0.0, 1.5])  # before it has begun, and at work
def test_the_process_ends_with_a_planner_that_was_killed(tmp_path: Path, delay_s: float) -> None:
    (tmp_path / "request").write_bytes(pickle.dumps(LONG))
    with (tmp_path / "request").open("rb") as stdin:
        planner = subprocess.Popen([sys.executable, "-c", PLANNER], stdin=stdin, stdout=subprocess.PIPE, text=True)
    try:
        assert planner.stdout is not None
        pid = int(planner.stdout.readline())
        time.sleep(delay_s)
        assert _is_running(pid)
    finally:
        planner.kill()
        planner.communicate()
    wait_until(lambda: not _is_running(pid))


@pytest.mark.parametrize("length", [None, 100])  # killed while it waited for the answer, or while it asked
def test_the_process_ends_without_a_word_when_its_planner_died_over_a_request(length: int | None) -> None:
    data = pickle.dumps(request())
    worker = subprocess.Popen(
        [sys.executable, "-m", PlanningWorker.__module__, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stderr is not None
    worker.stdout.close()
    with worker.stdin:
        worker.stdin.write(struct.pack(">Q", len(data)) + data[:length])
    with worker.stderr:
        assert worker.stderr.read() == b""
    assert worker.wait(60) == 0


def _is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
