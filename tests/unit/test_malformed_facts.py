"""Stored jobs with a damaged row, in a planner's database and in a job's cache: taken up, or absent, with one line."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest
from malformed.hostile import cut, flipped, foreign
from malformed.stored_facts import damaged_row
from test_planner_runs import GPU, WORKLOAD, Runs

from perseus_dist.errors import PerseusError
from perseus_dist.planner.job import stored_facts
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.runs import ScheduleReceived
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.events import PlanFailed, PlanReady, StragglerReported
from perseus_dist.planner.lifecycle.lifecycle import restore
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.service.operator_wire import frontier_to_wire, profile_to_wire
from perseus_dist.planner.store.database import open_database, write_facts
from perseus_dist.planner.store.fact_rows import FactRow, row_of_fact
from perseus_dist.planner.store.job_cache import JobCache
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.web.views.frontier_chart import choices_document
from perseus_dist.planner.web.views.heat_map import plan_rows, planned_clocks
from perseus_dist.planner.web.views.job import job_document
from perseus_dist.planner.web.views.timeline import timeline_document, timeline_source
from perseus_dist.planner.worker.frontier_build import build_plan
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.rpc.codec import encode_planner_message

COUNT = 40


class Planned(Runs):
    """A job whose plans are made as the planning worker makes them."""

    def answer(self) -> None:
        if self.job.planning.pending is not None and self.requests:
            request = self.requests[-1]
            try:
                self.tell(PlanReady(result=build_plan(request, encode=encode_planner_message)))
            except PerseusError as error:
                self.tell(PlanFailed(request_id=request.request_id, reason=str(error)))


@cache
def good_facts() -> tuple[Fact, ...]:
    """All that is stored of a job under its plan, of which an operator has reported a straggler."""
    fleet = Planned(dp=2)
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    while fleet.phase() is not Phase.PLANNING:
        fleet.iterate()
        assert fleet.iteration < 200
    fleet.answer()
    fleet.iterate(30)
    fleet.tell(StragglerReported(straggler_id="cooling", degree=1.3, dp_rank=1))
    fleet.iterate(5)
    return tuple(fleet.facts.values())


def good_rows() -> tuple[FactRow, ...]:
    return tuple(map(row_of_fact, good_facts()))


def with_a_damaged_row(rng: Random) -> list[FactRow]:
    rows = list(good_rows())
    kind = rng.choice(sorted({row.kind for row in rows}))
    at = rng.choice([index for index, row in enumerate(rows) if row.kind == kind])
    rows[at] = damaged_row(rng, rows[at])
    return rows


def taken_up(path: Path, rows: list[FactRow]) -> tuple[Job, list[Fact]] | None:
    """The job as a planner that begins has it, and what it is made of."""
    database, _ = open_database(path)
    with closing(database), database:
        write_facts(database, "job", rows)
    store = Store(path)

    async def begin() -> tuple[Job, list[Fact]] | None:
        jobs = Jobs(store, None, Runs().policy, Counters())  # type: ignore[arg-type]  # nothing is planned yet
        actor = jobs.get("job")
        return None if actor is None else (actor.job, store.load()["job"])

    try:
        return asyncio.run(begin())
    finally:
        store.close()


def go_on(job: Job, facts: Sequence[Fact]) -> None:
    """It is looked at, its ranks come back, iterate, end and begin the next run."""
    fleet = Planned(dp=2)
    fleet.job, fleet.now_s, fleet.iteration = job, 5.0, 60
    fleet.facts = {fact.key: fact for fact in facts}
    look_at(job)
    for run in range(2):
        fleet.attach_all(gpu=GPU, workload=WORKLOAD)
        for _ in range(6):
            fleet.iterate(3)
            fleet.answer()
        look_at(fleet.job)
        if not run:
            fleet.end_trainers()
            fleet.begin_next_run()


def look_at(job: Job) -> None:
    rows, source = plan_rows(job), timeline_source(job)
    planned = planned_clocks(rows) if rows else {}
    timeline = timeline_document(source) if source else None
    job_document(job, job_status(job), (), planned=planned, timeline=timeline, reported_by={})
    choices_document(job)
    if job.plan is not None:
        frontier_to_wire(job.plan)
        profile_to_wire(job.plan, 2)


def check(seed: int, count: int, folder: Path, caplog: pytest.LogCaptureFixture) -> Counter[str]:
    rng, came = Random(seed), Counter[str]()
    for number in range(count):
        rows = with_a_damaged_row(rng)
        place = folder / str(number)
        place.mkdir()
        caplog.clear()
        taken = taken_up(place / "planner.db", rows)
        errors = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(errors) <= 1, [record.getMessage() for record in errors]
        assert not any(record.exc_info or "\n" in record.getMessage() for record in errors)
        assert taken is not None or errors, "a job that is gone without a word"
        came["absent" if taken is None else "salvaged" if errors else "taken"] += 1
        if taken is not None:
            go_on(*taken)
    return came


def test_a_job_with_a_damaged_row_goes_on_or_is_absent_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert taken_up(tmp_path / "good.db", list(good_rows())) is not None
    came = check(7, COUNT, tmp_path, caplog)
    assert min(came[how] for how in ("absent", "salvaged", "taken")) > 0, came


@pytest.mark.parametrize(
    "count", [pytest.param(60, marks=pytest.mark.stress), pytest.param(900, marks=pytest.mark.soak)]
)
def test_a_campaign_of_damaged_rows(count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    check(11, count, tmp_path, caplog)


def test_jobs_of_one_schedule_have_it_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one takes 0.1 s, for which a planner that begins serves nobody; a damaged one is refused each time."""
    of_a_job = good_facts()
    read = []

    def parse(text: str) -> Schedule:
        read.append(text)
        return parse_schedule(text)

    monkeypatch.setattr(stored_facts, "parse_schedule", parse)
    schedule = next(fact for fact in of_a_job if isinstance(fact, ScheduleReceived))
    text = schedule.text + "# which no other test has\n"
    damaged = text.replace("0F0", "0F00", 1).replace("0B0", "", 1)
    for _ in range(3):
        stored_facts.check_facts([fact if fact is not schedule else replace(fact, text=text) for fact in of_a_job])
        with pytest.raises(stored_facts.StoredFactError, match="is damaged"):
            stored_facts.check_facts(
                [fact if fact is not schedule else replace(fact, text=damaged) for fact in of_a_job]
            )
    assert Counter(read) == {text: 1, damaged: 3}


def test_a_damaged_cache_is_not_used_with_one_line_or_makes_a_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng, came = Random(3), Counter[str]()
    path = tmp_path / "01234567-0123456789abcdef.job"
    for number in range(COUNT):
        rows = list(good_rows()) if number % 2 else with_a_damaged_row(rng)
        with closing(open_database(None)[0]) as database:
            with database:
                write_facts(database, "job", rows)
            data = database.serialize()
        if number % 2:
            data = rng.choice((cut(rng, data), flipped(rng, data), foreign(rng), data[:4096] + rng.randbytes(9_000)))
        path.write_bytes(data)
        path.chmod(0o600)
        caplog.clear()
        job_cache = JobCache(path, "job")
        facts = job_cache.read()
        job_cache.close()
        told = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(told) == (not facts)
        assert not any(record.exc_info or "\n" in record.getMessage() for record in told)
        came["used" if facts else "not used"] += 1
        if facts:
            try:
                job = restore("job", facts, Runs().policy)
            except MemoryError:
                raise
            except Exception:
                continue  # as ``Jobs.restore_jobs`` has it: set aside
            go_on(job, facts)
    assert min(came["used"], came["not used"]) > 0, came
