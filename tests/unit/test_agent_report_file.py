"""Iterations as lines of JSON."""

import json
from pathlib import Path

import pytest

from perseus_dist.agent.report_file import ReportFile
from perseus_dist.messages import IterationReport

REPORTS = (
    IterationReport(iteration=0, time_s=1.5, pipeline_time_s=1.25, energy_j=None),
    IterationReport(iteration=1, time_s=1.4, pipeline_time_s=1.2, energy_j=300.5, table_revision=2, point=7),
)


def test_every_report_is_a_line_and_the_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "report"
    file = ReportFile(folder, rank=3)
    file.append(REPORTS[:1])
    file.append(REPORTS[1:])
    ReportFile(folder, rank=3).append(REPORTS[:1])  # a rank that was started again
    lines = [json.loads(line) for line in (folder / "rank-3.jsonl").read_text().splitlines()]
    assert [IterationReport(**line) for line in lines] == [*REPORTS, REPORTS[0]]


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    file = ReportFile(tmp_path / "file", rank=0)
    for _ in range(3):
        file.append(REPORTS)
    (record,) = caplog.records
    assert "iterations are not kept" in record.getMessage()
