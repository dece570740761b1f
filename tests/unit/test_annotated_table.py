"""Tables of operators' commands fit 100 columns, whatever a sentence says."""

from perseus_dist.cli.annotated_table import format_annotated
from perseus_dist.cli.jobs.job_view import format_jobs, format_pipelines
from perseus_dist.rpc.v1 import planner_pb2 as pb

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
    assert "the plan is likely to save 11.8 to 12.5%" in " ".join(format_jobs([status]).split())
