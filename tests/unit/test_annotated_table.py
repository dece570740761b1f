"""Tables of operators' commands fit 100 columns, whatever a sentence says."""

from perseus_dist.cli.annotated_table import format_annotated
from perseus_dist.cli.jobs.accounting.view import table_text
from perseus_dist.cli.jobs.job_view import format_jobs, format_pipelines
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.runlog.accounting.record import EnergyRecord
from perseus_dist.runlog.accounting.sums import Group
from perseus_dist.runlog.submission import Submission

LONG = "the plan was given up, because iterations took longer than the target allows by all that is known of them " * 3


def test_a_sentence_stands_below_its_row_in_lines_of_its_own() -> None:
    columns = (("name", "name", "s"), ("number\nof it", "number", "d"))
    records = [{"name": "a", "number": 7, "text": LONG}, {"name": "b", "number": 8, "text": ""}]
    lines = format_annotated(columns, records, "text").splitlines()
    assert [line.split() for line in lines[:3]] == [["number"], ["name", "of", "it"], ["a", "7"]]
    assert " ".join(line.strip() for line in lines[3:-1]) == LONG.strip()
    assert lines[-1].split() == ["b", "8"]
    assert max(map(len, lines)) <= 100


def test_jobs_and_their_pipelines_fit_100_columns() -> None:
    measured = pb.MeasuredIterations(num_iterations=99, time_s=123.4567, energy_j=123456.7)
    verdict = pb.StragglerVerdict(rank=1023, dp_rank=127, degree=1.234, cause="power_supply", is_acted_upon=True)
    pipeline = pb.PipelineStatus(dp_rank=127, attached_ranks=1024, iteration=1234567, time_s=123.4, energy_j=123456.7)
    pipeline.MergeFrom(pb.PipelineStatus(table_revision=12, point=300, planned_time_s=123.4, planned_energy_j=123456.7))
    status = pb.JobStatus(
        job_id="llama-3-70b-pp16",
        phase="re-profiling",
        reason=LONG,
        num_ranks=1024,
        pipelines=[pipeline],
        baseline=measured,
        enforced=measured,
        predicted_saving=0.123,
        predicted_saving_low=0.118,
        predicted_saving_high=0.125,
        saved_j=7.7e6,
        saved_doubt_j=0.3e6,
        t_prime_s=123.4567,
        table_revision=12,
        target=pb.Target(slowdown=1.05),
        verdicts=[verdict],
    )
    for text in (format_jobs([status]), format_pipelines(status)):
        assert max(map(len, text.splitlines())) <= 100
    assert "the plan is likely to save 11.8 to 12.5 %" in " ".join(format_jobs([status]).split())


def test_long_names_are_cut_short_and_stand_below_in_full() -> None:
    columns = (("name", "name", "s"), ("by", "by", "s"), ("number", "number", "d"))
    records = [
        {"name": "n" * 128, "by": "b" * 70, "number": 12345678, "text": "why"},
        {"name": "short", "by": "b" * 20, "number": 1, "text": ""},
    ]
    lines = format_annotated(columns, records, "text").splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[1].split()[0].endswith("n\N{HORIZONTAL ELLIPSIS}")
    said = "".join(line.strip() for line in lines)
    assert all(name in said for name in ("n" * 128, "b" * 70, "why"))
    assert lines[-1].split() == ["short", "b" * 20, "1"]
    for number in range(1, 200):
        records[0]["name"], records[1]["by"] = "n" * number, "b" * (200 - number)
        assert max(map(len, format_annotated(columns, records, "text").splitlines())) <= 100


def test_sums_of_energy_records_fit_100_columns() -> None:
    submission = Submission(slurm_job_id="1" * 200, user="u" * 256, project="p" * 200)
    record = EnergyRecord(
        job_id="j" * 128,
        began_at="2026-11-27T00:00:00+00:00",
        ended_at="2026-11-27T01:00:00+00:00",
        is_complete=False,
        reason=LONG,
        submission=submission,
        framework="deepspeed",
        gpu_model="A100",
        is_simulated=True,
        num_gpus=1,
        num_iterations=9,
        time_s=1.0,
        energy_j=1e9,
        without_plan_j=1e9,
        under_plan_j=0.0,
        num_unmeasured=0,
        saved_j=1e8,
        saved_low_j=1e8,
        saved_high_j=1.2e8,
        lost_s=1.0,
        lowest_clock_mhz=900,
        highest_clock_mhz=1410,
        num_stragglers=0,
        gpus=(),
    )
    for by in Group:
        assert max(map(len, table_text([record], by).splitlines())) <= 100
