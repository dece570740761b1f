"""What ``doctor`` says of running jobs."""

from perseus_dist.cli.node.doctor.jobs import job_findings
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.rpc.v1 import planner_pb2 as pb


def test_each_trouble_of_a_job_is_a_warning_with_its_remedy() -> None:
    slower = "iterations take 2.1 % longer than predicted"
    jobs = [pb.JobStatus(job_id="well"), pb.JobStatus(job_id="slow", troubles=[slower, "a link is slow"])]
    warning = Finding(
        level=Level.WARN, subject="job slow", what=slower, remedy="perseus-dist watch slow --planner node:50151"
    )
    found = list(job_findings(jobs, " --planner node:50151"))
    assert found[0] == warning
    assert [one.what for one in found] == [slower, "a link is slow"]
