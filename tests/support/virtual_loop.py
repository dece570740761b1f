"""Event loops on a shared virtual clock: each is a process, which may be slow, stopped and killed. Deterministic.

``World`` has the time and whatever happens outside of processes: messages on their way, a database that answers. It
runs one event at a time: of the world, or one turn of the loop of a process that has something to do. A stopped
process has no turns; once it goes on, what had been ready comes first, then what has arrived, and then all timers that
are due by then, as in asyncio's own loop.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

NEVER_S = float("inf")
_MAX_TURNS = 100_000  # at one moment: more is a loop that never comes to rest


class World:
    """Time, events, and the loops of all processes.

    Attributes:
        now_s: Since the begin; the same for everybody outside of a process.
        loops: Of processes that live.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.loops: list[VirtualLoop] = []
        self.ended: list[VirtualLoop] = []  # whose tasks are cancelled at the end alone
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def after(self, delay_s: float, do: Callable[[], object]) -> float:
        """Have something happen; the moment [s] when it does."""
        at_s = self.now_s + delay_s
        heapq.heappush(self._events, (at_s, next(self._numbers), do))
        return at_s

    def run_until(self, end_s: float) -> None:
        """Go on until then."""
        num_turns = 0
        while True:
            loop = min(self.loops, key=lambda one: one.next_s, default=None)
            next_s = NEVER_S if loop is None else max(loop.next_s, self.now_s)
            event_s = self._events[0][0] if self._events else NEVER_S
            if min(next_s, event_s) > end_s:
                self.now_s = max(self.now_s, end_s)
                return
            num_turns = num_turns + 1 if min(next_s, event_s) <= self.now_s else 0
            assert num_turns < _MAX_TURNS, f"nothing comes to rest at {self.now_s:.3f} s"
            if event_s <= next_s:
                self.now_s, _, do = heapq.heappop(self._events)
                do()
            else:
                assert loop is not None
                self.now_s = next_s
                loop.turn()

    def run(self, loop: "VirtualLoop", coroutine: Coroutine[Any, Any, Any], limit_s: float) -> Any:
        """The result of a coroutine on one of the loops."""
        with loop.current():
            task = loop.create_task(coroutine)
        until_s = self.now_s + limit_s
        while not task.done():
            assert self.now_s < until_s, f"not done within {limit_s:g} s"
            self.run_until(self.now_s + 0.1)
        return task.result()

    def close(self) -> None:
        """Cancel what is left in all loops, so that nothing ends later, wherever garbage is looked for."""
        self._events.clear()
        for loop in (*self.ended, *self.loops):
            loop.close()
        self.ended.clear()
        self.loops.clear()


_Loop: Any = asyncio.AbstractEventLoop  # which has many methods more


class VirtualLoop(_Loop):  # type: ignore[misc]
    """One process's loop.

    Args:
        world: Whose time it has.
        rate: How much faster its clock runs than the world's.

    Attributes:
        is_stopped: The process does nothing (SIGSTOP); what comes for it waits.
        is_dead: It never does anything again.
        answers_after_s: [s] that what other threads say takes from now on.
        failures: What callbacks and tasks have raised that nobody has asked for.
    """

    def __init__(self, world: World, rate: float = 1.0) -> None:
        self._world = world
        self._rate = rate
        self._ready: deque[asyncio.Handle] = deque()
        self._arrived: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()
        self.is_stopped = self.is_dead = False
        self.answers_after_s = 0.0
        self.failures: list[str] = []
        world.loops.append(self)

    @property
    def next_s(self) -> float:
        """When it has something to do, by the world's clock."""
        if self.is_stopped or self.is_dead:
            return NEVER_S
        if self._ready or self._arrived:
            return 0.0
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] / self._rate if self._timers else NEVER_S

    def turn(self) -> None:
        """Do all that is ready now, and what is due."""
        self._ready.extend(self._arrived)
        self._arrived.clear()
        now_s = self.time() + 1e-9
        while self._timers and self._timers[0][0] <= now_s:
            self._ready.append(heapq.heappop(self._timers)[2])
        with self.current():
            for _ in range(len(self._ready)):
                if self.is_dead:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()

    @contextmanager
    def current(self) -> Iterator[None]:
        """This process runs."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def kill(self) -> None:
        """The process is gone, at once."""
        if not self.is_dead:
            self.is_dead = True
            self._world.loops.remove(self)
            self._world.ended.append(self)

    def close(self) -> None:
        """Cancel its tasks, and let them end."""
        self.is_dead = self.is_stopped = False
        for _ in range(1000):
            if not (tasks := sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())):
                break
            for task in tasks:
                task.cancel()
            self.turn()
        self.is_dead = True

    # ---- as asyncio wants it -----------------------------------------------------------------------------------------

    def time(self) -> float:
        """[s] of this process's monotonic clock."""
        return self._world.now_s * self._rate

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        """From outside of the process, or from one of its threads."""
        handle = asyncio.Handle(callback, args, self, context)
        if self.answers_after_s > 0.0:
            self._world.after(self.answers_after_s, lambda: self._arrived.append(handle))
        else:
            self._arrived.append(handle)
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """``TimerHandle.cancel`` says so; such timers are left out when they are due."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> "asyncio.Task[Any]":
        name = f"task {next(self._numbers):09}" if name is None else name
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, _: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        """Short work of a thread, done at once."""
        done: Future[Any] = Future()
        _settle(done, partial(func, *args))
        return asyncio.wrap_future(done, loop=self)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")


class VirtualThread:
    """A thread that waits for something outside of its process: one call at a time, in order.

    A stopped process's call goes on where it has been sent to; its answer waits for the process.

    Args:
        world: Where calls arrive and are answered.
        loop: Of the process.
        takes_s: [s] until a call arrives, and from then on until its answer is back; drawn for each call.
    """

    def __init__(self, world: World, loop: VirtualLoop, takes_s: Callable[[], tuple[float, float]]) -> None:
        self._world = world
        self._loop = loop
        self._takes_s = takes_s
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._is_busy = False

    def submit(self, work: Callable[[], Any]) -> "Future[Any]":
        """Done with what the call gives, or raises."""
        done: Future[Any] = Future()
        self._waiting.append((work, done))
        self._next()
        return done

    def _next(self) -> None:
        if self._is_busy or not self._waiting or self._loop.is_dead:
            return
        self._is_busy = True
        work, done = self._waiting.popleft()
        there_s, back_s = self._takes_s()
        self._world.after(there_s, partial(self._arrive, work, done, back_s))

    def _arrive(self, work: Callable[[], Any], done: "Future[Any]", back_s: float) -> None:
        found: Future[Any] = Future()
        self._loop.answers_after_s = back_s
        _settle(found, work)
        self._loop.answers_after_s = 0.0
        self._world.after(back_s, lambda: self._loop.call_soon_threadsafe(self._answer, found, done))

    def _answer(self, found: "Future[Any]", done: "Future[Any]") -> None:
        self._is_busy = False
        if not done.cancelled():
            error = found.exception()
            if error is None:
                done.set_result(found.result())
            else:
                done.set_exception(error)
        self._next()


def _settle(done: "Future[Any]", work: Callable[[], Any]) -> None:
    try:
        result = work()
    except Exception as error:
        done.set_exception(error)
    else:
        done.set_result(result)
