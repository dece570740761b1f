"""Spans in a trainer's process: where a tracer provider is set, until the process ends, and nothing anywhere else."""

import json
import subprocess
import sys

import pytest

_PROGRAM = """
import json
import os
import sys
import threading

from perseus_dist.boundaries.agent_status import AgentStatus
from perseus_dist.training.rank import job_member  # which every adapter imports
from perseus_dist.training.rank.tracing import JobTracing, open_tracer

found = [open_tracer() is None and not any(name.startswith("opentelemetry") for name in sys.modules)]
if sys.argv[1] == "none":
    print(json.dumps(found))
    sys.exit()

from opentelemetry import trace

found.append(open_tracer() is None)  # nobody has set a provider
if sys.argv[1] == "no-op":
    trace.set_tracer_provider(trace.NoOpTracerProvider())
    found.append(open_tracer() is None)
    print(json.dumps(found))
    sys.exit()

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter


def one_line(span):
    return span.to_json(indent=None) + os.linesep


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(formatter=one_line)))
trace.set_tracer_provider(provider)
tracer = open_tracer()
statuses = iter([None, AgentStatus(), AgentStatus(phase="profiling", target="t_min")])
has_seen_all = threading.Event()


def read_status():
    status = next(statuses, None)
    if status is not None and status.phase:
        if sys.argv[1] == "failing":
            raise ValueError("the status cannot be read")
        has_seen_all.set()
    return status


with tracer.start_as_current_span("megatron.train_step"):
    tracing = JobTracing(tracer, job="gpt", rank=3, read_status=read_status)
if sys.argv[1] == "failing":
    tracing._thread.join()
    print("training goes on", file=sys.stderr)
else:
    has_seen_all.wait()
"""


def run(case: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM, case]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


def test_nothing_is_imported_where_nobody_uses_opentelemetry() -> None:
    assert json.loads(run("none").stdout) == [True]


def test_a_provider_that_does_nothing_gets_no_spans() -> None:
    pytest.importorskip("opentelemetry.sdk")
    assert json.loads(run("no-op").stdout) == [True, True, True]


def test_the_span_that_is_open_as_the_process_ends_is_exported() -> None:
    pytest.importorskip("opentelemetry.sdk")
    spans = {span["name"]: span for span in map(json.loads, run("traced").stdout.splitlines())}
    assert spans.keys() == {"megatron.train_step", "perseus.job", "perseus.sweep"}
    step, job, sweep = (spans[name] for name in ("megatron.train_step", "perseus.job", "perseus.sweep"))
    assert [link["context"]["span_id"] for link in job["links"]] == [step["context"]["span_id"]]
    assert sweep["parent_id"] == job["context"]["span_id"]
    assert sweep["attributes"].items() >= {"perseus.job": "gpt", "perseus.rank": 3, "perseus.target": "t_min"}.items()


def test_what_fails_ends_the_spans_alone() -> None:
    pytest.importorskip("opentelemetry.sdk")
    done = run("failing")
    assert "there are no more spans of this job: ValueError('the status cannot be read')" in done.stderr
    assert done.stderr.endswith("training goes on\n")
    assert {json.loads(line)["name"] for line in done.stdout.splitlines()} == {"megatron.train_step", "perseus.job"}
