"""A rank's report files stay bounded however long the job trains, and sums over all its iterations stay exact."""

import errno
import io
import itertools
import json
import os
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from perseus_dist.messages.from_agent import IterationReport, KindTime
from perseus_dist.report.analysis.figures import build_report
from perseus_dist.runlog import iteration_log
from perseus_dist.runlog.files import read_run
from perseus_dist.runlog.iteration_log import MAX_BYTES, NUM_LEVELS, IterationLog, IterationTotals
from perseus_dist.runlog.report_folder import ReportFolder

SEGMENT_BYTES = 80_000  # holds the lines between two savings of the sums, as the real one does
NUM_ITERATIONS = 20_000
PLANNED_FROM = 500
KINDS = tuple(KindTime(kind=kind, time_ratio=1.01, requested_mhz=1200) for kind in "FB")
JOB = {
    "job_id": "long",
    "phase": "done",
    "reason": "every rank's trainer has ended",
    "schedule": "0F0 0B0\n1F0 1B0\n",
    "pp_size": 2,
    "dp_size": 1,
    "tp_size": 1,
    "num_ranks": 2,
    "target": "t_min",
    "simulated": True,
    "started_at": "2026-09-21T14:13:20.000+00:00",
    "updated_at": "2026-09-21T15:15:20.000+00:00",
    "phases": [{"phase": "enforcing", "reason": "it is", "at": "2026-09-21T14:13:21+00:00"}],
    "baseline": {"num_iterations": 0},
    "enforced": {"num_iterations": 0},
    "troubles": [],
    "pipelines": [],
}


def reports(rank: int, num: int = NUM_ITERATIONS) -> Iterator[IterationReport]:
    """Ranks differ in energy and in the length of their lines, so that their segments end at different iterations."""
    rng = random.Random(rank)
    for iteration in range(num):
        is_planned = iteration >= PLANNED_FROM
        yield IterationReport(
            iteration=iteration,
            time_s=round(1.0 + 0.01 * rng.random(), 9),
            pipeline_time_s=0.9,
            energy_j=round((90 if is_planned else 100) + rank + rng.random(), 6),
            table_revision=int(is_planned),
            point=7 if is_planned else -1,
            kind_times=KINDS[rank:] if is_planned else (),
        )


def size_of(folder: Path, rank: int) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"*-{rank}.*"))


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(IterationLog, segment_bytes=SEGMENT_BYTES)
    monkeypatch.setattr("perseus_dist.runlog.report_folder.IterationLog", small)


def write_run(folder: Path, *, close: bool = True, num: int = NUM_ITERATIONS) -> None:
    """As two agents do, some iterations at a time; the file sizes are bounded at every moment."""
    for rank in range(2):
        agent = ReportFolder(folder, rank=rank, num_ranks=2)
        waiting: list[IterationReport] = []
        for report in reports(rank, num):
            waiting.append(report)
            if len(waiting) >= 1 + report.iteration % 7:
                agent.append_iterations(waiting)
                waiting = []
            if report.iteration % 5000 == 0:
                assert size_of(folder, rank) < MAX_BYTES * SEGMENT_BYTES / iteration_log.SEGMENT_BYTES + 16 * 4000
        agent.append_iterations(waiting)
        if not close:  # as if it were killed: what was not saved is not saved
            assert agent._iterations is not None
            agent._iterations._num_unsaved = 0
        agent.close()
    (folder / "job.json").write_text(json.dumps(JOB))


@pytest.mark.usefixtures("small_segments")
def test_a_long_runs_files_are_bounded_and_its_sums_exact(tmp_path: Path) -> None:
    write_run(tmp_path)
    assert len(list(tmp_path.glob("rank-0.*"))) <= 1 + 2 * NUM_LEVELS
    report = build_report(tmp_path)
    document = report.document()
    for name, trained in (("without_plan", range(PLANNED_FROM)), ("under_plan", range(PLANNED_FROM, NUM_ITERATIONS))):
        figures = document["totals"][name]
        of_ranks = [[one for one in reports(rank) if one.iteration in trained] for rank in range(2)]
        assert figures["num_iterations"] == len(trained)
        assert figures["time_s"] == pytest.approx(max(sum(one.time_s for one in of) for of in of_ranks), rel=1e-12)
        energy_j = sum(one.energy_j or 0.0 for of in of_ranks for one in of)
        assert figures["energy_j"] == pytest.approx(energy_j, rel=1e-12)
    assert document["num_iterations"] == NUM_ITERATIONS
    assert any(note.startswith("this run is long: figures of single iterations are of its") for note in report.notes)
    # Begin, end and every 4^n-th iteration between are known of both ranks.
    numbers = set(report.iterations.number.tolist())
    assert {*range(100), *range(NUM_ITERATIONS - 60, NUM_ITERATIONS)} <= numbers
    assert {4096, 8192, 12_288, 16_384} <= numbers
    assert report.planned.time_s == pytest.approx(1.0067, abs=0.002)  # the later of two ranks, at the median
    assert report.planned.energy_j == pytest.approx(2 * 90.5 + 1, abs=0.2)


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("num", [3, 255, 256, 257, 5000])
def test_sums_of_an_agent_that_was_killed_have_its_last_lines(tmp_path: Path, num: int) -> None:
    write_run(tmp_path, close=False, num=num)
    totals = read_run(tmp_path).totals
    assert totals is not None
    assert totals.without_plan.num_iterations + totals.under_plan.num_iterations == num
    energy_j = sum(one.energy_j or 0.0 for rank in range(2) for one in reports(rank, num))
    assert totals.without_plan.energy_j + totals.under_plan.energy_j == pytest.approx(energy_j, rel=1e-12)


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("num_before", [1, 300, 3000])
def test_sums_go_on_with_the_next_agent_of_a_rank(tmp_path: Path, num_before: int) -> None:
    """The first is killed, half a line behind."""
    told = list(reports(0, num_before + 200))
    folder = ReportFolder(tmp_path, rank=0, num_ranks=1)
    for report in told[:num_before]:
        folder.append_iterations([report])
    totals_file = tmp_path / "totals-0.json"
    saved = totals_file.read_bytes() if totals_file.exists() else b""
    folder.close()
    totals_file.write_bytes(saved)  # killed, it has not said its last word
    with (tmp_path / "rank-0.jsonl").open("a") as file:
        file.write('{"iteration": ')
    after = ReportFolder(tmp_path, rank=0, num_ranks=1, is_continued=True)
    for report in told[num_before:]:
        after.append_iterations([report])
    after.close()
    totals = json.loads(totals_file.read_text())
    assert totals["last_iteration"] == len(told) - 1
    for name, is_planned in (("without_plan", False), ("under_plan", True)):
        those = [report for report in told if (report.point >= 0) == is_planned]
        assert totals[name]["num_iterations"] == len(those)
        assert totals[name]["energy_uj"] == sum(round(1e6 * (report.energy_j or 0)) for report in those)


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("seed", range(4))
def test_agents_that_are_killed_again_and_again_lose_no_sum_and_no_newest_line(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    iterations, told = reports(0), 0
    with ExitStack() as killed:
        for _ in range(12):
            agent = ReportFolder(tmp_path, rank=0, num_ranks=1, is_continued=told > 0)
            killed.callback(agent.close)  # long after it was killed
            for report in itertools.islice(iterations, rng.choice((1, 10, 200, 250, 260, 700))):
                agent.append_iterations([report])
                told += 1
            totals = IterationTotals()
            totals.restore(tmp_path, 0)
            sums = [cast("dict[str, int]", totals.document()[name]) for name in ("without_plan", "under_plan")]
            energy_uj = sum(round(1e6 * (report.energy_j or 0)) for report in reports(0, told))
            assert [sum(of[key] for of in sums) for key in ("num_iterations", "energy_uj")] == [told, energy_uj]
            lines = "".join(path.read_text() for path in tmp_path.glob("rank-0.*"))
            kept = {int(number) for number in re.findall(r'^{"iteration": ([0-9]+), .*}$', lines, re.MULTILINE)}
            assert kept >= set(range(told)[-256:]) | set(range(0, told, 16))
            if rng.random() < 0.5:
                with max(tmp_path.glob("rank-0.*"), key=os.path.getmtime).open("a") as file:
                    file.write('{"iteration": ')


@pytest.mark.usefixtures("small_segments")
def test_a_new_run_removes_all_of_an_earlier_one(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "simulated-0.json").write_text("{}")
    for rank in range(2):
        ReportFolder(tmp_path, rank=rank, num_ranks=2).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.jsonl", "rank-1.jsonl"]


class OverQuota(io.TextIOWrapper):
    """As a file server's: it has no room for what was written, and says so when the file is closed."""

    def close(self) -> None:
        super().close()
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.mark.usefixtures("small_segments")
def test_a_segment_that_cannot_be_closed_is_left_for_the_next(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = ReportFolder(tmp_path, rank=0, num_ranks=1)
    for report in reports(0, 4000):
        folder.append_iterations([report])
        log = folder._iterations
        if report.iteration == 2000 and log is not None and (file := log._levels[0]._file) is not None:
            log._levels[0]._file = OverQuota(cast("io.TextIOWrapper", file).detach(), encoding="utf-8")
    folder.close()
    assert "the report is incomplete" in caplog.text
    newest = max(
        json.loads(line)["iteration"] for path in tmp_path.glob("rank-0.*") for line in path.read_text().splitlines()
    )
    assert newest == 3999


@pytest.mark.usefixtures("small_segments")
def test_sums_are_unknown_rather_than_wrong(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "totals-1.json").write_text('{"last_iteration": 9}')
    assert read_run(tmp_path).totals is None
    assert build_report(tmp_path).document()["totals"] is None


def test_an_energy_that_one_rank_does_not_know_is_not_summed(tmp_path: Path) -> None:
    agents = [ReportFolder(tmp_path, rank=rank, num_ranks=2) for rank in range(2)]
    for rank, agent in enumerate(agents):
        known = list(reports(rank, 10))
        agent.append_iterations([known[0], replace(known[1], energy_j=None if rank else 5.0), *known[2:]])
        agent.close()
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    totals = read_run(tmp_path).totals
    assert totals is not None
    assert totals.document()["without_plan"]["num_iterations"] == 10
    assert totals.document()["without_plan"]["energy_j"] is None


def test_events_are_bounded_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("perseus_dist.runlog.report_folder._MAX_EVENTS_BYTES", 1000)
    agent = ReportFolder(tmp_path, rank=0, num_ranks=1)
    for number in range(100):
        agent.append_events([{"sequence": number, "sentence": "x" * 100}])
    agent.close()
    assert 1000 < (tmp_path / "events.jsonl").stat().st_size < 1300
    assert len(caplog.records) == 1
