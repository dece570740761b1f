"""Planning of jobs that are given up and come back."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from plan_requests import request

from perseus_dist.errors import PlanningError
from perseus_dist.messages.from_planner import PlanTable
from perseus_dist.planner.worker.frontier_build import build_plan
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planner.worker.shared import kept_planning
from perseus_dist.planner.worker.shared.kept_planning import KeptPlanning
from perseus_dist.rpc.codec import decode_planner_message, encode_planner_message

ASKED = request()
AGAIN = replace(ASKED, request_id=7, revision=12)  # of the job that has come back


class Solver:
    """Plans once the test says so."""

    def __init__(self) -> None:
        self.begun: list[PlanningRequest] = []
        self.num_cancelled = 0
        self.may_answer = asyncio.Event()
        self.tell: Callable[[float], None] = lambda _: None

    async def plan(self, asked: PlanningRequest, expect: Callable[[float], None]) -> PlanResult:
        self.begun.append(asked)
        self.tell = expect
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if not asked.contributions:
            raise PlanningError("nothing was measured")
        return build_plan(asked, encode=encode_planner_message)


async def given_up(planning: "asyncio.Task[PlanResult]") -> None:
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning


def play(test: Callable[[Solver, KeptPlanning], Awaitable[None]]) -> None:
    async def run() -> None:
        solver = Solver()
        kept = KeptPlanning(solver.plan)
        await test(solver, kept)
        await kept.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


async def asked_and_given_up(kept: KeptPlanning, asked: PlanningRequest = ASKED, *, keep: bool = True) -> None:
    planning = asyncio.create_task(kept.plan(asked))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if keep:
        kept.keep(asked.job_id)
    await given_up(planning)


@pytest.mark.parametrize("is_done_meanwhile", [False, True])
def test_a_job_that_comes_back_has_the_plan_that_was_begun_under_its_own_numbers(*, is_done_meanwhile: bool) -> None:
    async def test(solver: Solver, kept: KeptPlanning) -> None:
        await asked_and_given_up(kept)
        if is_done_meanwhile:
            solver.may_answer.set()
            await asyncio.sleep(0.01)
        told: list[float] = []
        planning = asyncio.create_task(kept.plan(AGAIN, told.append))
        await asyncio.sleep(0)
        solver.tell(3.0)
        solver.may_answer.set()
        result = await planning
        assert (result.request_id, result.revision) == (7, 12)
        for table in map(decode_planner_message, result.tables):
            assert isinstance(table, PlanTable)
            assert table.revision == 12
        assert solver.begun == [ASKED]
        assert told == [3.0]
        await kept.plan(replace(AGAIN, request_id=8))
        assert len(solver.begun) == 2  # an answer counts once

    play(test)


def test_it_comes_back_twice_and_is_given_up_in_between() -> None:
    async def test(solver: Solver, kept: KeptPlanning) -> None:
        for number in range(1, 4):
            await asked_and_given_up(kept, replace(ASKED, request_id=number))
        solver.may_answer.set()
        assert (await kept.plan(AGAIN)).request_id == 7
        assert solver.begun == [ASKED]

    play(test)


def test_what_is_cancelled_for_good_ends_at_once() -> None:
    async def test(solver: Solver, kept: KeptPlanning) -> None:
        await asked_and_given_up(kept, keep=False)
        assert solver.num_cancelled == 1
        kept.keep(ASKED.job_id)  # nothing is left of it
        solver.may_answer.set()
        await kept.plan(AGAIN)
        assert len(solver.begun) == 2

    play(test)


def test_another_request_of_the_job_does_not_wait_for_what_is_kept_and_other_jobs_keep_theirs() -> None:
    async def test(solver: Solver, kept: KeptPlanning) -> None:
        await asked_and_given_up(kept)
        await asked_and_given_up(kept, replace(ASKED, job_id="other"))
        await asked_and_given_up(kept, replace(ASKED, is_first=True))  # urgent: in another line
        assert solver.num_cancelled == 0
        planning = asyncio.create_task(kept.plan(replace(AGAIN, extra_s=0.001)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert solver.num_cancelled == 1
        solver.may_answer.set()
        await planning
        await kept.plan(replace(AGAIN, job_id="other"))
        await kept.plan(replace(AGAIN, is_first=True))
        assert len(solver.begun) == 4

    play(test)


def test_what_is_kept_for_a_job_that_stays_away_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_planning, "KEPT_S", 0.01)

    async def test(solver: Solver, kept: KeptPlanning) -> None:
        await asked_and_given_up(kept)
        while not solver.num_cancelled:
            await asyncio.sleep(0.005)
        solver.may_answer.set()
        await kept.plan(AGAIN)
        assert len(solver.begun) == 2

    play(test)


def test_a_job_that_comes_back_hears_that_it_cannot_be_planned() -> None:
    async def test(solver: Solver, kept: KeptPlanning) -> None:
        nothing = replace(ASKED, contributions=())
        await asked_and_given_up(kept, nothing)
        solver.may_answer.set()
        await asyncio.sleep(0)
        with pytest.raises(PlanningError, match="nothing was measured"):
            await kept.plan(replace(nothing, request_id=7))
        with pytest.raises(PlanningError, match="nothing was measured"):
            await kept.plan(nothing)
        assert len(solver.begun) == 2

    play(test)


def test_plans_made_ahead_are_not_kept() -> None:
    async def test(solver: Solver, kept: KeptPlanning) -> None:
        await asked_and_given_up(kept, replace(ASKED, is_ahead=True))
        assert solver.num_cancelled == 1

    play(test)
