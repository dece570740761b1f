"""``perseus-dist watch`` and ``straggler``, against a planner that tells what the test tells it to."""

import json
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from perseus_dist.cli import main
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerServicer, add_PlannerServicer_to_server

VERDICT = pb.StragglerVerdict(
    rank=3,
    pp_rank=1,
    dp_rank=1,
    degree=1.17,
    low=1.16,
    high=1.18,
    cause="power_cap",
    is_acted_upon=True,
    sentence="rank 3 is slower than its likes",
)
SEEN = pb.JobEvent(
    sequence=1, kind="verdict", age_s=120, iteration=63, effective_iteration=-1, sentence="rank 3 is slow"
)
SWITCHED = pb.JobEvent(
    sequence=2,
    kind="switch",
    age_s=119,
    iteration=63,
    effective_iteration=66,
    switch_revision=4,
    sentence="1 of 2 pipelines wait",
    t_prime_s=1.157,
    points=(16, 4),
)


def status(**other: Any) -> pb.JobStatus:
    fields: dict[str, Any] = {
        "job_id": "gpt",
        "phase": "enforcing",
        "reason": "table 1 is in force",
        "num_ranks": 4,
        "table_revision": 1,
        "switch_revision": 4,
        "pipelines": [
            pb.PipelineStatus(
                dp_rank=0,
                attached_ranks=2,
                iteration=99,
                time_s=1.16,
                pipeline_time_s=1.13,
                energy_j=850.0,
                table_revision=1,
                point=16,
                planned_time_s=1.15,
                planned_energy_j=849.0,
                is_waiting=True,
            ),
            pb.PipelineStatus(dp_rank=1, attached_ranks=2, iteration=99, time_s=1.16, table_revision=2, point=4),
        ],
    }
    return pb.JobStatus(**{**fields, **other})


STRAGGLING: dict[str, Any] = {
    "t_prime_s": 1.157,
    "saved_j": 123456.0,
    "refused_reports": 3,
    "verdicts": [VERDICT],
    "stragglers": [pb.StragglerReport(id="rack7", degree=1.0, dp_rank=0)],
}


class Told(PlannerServicer):
    """Tells each watcher the same statuses, and keeps what is reported."""

    def __init__(self) -> None:
        self.statuses: list[pb.JobStatus] = []
        self.reported: list[pb.ReportStragglerRequest] = []
        self.answer = status()

    def WatchJob(self, request: pb.WatchJobRequest, context: grpc.ServicerContext) -> Iterator[pb.JobStatus]:  # noqa: ARG002, N802
        yield from self.statuses

    def ReportStraggler(self, request: pb.ReportStragglerRequest, context: grpc.ServicerContext) -> pb.JobStatus:  # noqa: ARG002, N802
        self.reported.append(request)
        return self.answer


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    server, told = grpc.server(ThreadPoolExecutor(2)), Told()
    add_PlannerServicer_to_server(told, server)  # type: ignore[no-untyped-call]  # generated
    monkeypatch.setenv("PERSEUS_PLANNER", f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    yield told
    server.stop(None).wait()


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["watch", "gpt"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [str(line) for line in out.splitlines()]


def test_in_a_pipe_every_decision_and_every_event_is_a_line(planner: Told, capsys: pytest.CaptureFixture[str]) -> None:
    later = SWITCHED.__deepcopy__()
    later.age_s += 5
    planner.statuses = [
        status(switch_revision=3),
        status(switch_revision=3, events=[SEEN]),
        status(events=[SEEN, SWITCHED], **STRAGGLING),
        status(events=[SEEN, later], **STRAGGLING),
        status(phase="stale", reason="no rank is attached", events=[later]),
    ]
    lines = lines_of(capsys)
    assert [line[9:] for line in lines] == [
        "enforcing: table 1 is in force (table 1, switch 3, target T_min)",
        "at iteration 63, verdict: rank 3 is slow",
        "enforcing: table 1 is in force (table 1, switch 4, target T_min, rack7: pipeline 0 x 1)",
        "switch 4, from iteration 66 on: 1 of 2 pipelines wait",
        "stale: no rank is attached (table 1, switch 4, target T_min)",
    ]
    # An event has the time at which it happened.
    told = time.mktime(time.strptime(f"{time.strftime('%Y-%m-%d')} {lines[1][:8]}", "%Y-%m-%d %H:%M:%S"))
    assert (time.time() - told) % 86400 == pytest.approx(120, abs=60)


def test_on_a_terminal_everything_stands_at_its_place(
    planner: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    muted = VERDICT.__deepcopy__()
    muted.is_muted, muted.is_whole_pipeline, muted.dp_rank = True, True, 0
    planner.statuses = [status(events=[SEEN, SWITCHED], **{**STRAGGLING, "verdicts": [VERDICT, muted]})]
    lines = lines_of(capsys)
    (job,) = [line for line in lines if line.startswith("gpt")]
    assert "123.46 kJ" in job
    assert any("pipelines wait for T' = 1.1570 s" in line for line in lines)
    pipelines = [re.split(r" {2,}", line.strip()) for line in lines if re.match(r" +[01]  ", line)]
    waiting, slow = pipelines
    assert waiting == ["0", "2", "99", "1.1600", "1.1300", "1.1500", "850.0", "849.0", "1", "16"]
    assert slow[0] == "1"
    assert "  waits; rack7 x 1; whole: power cap x 1.170 (muted)" in lines
    assert "  rank 3: power cap x 1.170" in lines
    assert lines[lines.index("stragglers:") :] == [
        "stragglers:",
        "  pipeline 0 does not straggle, as rack7 reports, whatever is detected there",
        "  acted upon: rank 3 is slower than its likes",
        "  muted by an operator's report: rank 3 is slower than its likes",
        "  3 reports of ranks were not judged, because they cannot be right",
        "",
        "events:",
        "  2 min ago  switch 4, from iteration 66 on: 1 of 2 pipelines wait",
        "  2 min ago  at iteration 63, verdict: rank 3 is slow",
    ]


def test_where_nothing_happens_nothing_is_said(
    planner: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    planner.statuses = [status()]
    text = "\n".join(lines_of(capsys))
    assert "stragglers" not in text
    assert "events" not in text


def test_json_has_every_field_with_numbers_as_numbers(planner: Told, capsys: pytest.CaptureFixture[str]) -> None:
    planner.statuses = [status(), status(events=[SEEN, SWITCHED], **STRAGGLING)]
    assert main(["watch", "gpt", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["verdicts"], first["events"], first["t_prime_s"], first["saved_j"]) == ([], [], 0, 0)
    assert second["refused_reports"] == 3
    assert second["verdicts"][0]["cause"] == "power_cap"
    assert second["pipelines"][0]["is_waiting"] is True
    switch = second["events"][1]
    assert (switch["sequence"], switch["effective_iteration"], switch["switch_revision"]) == (2, 66, 4)
    assert switch["points"] == [16, 4]
    assert second["events"][0]["effective_iteration"] == -1


def test_a_degree_of_1_is_reported_as_it_is(planner: Told, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["straggler", "report", "gpt", "--id", "rack7", "--pipeline", "1", "--degree", "1"]) == 0
    assert capsys.readouterr().out == "enforcing: table 1 is in force\n"
    (request,) = planner.reported
    assert (request.straggler.degree, request.straggler.dp_rank) == (1.0, 1)


def test_a_report_of_a_job_that_only_observes_is_said_to_have_no_effect(
    planner: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    planner.answer = status(phase="observing", reason="no rank can set clocks: no rights")
    command = ["straggler", "report", "gpt", "--id", "rack7", "--pipeline", "1", "--degree", "1.2"]
    for options in ([], ["--json"]):
        assert main([*command, *options]) == 0
        out, error = capsys.readouterr()
        assert "no rank can set clocks" in out
        assert error == (
            "the report has no effect while job gpt only observes (no rank can set clocks: no rights): "
            "there is no plan that could change; it is kept, and counts once there is one\n"
        )
