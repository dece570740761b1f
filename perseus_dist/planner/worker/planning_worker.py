"""Processes that plan, so that the planner's event loop only waits.

Two for all jobs, at low priority: one for plans that a job waits for, and one for whole frontiers of jobs under a plan,
which may take minutes. A third makes plans ahead, which no job waits for: at idle priority, one at a time, begun while
the others have nothing to do, and it ends with its answer. Each is started at its first request and again after it has
died. It reads pickled requests from its standard input and answers on its standard output, one at a time, each behind
its length; both ends are this package's own, so that nothing foreign is ever unpickled. When the planner dies, however
it does, the process sees that it has another parent, and ends too.
"""

import asyncio
import os
import pickle
import signal
import struct
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import BinaryIO

from perseus_dist.errors import PerseusError, PlanningError
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult, TimeLeft
from perseus_dist.planner.worker.planning_times import PlanningTimes

NICENESS = 10

_LENGTH = struct.Struct(">Q")
_MAX_TRIES = 2
_PARENT_PERIOD_S = 0.5
_TOLD_PERIOD_S = 1.0
_IDLE_PERIOD_S = 1.0
_IDLE = "idle"


class WorkerDiedError(PerseusError):
    """The planning process has ended over a request, or cannot be started. Trying again later can help."""


class LeftToAnotherError(Exception):
    """A request whose turn has come, and that another process has meanwhile."""


Begin = Callable[[], Awaitable[bool]]
"""Awaited when a request has its turn: whether it is still to be planned here."""


class PlanningWorkers:
    """The planner's side: processes for what is urgent, for what a job waits less for, and for plans made ahead.

    Belongs to one event loop.
    """

    def __init__(self) -> None:
        times = PlanningTimes()
        self._urgent = PlanningWorker(times)
        self._patient = PlanningWorker(times)
        self._ahead = PlanningWorker(is_idle=True)

    def expected_s(self, request: PlanningRequest) -> float | None:
        """As ``PlanningWorker.expected_s``."""
        return self._of(request).expected_s(request)

    @property
    def is_idle(self) -> bool:
        """Whether no job waits for a plan that is made here."""
        return not (self._urgent.is_busy or self._patient.is_busy)

    def is_busy_for(self, request: PlanningRequest) -> bool:
        """Whether a request that is made now waits for others."""
        return self._of(request).is_busy

    async def plan(
        self,
        request: PlanningRequest,
        expect: Callable[[float], None] | None = None,
        begin: Begin | None = None,
    ) -> PlanResult:
        """As ``PlanningWorker.plan``; no urgent request waits for one that is not, and none for one made ahead."""
        if not request.is_ahead:
            return await self._of(request).plan(request, expect, begin)
        while not self.is_idle:
            await asyncio.sleep(_IDLE_PERIOD_S)
        try:
            return await self._ahead.plan(request)
        finally:
            if not self._ahead.is_busy:
                await self._ahead.close()

    async def close(self) -> None:
        """End the processes. Requests that wait are to be cancelled before."""
        await self._urgent.close()
        await self._patient.close()
        await self._ahead.close()

    def _of(self, request: PlanningRequest) -> "PlanningWorker":
        if request.is_ahead:
            return self._ahead
        return self._urgent if request.is_urgent else self._patient


class PlanningWorker:
    """One process. Belongs to one event loop."""

    def __init__(self, times: PlanningTimes | None = None, *, is_idle: bool = False) -> None:
        self._process: Process | None = None
        self._is_idle = is_idle
        self._turn = asyncio.Lock()
        self._times = PlanningTimes() if times is None else times
        self._asked: list[PlanningRequest] = []  # the first has its turn
        self._turn_began_s = 0.0
        self._ends_at_s: float | None = None  # the request that has its turn, by its progress

    @property
    def is_busy(self) -> bool:
        """Whether a request is being planned, or waits for its turn."""
        return bool(self._asked)

    def expected_s(self, request: PlanningRequest) -> float | None:
        """[s] until a request that is made now will be answered; None where it, or one before it, is of a new size."""
        left_s = 0.0
        for position, one in enumerate((*self._asked, request)):
            has_turn = bool(self._asked) and position == 0
            if has_turn and self._ends_at_s is not None:
                left_s += max(0.0, self._ends_at_s - time.monotonic())
                continue
            expected_s = self._times.expected_s(one)
            if expected_s is None:
                return None
            spent_s = time.monotonic() - self._turn_began_s if has_turn else 0.0
            left_s += max(0.0, expected_s - spent_s)
        return left_s

    async def plan(
        self,
        request: PlanningRequest,
        expect: Callable[[float], None] | None = None,
        begin: Begin | None = None,
    ) -> PlanResult:
        """Plan; requests take turns. Cancelling the task gives the request up, and kills the process if it is at it.

        Args:
            request: What.
            expect: Called about once a second with the time [s] that planning will still take, once that is known.
            begin: Says when the request has its turn whether it is still to be planned here; None for always.

        Raises:
            LeftToAnotherError: ``begin`` says no.
            PerseusError: The request cannot be planned, whatever is tried.
            WorkerDiedError: The process has ended over this request, and its successor too.
        """
        self._asked.append(request)
        try:
            async with self._turn:
                if begin is not None and not await begin():
                    raise LeftToAnotherError
                return await self._plan(request, expect)
        finally:
            self._asked.remove(request)

    async def _plan(self, request: PlanningRequest, expect: Callable[[float], None] | None) -> PlanResult:
        for _ in range(_MAX_TRIES):
            self._turn_began_s, self._ends_at_s = time.monotonic(), None
            try:
                result = await self._ask(request, expect)
            except WorkerDiedError as error:
                died = error
            except asyncio.CancelledError:
                await self._kill()  # or what it still says would be taken for the next answer
                raise
            else:
                self._times.add(request, time.monotonic() - self._turn_began_s)
                return result
        raise died

    async def close(self) -> None:
        """End the process. Requests that wait are to be cancelled before."""
        await self._kill()

    async def _ask(self, request: PlanningRequest, expect: Callable[[float], None] | None) -> PlanResult:
        if self._process is None:
            self._process = await self._start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        data = await asyncio.to_thread(pickle.dumps, request)
        try:
            process.stdin.write(_LENGTH.pack(len(data)))
            process.stdin.write(data)
            await process.stdin.drain()
            while isinstance(answer := await _next_answer(process.stdout), TimeLeft):
                self._ends_at_s = time.monotonic() + answer.left_s
                if expect is not None:
                    expect(answer.left_s)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            status = await self._kill()
            raise WorkerDiedError(
                f"the planning process ended with status {status} over job {request.job_id}; look for a lack of memory"
            ) from error
        if isinstance(answer, PlanResult):
            return answer
        assert isinstance(answer, PerseusError)
        raise answer

    async def _start(self) -> Process:
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", __name__, str(os.getpid()), *([_IDLE] if self._is_idle else [])),
                stdin=PIPE,
                stdout=PIPE,
                limit=1 << 20,
            )
        except OSError as error:
            raise WorkerDiedError(
                f"the planning process cannot be started ({error.strerror or error}); look for a lack of memory, and "
                "at limits on processes and open files"
            ) from error

    async def _kill(self) -> int | None:
        """End the process, and wait until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)  # process.kill() would take the exit status from asyncio's watcher
        return await process.wait()


async def _next_answer(answers: asyncio.StreamReader) -> PlanResult | PerseusError | TimeLeft:
    (length,) = _LENGTH.unpack(await answers.readexactly(_LENGTH.size))
    data = await answers.readexactly(length)
    answer: PlanResult | PerseusError | TimeLeft = await asyncio.to_thread(pickle.loads, data)
    return answer


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """The process's side: plan until there are no more requests, and say now and then how long that will take.

    Raises:
        BrokenPipeError: The planner was gone before it had read the answer.
    """
    from perseus_dist.planner.worker.frontier_build import build_plan
    from perseus_dist.rpc.codec import encode_planner_message

    while len(header := requests.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(header)
        data = requests.read(length)
        if len(data) < length:
            return  # the planner died while it asked
        request: PlanningRequest = pickle.loads(data)
        answer: PlanResult | PerseusError
        try:
            expect = _TellingNowAndThen(answers)
            answer = build_plan(request, encode=encode_planner_message, expect=expect)
        except PerseusError as error:
            answer = error
        except Exception as error:  # a fault of ours must not look like the planner's end
            answer = PlanningError(f"planning failed by a fault of the program: {error!r}; report it")
        _write(answer, answers)


class _TellingNowAndThen:
    """Writes the time that is left among the answers, at most once in ``_TOLD_PERIOD_S``."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._told_s = -_TOLD_PERIOD_S

    def __call__(self, left_s: float) -> None:
        if time.monotonic() >= self._told_s + _TOLD_PERIOD_S:
            self._told_s = time.monotonic()
            _write(TimeLeft(left_s), self._answers)


def _write(answer: PlanResult | PerseusError | TimeLeft, answers: BinaryIO) -> None:
    data = pickle.dumps(answer)
    answers.write(_LENGTH.pack(len(data)))
    answers.write(data)
    answers.flush()


def main() -> None:
    """Entry point of the process; its arguments are the planner's process id, and ``idle`` for idle priority."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the planner's business
    os.nice(NICENESS)
    if sys.argv[2:] == [_IDLE]:
        with suppress(OSError):  # a kernel without it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up between answers
    with suppress(BrokenPipeError):  # a planner that was killed over its request: there is no reader left
        serve(sys.stdin.buffer, answers)
    os._exit(0)  # and flushing to a planner that is gone would fail


def _end_with(planner_pid: int) -> None:
    """End the process, also amid a plan: the solver lets other threads run."""
    while os.getppid() == planner_pid:
        time.sleep(_PARENT_PERIOD_S)
    os._exit(1)


if __name__ == "__main__":
    main()
