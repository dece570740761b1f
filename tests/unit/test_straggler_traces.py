"""The detector's bars on two production traces in which nobody straggles, and on noise drawn after them."""

import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perseus_dist.straggler.detector import Detector, Judgement
from perseus_dist.straggler.evidence.observation import GpuObservation, IterationObservation
from perseus_dist.straggler.layout import Layout, RankCoords
from perseus_dist.units import FloatArray

KINDS = ("F", "B")
MAX_MHZ = 1410
NUM_BEFORE, NUM_SLOW, NUM_AFTER = 24, 10, 4
THROTTLED = GpuObservation(requested_mhz=MAX_MHZ, observed_mhz=1365, event_reasons=0x20, temperature_c=86.0)


@dataclass(frozen=True)
class Trace:
    """Logarithms over the medians of stage and kind, and of pipelines."""

    cells: FloatArray  # (num_steps, dp_size, pp_size, num_kinds)
    pipelines: FloatArray  # (num_steps, dp_size)


@pytest.fixture(scope="session")
def traces(shared_data: Path) -> dict[str, Trace]:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow reads the traces: pip install pyarrow")
    return {name: read_trace(parquet, shared_data / "straggler_traces" / f"{name}.parquet") for name in ("SE", "ST")}


def read_trace(parquet: Any, path: Path) -> Trace:
    if not path.is_file():
        pytest.skip(f"no {path.name} in ../shared/data/straggler_traces")
    names = ["dp_rank", "stage", "step", "start_ts", "duration", "optype"]
    table = parquet.read_table(path, columns=names)
    ops = np.array(table["optype"].to_pylist())
    is_computing = np.isin(ops, ("forward-compute", "backward-compute"))
    dp, stage, step, start, duration = (table[name].to_numpy()[is_computing].astype(float) for name in names[:5])
    place = [
        np.unique(axis, return_inverse=True)[1] for axis in (step, dp, stage, ops[is_computing] == "backward-compute")
    ]
    shape = tuple(1 + int(axis.max()) for axis in place)
    sums, begins, ends = np.zeros(shape), np.full(shape[:2], np.inf), np.zeros(shape[:2])
    np.add.at(sums, tuple(place), duration)
    np.minimum.at(begins, tuple(place[:2]), start)
    np.maximum.at(ends, tuple(place[:2]), start + duration)
    cells, pipelines = np.log(sums), np.log(ends - begins)
    return Trace(cells=cells - np.median(cells, axis=(0, 1)), pipelines=pipelines - np.median(pipelines))


def detector(dp_size: int, pp_size: int) -> Detector:
    return Detector(Layout.of([RankCoords(pp_rank=s, dp_rank=d) for d in range(dp_size) for s in range(pp_size)]))


def tell(told: Detector, iteration: int, cells: FloatArray, pipelines: FloatArray) -> Judgement:
    times_s = np.repeat(np.exp(pipelines), cells.shape[1]).tolist()
    for rank, ratios in enumerate(np.exp(cells.reshape(-1, len(KINDS))).tolist()):
        seen = IterationObservation(
            iteration=iteration,
            time_ratios=tuple(ratios),
            requested_mhz=(MAX_MHZ, MAX_MHZ),
            pipeline_time_s=times_s[rank],
        )
        assert told.observe(rank, seen, float(iteration)) == ""
    return told.judge(iteration + 0.5)


@pytest.mark.parametrize("name", ["SE", "ST"])
def test_nobody_straggles_in_the_traces(traces: dict[str, Trace], name: str) -> None:
    trace = traces[name]
    rng = np.random.default_rng(0)
    num_steps, dp_size, pp_size, _ = trace.cells.shape
    for order in (np.arange(num_steps), np.arange(num_steps)[::-1], *(rng.permutation(num_steps) for _ in range(2))):
        told = detector(dp_size, pp_size)
        for number, step in enumerate(np.tile(order, 2).tolist()):
            assert not tell(told, number, trace.cells[step], trace.pipelines[step]).verdicts


@pytest.mark.parametrize(
    ("name", "degree", "within", "recall", "nvml", "num_trials"),
    [
        ("ST", 1.10, 5, 0.99, False, 16),
        ("ST", 1.05, 10, 0.90, False, 16),
        ("SE", 1.10, 10, 0.80, True, 6),
        ("SE", 1.10, 10, 0.80, False, 6),  # the other stages tell unequal work from a slow machine
    ],
)
def test_recall_delay_degree_and_recovery(
    traces: dict[str, Trace], name: str, degree: float, within: int, recall: float, num_trials: int, *, nvml: bool
) -> None:
    trace = traces[name]
    num_steps, dp_size, pp_size, _ = trace.cells.shape
    found, recovered = [], []
    for seed in range(num_trials):
        rng = np.random.default_rng(seed)
        order = np.concatenate([rng.permutation(num_steps) for _ in range(2)])
        slow = int(rng.integers(dp_size * pp_size))
        told = detector(dp_size, pp_size)
        first, free = None, None
        for t in range(NUM_BEFORE + NUM_SLOW + NUM_AFTER):
            cells = trace.cells[order[t]].copy()
            is_slow = NUM_BEFORE <= t < NUM_BEFORE + NUM_SLOW
            if is_slow:
                cells[divmod(slow, pp_size)] += np.log(degree)
                if nvml:
                    assert told.observe_gpu(slow, THROTTLED, float(t)) == ""
            verdicts = tell(told, t, cells, trace.pipelines[order[t]]).verdicts
            assert {verdict.rank for verdict in verdicts} <= {slow}
            if is_slow and first is None and any(verdict.is_acted_upon for verdict in verdicts):
                first = t - NUM_BEFORE + 1
            if t == NUM_BEFORE + NUM_SLOW - 1 and verdicts:
                assert verdicts[0].degree.low <= degree + 0.01
                assert degree - 0.01 <= verdicts[0].degree.high
            if t >= NUM_BEFORE + NUM_SLOW and not verdicts and free is None:
                free = t - NUM_BEFORE - NUM_SLOW + 1
        found.append(first is not None and first <= within)
        recovered.append(free is not None and free <= 3)
    assert np.mean(found) >= recall
    assert np.mean(recovered) >= 0.9
    if degree >= 1.1:
        assert all(recovered)


@pytest.mark.parametrize(("std_of_work", "std_of_rank"), [(0.12, 0.008), (0.0, 0.136), (0.003, 0.006)])
def test_nobody_straggles_in_drawn_noise(std_of_work: float, std_of_rank: float) -> None:
    """Unequal work that a pipeline's stages share, as in SE; as noisy, but each rank alone; quiet, as ST."""
    rng = np.random.default_rng(0)
    dp_size, pp_size = 128, 2
    told = detector(dp_size, pp_size)
    offsets = rng.normal(0, 0.005, (dp_size, pp_size, 1))
    left = np.zeros((dp_size, pp_size, len(KINDS)))
    for t in range(160):  # 40,960 worker-steps
        work = rng.standard_t(4, dp_size) * std_of_work / np.sqrt(2)
        left = 0.4 * left + np.sqrt(1 - 0.4**2) * rng.normal(0, std_of_rank, left.shape)
        cells = offsets + left + work[:, None, None] * np.array([1.0, 1.6])
        assert not tell(told, t, cells, 1.2 * work + rng.normal(0, 0.02, dp_size)).verdicts


def test_memory_is_bounded() -> None:
    rng = np.random.default_rng(0)
    told = detector(8, 2)
    held = []
    tracemalloc.start()
    try:
        for t in range(120):
            tell(told, t, rng.normal(0, 0.01, (8, 2, len(KINDS))), np.zeros(8))
            if t in (59, 119):
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[1] - held[0] < 20_000
