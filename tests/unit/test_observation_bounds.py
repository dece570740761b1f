"""Observations at the bounds of what a rank can have seen: those within are taken, those just beyond refused."""

import math
from dataclasses import replace
from typing import Any

import pytest

from perseus_dist.straggler.evidence.observation import (
    GpuObservation,
    IterationObservation,
    refusal_of_gpu,
    refusal_of_iteration,
)

ITERATION = IterationObservation(iteration=3, time_ratios=(1.0, 1.0), requested_mhz=(1400, 1400))
GPU = GpuObservation(requested_mhz=1400, observed_mhz=1400)


@pytest.mark.parametrize(
    ("field", "within", "beyond"),
    [
        ("time_ratios", [(0.1, 1.0), (1.0, 10.0)], [(0.099, 1.0), (1.0, 10.1), (math.nan, 1.0), (1.0,), (1.0,) * 3]),
        ("requested_mhz", [(0, 100_000)], [(-1, 0), (0, 100_001), (0,), (0, 0, 0)]),
        ("iteration", [0, 2**53], [-1, 2**53 + 1]),
        ("pipeline_time_s", [0.0, 1e6], [-1e-9, 1e6 + 1, math.nan]),
        ("planned_time_s", [0.0, 1e6], [-1e-9, 1e6 + 1, math.nan]),
        ("tokens", [0.0, 1e18], [-1e-9, math.inf, math.nan]),
        ("input_wait_s", [None, 0.0, 1e6], [-1e-9, 1e6 + 1, math.nan]),
    ],
)
def test_an_iteration_is_taken_just_within_its_bounds(field: str, within: list[Any], beyond: list[Any]) -> None:
    refusals = {value: refusal_of_iteration(replace(ITERATION, **{field: value}), 2, 10.0) for value in within + beyond}
    assert [value for value in within if refusals[value]] == []
    assert [value for value in beyond if not refusals[value].startswith("saw ")] == []


@pytest.mark.parametrize(
    ("field", "within", "beyond"),
    [
        ("requested_mhz", [0, 100_000], [-1, 100_001]),
        ("observed_mhz", [0, 100_000], [-1, 100_001]),
        ("event_reasons", [0, 2**63 - 1], [-1, 2**63]),
        ("temperature_c", [-200.0, 200.0], [-200.1, 200.1, math.nan]),
        ("power_w", [0.0, 100_000.0], [-1e-9, 100_001.0, math.nan]),
        ("iteration", [-1, 2**53], [-2, 2**53 + 1]),
    ],
)
def test_a_reading_of_a_gpu_is_taken_just_within_its_bounds(field: str, within: list[Any], beyond: list[Any]) -> None:
    refusals = {value: refusal_of_gpu(replace(GPU, **{field: value})) for value in within + beyond}
    assert [value for value in within if refusals[value]] == []
    assert [value for value in beyond if not refusals[value].startswith("saw ")] == []
