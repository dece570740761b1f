"""The schedule's text at its limits: who is asked for it, what is refused, and which profile it fits."""

from dataclasses import replace

import pytest
from fleets import fleet_planning
from test_planner_lifecycle import SCHEDULE, Fleet, sample
from test_planner_runs import LONGER, Runs

from perseus_dist.messages.from_agent import ScheduleText
from perseus_dist.messages.from_planner import Refused, ScheduleWanted
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.events import Log, Persist, Refuse, Send
from perseus_dist.planner.lifecycle.schedule import handle_schedule, want_schedule
from perseus_dist.planning.schedule.schedule import Schedule, format_schedule, interleaved, one_f_one_b

TEXT = format_schedule(SCHEDULE)


def registered(schedule: Schedule = SCHEDULE) -> Job:
    fleet = Fleet()
    fleet.attach(0)
    assert fleet.job.spec is not None
    fleet.job.spec = replace(fleet.job.spec, schedule_digest=schedule.digest())
    return fleet.job


def refusal(job: Job, text: str) -> str:
    """Why a text is refused; it would be the same again."""
    (refuse,) = handle_schedule(job, 1, ScheduleText(text=text), 0.0)
    assert isinstance(refuse, Refuse)
    assert refuse.stream == 1
    assert not refuse.refused.retry
    assert job.schedule_text == ""
    return refuse.refused.reason


def kept(job: Job, schedule: Schedule = SCHEDULE) -> bool:
    """Whether the job's profile outlives the schedule's text."""
    effects = handle_schedule(job, 1, ScheduleText(text=format_schedule(schedule)), 0.0)
    assert isinstance(effects[0], Persist)
    assert any(isinstance(effect, Log) for effect in effects) == (not job.profiling.samples)
    return bool(job.profiling.samples)


def test_one_attached_rank_is_asked_for_the_text_until_it_is_there() -> None:
    job = registered()
    assert job.members.schedule_asked == 1
    assert want_schedule(job) == []
    job.members.schedule_asked = None
    assert want_schedule(job) == [Send(stream=1, message=ScheduleWanted())]
    job.members.schedule_asked, job.schedule_text = None, TEXT
    assert want_schedule(job) == []
    job.schedule_text = ""
    job.members.rank_of_stream.clear()
    assert want_schedule(job) == []


def test_another_rank_is_asked_when_the_agent_that_was_asked_comes_by_a_newer_stream() -> None:
    """What it was asked by the older one may never have reached it."""
    fleet = Fleet()
    fleet.attach(0)
    other = fleet.attach(1)
    newer = fleet.attach(0)
    asked = [stream for stream in (other, newer) if ScheduleWanted() in fleet.inbox[stream]]
    assert asked == [other]
    assert fleet.job.members.schedule_asked == other


def test_a_text_that_fits_is_stored_and_shown_once() -> None:
    job = registered()
    before = job.num_changes
    (stored,) = handle_schedule(job, 1, ScheduleText(text=TEXT), 0.0)
    assert isinstance(stored, Persist)
    assert job.schedule_text == TEXT
    assert job.num_changes == before + 1
    assert handle_schedule(job, 1, ScheduleText(text="nonsense"), 0.0) == []


def test_a_text_of_another_digest_is_refused_with_the_beginnings_of_both() -> None:
    other = one_f_one_b(pp=2, microbatches=3)
    assert refusal(registered(), format_schedule(other)) == (
        f"saw a schedule with digest {other.digest()[:12]}, expected {SCHEDULE.digest()[:12]} as attached; "
        "send what the digest was made of"
    )


def test_a_text_of_another_number_of_stages_is_refused_with_both() -> None:
    other = one_f_one_b(pp=3, microbatches=3)
    assert "saw a schedule for 3 pp_ranks, expected 2" in refusal(registered(other), format_schedule(other))


def test_a_profile_that_is_of_the_same_schedule_is_kept_whatever_it_is_of() -> None:
    job = fleet_planning().job
    job.schedule_text = ""
    (of_series,) = job.profiling.samples.values()
    one = of_series[0][0]
    told = replace(one.samples, samples=(replace(sample("F", 1400, 1.0), chunk=5),))
    of_series[0][0] = replace(one, samples=told)
    assert kept(job)


@pytest.mark.parametrize(
    ("stages", "is_kept"), [((0, 1), True), ((0,), False), ((1,), False), ((0, 1, 2), False), ((-1,), True)]
)
def test_a_profile_of_another_schedule_is_kept_where_it_has_each_stage_and_no_other(
    stages: tuple[int, ...], *, is_kept: bool
) -> None:
    """Stage -1 is the rank's own, as it measured it; others are of a saved profile."""
    job = fleet_planning().job
    assert job.spec is not None
    job.schedule_text, job.spec = "", replace(job.spec, keeps_profile=True)
    (of_series,) = job.profiling.samples.values()
    for of_rank in of_series.values():
        told = tuple(sample("F", 1400, 1.0, stage=stage) for stage in stages)
        of_rank[:] = [replace(one, samples=replace(one.samples, samples=told)) for one in of_rank]
    assert kept(job) == is_kept


@pytest.mark.parametrize(
    ("chunks", "num_chunks", "is_kept"),
    [((0, 1), 2, True), ((0,), 2, False), ((0,), 1, True), ((0, 1), 1, False), ((1,), 2, False)],
)
def test_a_profile_of_other_model_chunks_is_dropped(chunks: tuple[int, ...], num_chunks: int, *, is_kept: bool) -> None:
    job = fleet_planning().job
    assert job.spec is not None
    schedule = SCHEDULE if num_chunks == 1 else interleaved(pp=2, chunks=2, microbatches=2)
    job.schedule_text = ""
    job.spec = replace(job.spec, keeps_profile=True, schedule_digest=schedule.digest())
    (of_series,) = job.profiling.samples.values()
    for of_rank in of_series.values():
        told = tuple(replace(sample("F", 1400, 1.0), chunk=chunk) for chunk in chunks)
        of_rank[:] = [replace(one, samples=replace(one.samples, samples=told)) for one in of_rank]
    assert kept(job, schedule) == is_kept


def test_a_schedule_that_is_refused_is_said_to_be_so_to_the_rank_that_sent_it() -> None:
    fleet = Runs()
    stream = fleet.attach(0)
    fleet.say(stream, ScheduleText(text=format_schedule(LONGER)))
    assert isinstance(fleet.inbox[stream][-1], Refused)
