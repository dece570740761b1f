"""Spans of whole jobs in virtual time, through OpenTelemetry's SDK: sweep, planning, plans, probes, a wait, a fall."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perseus_dist.agent.process.trainer_status import with_job
from perseus_dist.boundaries.agent_status import AgentStatus
from perseus_dist.messages.terms import Target
from perseus_dist.planner.lifecycle.events import StragglerCleared, StragglerReported, TargetSet
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, virtual_job
from perseus_dist.training.rank.phase_spans import PhaseSpans

JOB: dict[str, str | int | float] = {"perseus.job": "job", "perseus.rank": 1}


class TracedJob:
    """A virtual job whose trainer looks at its agent's status after each iteration."""

    def __init__(self, job: VirtualJob) -> None:
        self.job = job
        self.status = AgentStatus()
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        tracer = provider.get_tracer("perseus_dist")
        with tracer.start_as_current_span("megatron.train_step") as self.training_step:
            linked = self.training_step.get_span_context()
            self._spans = PhaseSpans(tracer, JOB, linked, job.machine.now_ns)

    def train(self, num: int) -> None:
        for _ in range(num):
            self.job.run_iteration()
            self.status = with_job(self.status, self.job.status)
            self._spans.record(self.status, self.job.machine.now_ns)

    def train_until(self, condition: Callable[[AgentStatus], bool]) -> None:
        for _ in range(1000):
            if condition(self.status):
                return
            self.train(1)
        raise AssertionError(self.status)

    def end(self) -> list[ReadableSpan]:
        """All spans of Perseus, as they were exported."""
        self._spans.close(self.job.machine.now_ns)
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith("perseus.")]


def simulated(num_pipelines: int) -> SimulatedJob:
    schedule = one_f_one_b(pp=2, microbatches=4)
    return SimulatedJob(schedule=schedule, num_pipelines=num_pipelines, num_iterations=500, imbalance=0.1)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, dict(event.attributes or {})) for event in span.events]


def follow_one_another(spans: list[ReadableSpan]) -> bool:
    return all(one.end_time == other.start_time for one, other in pairwise(spans))


def test_a_job_from_its_baseline_to_a_wait_for_a_straggler() -> None:
    with virtual_job(simulated(2), "a100", quick_plans=True) as job:
        run = TracedJob(job)
        run.train_until(lambda status: status.phase == "enforcing")
        run.train(20)
        job.planner.tell(TargetSet(target=Target(slowdown=1.1)))
        run.train(20)
        at_target = run.status
        job.planner.tell(StragglerReported(straggler_id="operator", degree=1.3, dp_rank=0))
        run.train(20)
        waiting = run.status
        job.planner.tell(StragglerCleared(straggler_id="operator"))
        run.train(3)
        first, *spans = run.end()

    assert (first.name, first.parent, attributes(first)) == ("perseus.job", None, JOB)
    assert first.start_time == first.end_time
    assert [link.context for link in first.links] == [run.training_step.get_span_context()]
    assert all(span.parent == first.get_span_context() for span in spans)
    assert all(attributes(span).items() >= JOB.items() for span in spans)

    waits = [span for span in spans if span.name == "perseus.straggler_wait"]
    phases = [span for span in spans if span not in waits]
    assert [span.name.removeprefix("perseus.") for span in phases] == [
        *("baseline", "sweep", "planning"),
        *["plan"] * 4,  # of T_min, of the target, of the wait, and of the target again
    ]
    assert follow_one_another(phases)
    plans = phases[3:]
    assert [attributes(plan)["perseus.switch_revision"] for plan in plans] == [1, 2, 3, 4]
    assert [attributes(plan)["perseus.target"] for plan in plans] == ["t_min", *["slowdown=1.1"] * 3]
    assert {attributes(plan)["perseus.table_revision"] for plan in plans} == {1}
    saved = attributes(plans[1])
    assert saved["perseus.predicted_saving"] == at_target.predicted_saving > 0.1
    assert saved["perseus.measured_saving"] == at_target.measured_saving
    assert saved["perseus.measured_saving"] == pytest.approx(saved["perseus.predicted_saving"], abs=0.02)
    assert events(plans[0])[0] == ("perseus.probe", {"perseus.probes": 1})

    (wait,) = waits
    assert (wait.start_time, wait.end_time) == (plans[2].start_time, plans[2].end_time)
    assert attributes(wait)["perseus.t_prime_s"] == waiting.t_prime_s > waiting.job_time_s
    assert (attributes(wait)["perseus.stragglers"], attributes(wait)["perseus.straggler_degree"]) == (1, 1.3)


def test_a_plan_that_is_given_up() -> None:
    with virtual_job(simulated(1), "a100", quick_plans=True) as job:
        run = TracedJob(job)
        run.train_until(lambda status: status.phase == "enforcing")
        run.train(20)
        job.slow_down(0, 1.3)
        run.train_until(lambda status: status.phase == "released")
        run.train_until(lambda status: status.phase == "enforcing")
        *_, given_up, release, plan = run.end()
    assert [given_up.name, release.name, plan.name] == ["perseus.plan", "perseus.release", "perseus.plan"]
    assert follow_one_another([given_up, release, plan])
    assert events(given_up)[-1] == ("perseus.fall", {"perseus.falls": 1})
    assert attributes(release)["perseus.predicted_saving"] == 0


def test_a_plan_that_stays_has_a_span_for_each_five_minutes() -> None:
    with virtual_job(simulated(1), "a100", quick_plans=True) as job:
        run = TracedJob(job)
        run.train_until(lambda status: status.phase == "enforcing")
        begin_ns = job.machine.now_ns
        run.train_until(lambda _: job.machine.now_ns - begin_ns > 320e9)
        *_, long, newest = run.end()
    assert [attributes(span)["perseus.switch_revision"] for span in (long, newest)] == [1, 1]
    assert follow_one_another([long, newest])
    assert long.end_time is not None
    assert long.start_time is not None
    assert long.end_time - long.start_time == pytest.approx(300e9, abs=3e9)
