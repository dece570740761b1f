"""Real Megatron-LM with ``--enable-perseus`` on simulated GPUs: five layouts from baseline to report."""

import json
import os
import signal
from collections import defaultdict
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from megatron_loops import (
    CONSTANTS_S,
    CONTEXT_PARALLEL,
    NEWER,
    NUM_MICROBATCHES,
    OLDER,
    SCRIPT,
    SEQUENCE_LENGTH,
    TIMES,
    run_in,
    saved_profile,
)

from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, Instruction
from perseus_dist.planning.schedule.schedule import Schedule, interleaved, one_f_one_b, overlapped
from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report
from perseus_dist.runlog.accounting.record_files import records_in
from perseus_dist.runlog.files import read_run
from perseus_dist.runlog.ranks import RankTimeline
from perseus_dist.simulation.frameworks.megatron_run import MegatronLayout, MegatronRun
from perseus_dist.simulation.frameworks.training_job import running_job

STARTED_S = 300.0
"""Until a job is under its plan; most of it is imports, on a machine that does other things too."""

LONG = 5.0
"""Times the usual kernels, beside which the experts' real work on a shared machine does not count."""

TRACED_SCRIPT = f"""
import os, runpy
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter


def one_line(span):
    return span.to_json(indent=None) + os.linesep


if os.environ["RANK"] == "1":
    file = Path(__file__).with_name("spans.jsonl").open("w")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=file, formatter=one_line)))
else:
    provider = trace.NoOpTracerProvider()
trace.set_tracer_provider(provider)
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


def promised(layout: MegatronLayout) -> Schedule:
    if layout.num_chunks > 1:
        schedule = interleaved(pp=layout.pp_size, microbatches=layout.num_microbatches, chunks=layout.num_chunks)
        return overlapped(schedule) if layout.ep_size > 1 and layout.is_ep_overlapped else schedule
    return one_f_one_b(pp=layout.pp_size, microbatches=layout.num_microbatches)


def check_orders(run: MegatronRun, timelines: dict[int, RankTimeline]) -> None:
    """What was recorded of every rank is what the planner was told."""
    schedule = promised(run.layout)
    for rank, timeline in timelines.items():
        order = list(schedule.ranks[timeline.pp_rank])
        order += [Instruction(timeline.pp_rank, kind, NO_MICROBATCH) for kind in CONSTANTS_S]
        assert any(iteration.is_planned for iteration in timeline.iterations), rank
        for iteration in timeline.iterations:
            ran = [
                Instruction(kept.chunk * run.layout.pp_size + timeline.pp_rank, kept.kind, kept.microbatch)
                for kept in iteration.runs
            ]
            assert ran == order


def check_tensor_parallel_clocks(timelines: dict[int, RankTimeline]) -> None:
    """The ranks of a tensor-parallel group are given the same clocks for the same instructions."""
    groups = defaultdict(list)
    for timeline in timelines.values():
        planned = {kept.iteration: kept for kept in timeline.iterations if kept.is_planned}
        groups[timeline.pp_rank, timeline.dp_rank].append(planned)
    for first, *others in groups.values():
        for other in others:
            common = first.keys() & other.keys()
            assert common
            for iteration in common:
                assert first[iteration].planned_clocks_mhz == other[iteration].planned_clocks_mhz
                # 0: its agent, on a busy machine, has not asked for a clock yet
                requested = zip(first[iteration].runs, other[iteration].runs, strict=True)
                pairs = [(one.requested_mhz, peer.requested_mhz) for one, peer in requested]
                assert all(mhz == peer_mhz for mhz, peer_mhz in pairs if mhz and peer_mhz), pairs


def check_work(run: MegatronRun) -> None:
    """Every iteration of every rank says how much it was, and how long Megatron's own iterator took."""
    # Once, however many chunks they pass, and of all that one node computes.
    num_tokens = SEQUENCE_LENGTH * NUM_MICROBATCHES * run.layout.ep_size
    for rank in range(run.num_ranks):
        lines = (run.folder / f"rank-{rank}.jsonl").read_text().splitlines()
        iterations = [json.loads(line) for line in lines]
        assert {iteration["tokens"] for iteration in iterations} == {num_tokens}
        assert all(0 < iteration["input_wait_s"] < iteration["time_s"] for iteration in iterations)


def check_trained(run: MegatronRun, num_locked: int, *, least_predicted: float) -> None:
    assert num_locked == 0
    log = (run.folder / "training.log").read_text()
    report = build_report(run.folder)
    assert report.is_planned, f"{report.job.reason}\n{log[-3000:]}"
    assert report.baseline.num_iterations >= 2  # five, or those of the probes that found it slow
    assert report.predicted_saving_percent is not None
    assert report.predicted_saving_percent > least_predicted
    assert report.saving_percent is not None
    assert report.saving_percent > 1  # a machine that does other things too makes waiting of it
    files = read_run(run.folder)
    timelines = dict(files.timelines)
    assert len(timelines) == run.num_ranks
    check_orders(run, timelines)
    check_work(run)
    if run.layout.tp_size > 1:
        check_tensor_parallel_clocks(timelines)
    document = json.loads((run.folder / "report.json").read_text())  # which rank 0 has made as it ended
    assert document["simulated_gpus"] is True
    assert document["phase"] == "done"  # every rank has said goodbye
    (record,) = records_in(run.folder)
    assert record.is_complete, record.reason
    assert record.num_gpus == run.num_ranks
    # Those before the ranks are connected are not seen.
    assert run.num_steps / 2 < record.num_iterations <= run.num_steps
    assert all(gpu.energy_j for gpu in record.gpus)
    run.train_without()
    assert losses_equal(run.losses, run.reference_losses)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        pytest.param("PP2 x TP2", NEWER, marks=pytest.mark.stress),
        pytest.param("PP4", OLDER, marks=pytest.mark.soak),
        pytest.param("PP4 V2", OLDER, marks=pytest.mark.soak),
        pytest.param("PP2 x DP2", OLDER, marks=pytest.mark.soak),
    ],
)
def test_a_layout_trains_under_its_plan(name: str, version: str, tmp_path: Path) -> None:
    run = run_in(tmp_path, name, num_steps=42, version=version)
    run = replace(run, perseus_options=saved_profile(run))
    check_trained(run, run.train(), least_predicted=4)


@pytest.mark.parametrize(
    ("name", "version", "graph", "num_eager"),
    [
        pytest.param("PP2 x TP2", NEWER, ("full_iteration",), 1, marks=pytest.mark.stress),
        pytest.param(
            *("PP2 V2, overlapped", OLDER, ("local", "--cuda-graph-scope", "full_iteration"), 60),
            marks=pytest.mark.soak,
        ),
    ],
)
def test_iterations_run_as_cuda_graphs(
    name: str, version: str, graph: tuple[str, ...], num_eager: int, tmp_path: Path
) -> None:
    """With a saved profile, or one that is measured in eager iterations; a stand-in runs what a graph would.

    On two ranks: that a tensor-parallel group has the same clocks is another test's business.
    """
    run = run_in(tmp_path, name, num_steps=num_eager + 45, version=version)
    run = replace(run, layout=replace(run.layout, tp_size=1))
    options = ("--cuda-graph-impl", *graph, "--cuda-graph-warmup-steps", str(num_eager))
    profile = saved_profile(run) if num_eager == 1 else ("--perseus-cache", str(tmp_path / "cache"))
    if num_eager == 1:  # as a sweep would have seen it: without, plans are by rank
        with Path(profile[1]).open("a") as file:
            file.writelines(f"{stage},clock_change,1410,0.012,\n" for stage in range(2))
    run = replace(
        run,
        options=(*options, "--no-check-for-nan-in-loss-and-grad"),
        perseus_options=("--perseus-target", "slowdown=1.05", *profile),
    )
    assert run.train() == 0
    report = build_report(run.folder)
    assert report.is_planned, report.job.reason
    assert report.predicted_saving_percent is not None
    assert report.predicted_saving_percent > 10
    assert report.saving_percent is not None
    assert report.saving_percent > 5  # a machine that does other things too makes waiting of it
    log = (run.folder / "training.log").read_text()
    assert "perseus: clocks stay" not in log
    assert "each rank and phase has one clock" in log
    run.train_without()
    assert losses_equal(run.losses, run.reference_losses)


@pytest.mark.soak
def test_ranks_that_share_sequences_are_one_node(tmp_path: Path) -> None:
    """Context parallelism, with all-to-alls within each forward and backward."""
    run = run_in(tmp_path, "PP2 x TP2", num_steps=42)
    layout = replace(run.layout, tp_size=1, cp_size=2)
    run = replace(run, script=CONTEXT_PARALLEL, layout=layout, perseus_options=saved_profile(run))
    check_trained(run, run.train(), least_predicted=4)
    timelines = dict(read_run(run.folder).timelines)
    assert {(line.pp_rank, line.dp_rank) for line in timelines.values()} == {(0, 0), (1, 0)}
    check_tensor_parallel_clocks(timelines)


@pytest.mark.soak
def test_ranks_that_share_experts_are_one_node(tmp_path: Path) -> None:
    """Expert parallelism, with all-to-alls within each forward and backward."""
    run = run_in(tmp_path, "PP2 x DP2", num_steps=42)
    layout = replace(run.layout, ep_size=2, is_ep_overlapped=False)
    run = replace(run, layout=layout, forward_s=LONG * TIMES.forward_s, backward_s=LONG * TIMES.backward_s)
    run = replace(run, perseus_options=saved_profile(run))
    check_trained(run, run.train(), least_predicted=4)
    timelines = dict(read_run(run.folder).timelines)
    assert {(line.pp_rank, line.dp_rank) for line in timelines.values()} == {(0, 0), (1, 0)}
    check_tensor_parallel_clocks(timelines)


@pytest.mark.soak
def test_a_forward_and_a_backward_that_run_as_one_are_measured_and_planned(tmp_path: Path) -> None:
    run = run_in(tmp_path, "PP2 x DP2", num_steps=85)
    layout = replace(run.layout, num_chunks=2, ep_size=2)
    run = replace(run, layout=layout, forward_s=LONG * TIMES.forward_s, backward_s=LONG * TIMES.backward_s)
    check_trained(run, run.train(), least_predicted=3)
    assert ",forward_backward," in (tmp_path / "profile.csv").read_text()


@pytest.mark.soak
def test_a_batch_that_grows_is_planned_from_the_profile_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSEUS_CACHE", str(tmp_path / "cache"))
    run = run_in(tmp_path, "PP2 x DP2", num_steps=46)
    run = replace(
        run,
        layout=replace(run.layout, dp_size=1, num_microbatches=8),
        length=("--rampup-batch-size", "4", "4", "120", "--train-samples", "248"),
    )
    run = replace(run, perseus_options=saved_profile(run))
    assert run.train() == 0
    log = (tmp_path / "training.log").read_text()
    assert log.count(" enforcing: table ") >= 2, log[-3000:]
    assert log.count("plan and baseline begin anew, the profile is kept") == 1
    assert "sweeping clocks" not in log
    lines = (tmp_path / "rank-0.jsonl").read_text().splitlines()
    iterations = [json.loads(line) for line in lines]  # of the run at the larger size
    assert {iteration["tokens"] for iteration in iterations} == {8 * SEQUENCE_LENGTH}
    planned = [iteration["iteration"] for iteration in iterations if iteration["point"] >= 0]
    assert planned[0] - iterations[0]["iteration"] <= 10  # 4 where nothing else computes
    run.train_without()
    assert losses_equal(run.losses, run.reference_losses)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[MegatronRun, int, list[dict[str, Any]]]:
    """A job without a profile, how many clocks it left locked, and the spans that its last rank has exported."""
    folder = tmp_path_factory.mktemp("swept")
    run = run_in(folder, "PP2 V2, overlapped", num_steps=65)
    if find_spec("opentelemetry") is None:
        return run, run.train(), []
    script = folder / "traced.py"
    script.write_text(TRACED_SCRIPT)
    run = replace(run, script=script)
    num_locked = run.train()
    return run, num_locked, [json.loads(line) for line in (folder / "spans.jsonl").read_text().splitlines()]


@pytest.mark.stress
def test_a_job_is_swept_where_there_is_no_profile(swept: tuple[MegatronRun, int, list[dict[str, Any]]]) -> None:
    run, num_locked, _ = swept
    check_trained(run, num_locked, least_predicted=3)
    assert (run.folder / "profile.csv").stat().st_size > 1000


@pytest.mark.stress
def test_the_rank_that_exports_tells_of_the_whole_job(swept: tuple[MegatronRun, int, list[dict[str, Any]]]) -> None:
    """The last rank alone exports, as Megatron's own telemetry has it."""
    run, _, exported = swept
    if not exported:
        pytest.skip("OpenTelemetry's SDK is not installed")
    first, *spans = exported
    assert first["name"] == "perseus.job"
    job = json.loads((run.folder / "job.json").read_text())
    attributes = [span["attributes"] for span in exported]
    assert {one["perseus.job"] for one in attributes} == {job["job_id"]}
    names = [span["name"] for span in spans]
    assert names[0] == "perseus.baseline"
    plan = attributes[1 + names.index("perseus.plan")]
    assert (plan["perseus.rank"], plan["perseus.target"]) == (1, "t_min")
    assert plan["perseus.table_revision"] >= 1  # 2 where a busy machine learns of transfers before it is followed
    assert plan["perseus.predicted_saving"] > 0.02


@pytest.mark.soak
def test_whoever_is_killed_clocks_are_unlocked(tmp_path: Path) -> None:
    run = run_in(tmp_path, "PP2 V2, overlapped", num_steps=5000)
    with running_job(replace(run, perseus_options=saved_profile(run))) as job:
        job.wait_until(lambda: job.phase() == "enforcing" and len(job.locked()) == 2, STARTED_S)
        os.kill(job.pid_of_planner(), signal.SIGKILL)
        job.wait_until(lambda: not job.locked(), 30.0)
        job.wait_until(lambda: len(job.locked()) == 2, 180.0)  # the planner is back, and so is the plan

        os.kill(job.pid_of_agent(1), signal.SIGKILL)
        job.wait_until(lambda: 1 not in job.locked(), 30.0)
        num_steps = job.num_steps()
        job.wait_until(lambda: job.num_steps() > num_steps + 3, 180.0)
        assert job.process.poll() is None
        job.wait_until(lambda: len(job.locked()) == 2, 180.0)  # under the agent that the trainer has started since

        os.kill(job.pid_of_rank(1), signal.SIGKILL)  # the job ends as it would without
        job.wait_until(lambda: not job.locked(), 30.0)
        job.wait_until(lambda: job.process.poll() is not None, 180.0)
        assert job.process.returncode != 0
