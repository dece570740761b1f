"""Spans of real Megatron-LM on simulated GPUs, whose last rank alone exports, as Megatron's own telemetry has it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from megatron_loops import SCRIPT, run_in, saved_profile

_TRACED_SCRIPT = f"""
import os, runpy, sys
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


@pytest.mark.stress
def test_the_rank_that_exports_tells_of_the_whole_job(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    script = tmp_path / "traced.py"
    script.write_text(_TRACED_SCRIPT)
    run = run_in(tmp_path, "PP2 V2, overlapped", num_steps=42)
    run = replace(run, script=script, perseus_options=saved_profile(run))
    assert run.train() == 0
    first, *spans = map(json.loads, (tmp_path / "spans.jsonl").read_text().splitlines())
    assert first["name"] == "perseus.job"
    job = json.loads((tmp_path / "job.json").read_text())
    attributes = [span["attributes"] for span in (first, *spans)]
    assert {one["perseus.job"] for one in attributes} == {job["job_id"]}
    names = [span["name"] for span in spans]
    assert names[0] == "perseus.baseline"
    plan = attributes[1 + names.index("perseus.plan")]
    assert (plan["perseus.rank"], plan["perseus.table_revision"], plan["perseus.target"]) == (1, 1, "t_min")
    assert plan["perseus.predicted_saving"] > 0.03
