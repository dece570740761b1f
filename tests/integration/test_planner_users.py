"""Two users and one planner on their node: whose jobs are whose, over every method of the service."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from planner_process import Planner, planner

ALICE, BOB = 65533, 65534
METHODS = ["Attach", "GetFrontier", "GetProfile", "SetTarget", "ReportStraggler", "ClearStraggler", "WatchJob"]
REFUSED, OPEN = "PERMISSION_DENIED", "open"

# Loads what it needs before it becomes the user, who may have no access to the interpreter's folders.
CALLER = """\
import json, os, sys, threading
import grpc
from perseus_dist.messages.from_agent import Attach
from perseus_dist.messages.terms import Gpu, Rank
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.codec import encode_agent_message
from perseus_dist.rpc.connection import ATTACH, authorization
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

uid, address, job, token, *methods = sys.argv[1:]
os.setuid(int(uid))
channel = grpc.insecure_channel(address)
stub, options = PlannerStub(channel), {"metadata": authorization(token), "timeout": 20}

def attach():
    rank = Rank(job_id=job, rank=0, pp_rank=0, dp_rank=0, tp_rank=0, pp_size=1, dp_size=1, tp_size=1,
                schedule_digest=one_f_one_b(pp=1, microbatches=2).digest())
    gpu = Gpu(uuid="GPU-1", name="A100", driver_version="570", clocks_mhz=(1410, 1200), control="clockd")
    message = encode_agent_message(Attach(rank=rank, gpu=gpu, incarnation=5, has_profile=False))
    answered = threading.Event()

    def messages():  # the end of the rank's messages is the end of the stream
        yield message
        answered.wait(20)

    answers = channel.stream_stream(ATTACH)(messages(), **options)
    try:
        return next(answers)
    finally:
        answered.set()

calls = {
    "Attach": attach,
    "ListJobs": lambda: [one.job_id for one in stub.ListJobs(pb.ListJobsRequest(), **options).jobs],
    "GetFrontier": lambda: stub.GetFrontier(pb.GetFrontierRequest(job_id=job), **options),
    "GetProfile": lambda: stub.GetProfile(pb.GetProfileRequest(job_id=job), **options),
    "SetTarget": lambda: stub.SetTarget(pb.SetTargetRequest(job_id=job, target=pb.Target(t_min=True)), **options),
    "ReportStraggler": lambda: stub.ReportStraggler(
        pb.ReportStragglerRequest(
            job_id=job, straggler=pb.StragglerReport(id="rack7", dp_rank=0, degree=1.2)), **options),
    "ClearStraggler": lambda: stub.ClearStraggler(
        pb.ClearStragglerRequest(job_id=job, id="rack7"), **options),
    "WatchJob": lambda: next(stub.WatchJob(pb.WatchJobRequest(job_id=job), **options)),
}
said = {}
for method in methods:
    try:
        answer = calls[method]()
        said[method] = answer if isinstance(answer, list) else "open"
    except grpc.RpcError as error:  # without a plan or a profile there is nothing to give, yet it is open
        code = error.code().name
        said[method] = "open" if code in ("FAILED_PRECONDITION", "NOT_FOUND") else code
print(json.dumps(said), flush=True)
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


def call(served: Planner, uid: int, job: str, token: str, *methods: str) -> dict[str, object]:
    command = [sys.executable, "-P", "-c", CALLER, str(uid), served.address, job, token, *methods]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answers: dict[str, object] = json.loads(done.stdout)
    return answers


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Planner]:
    with planner(tmp_path) as running:
        yield running


def test_a_job_is_its_users_without_any_token(served: Planner) -> None:
    assert call(served, ALICE, "llama", "", "Attach", "ListJobs") == {"Attach": OPEN, "ListJobs": ["llama"]}
    assert call(served, ALICE, "llama", "", *METHODS) == dict.fromkeys(METHODS, OPEN)
    for token in ("", "guessed"):
        answers = call(served, BOB, "llama", token, *METHODS, "ListJobs")
        assert answers == {**dict.fromkeys(METHODS, REFUSED), "ListJobs": []}
    operator = (served.folder / "state" / "operator-token").read_text().strip()
    assert call(served, BOB, "llama", operator, *METHODS) == dict.fromkeys(METHODS, OPEN)


def test_a_job_that_came_with_a_token_is_the_tokens(served: Planner) -> None:
    assert call(served, ALICE, "llama", "secret", "Attach") == {"Attach": OPEN}
    for uid, token in ((ALICE, ""), (BOB, ""), (BOB, "guessed")):
        answers = call(served, uid, "llama", token, *METHODS, "ListJobs")
        assert answers == {**dict.fromkeys(METHODS, REFUSED), "ListJobs": []}
    assert call(served, BOB, "llama", "secret", *METHODS) == dict.fromkeys(METHODS, OPEN)


def test_each_user_lists_their_own(served: Planner) -> None:
    call(served, ALICE, "llama", "", "Attach")
    call(served, BOB, "gpt", "", "Attach")
    assert call(served, ALICE, "llama", "", "ListJobs") == {"ListJobs": ["llama"]}
    assert call(served, BOB, "gpt", "", "ListJobs") == {"ListJobs": ["gpt"]}


def test_it_stays_so_over_a_restart_of_the_planner(tmp_path: Path) -> None:
    with planner(tmp_path) as served:
        call(served, ALICE, "llama", "", "Attach")
        assert served.end() == 0
    with planner(tmp_path) as served:
        assert call(served, BOB, "llama", "", *METHODS) == dict.fromkeys(METHODS, REFUSED)
        assert call(served, ALICE, "llama", "", *METHODS) == dict.fromkeys(METHODS, OPEN)


def test_the_command_says_whose_a_job_is(served: Planner) -> None:
    call(served, ALICE, "llama", "", "Attach")
    command = [sys.executable, "-P", "-m", "perseus_dist", "target", "llama", "--t-min", "--planner", served.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"perseus-dist: {served.address}: job llama is another user's; use a job name of your own, or the token that "
        "opens it, or the operator's"
    ]
