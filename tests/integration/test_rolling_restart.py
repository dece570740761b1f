"""A planner that is restarted again and again under running jobs, on a database that 0.1.0 has written."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from load_jobs import PP_SIZE, load_jobs
from older_database import write_older_database
from planner_process import Planner, planner
from waiting import PATIENCE_S, wait_until

from perseus_dist.planner.store.migrations import SCHEMA_VERSION
from perseus_dist.planner.store.state_dir import DATABASE
from perseus_dist.rpc.connection import authorization
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

pytestmark = pytest.mark.stress

RUNNING = ("llama", "gpt")
NUM_RANKS = 2 * PP_SIZE


@contextmanager
def operator(running: Planner) -> Iterator[tuple[PlannerStub, Any]]:
    token = (running.folder / "state" / "operator-token").read_text().strip()
    with grpc.insecure_channel(running.address) as channel:
        yield PlannerStub(channel), authorization(token)  # type: ignore[no-untyped-call]


def jobs_of(running: Planner) -> dict[str, Any]:
    with operator(running) as (stub, metadata):
        jobs = stub.ListJobs(pb.ListJobsRequest(), timeout=PATIENCE_S, metadata=metadata).jobs
    return {job.job_id: job for job in jobs}


def are_all_attached(running: Planner) -> bool:
    jobs = jobs_of(running)
    return all(
        job_id in jobs and sum(one.attached_ranks for one in jobs[job_id].pipelines) == NUM_RANKS for job_id in RUNNING
    )


def has_gone_on(running: Planner, before: dict[str, Any]) -> bool:
    jobs = jobs_of(running)
    return all(jobs[name].pipelines[0].iteration > before[name].pipelines[0].iteration for name in RUNNING)


def test_running_jobs_lose_nothing_on_a_database_of_0_1_0(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / DATABASE).touch(mode=0o600)
    write_older_database(state / DATABASE)
    with ExitStack() as stack:
        with planner(tmp_path) as running:
            address = running.address
            old = {name: job for name, job in jobs_of(running).items() if name not in RUNNING}
            assert old["job"].phase == "enforcing"
            stack.enter_context(load_jobs(address, *RUNNING))
            wait_until(lambda: are_all_attached(running))
            wait_until(lambda: all(jobs_of(running)[name].phase == "enforcing" for name in RUNNING))
            with operator(running) as (stub, metadata):
                target = pb.SetTargetRequest(job_id="llama", target=pb.Target(slowdown=1.2))
                stub.SetTarget(target, timeout=PATIENCE_S, metadata=metadata)
                hall = pb.Budget(name="hall", watts=1e6, objective="total", guard_band=0.05)
                stub.SetBudget(pb.SetBudgetRequest(budget=hall), timeout=PATIENCE_S, metadata=metadata)
            before = jobs_of(running)
            assert running.end() == 0
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            with planner(tmp_path, "--bind", address) as running:
                restored = jobs_of(running)
                wait_until(lambda running=running: are_all_attached(running))  # type: ignore[misc]
                wait_until(lambda running=running, before=before: has_gone_on(running, before))  # type: ignore[misc]
                after = jobs_of(running)
                for name in RUNNING:
                    assert after[name].phase == "enforcing", after[name].reason
                    assert after[name].table_revision >= restored[name].table_revision >= before[name].table_revision
                    assert after[name].switch_revision >= before[name].switch_revision
                    assert after[name].target == before[name].target
                    assert after[name].profiled_clocks == before[name].profiled_clocks
                for name, job in old.items():
                    assert (restored[name].table_revision, restored[name].target) == (job.table_revision, job.target)
                with operator(running) as (stub, metadata):
                    (budget,) = stub.GetPolicy(pb.GetPolicyRequest(), timeout=PATIENCE_S, metadata=metadata).budgets
                assert budget.budget.name == "hall"
                before = after
                running.end(number)
    with closing(sqlite3.connect(state / DATABASE)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    with closing(sqlite3.connect(state / f"{DATABASE}.version-2")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (2,)
