"""A rank's files: iterations as lines, the timeline anew each time, nothing of an earlier run."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.messages.from_agent import IterationReport, KindTime
from perseus_dist.runlog.events import read_events
from perseus_dist.runlog.report_folder import ReportFolder
from perseus_dist.runlog.timed_iteration import TimedIteration, TimedRun

REPORTS = (
    IterationReport(iteration=0, time_s=1.5, pipeline_time_s=1.25, energy_j=None),
    IterationReport(
        iteration=1,
        time_s=1.4,
        pipeline_time_s=1.2,
        energy_j=300.5,
        table_revision=2,
        point=7,
        kind_times=(KindTime(kind="F", time_ratio=1.02, requested_mhz=1200),),
        tokens=8.0,
    ),
)
ITERATION = TimedIteration(
    iteration=4,
    table_revision=0,
    point=-1,
    begin_ns=100,
    end_ns=400,
    planned_clocks_mhz=None,
    runs=(TimedRun(0, "F", 2, 110, 390, 0, 1410),),
)


def open_folder(path: Path, rank: int = 3, num_ranks: int = 4) -> ReportFolder:
    return ReportFolder(path, rank=rank, num_ranks=num_ranks)


def test_every_report_is_a_line_and_the_folder_is_made(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "new" / "report")
    folder.append_iterations(REPORTS[:1])
    folder.append_iterations(REPORTS[1:])
    lines = (tmp_path / "new" / "report" / "rank-3.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert IterationReport(**first | {"kind_times": ()}) == REPORTS[0]
    assert second == asdict(REPORTS[1]) | {"kind_times": [{"kind": "F", "time_ratio": 1.02, "requested_mhz": 1200}]}
    folder.close()


def test_a_timeline_is_a_header_and_a_line_for_each_iteration(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.replace_timeline({"rank": 3}, [ITERATION] * 2)
    folder.replace_timeline({"rank": 3}, [ITERATION])
    header, line = (json.loads(line) for line in (tmp_path / "timeline-3.jsonl").read_text().splitlines())
    assert header == {"rank": 3}
    assert line == {
        "iteration": 4,
        "table_revision": 0,
        "point": -1,
        "begin_ns": 100,
        "end_ns": 400,
        "planned_clocks_mhz": None,
        "runs": [[0, "F", 2, 110, 390, 0, 1410]],
    }
    folder.close()


def test_a_new_run_replaces_what_an_earlier_one_has_left(tmp_path: Path) -> None:
    for name in ("rank-0.jsonl", "rank-1.jsonl", "timeline-0.jsonl", "timeline-2.jsonl", "job.json", "events.jsonl"):
        (tmp_path / name).write_text("of an earlier run\n")
    (tmp_path / "losses.jsonl").write_text("of the user\n")
    folder = open_folder(tmp_path, rank=0, num_ranks=2)
    # Rank 1 replaces its own; a rank 2 there is no more.
    assert {path.name for path in tmp_path.iterdir()} == {"losses.jsonl", "rank-0.jsonl", "rank-1.jsonl"}
    assert (tmp_path / "rank-0.jsonl").read_text() == ""
    folder.close()


def test_job_json_goes_last_since_it_says_whose_the_other_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("job.json", "events.jsonl", "rank-0.jsonl", "profile.csv"):
        (tmp_path / name).write_text("of an earlier run\n")
    removed: list[str] = []

    def unlink(path: Path, **_: object) -> None:
        removed.append(path.name)

    found = sorted(tmp_path.iterdir(), key=lambda path: path.name != "job.json")
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(found))
    monkeypatch.setattr(Path, "unlink", unlink)
    open_folder(tmp_path, rank=0).close()
    assert len(removed) == 4
    assert removed[-1] == "job.json"


def test_events_are_lines_of_a_file_that_is_made_with_the_first(tmp_path: Path) -> None:
    folder = open_folder(tmp_path, rank=0)
    folder.append_events([])
    assert not (tmp_path / "events.jsonl").exists()
    folder.append_events([{"sequence": 1}, {"sequence": 2}])
    folder.append_events([{"sequence": 3}])
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [1, 2, 3]
    folder.close()


def test_events_outlive_an_agent_and_what_the_planner_tells_again_is_written_once(tmp_path: Path) -> None:
    """The planner tells its newest events alone, and their ages: each agent computes a moment of its own of these."""

    def told(first: int, last: int, at: str) -> list[dict[str, Any]]:
        return [{"at": at, "sequence": n, "kind": "switch", "degree": 0.1, "points": (n,)} for n in range(first, last)]

    folder = open_folder(tmp_path, rank=0)
    folder.append_events(told(1, 80, "now"))
    folder.close()
    file = tmp_path / "events.jsonl"
    file.write_bytes(file.read_bytes()[:-20])  # as an agent that is killed leaves it
    folder = ReportFolder(tmp_path, rank=0, num_ranks=4, is_continued=True)
    folder.append_events(told(17, 81, "later"))
    folder.append_events(told(1, 2, "by a restarted planner"))  # of a planner that was restarted
    folder.close()
    kept = [event.sequence for _, event in read_events(file, [])]
    assert kept == [*range(1, 79), 79, 80, 1]
    open_folder(tmp_path, rank=0).close()
    assert not file.exists(), "another run begins without"


def test_an_agent_that_is_followed_by_another_does_not_write_into_its_file(tmp_path: Path) -> None:
    first = open_folder(tmp_path)
    first.append_iterations(REPORTS[:1])
    second = open_folder(tmp_path)
    first.append_iterations(REPORTS[1:])
    second.append_iterations(REPORTS[:1])
    assert len((tmp_path / "rank-3.jsonl").read_text().splitlines()) == 1
    for folder in (first, second):
        folder.close()


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    folder = open_folder(tmp_path / "file")
    for _ in range(3):
        folder.append_iterations(REPORTS)
        folder.replace_timeline({}, [ITERATION])
        folder.append_events([{"sequence": 1}])
    folder.close()
    (record,) = caplog.records
    assert "the report is incomplete" in record.getMessage()


def test_events_that_a_full_disk_does_not_take_are_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder(tmp_path, rank=0)
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    for sequence in range(3):
        folder.append_events([{"sequence": sequence}])
    folder.close()
    (record,) = caplog.records
    assert "No space left on device" in record.getMessage()


def test_a_line_that_was_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.append_iterations(REPORTS[:1])
    folder.close()
    file = tmp_path / "rank-3.jsonl"
    file.write_bytes(file.read_bytes()[:-20])  # as an agent that is killed leaves it
    folder = ReportFolder(tmp_path, rank=3, num_ranks=4, is_continued=True)
    folder.append_iterations(REPORTS[1:])
    folder.close()
    assert json.loads(file.read_text().splitlines()[1])["iteration"] == 1


@pytest.mark.parametrize("damaged", [b"\xff\xfe\0\0", b'{"iteration": 9, "time_s": 1e400, "energy_j": 1, "point": -1}'])
def test_a_line_that_a_lost_host_has_left_is_not_summed(tmp_path: Path, damaged: bytes) -> None:
    """The agent goes on: the disk has kept other bytes than those that an earlier one wrote."""
    folder = open_folder(tmp_path)
    folder.append_iterations(REPORTS[:1])
    folder.close()
    (tmp_path / "totals-3.json").unlink()
    file = tmp_path / "rank-3.jsonl"
    file.write_bytes(damaged + b"\n" + file.read_bytes())
    folder = ReportFolder(tmp_path, rank=3, num_ranks=4, is_continued=True)
    folder.append_iterations(REPORTS[1:])
    folder.close()
    totals = json.loads((tmp_path / "totals-3.json").read_text())
    assert totals["last_iteration"] == 1
    assert [totals[name]["num_iterations"] for name in ("without_plan", "under_plan")] == [1, 1]
