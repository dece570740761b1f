"""Planners that share planning, and workers, in virtual time: each request has its plan, whatever happens meanwhile.

Database, planning processes and notifications take drawn times in whole milliseconds, so that things happen at once;
processes are stopped and killed, the database goes away, jobs are given up and come back.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from memory_requests import MemoryRequests, RequestRows
from plan_requests import request
from virtual_loop import VirtualLoop, VirtualThread, World

from perseus_dist.planner.store.postgres.planning_requests import LEASE_S
from perseus_dist.planner.worker.frontier_build import PlannedRequest, planned_request, result_of
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planner.worker.planning_worker import PlanningWorker, WorkerDiedError
from perseus_dist.planner.worker.shared.queue_worker import QueueWorker
from perseus_dist.planner.worker.shared.shared_planning import SharedPlanning
from perseus_dist.planner.worker.shared.shared_queue import SharedQueue
from perseus_dist.rpc.codec import encode_planner_message

LAST_FAULT_S = 12.0
PATIENCE_S = 60.0  # behind the last fault: three tries of a request whose workers die take 20 s
RETRY_S = 1.0
SHAPES = (2, 3)  # microbatches

_planned: dict[object, PlannedRequest] = {}


def planned(one: PlanningRequest) -> PlanResult:
    if one.content not in _planned:
        _planned[one.content] = planned_request(one, quick=True)
    return result_of(one, _planned[one.content], encode=encode_planner_message)


class Process(VirtualLoop):
    """A planner or a worker of the queue, whose threads take drawn times, one call after the other."""

    def __init__(self, world: World, table: RequestRows, chance: random.Random, planning_s: float) -> None:
        super().__init__(world)
        self._chance = chance
        self._planning_s = planning_s
        self._database = VirtualThread(world, self, lambda: (_drawn_s(chance), _drawn_s(chance)))
        self._others = VirtualThread(world, self, lambda: (0.0, 1e-3 * chance.randrange(4)))
        hears = chance.random() < 0.7  # else there is a pooler between

        async def hear(heard: Callable[[str], None]) -> None:
            if hears:
                table.listeners.append(lambda text: self.call_soon_threadsafe(heard, text))

        with self.current():
            self.queue = SharedQueue(MemoryRequests(table), hear)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        thread = self._others if executor is None else self._database
        return asyncio.wrap_future(thread.submit(lambda: func(*args)), loop=self)

    async def plan(self, one: PlanningRequest) -> PlanResult:
        """In place of a planning process: equal requests take about as long everywhere."""
        await asyncio.sleep(self._planning_s + 1e-3 * self._chance.randrange(4))
        if self._chance.random() < 0.02:
            raise WorkerDiedError("it has ended")
        return planned(one)


def _drawn_s(chance: random.Random) -> float:
    """Most calls are quick, some take longer than a planner waits to begin, few longer than a lease."""
    kind = chance.random()
    return 1e-3 * (chance.randrange(4) if kind < 0.9 else chance.randrange(1500) if kind < 0.99 else 6000)


class Job:
    """Asks for one plan until it has it; is given up and comes back meanwhile, perhaps."""

    def __init__(self, process: Process, planner: SharedPlanning, one: PlanningRequest, chance: random.Random) -> None:
        self.process = process
        self.request = one
        self.result: PlanResult | None = None
        self._planner = planner
        self._begins_s = 1e-3 * chance.choice((0, 0, chance.randrange(5), chance.randrange(5000)))
        self._leaves_s = 1e-3 * chance.choice((chance.randrange(10), chance.randrange(5000)))
        self._is_left, self._is_kept = chance.random() < 0.2, chance.random() < 0.5
        with process.current():
            self.task = process.create_task(self._run())

    async def _run(self) -> None:
        await asyncio.sleep(self._begins_s)
        if self._is_left:
            asking = asyncio.create_task(self._ask())
            await asyncio.wait([asking], timeout=self._leaves_s)
            if self._is_kept:
                self._planner.keep(self.request.job_id)
            asking.cancel()
            await asyncio.wait([asking])
        while self.result is None:
            await self._ask()

    async def _ask(self) -> None:
        try:
            self.result = await self._planner.plan(self.request)
        except WorkerDiedError:
            await asyncio.sleep(RETRY_S)


def play(seed: int) -> None:
    chance = random.Random(seed)
    world = World()
    table = RequestRows(world)
    planning_s = chance.choice((0.0, 0.05, 0.5, 3.0))
    processes = [Process(world, table, chance, planning_s) for _ in range(chance.randint(1, 5))]
    planners: list[tuple[Process, SharedPlanning]] = []
    for number, process in enumerate(processes):
        with process.current():
            if number == 0 or chance.random() < 0.5:
                planners.append((process, SharedPlanning(process.queue)))
            else:
                process.create_task(QueueWorker(process.queue, PlanningWorker()).run())
    jobs = []
    shapes = chance.choice((SHAPES, SHAPES[:1]))  # all ask the same, perhaps
    for number in range(chance.randint(1, 8)):
        shape, is_first = chance.choice(shapes), chance.random() < chance.choice((0.5, 1.0))
        one = replace(request(request_id=number, microbatches=shape), job_id=f"job-{number}", is_first=is_first)
        jobs.append(Job(*chance.choice(planners), one, chance))
    for _ in range(chance.choice((0, 0, 1, 3))):
        _draw_fault(world, table, chance.choice(processes), chance)
    try:
        world.run_until(LAST_FAULT_S + PATIENCE_S)
        for job in jobs:
            assert job.process.is_dead or job.task.done(), f"{job.request.job_id} waits for ever"
            assert job.process.is_dead or job.result == planned(job.request)
        world.run_until(world.now_s + 2 * LEASE_S)
        for process, planner in planners:
            assert process.is_dead or (planner._own.is_idle and not planner._wishes)
        held = [digest for digest, row in table.rows.items() if not row.is_done and row.taken_until_s > world.now_s]
        assert held == [], "a request is held that nobody plans"
        assert [failure for process in processes for failure in process.failures] == []
    finally:
        world.close()


def _draw_fault(world: World, table: RequestRows, process: Process, chance: random.Random) -> None:
    begins_s, lasts_s = chance.uniform(0.0, 4.0), chance.choice((0.5, 2.0, 7.0))
    kind = chance.choice(("away", "stopped", "killed"))

    if kind == "killed":
        world.after(begins_s, process.kill)
        return
    of, name = (table, "is_away") if kind == "away" else (process, "is_stopped")
    world.after(begins_s, lambda: setattr(of, name, True))
    world.after(begins_s + lasts_s, lambda: setattr(of, name, False))


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_: PlanningWorker, one: PlanningRequest, _expect: object) -> PlanResult:
        process = asyncio.get_running_loop()
        assert isinstance(process, Process)
        return await process.plan(one)

    monkeypatch.setattr(PlanningWorker, "_ask", ask)


@pytest.mark.parametrize(
    "seeds",
    [
        range(50),
        pytest.param(range(50, 400), marks=pytest.mark.stress),
        pytest.param(range(400, 3000), marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_every_request_has_its_plan(seeds: range) -> None:
    """In 11 and 636 a request waited for ever: its turn came in the moment when another worker had answered it."""
    for seed in seeds:
        try:
            play(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
