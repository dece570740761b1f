"""What agents show of the whole job: rank 0's reports it, and that of a rank which shows the job tells its trainer."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from builders import make_spec

from perseus_dist.agent.link.job_watch import JobSeen, TableSeen
from perseus_dist.agent.process.devices import Devices
from perseus_dist.agent.process.job_record import JobRecordWriter
from perseus_dist.agent.process.rank_report import RankReport
from perseus_dist.boundaries.agent_status import AgentStatus
from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.ring import RingWriter
from perseus_dist.device.observe import ObserveOnly
from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.job_status import (
    GuardFigures,
    JobFrontier,
    JobProfile,
    JobStatus,
    MeasuredIterations,
    PipelineStatus,
    Straggler,
    StragglerVerdict,
)
from perseus_dist.messages.terms import Gpu, Target
from perseus_dist.runlog.job import read_job
from perseus_dist.runlog.report_folder import ReportFolder

SPEC = make_spec(
    job_id="gpt", rank=1, pp_rank=1, pp_size=2, schedule="0F0 0B0\n1F0 1B0\n", local_rank=1, shows_job=True
)
PIPELINE = PipelineStatus(
    dp_rank=0,
    attached_ranks=2,
    iteration=7,
    time_s=0.75,
    energy_j=600.0,
    table_revision=1,
    point=3,
    planned_time_s=0.75,
    planned_energy_j=590.0,
)
STATUS = JobStatus(
    job_id="gpt",
    phase="enforcing",
    reason="table 1",
    num_ranks=4,
    pipelines=(PIPELINE, replace(PIPELINE, dp_rank=1, time_s=0.875, energy_j=500.0)),
    table_revision=1,
    switch_revision=1,
    target=Target(slowdown=1.05),
    stragglers=(
        Straggler(straggler_id="rack7", degree=1.25, dp_rank=1),
        Straggler(straggler_id="rack8", degree=1.125, dp_rank=1),
    ),
    fastest_s=0.75,
    t_star_s=0.9,
    baseline=MeasuredIterations(),
    enforced=MeasuredIterations(),
    predicted_saving=0.125,
    profiled_clocks=9,
    messages=12,
    missed_clocks=0,
    lost_boundaries=0,
    troubles=(),
    t_prime_s=1.0,
    guard=GuardFigures(probes=3, falls=1),
)
TABLE = TableSeen(
    JobFrontier(
        table_revision=1, points=(), baseline_time_s=0.75, baseline_energy_j=610.0, fastest_s=0.75, t_star_s=0.9
    ),
    JobProfile(csv="stage,instruction\n", blocking_power_w=83.5),
)


DEVICES = Devices(
    control=ObserveOnly(refusal=""),
    meter=None,
    gpu=Gpu(uuid="GPU-1", name="A100", driver_version="1", clocks_mhz=(), control="observe"),
    is_simulated=True,
)


@pytest.fixture
def ring() -> Iterator[RingWriter]:
    writer = RingWriter()
    yield writer
    writer.close()


@pytest.fixture
def reader(ring: RingWriter) -> Iterator[BoundaryReader]:
    reader = BoundaryReader(ring.fd, -1)
    yield reader
    reader.close()


def test_a_rank_that_shows_the_job_tells_its_trainer_and_reports_nothing_of_it(
    tmp_path: Path, ring: RingWriter, reader: BoundaryReader, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    report = RankReport(replace(SPEC, report=str(tmp_path)), reader)
    report.begin(DEVICES)
    report.keep([IterationReport(iteration=6, time_s=0.5, pipeline_time_s=0.5, energy_j=90.0)])
    report.record_job(TABLE)
    report.record_job(JobSeen(STATUS))
    told = AgentStatus(
        phase="enforcing",
        iteration=6,
        time_s=0.5,
        energy_j=90.0,
        job_time_s=0.875,
        job_energy_j=1100.0,
        predicted_saving=0.125,
        target="slowdown=1.05",
        num_stragglers=2,
        straggler_degree=1.25,
        table_revision=1,
        switch_revision=1,
        t_prime_s=1.0,
        num_probes=3,
        num_falls=1,
    )
    assert ring.status == told

    measured = replace(
        STATUS,
        baseline=MeasuredIterations(num_iterations=5, energy_j=1000.0),
        enforced=MeasuredIterations(num_iterations=9, energy_j=875.0),
    )
    report.record_job(JobSeen(measured))
    assert ring.status == replace(told, measured_saving=0.125)

    report.record_job(JobSeen(replace(STATUS, stragglers=(), target=Target())))
    report.keep([IterationReport(iteration=7, time_s=0.25, pipeline_time_s=0.25, energy_j=None)])
    assert ring.status == replace(
        told, iteration=7, time_s=0.25, energy_j=None, target="t_min", num_stragglers=0, straggler_degree=1.0
    )
    report.write_due()
    report.close([JobSeen(replace(STATUS, phase="done"))])
    assert ring.status is not None
    assert ring.status.phase == "done"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-1.jsonl", "totals-1.json"]
    assert caplog.records == []


def test_the_trainer_is_told_of_stragglers_that_the_others_wait_for(ring: RingWriter, reader: BoundaryReader) -> None:
    acted_upon = StragglerVerdict(
        rank=1,
        pp_rank=1,
        dp_rank=0,
        degree=1.5,
        low=1.4,
        high=1.6,
        cause="thermal",
        age_s=1.0,
        is_whole_pipeline=False,
        is_predicted=False,
        is_flapping=False,
        is_acted_upon=True,
        is_muted=False,
        sentence="",
    )
    others = (replace(acted_upon, degree=9.0, is_muted=True), replace(acted_upon, degree=9.0, is_acted_upon=False))
    none = Straggler(straggler_id="rack9", degree=1.0, dp_rank=0)
    report = RankReport(SPEC, reader)
    report.record_job(JobSeen(replace(STATUS, stragglers=(none,), verdicts=(acted_upon, *others))))
    assert ring.status is not None
    assert (ring.status.num_stragglers, ring.status.straggler_degree) == (1, 1.5)
    report.record_job(JobSeen(replace(STATUS, stragglers=(none,), verdicts=others)))
    assert ring.status is not None
    assert (ring.status.num_stragglers, ring.status.straggler_degree) == (0, 1.0)


def test_what_an_agent_has_written_of_the_job_outlives_every_agent_that_is_killed(
    tmp_path: Path, reader: BoundaryReader
) -> None:
    spec = replace(SPEC, rank=0, pp_rank=0, local_rank=0, report=str(tmp_path))
    began = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    folder = ReportFolder(tmp_path, rank=0, num_ranks=2)
    first = JobRecordWriter(spec, folder, is_simulated=True, now=began)
    first.record(TABLE, began)
    first.record(JobSeen(replace(STATUS, saved_j=100.0)), began + timedelta(seconds=9))
    first.write(began + timedelta(seconds=10))
    folder.close()
    job = read_job(tmp_path / "job.json")
    assert [one.phase for one in job.phases] == ["unattached", "enforcing"]

    RankReport(spec, reader, is_continued=True).close(())  # it ends, or is killed too, before its GPU is known
    assert read_job(tmp_path / "job.json") == job
    assert (tmp_path / "profile.csv").read_text() == "stage,instruction\n"
    assert (tmp_path / "frontier.csv").exists()

    report = RankReport(spec, reader, is_continued=True)
    report.begin(DEVICES)
    report.write_due()  # before the planner has answered
    told = read_job(tmp_path / "job.json")
    assert told == replace(job, updated_at=told.updated_at, submission=told.submission)
    report.record_job(JobSeen(replace(STATUS, phase="warming_up", saved_j=5.0)))
    report.close(())
    ended = read_job(tmp_path / "job.json")
    assert ended.ended_at
    assert (ended.started_at, ended.saved_j, ended.blocking_power_w) == (job.started_at, 5.0, 83.5)
    assert ended.phases[:2] == job.phases
    assert [one.phase for one in ended.phases[2:]] == ["warming_up"]
