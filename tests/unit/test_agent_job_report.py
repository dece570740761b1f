"""The whole job, as rank 0's agent writes it down."""

import json
import logging
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from builders import make_spec

from perseus_dist.agent.link.job_watch import JobSeen, TableSeen
from perseus_dist.agent.process.job_record import UNATTACHED, JobRecordWriter
from perseus_dist.messages.job_status import (
    FrontierPoint,
    JobEvent,
    JobFigures,
    JobFrontier,
    JobProfile,
    JobStatus,
    MeasuredIterations,
    PipelineStatus,
    StragglerVerdict,
)
from perseus_dist.messages.terms import Target
from perseus_dist.planner.lifecycle.lifecycle import Policy, new_job
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.report.run_report import build_report
from perseus_dist.rpc.job_status_wire import decode_job_status, status_to_wire
from perseus_dist.rpc.job_wire import decode_frontier, decode_profile
from perseus_dist.rpc.violations import InvalidMessageError
from perseus_dist.runlog.job import read_job
from perseus_dist.runlog.report_folder import ReportFolder

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SPEC = make_spec(job_id="gpt", pp_size=2, schedule="0F0 0B0\n1F0 1B0\n", target="slowdown=1.05")
STATUS = JobStatus(
    job_id="gpt",
    phase="warming_up",
    reason="all 2 ranks are attached",
    num_ranks=2,
    pipelines=(
        PipelineStatus(
            dp_rank=0,
            attached_ranks=2,
            iteration=7,
            time_s=0.8,
            energy_j=600.0,
            table_revision=0,
            point=-1,
            planned_time_s=0.0,
            planned_energy_j=0.0,
        ),
    ),
    table_revision=0,
    switch_revision=0,
    target=Target(slowdown=1.05),
    stragglers=(),
    fastest_s=0.0,
    t_star_s=0.0,
    baseline=MeasuredIterations(num_iterations=5, time_s=0.8, time_spread_s=0.01, energy_j=600.0, energy_spread_j=2.0),
    enforced=MeasuredIterations(),
    predicted_saving=0.0,
    profiled_clocks=0,
    messages=12,
    missed_clocks=0,
    lost_boundaries=0,
    troubles=("rank 1: no rights",),
)
TABLE = TableSeen(
    JobFrontier(
        table_revision=1,
        points=(FrontierPoint(time_s=0.75, energy_j=550.0, lower_bound_j=549.5),),
        baseline_time_s=0.75,
        baseline_energy_j=610.0,
        fastest_s=0.75,
        t_star_s=0.9,
    ),
    JobProfile(csv="stage,instruction\n", blocking_power_w=83.5),
)


@pytest.fixture
def report(tmp_path: Path) -> Iterator[JobRecordWriter]:
    folder = ReportFolder(tmp_path, rank=0, num_ranks=2)
    yield JobRecordWriter(SPEC, folder, is_simulated=True, now=BEGIN)
    folder.close()


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "job.json").read_text())
    return found


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def test_a_job_that_no_planner_has_heard_of_says_why(report: JobRecordWriter, tmp_path: Path) -> None:
    report.write(at(0))
    assert (read(tmp_path)["phase"], read(tmp_path)["ended_at"]) == (UNATTACHED, None)
    report.record_trouble("planner at x:1 cannot be reached", at(3))
    report.write(at(4), is_over=True)
    found = read(tmp_path)
    assert (found["phase"], found["reason"]) == (UNATTACHED, "planner at x:1 cannot be reached")
    assert found["target"] == "slowdown=1.05"
    assert found["ended_at"] == "2026-01-02T03:04:09.000+00:00"
    assert found["baseline"]["num_iterations"] == 0


def test_phases_are_told_once_and_kept_with_their_times(
    report: JobRecordWriter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    report.record(JobSeen(STATUS), at(1))
    report.record(JobSeen(replace(STATUS, reason="still measuring")), at(2))
    report.record(JobSeen(replace(STATUS, phase="enforcing", reason="table 1", table_revision=1)), at(30))
    report.record_trouble("away for a while", at(31))
    report.record(TABLE, at(31))
    report.write(at(32))
    assert [record.getMessage() for record in caplog.records] == [
        "job gpt is warming_up: all 2 ranks are attached",
        "job gpt is enforcing: table 1",
    ]
    found = read(tmp_path)
    assert [(phase["phase"], phase["reason"]) for phase in found["phases"]] == [
        (UNATTACHED, "no planner has answered yet"),
        ("warming_up", "still measuring"),
        ("enforcing", "table 1"),
    ]
    assert found["phases"][2]["at"] == "2026-01-02T03:04:35.000+00:00"
    assert found["baseline"] == {
        "num_iterations": 5,
        "time_s": 0.8,
        "time_spread_s": 0.01,
        "energy_j": 600.0,
        "energy_spread_j": 2.0,
    }
    assert found["pipelines"][0]["iteration"] == 7
    assert found["troubles"] == ["rank 1: no rights"]
    assert (found["blocking_power_w"], found["frontier_baseline_energy_j"]) == (83.5, 610.0)
    assert (found["simulated"], found["num_ranks"], found["schedule"]) == (True, 2, SPEC.schedule)
    assert (tmp_path / "profile.csv").read_text() == "stage,instruction\n"
    header, row = (tmp_path / "frontier.csv").read_text().splitlines()
    assert (header, row) == ("time_s,energy_j,lower_bound_j", "0.750000000,550.000000,549.500000")


VERDICT = StragglerVerdict(
    rank=1,
    pp_rank=1,
    dp_rank=0,
    degree=1.2,
    low=1.18,
    high=1.22,
    cause="thermal",
    age_s=2.0,
    is_whole_pipeline=False,
    is_predicted=False,
    is_flapping=False,
    is_acted_upon=True,
    is_muted=False,
    sentence="rank 1 is hot",
)


def event(sequence: int, kind: str = "verdict", **other: Any) -> JobEvent:
    fields = {"age_s": 0.5, "iteration": 10 * sequence, "sentence": f"{kind} {sequence}"}
    return JobEvent(sequence=sequence, kind=kind, **{**fields, **other})


def with_events(*events: JobEvent) -> JobSeen:
    return JobSeen(replace(STATUS, verdicts=(VERDICT,), t_prime_s=0.9, saved_j=-12.5, refused_reports=3, events=events))


def events_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_events_are_written_once_each_with_the_time_at_which_they_happened(
    report: JobRecordWriter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    switch = event(2, "switch", switch_revision=7, effective_iteration=24, t_prime_s=0.9, points=(3, 0))
    report.record(with_events(event(1)), at(1))
    report.record(with_events(event(1, age_s=1.5), switch), at(2))
    report.record(with_events(event(1, age_s=2.5), replace(switch, age_s=1.5), event(3, "recovered")), at(3))
    report.write(at(4))
    lines = events_in(tmp_path)
    assert [(line["sequence"], line["kind"], line["at"]) for line in lines] == [
        (1, "verdict", "2026-01-02T03:04:05.500+00:00"),
        (2, "switch", "2026-01-02T03:04:06.500+00:00"),
        (3, "recovered", "2026-01-02T03:04:07.500+00:00"),
    ]
    assert lines[1]["points"] == [3, 0]
    assert "age_s" not in lines[1]
    told = [record.getMessage() for record in caplog.records]
    assert told[1:] == ["job gpt: verdict 1", "job gpt: recovered 3"]
    found = read(tmp_path)
    assert (found["t_prime_s"], found["saved_j"], found["refused_reports"]) == (0.9, -12.5, 3)
    (verdict,) = found["verdicts"]
    assert (verdict["rank"], verdict["cause"], verdict["sentence"]) == (1, "thermal", "rank 1 is hot")


def test_a_planner_that_begins_anew_counts_anew(report: JobRecordWriter, tmp_path: Path) -> None:
    report.record(with_events(event(1), event(2)), at(1))
    report.record(with_events(), at(2))
    report.record(with_events(event(1, iteration=50)), at(3))
    # It may have come as far before it is seen again.
    report.record(with_events(event(1, iteration=90), event(2, iteration=95)), at(4))
    report.record(with_events(event(2, iteration=95), event(3, iteration=97)), at(5))  # the first is no longer told
    assert [line["iteration"] for line in events_in(tmp_path)] == [10, 20, 50, 90, 95, 97]


def test_it_is_written_once_a_second_at_most_and_only_when_there_is_news(
    report: JobRecordWriter, tmp_path: Path
) -> None:
    report.write(at(0))
    report.record(JobSeen(STATUS), at(0.5))
    report.write(at(0.6))
    assert read(tmp_path)["phase"] == UNATTACHED
    report.write(at(1.1))
    assert read(tmp_path)["phase"] == "warming_up"
    (tmp_path / "job.json").unlink()
    report.write(at(9))
    assert not (tmp_path / "job.json").exists()


def test_a_clock_that_is_set_back_does_not_hold_it_up(report: JobRecordWriter, tmp_path: Path) -> None:
    report.write(BEGIN)
    report.record(JobSeen(STATUS), BEGIN - timedelta(hours=1))
    report.write(BEGIN - timedelta(hours=1))
    assert read_job(tmp_path / "job.json").phase == STATUS.phase


def test_phases_without_end_do_not_fill_the_disk(report: JobRecordWriter) -> None:
    for cycle in range(1000):
        report.record(JobSeen(replace(STATUS, phase="enforcing")), at(cycle))
        report.record(JobSeen(replace(STATUS, phase="re-profiling", reason=str(cycle))), at(cycle))
    phases = report.document(at(2000), is_over=False)["phases"]
    assert len(phases) <= 256
    assert phases[0]["phase"] == UNATTACHED
    assert phases[-1]["reason"] == "999"


def test_each_figure_of_a_job_reaches_the_report_under_its_own_name(report: JobRecordWriter, tmp_path: Path) -> None:
    numbers = [field.name for field in fields(JobFigures) if field.type in (int, float)]
    figures: dict[str, Any] = {name: 1 + index for index, name in enumerate(numbers)}
    figures |= {"predicted_saving": 0.25, "predicted_saving_low": 0.125, "predicted_saving_high": 0.5}  # shares
    status = decode_job_status(status_to_wire(replace(STATUS, **figures)).SerializeToString())
    report.record(JobSeen(status), at(1))
    report.write(at(2))
    record = read_job(tmp_path / "job.json")
    for field in fields(JobFigures):
        assert getattr(record, field.name) == getattr(status, field.name), field.name
    assert build_report(tmp_path).document().items() >= figures.items()


def test_a_status_travels_and_is_checked() -> None:
    for status in (STATUS, job_status(new_job("empty", Policy()))):
        assert decode_job_status(status_to_wire(status).SerializeToString()) == status
    wrong = status_to_wire(STATUS)
    wrong.predicted_saving = float("nan")
    wrong.pipelines[0].time_s = -1.0
    with pytest.raises(InvalidMessageError, match=r"pipelines\[0\]\.time_s.*predicted_saving"):
        decode_job_status(wrong.SerializeToString())
    for decode in (decode_job_status, decode_frontier, decode_profile):
        with pytest.raises(InvalidMessageError):
            decode(b"\xff\xff")


def test_quarters_of_a_long_phase_are_told_once_with_the_time_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    writer = JobRecordWriter(SPEC, None, is_simulated=False, now=BEGIN)
    for done in range(21):
        sweep = f"sweep of 4 clocks, iteration {done} of 20"
        share, left_s = done / 20, 12.0 * (20 - done)
        told = replace(STATUS, phase="profiling", progress=sweep, progress_share=share, phase_left_s=left_s)
        for _ in range(2):
            writer.record(JobSeen(told), BEGIN)
    lines = [record.getMessage() for record in caplog.records if "iteration" in record.getMessage()]
    assert [line.partition("is ")[2] for line in lines] == [
        "profiling: sweep of 4 clocks, iteration 5 of 20, about 3 min left",
        "profiling: sweep of 4 clocks, iteration 10 of 20, about 2 min left",
        "profiling: sweep of 4 clocks, iteration 15 of 20, about 60 s left",
    ]
    caplog.clear()
    short = replace(STATUS, phase="re-profiling", progress="of 2 iterations", progress_share=0.5, phase_left_s=1.0)
    writer.record(JobSeen(short), BEGIN)
    assert "of 2 iterations" not in caplog.text
