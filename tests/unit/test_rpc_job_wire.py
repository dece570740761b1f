"""What operators are told and say: what goes in comes out, what is wrong is refused by name."""

from dataclasses import replace
from math import inf, nan

import pytest

from perseus_dist.messages.job_status import (
    JobEvent,
    JobStatus,
    MeasuredIterations,
    PipelineStatus,
    Straggler,
    StragglerVerdict,
)
from perseus_dist.messages.terms import Target
from perseus_dist.planner.service.operator_wire import straggler_reported
from perseus_dist.rpc import limits
from perseus_dist.rpc.job_status_wire import decode_job_status, status_to_wire
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker, InvalidMessageError

VERDICT = StragglerVerdict(
    rank=3,
    pp_rank=1,
    dp_rank=1,
    degree=1.25,
    low=1.2,
    high=1.31,
    cause="thermal",
    age_s=12.5,
    is_whole_pipeline=False,
    is_predicted=True,
    is_flapping=False,
    is_acted_upon=True,
    is_muted=False,
    sentence="rank 3 is slower than its likes by 25 %",
)
SEEN = JobEvent(
    sequence=7,
    kind="verdict",
    age_s=3.0,
    iteration=41,
    sentence="rank 3 is slower than its likes by 25 %",
    rank=3,
    dp_rank=1,
    degree=1.25,
    low=1.2,
    high=1.31,
    cause="thermal",
)
SWITCHED = JobEvent(
    sequence=8,
    kind="switch",
    age_s=2.9,
    iteration=41,
    sentence="the others wait for pipeline 1",
    effective_iteration=43,
    switch_revision=5,
    t_prime_s=2.9,
    points=(17, -1),
)
STATUS = JobStatus(
    job_id="job",
    phase="enforcing",
    reason="a plan is in force",
    num_ranks=4,
    pipelines=(
        PipelineStatus(
            dp_rank=0,
            attached_ranks=2,
            iteration=41,
            time_s=2.9,
            energy_j=800.0,
            table_revision=1,
            point=17,
            planned_time_s=2.8,
            planned_energy_j=790.0,
            pipeline_time_s=2.7,
            is_waiting=True,
        ),
    ),
    table_revision=1,
    switch_revision=5,
    target=Target(),
    stragglers=(Straggler(straggler_id="rack7", degree=1.0, dp_rank=1),),
    fastest_s=2.4,
    t_star_s=3.4,
    baseline=MeasuredIterations(),
    enforced=MeasuredIterations(),
    predicted_saving=0.1,
    predicted_saving_low=-0.02,
    predicted_saving_high=0.12,
    profiled_clocks=9,
    messages=100,
    missed_clocks=0,
    lost_boundaries=0,
    troubles=(),
    verdicts=(VERDICT, replace(VERDICT, rank=2, is_muted=True, is_whole_pipeline=True, is_predicted=False)),
    t_prime_s=2.9,
    saved_j=-12.5,
    refused_reports=3,
    events=(SEEN, SWITCHED),
)


def told(status: JobStatus) -> JobStatus:
    return decode_job_status(status_to_wire(status).SerializeToString())


def test_a_status_comes_out_as_it_went_in() -> None:
    assert told(STATUS) == STATUS


def test_of_many_verdicts_the_worst_are_told_and_of_many_events_the_newest() -> None:
    verdicts = tuple(replace(VERDICT, rank=rank, degree=1.1 + rank % 100 / 100) for rank in range(1000))
    events = tuple(replace(SEEN, sequence=sequence) for sequence in range(1, 201))
    status = told(replace(STATUS, verdicts=verdicts, events=events))
    assert len(status.verdicts) == limits.MAX_VERDICTS
    assert min(one.degree for one in status.verdicts) >= 1.84
    assert [event.sequence for event in status.events] == list(range(137, 201))


def test_a_degree_of_which_little_is_known_is_told_as_far_as_the_wire_goes() -> None:
    assert told(replace(STATUS, verdicts=(replace(VERDICT, high=1e9),))).verdicts[0].high == limits.MAX_SLOWDOWN


def test_what_is_older_than_the_wire_goes_hides_no_status() -> None:
    """A planner that has run for four months has events, and may have verdicts, that are as old."""
    old_s = 2 * limits.MAX_SECONDS
    status = told(replace(STATUS, verdicts=(replace(VERDICT, age_s=old_s),), events=(replace(SEEN, age_s=old_s),)))
    assert (status.verdicts[0].age_s, status.events[0].age_s) == (limits.MAX_SECONDS, limits.MAX_SECONDS)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"verdicts": (replace(VERDICT, degree=nan),)}, "verdicts[0].degree"),
        ({"predicted_saving_low": nan}, "predicted_saving_low"),
        ({"predicted_saving_high": 1.5}, "predicted_saving_high"),
        ({"verdicts": (VERDICT, replace(VERDICT, low=-1.0))}, "verdicts[1].low"),
        ({"verdicts": (replace(VERDICT, age_s=-1.0),)}, "verdicts[0].age_s"),
        ({"verdicts": (replace(VERDICT, rank=-1),)}, "verdicts[0].rank"),
        ({"verdicts": (replace(VERDICT, cause="\x1b[31m"),)}, "verdicts[0].cause"),
        ({"events": (replace(SEEN, sequence=0),)}, "events[0].sequence"),
        ({"events": (replace(SEEN, iteration=-2),)}, "events[0].iteration"),
        ({"events": (replace(SWITCHED, t_prime_s=inf),)}, "events[0].t_prime_s"),
        ({"events": (replace(SWITCHED, points=(-2,)),)}, "events[0].points[0]"),
        ({"t_prime_s": nan}, "t_prime_s"),
        ({"saved_j": inf}, "saved_j"),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        told(replace(STATUS, **changes))  # type: ignore[arg-type]
    assert refused.value.violations[0].field == field


@pytest.mark.parametrize("field", ["verdicts", "events"])
def test_more_than_a_status_may_hold_is_refused(field: str) -> None:
    wire = status_to_wire(STATUS)
    getattr(wire, field).extend([getattr(wire, field)[0]] * 300)
    with pytest.raises(InvalidMessageError, match=f"{field}: '302 of them' was seen, expected at most"):
        decode_job_status(wire.SerializeToString())


@pytest.mark.parametrize("degree", [1.0, 1.25, 100.0])
def test_a_report_says_how_slow_a_pipeline_is_or_that_it_is_not(degree: float) -> None:
    check = Checker()
    event = straggler_reported(check, report(degree))
    check.finish()
    assert event.degree == degree


@pytest.mark.parametrize("degree", [0.99, 0.0, -1.0, 100.1, nan, inf])
def test_a_degree_that_no_pipeline_can_have_is_refused(degree: float) -> None:
    check = Checker()
    straggler_reported(check, report(degree))
    with pytest.raises(InvalidMessageError, match=r"straggler\.degree: .* expected a finite number from 1 to 100"):
        check.finish()


def report(degree: float) -> pb.ReportStragglerRequest:
    return pb.ReportStragglerRequest(job_id="job", straggler=pb.StragglerReport(id="rack7", degree=degree, dp_rank=1))
