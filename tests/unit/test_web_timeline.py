"""The timeline of a job's page: measured iterations beside their plans, on one clock, in boxes that are few enough."""

from dataclasses import replace

import pytest

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.timelines import MAX_PIPELINES, Timelines
from perseus_dist.planner.web.fragments import make_templates
from perseus_dist.planner.web.views.timeline import MAX_BOXES, WIDTH, TimelineSource, timeline_document, timeline_source
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import virtual_job

JOB = SimulatedJob(schedule=one_f_one_b(pp=2, microbatches=3), num_pipelines=2, num_iterations=0, imbalance=0.2)
SECOND_NS = 10**9


def test_a_measured_iteration_stands_beside_the_plan_that_it_followed() -> None:
    with virtual_job(JOB, "a100", Policy(shows_timelines=True), quick_plans=True) as job:
        planner = job.planner
        assert timeline_source(planner.job) is None
        while not (whole := planner.job.measured.timelines.whole):
            job.run_iteration()
        free = timeline_source(planner.job)
        while len(whole) < 2 or not all(ranks[0].clocks_mhz for ranks in whole.values()):
            job.run_iteration()
        source = timeline_source(planner.job)
    assert free is not None
    assert timeline_document(free)["high"] == 0, "at full clocks, before there is a plan"
    assert source is not None
    assert not source.is_of(free)
    assert source.is_of(timeline_source(planner.job))
    [revision] = source.tables
    document = timeline_document(source)
    titles = [panel["title"] for panel in document["panels"]]
    assert titles[0].startswith(f"Planned, table {revision}, point ")
    assert [title.split(", ")[0] for title in titles[1:]] == ["Pipeline 0", "Pipeline 1"]
    planned, measured = document["panels"][:2]
    for was, row in zip(planned["rows"], measured["rows"], strict=True):
        assert row["num"] == was["num"] == 6
        assert row["clock_mhz"] == pytest.approx(was["clock_mhz"], abs=30)
        assert row["busy_s"] == pytest.approx(was["busy_s"], rel=0.02)
    assert measured["time_s"] == pytest.approx(planned["time_s"], rel=0.02)
    assert document["low"] < document["high"] == 1410
    html = make_templates().get_template("section_timeline.html").render(timeline=document)
    assert html.count('<div class="lane">') == 6
    assert "full clocks" not in html


def test_a_planner_without_a_page_asks_for_no_times_under_plans() -> None:
    with virtual_job(JOB, "a100", quick_plans=True) as job:
        while job.planner.job.switch is None:
            job.run_iteration()
        before = dict(job.planner.job.measured.timelines.whole)
        for _ in range(20):
            job.run_iteration()
        assert job.planner.job.measured.timelines.whole == before


def times(iteration: int, *, at_ns: int = 0, clocks_mhz: tuple[int, ...] = (), point: int = NO_POINT) -> RunTimes:
    begins_ns = tuple(at_ns + SECOND_NS * ns for ns in (0, 2, 4, 6))
    ends_ns = tuple(begin_ns + SECOND_NS for begin_ns in begins_ns)
    revision = 1 if clocks_mhz else 0
    return RunTimes(
        iteration=iteration,
        begins_ns=begins_ns,
        ends_ns=ends_ns,
        clocks_mhz=clocks_mhz,
        table_revision=revision,
        point=point,
    )


def test_ranks_are_joined_in_the_same_iteration_and_plan_alone() -> None:
    timelines = Timelines()
    assert not timelines.take(0, 0, 2, times(16))
    assert not timelines.take(0, 1, 2, times(32)), "of another iteration"
    assert not timelines.take(0, 0, 2, times(32, clocks_mhz=(5,) * 4, point=3)), "of another plan"
    assert not timelines.whole
    assert timelines.take(0, 1, 2, times(32, clocks_mhz=(6,) * 4, point=3))
    assert [one.clocks_mhz[0] for one in timelines.whole[0]] == [5, 6]
    assert not timelines.take(MAX_PIPELINES, 0, 1, times(32)), "more pipelines than are drawn"
    assert timelines.whole.keys() == {0}


def source(*ranks: RunTimes, microbatches: int = 2) -> TimelineSource:
    return TimelineSource(
        schedule_text=format_schedule(one_f_one_b(pp=len(ranks), microbatches=microbatches)),
        measured={0: ranks},
        tables={},
        profile_csv=b"",
        tp_size=1,
    )


def test_ranks_of_hosts_whose_clocks_differ_stand_on_one() -> None:
    first = RunTimes(iteration=0, begins_ns=(0, 10, 50, 90), ends_ns=(10, 20, 60, 100))
    second_ns = (12, 32, 52, 72)  # begins; the first backward's gradient is there at 47
    ahead_ns = 10**15
    second = RunTimes(
        iteration=0,
        begins_ns=tuple(ns + ahead_ns for ns in second_ns),
        ends_ns=tuple(ns + ahead_ns + 15 for ns in second_ns),
    )
    document = timeline_document(source(first, second))
    ends_s = [row["end_s"] for row in document["panels"][0]["rows"]]
    assert ends_s[0] == pytest.approx(100e-9)
    assert 80e-9 < ends_s[1] < 100e-9
    same_host = replace(second, begins_ns=second_ns, ends_ns=tuple(ns + 15 for ns in second_ns))
    assert timeline_document(source(first, same_host))["panels"][0]["rows"][1]["end_s"] == pytest.approx(87e-9)


def test_of_an_iteration_of_many_boxes_the_begin_is_drawn() -> None:
    num = 2 * MAX_BOXES
    begins_ns = tuple(range(0, 10 * num, 10))
    long = RunTimes(iteration=0, begins_ns=begins_ns, ends_ns=tuple(ns + 9 for ns in begins_ns))
    document = timeline_document(source(long, microbatches=MAX_BOXES))
    assert document["part"] == pytest.approx(0.5, abs=0.01)
    [lane] = document["panels"][0]["lanes"]
    assert sum(path.count("M") for _, path in lane["paths"]) == MAX_BOXES
    assert lane["labels"] == []
    assert document["panels"][0]["rows"][0]["num"] == num, "the figures are of all"


def test_times_that_make_no_sense_are_drawn_within_the_picture() -> None:
    odd = RunTimes(iteration=0, begins_ns=(5, 5, 4, 4), ends_ns=(5, 1, 1, 4))
    [lane] = timeline_document(source(odd))["panels"][0]["lanes"]
    assert max(int(number) for _, path in lane["paths"] for number in path.split("H")[1].split("V")[:1]) <= WIDTH + 1
