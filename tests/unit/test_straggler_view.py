"""Stragglers and events of a job as ``watch`` shows them: on a terminal, and line by line."""

import pytest

from perseus_dist.cli.jobs.straggler_view import (
    format_age,
    format_event,
    format_events,
    format_saved,
    format_stragglers,
)
from perseus_dist.cli.jobs.watch import _Lines, _on_terminal
from perseus_dist.rpc.v1 import planner_pb2 as pb

SWITCH = pb.JobEvent(sequence=2, kind="switch", switch_revision=3, effective_iteration=40, sentence="slower", age_s=1)
VERDICT = pb.JobEvent(sequence=1, kind="verdict", iteration=30, sentence="pipeline 1 is slow", age_s=7200)
REPORT = pb.JobEvent(sequence=3, kind="report", iteration=-1, sentence="as ops reports")


def test_a_job_without_stragglers_and_events_has_no_blocks() -> None:
    assert format_stragglers(pb.JobStatus()) == format_events(pb.JobStatus()) == ""


def test_reports_verdicts_and_what_was_not_judged_have_a_line_each() -> None:
    status = pb.JobStatus(
        stragglers=[
            pb.StragglerReport(id="ops", dp_rank=1, degree=1.25),
            pb.StragglerReport(id="night", dp_rank=2, degree=1.0),
        ],
        verdicts=[
            pb.StragglerVerdict(sentence="a", is_acted_upon=True),
            pb.StragglerVerdict(sentence="b"),
            pb.StragglerVerdict(sentence="c", is_muted=True, is_acted_upon=True),
        ],
        refused_reports=2,
    )
    assert format_stragglers(status).splitlines() == [
        "",
        "stragglers:",
        "  pipeline 1 takes 1.25 times as long, as ops reports",
        "  pipeline 2 does not straggle, as night reports, whatever is detected there",
        "  acted upon: a",
        "  not acted upon: b",
        "  muted by an operator's report: c",
        "  2 reports of ranks were not judged, because they cannot be right",
    ]


def test_the_newest_events_stand_first_with_their_ages() -> None:
    older = [pb.JobEvent(kind="old", age_s=90_000, sentence="forgotten")] * 10
    lines = format_events(pb.JobStatus(events=[*older, VERDICT, SWITCH])).splitlines()
    assert lines[2:4] == [
        "  1 s ago  switch 3, from iteration 40 on: slower",
        "  2 h ago  at iteration 30, verdict: pipeline 1 is slow",
    ]
    assert len(lines) == 2 + 10
    assert format_event(REPORT) == "report: as ops reports"


@pytest.mark.parametrize(("age_s", "expected"), [(3.2, "3 s"), (60, "1 min"), (7200, "2 h"), (172800, "2 d")])
def test_an_age_is_in_the_unit_that_matters(age_s: float, expected: str) -> None:
    assert format_age(age_s) == expected


@pytest.mark.parametrize(
    ("saved_j", "doubt_j", "expected"),
    [(12.34, 0.0, "12.3 J"), (-2500.0, 50.0, "-2.50 ± 0.05 kJ"), (3.2e6, 0.0, "3.20 MJ"), (4e9, 1e8, "4.00 ± 0.10 GJ")],
)
def test_an_energy_is_in_the_unit_that_matters_with_its_doubt(saved_j: float, doubt_j: float, expected: str) -> None:
    assert format_saved(saved_j, doubt_j) == expected


def test_a_line_is_printed_for_what_is_new_and_iterations_alone_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _Lines()
    status = pb.JobStatus(
        job_id="llama",
        phase="enforcing",
        reason="as planned",
        table_revision=1,
        troubles=["a link is slow"],
        stragglers=[pb.StragglerReport(id="ops", dp_rank=1, degree=1.25)],
        events=[VERDICT],
    )
    lines(status)
    first = capsys.readouterr().out
    assert "enforcing: as planned (table 1, switch 0, target " in first
    assert "ops: pipeline 1 x 1.25" in first
    assert "\n  a link is slow\n" in first
    assert "at iteration 30, verdict: pipeline 1 is slow" in first
    lines(status)
    assert capsys.readouterr().out == ""
    status.events.append(SWITCH)
    lines(status)
    (news,) = capsys.readouterr().out.splitlines()
    assert news.endswith("switch 3, from iteration 40 on: slower")


def test_a_terminal_is_redrawn_with_everything(capsys: pytest.CaptureFixture[str]) -> None:
    _on_terminal(pb.JobStatus(job_id="llama", phase="enforcing", reason="as planned", events=[SWITCH]))
    shown = capsys.readouterr().out
    assert shown.startswith("\x1b[H\x1b[2J")
    assert "llama" in shown
    assert shown.endswith("events:\n  1 s ago  switch 3, from iteration 40 on: slower\n")
