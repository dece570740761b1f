"""The straggler detector on production traces and on noise drawn after them: false verdicts, recall, delay, cost.

    python benchmarks/straggler_detection.py FOLDER [--worker-steps 10000000] [--trials 200] [--only false] ...

FOLDER holds SE.parquet and ST.parquet (ByteDance-Seed/StragglerAnalysis); they need pyarrow.

- traces: both as they are. Nobody straggles in either: in SE sequences are of unequal length, in ST the last stage has
  twice the work.
- false: jobs of 1,024 and 4 ranks (SE), of 256 and 8 (ST), in which nobody straggles either, for so many worker-steps
  altogether. Noise is drawn in four ways: *resampled* takes whole pipelines' iterations from the trace; *fitted* is
  Gaussian with the trace's variances of pipelines and ranks and its correlation from one iteration to the next; *heavy*
  is the same with Student's t of 3 degrees of freedom; *alone* as well, with all of it in each rank by itself.
- recall: one rank becomes slower by 5, 10 or 20 % for 12 iterations, in the traces themselves (tiled, in another order
  each time) and in drawn noise; with and without NVML's word.
- cost: 4,096 ranks that report once a second, and what is kept of that in memory.
"""

import argparse
import importlib
import itertools
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measuring import conditions, print_table

from perseus_dist.straggler.detector import Detector, Judgement
from perseus_dist.straggler.evidence.observation import GpuObservation, IterationObservation
from perseus_dist.straggler.layout import Layout, RankCoords
from perseus_dist.units import FloatArray

PARTS = ("traces", "false", "recall", "cost")
NOISES = ("resampled", "fitted", "heavy", "alone")
KINDS = ("F", "B")
# Of each trace and number of pipelines the share of the worker-steps: many peers, and a single one.
FALSE_SHARES = {("SE", 512): 0.48, ("SE", 2): 0.01, ("ST", 64): 0.49, ("ST", 2): 0.02}
NUM_BEFORE, NUM_SLOW, NUM_AFTER = 40, 12, 8
COST_S = (60, 600)
CLOCK_MHZ, THROTTLED_MHZ = 1410, 1365  # so small a loss that NVML by itself predicts nothing
TRACE_HEADS = ("trace", "ranks", "steps", "false verdicts")
FALSE_HEADS = ("after", "noise", "ranks", "worker-steps", "false", "acted upon", "per 10^6", "processor time")
RECALL_HEADS = ("after", "noise", "slower", "NVML", "within 5", "within 10", "median", "over by", "degree", "wrong")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Logarithms of times over the medians of their stage and kind, and of whole pipelines over theirs.

    Attributes:
        cells: (num_steps, dp_size, pp_size, num_kinds).
        pipelines: (num_steps, dp_size).
    """

    cells: FloatArray
    pipelines: FloatArray


def read_trace(path: Path) -> Trace:
    """Sums over the microbatches of each step."""
    parquet = importlib.import_module("pyarrow.parquet")  # untyped, and wanted here alone
    columns = ["dp_rank", "stage", "step", "optype", "start_ts", "duration"]
    table = parquet.read_table(path, columns=columns)
    ops = np.array(table["optype"].to_pylist())
    is_computing = np.isin(ops, ("forward-compute", "backward-compute"))
    dp, stage, step, start, duration = (table[name].to_numpy()[is_computing] for name in columns if name != "optype")
    kind = (ops[is_computing] == "backward-compute").astype(int)
    step = np.unique(step, return_inverse=True)[1]
    shape = (step.max() + 1, dp.max() + 1, stage.max() + 1, len(KINDS))
    sums, begins, ends = np.zeros(shape), np.full(shape[:2], np.inf), np.zeros(shape[:2])
    np.add.at(sums, (step, dp, stage, kind), duration.astype(np.float64))
    np.minimum.at(begins, (step, dp), start)
    np.maximum.at(ends, (step, dp), start + duration)
    cells, pipelines = np.log(sums), np.log(ends - begins)
    return Trace(cells=cells - np.median(cells, axis=(0, 1)), pipelines=pipelines - np.median(pipelines))


@dataclass(slots=True, kw_only=True)
class Drawn:
    """Noise that goes on for ever, one iteration at a time."""

    trace: Trace
    dp_size: int
    noise: str
    rng: np.random.Generator

    def iterations(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """(dp_size, pp_size, num_kinds) and (dp_size) logarithms."""
        cells, pipelines = self.trace.cells, self.trace.pipelines
        num_steps, num_dp, pp_size, _ = cells.shape
        job = np.median(cells, axis=1, keepdims=True)
        offsets = np.mean(cells - job, axis=0)
        usual = offsets[self.rng.integers(num_dp, size=self.dp_size)]
        left = cells - job - offsets
        work = left.mean(axis=(2, 3))
        slopes = np.einsum("td,tdsk->sk", work, left) / np.sum(work**2)
        rest = left - work[:, :, None, None] * slopes
        kept = float(np.clip(np.sum(left[1:] * left[:-1]) / np.sum(left**2), 0, 0.9))
        late = pipelines - np.median(pipelines, axis=1, keepdims=True)
        late_alone = float(np.std(late - work * np.sum(work * late) / np.sum(work**2)))
        late_slope = float(np.sum(work * late) / np.sum(work**2))
        drawn_work, drawn_rest = np.zeros(self.dp_size), np.zeros((self.dp_size, pp_size, len(KINDS)))
        while True:
            t = self.rng.integers(num_steps, size=self.dp_size)
            d = self.rng.integers(num_dp, size=self.dp_size)
            if self.noise == "resampled":
                yield usual + left[t, d], late[t, d]
                continue
            fresh = np.sqrt(1 - kept**2)
            drawn_work = kept * drawn_work + fresh * self._scattered(drawn_work.shape, float(np.std(work)))
            drawn_rest = kept * drawn_rest + fresh * self._scattered(drawn_rest.shape, 1.0) * rest.std(axis=(0, 1))
            if self.noise == "alone":  # no pipeline has anything in common
                alone = self._scattered((self.dp_size, pp_size, 1), 1.0) * left.mean(axis=3).std(axis=(0, 1))[:, None]
                yield usual + alone + drawn_rest, self._scattered(drawn_work.shape, float(late.std()))
                continue
            scatter = self._scattered(drawn_work.shape, late_alone)
            yield usual + drawn_work[:, None, None] * slopes + drawn_rest, late_slope * drawn_work + scatter

    def _scattered(self, shape: tuple[int, ...], std: float) -> FloatArray:
        if self.noise in ("heavy", "alone"):
            heavy: FloatArray = std * np.clip(self.rng.standard_t(3, shape) / np.sqrt(3), -12, 12)
            return heavy
        return self.rng.normal(0, std, shape)


def detector(dp_size: int, pp_size: int) -> Detector:
    """Of a job without tensor parallelism, whose ranks are numbered pipeline by pipeline."""
    return Detector(
        Layout.of([RankCoords(pp_rank=s, dp_rank=d) for d in range(dp_size) for s in range(pp_size)], kinds=KINDS)
    )


def tell(told: Detector, iteration: int, cells: FloatArray, pipelines: FloatArray) -> Judgement:
    """All ranks report an iteration of 1 s."""
    ratios = np.exp(cells.reshape(-1, len(KINDS))).tolist()
    times_s = np.repeat(np.exp(pipelines), cells.shape[1]).tolist()
    for rank, (of_kinds, time_s) in enumerate(zip(ratios, times_s, strict=True)):
        seen = IterationObservation(
            iteration=iteration,
            time_ratios=tuple(of_kinds),
            requested_mhz=(CLOCK_MHZ,) * len(KINDS),
            pipeline_time_s=time_s,
        )
        refusal = told.observe(rank, seen, float(iteration))
        assert not refusal, refusal
    return told.judge(iteration + 0.5)


def traces_row(name: str, trace: Trace) -> Sequence[str]:
    """Verdicts on a trace as it is."""
    num_steps, dp_size, pp_size, _ = trace.cells.shape
    told = detector(dp_size, pp_size)
    judgements = [tell(told, t, trace.cells[t], trace.pipelines[t]) for t in range(num_steps)]
    raised = {(verdict.rank, verdict.since_s) for judgement in judgements for verdict in judgement.verdicts}
    return name, f"{dp_size * pp_size}", f"{num_steps}", f"{len(raised)}"


def false_row(name: str, trace: Trace, dp_size: int, noise: str, num_worker_steps: int) -> Sequence[str]:
    """Verdicts where nobody straggles."""
    pp_size = trace.cells.shape[2]
    num_ranks = dp_size * pp_size
    num_iterations, num_raised, num_acted_upon, began = 0, 0, 0, time.process_time()
    num_jobs = max(1, min(8, num_worker_steps // (num_ranks * 200)))
    for seed in range(num_jobs):
        told = detector(dp_size, pp_size)
        drawn = Drawn(trace=trace, dp_size=dp_size, noise=noise, rng=np.random.default_rng(seed)).iterations()
        known: set[tuple[int, float]] = set()
        for iteration in range(max(1, num_worker_steps // num_ranks // num_jobs)):
            judgement = tell(told, iteration, *next(drawn))
            num_iterations += 1
            for verdict in judgement.verdicts:
                if (verdict.rank, verdict.since_s) not in known:
                    known.add((verdict.rank, verdict.since_s))
                    num_raised += 1
                    num_acted_upon += verdict.is_acted_upon
    steps = num_iterations * num_ranks
    rate = 1e6 * num_raised / steps
    return (
        name,
        noise,
        f"{num_ranks}",
        f"{steps:.2g}",
        f"{num_raised}",
        f"{num_acted_upon}",
        f"{rate:.2f}",
        (f"{time.process_time() - began:.0f} s"),
    )


def recall_row(name: str, trace: Trace, noise: str, degree: float, trials: int, *, nvml: bool) -> Sequence[str]:
    """One straggler a job."""
    num_steps, dp_size, pp_size, _ = trace.cells.shape
    delays, recoveries, degrees, num_wrong = [], [], [], 0
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        told = detector(dp_size, pp_size)
        drawn = Drawn(trace=trace, dp_size=dp_size, noise=noise, rng=rng).iterations()
        order = np.concatenate([rng.permutation(num_steps) for _ in range(3)])
        slow = int(rng.integers(dp_size * pp_size))
        delay, recovery = None, None
        for t in range(NUM_BEFORE + NUM_SLOW + NUM_AFTER):
            cells, pipelines = (trace.cells[order[t]], trace.pipelines[order[t]]) if noise == "trace" else next(drawn)
            if is_slow := NUM_BEFORE <= t < NUM_BEFORE + NUM_SLOW:
                cells = cells.copy()
                cells[divmod(slow, pp_size)] += np.log(degree)
            if nvml:
                told.observe_gpu(slow, _reading(is_throttled=is_slow), float(t))
            verdicts = tell(told, t, cells, pipelines).verdicts
            num_wrong += sum(verdict.rank != slow for verdict in verdicts)
            mine = [verdict for verdict in verdicts if verdict.rank == slow and verdict.is_acted_upon]
            if is_slow and mine and delay is None:
                delay = t - NUM_BEFORE + 1
            if is_slow and mine:
                last = mine[0].degree.value
            if t >= NUM_BEFORE + NUM_SLOW and not mine and recovery is None:
                recovery = t - NUM_BEFORE - NUM_SLOW + 1
        if delay is not None:
            delays.append(delay)
            recoveries.append(recovery if recovery is not None else NUM_AFTER + 1)
            degrees.append(last)
    within = [sum(delay <= limit for delay in delays) / trials for limit in (5, 10)]
    return (
        name,
        noise,
        f"+{100 * (degree - 1):.0f} %",
        "yes" if nvml else "no",
        f"{within[0]:.2f}",
        f"{within[1]:.2f}",
        f"{np.median(delays):.0f}" if delays else "-",
        f"{max(recoveries)}" if recoveries else "-",
        f"{100 * (np.median(degrees) - 1):.1f} %" if degrees else "-",
        f"{num_wrong}",
    )


def _reading(*, is_throttled: bool) -> GpuObservation:
    """Heat, or nothing of note."""
    return GpuObservation(
        requested_mhz=CLOCK_MHZ,
        observed_mhz=THROTTLED_MHZ if is_throttled else CLOCK_MHZ,
        event_reasons=0x20 if is_throttled else 0,
        temperature_c=86.0 if is_throttled else 60.0,
    )


def cost_row(dp_size: int, pp_size: int) -> Sequence[str]:
    """Processor time of a second in which every rank reports an iteration and a reading; memory of the process."""
    resident = [resident_mib()]
    told, rng = detector(dp_size, pp_size), np.random.default_rng(0)
    num_ranks, spent_s = dp_size * pp_size, []
    for t in range(COST_S[-1]):
        ratios = np.exp(rng.normal(0, 0.01, (num_ranks, len(KINDS)))).tolist()
        clocks = (CLOCK_MHZ,) * len(KINDS)
        seen = [IterationObservation(iteration=t, time_ratios=tuple(r), requested_mhz=clocks) for r in ratios]
        reading = _reading(is_throttled=False)
        began = time.process_time()
        for rank, one in enumerate(seen):
            told.observe(rank, one, float(t))
            told.observe_gpu(rank, reading, float(t))
        told.judge(t + 0.5)
        spent_s.append(time.process_time() - began)
        if t + 1 in COST_S:
            resident.append(resident_mib())
    of_a_core = (f"{100 * spent:.1f} %" for spent in (np.median(spent_s), max(spent_s)))
    return f"{num_ranks}", *of_a_core, *(f"{mib - resident[0]:.0f} MiB" for mib in resident[1:])


def resident_mib() -> float:
    """[MiB] of this process, in memory now."""
    num_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return num_pages * resource.getpagesize() / 2**20


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--worker-steps", type=int, default=10_000_000)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--only", choices=PARTS, action="append")
    asked = parser.parse_args()
    parts = asked.only or PARTS
    print(conditions())
    traces = {name: read_trace(asked.folder / f"{name}.parquet") for name in ("SE", "ST")}
    if "traces" in parts:
        print_table(TRACE_HEADS, (traces_row(name, trace) for name, trace in traces.items()))
        print()
    if "false" in parts:
        steps = {job: share * asked.worker_steps / len(NOISES) for job, share in FALSE_SHARES.items()}
        jobs = ((name, dp_size, noise) for name, dp_size in FALSE_SHARES for noise in NOISES)
        print_table(
            FALSE_HEADS, (false_row(name, traces[name], d, noise, round(steps[name, d])) for name, d, noise in jobs)
        )
        print()
    if "recall" in parts:
        cases = itertools.product(traces, ("trace", "resampled", "fitted"), (1.05, 1.1, 1.2), (False, True))
        rows = (
            recall_row(name, traces[name], noise, degree, asked.trials, nvml=nvml)
            for name, noise, degree, nvml in cases
        )
        print_table(RECALL_HEADS, rows)
        print()
    if "cost" in parts:
        kept = (f"kept after {seconds} s" for seconds in COST_S)
        print_table(("ranks", "of a core, median", "most", *kept), [cost_row(256, 16)])


if __name__ == "__main__":
    main()
