"""A run that begins where an earlier one has left its files: the earlier one's record is written first, and whole."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from another_user import another_user
from builders import make_spec
from test_accounting import leave_run
from waiting import PATIENCE_S

from perseus_dist.agent.process.earlier_run import wait_until_finished
from perseus_dist.agent.process.job_record import JobRecordWriter
from perseus_dist.agent.process.rank_report import RankReport
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.ring import RingWriter
from perseus_dist.runlog.accounting.record_files import records_in
from perseus_dist.runlog.report_folder import ReportFolder


def spec_of(rank: int, folder: Path, run_id: str = "second") -> RankSpec:
    schedule = "0F0 0B0\n1F0 1B0\n"
    return make_spec(
        job_id="gpt", rank=rank, pp_rank=rank, pp_size=2, schedule=schedule, report=str(folder), run_id=run_id
    )


def begin(spec: RankSpec, reader: BoundaryReader, is_continued: bool = False) -> None:  # noqa: FBT001, FBT002
    RankReport(spec, reader, is_continued=is_continued).close(())


@pytest.fixture
def reader() -> Iterator[BoundaryReader]:
    writer = RingWriter()
    reader = BoundaryReader(writer.fd, -1)
    yield reader
    reader.close()
    writer.close()


@pytest.mark.parametrize("is_continued", [False, True], ids=["", "agents that were killed as they began"])
def test_other_ranks_keep_the_files_of_a_killed_run_until_its_record_is_written(
    is_continued: bool,  # noqa: FBT001
    tmp_path: Path,
    reader: BoundaryReader,
) -> None:
    leave_run(tmp_path, ended_at=None, phase="enforcing", run_id="first")
    other = threading.Thread(target=begin, args=(spec_of(1, tmp_path), reader, is_continued))
    other.start()
    time.sleep(0.3)  # rank 0's agent comes later
    begin(spec_of(0, tmp_path), reader, is_continued)
    other.join(PATIENCE_S)
    (record,) = records_in(tmp_path)
    assert (record.job_id, record.energy_j) == ("gpt", 92.0)
    assert not (tmp_path / "totals-1.json").exists()


def test_nobody_waits_for_a_run_of_their_own(tmp_path: Path) -> None:
    wait_until_finished(tmp_path, "second", longest_s=PATIENCE_S)
    (tmp_path / "job.json").write_text(json.dumps({"run_id": "second"}))
    wait_until_finished(tmp_path, "second", longest_s=PATIENCE_S)
    for broken in ("{", "[]", "[" * 100_000):
        (tmp_path / "job.json").write_text(broken)
        wait_until_finished(tmp_path, "second", longest_s=PATIENCE_S)


def test_the_wait_for_rank_0_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"run_id": "first"}))
    began_s = time.monotonic()
    wait_until_finished(tmp_path, "second", longest_s=0.2)
    assert time.monotonic() - began_s >= 0.2


def test_a_run_that_is_followed_at_once_has_its_last_word(tmp_path: Path, reader: BoundaryReader) -> None:
    """As behind a change of the batch, where agents of the earlier plan end while the next ones begin."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    leave_run(tmp_path, ended_at=None, phase="enforcing", updated_at=now)
    next_run = threading.Thread(target=begin, args=(spec_of(0, tmp_path), reader))
    next_run.start()
    time.sleep(0.3)
    leave_run(tmp_path, updated_at=now)
    next_run.join(PATIENCE_S)
    (record,) = records_in(tmp_path)
    assert record.is_complete
    assert record.saved_j == 100.0


def test_the_last_word_of_a_run_does_not_overwrite_the_next(tmp_path: Path) -> None:
    first, second = spec_of(0, tmp_path, "first"), spec_of(0, tmp_path)
    start = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    folders = [ReportFolder(tmp_path, rank=0, num_ranks=2) for _ in range(2)]
    earlier = JobRecordWriter(first, folders[0], is_simulated=True, now=start)
    later = JobRecordWriter(second, folders[1], is_simulated=True, now=start.replace(minute=5))
    for report in (earlier, later):
        report.write(start.replace(minute=6))
    earlier.write(start.replace(minute=7), is_over=True)
    assert json.loads((tmp_path / "job.json").read_text())["run_id"] == "second"
    later.write(start.replace(minute=8), is_over=True)
    assert json.loads((tmp_path / "job.json").read_text())["ended_at"]
    for folder in folders:
        folder.close()


@pytest.mark.parametrize("is_continued", [False, True])
def test_a_report_that_is_closed_to_the_user_costs_a_warning_alone(
    is_continued: bool,  # noqa: FBT001
    tmp_path: Path,
    reader: BoundaryReader,
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    with another_user():
        begin(spec_of(0, closed / "report"), reader, is_continued)
    assert f"the report is incomplete: {closed}/report: Permission denied" in caplog.text
