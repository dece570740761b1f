"""Results of a measurement in sentences and tables: the same on the terminal and on the page."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perseus_dist.measure.estimates import Quantiles
from perseus_dist.measure.measurement import Measurement
from perseus_dist.measure.proof.hook_cost import MEDIAN_LIMIT_US, P99_LIMIT_US
from perseus_dist.measure.saving import Noise, PipelineSaving

_REASONS = {
    0x1: "idle",
    0x2: "clocks set",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal, software",
    0x40: "thermal, hardware",
    0x80: "power brake",
    0x100: "display clocks",
}
_NAMES = {"F": "forward", "B": "backward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table.

    Attributes:
        title: Of it.
        headers: Of its columns.
        rows: Cells.
        note: What must be known to read it; may be empty.
        num_texts: How many of the first columns are texts.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    num_texts: int = 1


def headline(measurement: Measurement, saving: PipelineSaving | None) -> str:
    """The sentence that it is all for."""
    if saving is None and len({point.clock_mhz for point in measurement.points}) > 1:
        return "What a pipeline of this would save is not known: the GPU was braked by heat or hardware at most clocks."
    if saving is None:
        return (
            "What a pipeline of this would save is not known: only one clock was seen, "
            f"{measurement.points[0].clock_mhz} MHz. Let clockd, or root with '--control direct', set clocks for some "
            "minutes."
        )
    return (
        f"A PP{saving.pp_size} M{saving.num_microbatches} 1F1B pipeline of this would save "
        f"{saving_text(saving, '+-')} at no slowdown "
        f"({saving.slowdown_percent:z.2f} %; within the noise no more than {saving.late_percent:z.2f} %)."
    )


def saving_text(saving: PipelineSaving, between: str) -> str:
    """The saving and its interval, to the digit that the interval leaves."""
    digits = 1 if saving.half_width_percent >= 0.1 else 2
    return f"{saving.saving_percent:z.{digits}f} {between} {saving.half_width_percent:.{digits}f} %"


def facts(measurement: Measurement, noise: Noise, saving: PipelineSaving | None) -> Iterator[str]:
    """Facts beside the tables, a sentence each."""
    gpu = measurement.gpu
    simulated = "simulated: this GPU, its kernels, its clocks and its energy are a model. " if gpu.is_simulated else ""
    yield (
        f"{simulated}{gpu.name}, driver {gpu.driver_version}, {gpu.clocks_mhz[1]} to {gpu.clocks_mhz[0]} MHz, power "
        f"limit {gpu.power_limit_w:.0f} W (default {gpu.default_power_limit_w:.0f} W), {gpu.uuid}"
    )
    yield f"work: {gpu.workload}"
    if gpu.observed_because:
        yield f"clocks: none was set ({gpu.observed_because})"
    else:
        num_clocks = len({point.clock_mhz for point in measurement.points})
        yield f"clocks: {num_clocks} set through {gpu.control}, and released; more --seconds measure more of them"
    waiting = ", ".join(f"{block.power_w:.1f} W at {block.clock_mhz} MHz" for block in measurement.blocked)
    yield f"blocking power: {waiting}"
    yield f"energy counter: published every {1e3 * measurement.energy_period_s:.1f} ms"
    yield (
        f"noise of one point: {100 * noise.time:.2f} % in time, {100 * noise.energy:.2f} % in energy "
        f"({f'{noise.num_pairs} pairs of repetitions' if noise.num_pairs else 'by single points, none was repeated'})"
    )
    if measurement.latencies:
        yield f"change of clocks: {1e3 * measurement.switch_latency_s:.1f} ms, the median target's median"
    if saving is not None:
        yield (
            f"the pipeline: {saving.pp_size} equal stages, {saving.iteration_s:.3f} s and {saving.energy_j:,.0f} J an "
            "iteration at maximum clocks, one GPU a stage, no transfers; changes of clocks are counted. Slower plans "
            f"save up to {saving.largest_saving_percent:.1f} % (slowdown {saving.largest_slowdown_percent:.1f} %)."
        )
        yield (
            "the interval: twice the standard deviation that the noise of these measurements gives; other stages, "
            "transfers and other GPUs of the kind are not in it"
        )
    yield f"measured in {measurement.seconds:.0f} s, {measurement.began_at}"
    for sentence in measurement.left_out:
        yield f"left out: {sentence}"


def tables(measurement: Measurement) -> list[Table]:
    """Tables of curves, latencies, presets, NVML, the hook and the agreement, those that were measured."""
    found = [_curves(measurement)]
    if measurement.latencies:
        found.append(_latencies(measurement))
    if measurement.presets:
        found.append(_presets(measurement))
    found += [_nvml(measurement), _hook(measurement), _agreement(measurement)]
    return found


def reason_names(reasons: int) -> str:
    """NVML's clock event reasons in words."""
    names = [name for bit, name in _REASONS.items() if reasons & bit]
    unknown = reasons & ~sum(_REASONS)
    return ", ".join([*names, *([hex(unknown)] if unknown else [])]) or "none"


def _curves(measurement: Measurement) -> Table:
    rows = []
    for point in sorted(measurement.points, key=lambda p: (p.kind != "F", -p.clock_mhz, not p.downwards)):
        row = (
            _NAMES[point.kind],
            reason_names(point.event_reasons),
            f"{point.clock_mhz}",
            f"{point.observed_mhz}",
            f"{1e3 * point.time_s:.3f}",
            f"{1e3 * point.time_std_s:.3f}",
            f"{point.num_runs}",
            f"{point.power_w:.1f}",
            f"{point.power_se_w:.1f}",
            f"{point.energy_j:.3f}",
            "-" if point.temperature_c is None else f"{point.temperature_c}",
        )
        rows.append(row)
    return Table(
        title="Time and energy by clock",
        headers=(
            *("work", "event reasons", "clock [MHz]", "read [MHz]", "time [ms]", "std [ms]", "runs", "power [W]"),
            *("std error [W]", "energy [J]", "GPU [C]"),
        ),
        rows=tuple(rows),
        num_texts=2,
    )


def _latencies(measurement: Measurement) -> Table:
    def cells(latency_s: Quantiles) -> tuple[str, str]:
        return _number(1e3 * latency_s.median, 1), _number(1e3 * latency_s.p90, 1)

    rows = tuple(
        (
            f"{latency.clock_mhz}",
            f"{latency.num_trials}",
            *cells(latency.call_s),
            *cells(latency.read_back_s),
            *cells(latency.kernels_s),
            f"{latency.kernels_s.num}",
        )
        for latency in measurement.latencies
    )
    return Table(
        title="Changes of clocks, by target",
        headers=(
            *("target [MHz]", "changes", "set [ms]", "p90", "read back [ms]", "p90", "kernels [ms]", "p90"),
            "kernels told",
        ),
        rows=rows,
        note="From the request: until NVML had set it, until NVML read it back, until kernels took another time: "
        "medians and 90th percentiles. Clocks that a power cap keeps away are not read back.",
    )


def _presets(measurement: Measurement) -> Table:
    rows = tuple(
        (
            f"{match.preset}{' (this model)' if match.is_same_model else ''}",
            f"{match.time_percent:.1f}",
            f"{match.time_worst_percent:.1f}",
            f"{match.energy_percent:.1f}",
            f"{match.energy_worst_percent:.1f}",
            f"{match.power_ratio:.2f}",
        )
        for match in measurement.presets
    )
    return Table(
        title="Beside the simulator's models",
        headers=("model", "time [%]", "worst [%]", "energy [%]", "worst [%]", "power ratio"),
        rows=rows,
        note="Root mean square and greatest difference of time and energy, each relative to its value at the maximum "
        "clock; clocks of other models as shares of their maximum. Power ratio: measured over modelled, there.",
    )


def _nvml(measurement: Measurement) -> Table:
    rows = tuple((call.function, *_costs(call.cost_us), call.failure or "works") for call in measurement.nvml)
    return Table(
        title="NVML's calls while the GPU computes",
        headers=("call", "calls", "median [us]", "p99 [us]", "worst [us]", ""),
        rows=rows,
    )


def _hook(measurement: Measurement) -> Table:
    rows = tuple(
        (cost.order, cost.call, *_costs(cost.cost_us), "yes" if cost.is_within_limits else "NO")
        for cost in measurement.hook
    )
    simulated = (
        " The simulated device runs on this machine's own cores, beside the calls."
        if measurement.gpu.is_simulated
        else ""
    )
    return Table(
        title="The trainer's hook",
        headers=("order", "call", "calls", "median [us]", "p99 [us]", "worst [us]", "within the limits"),
        rows=rows,
        note=f"Limits: {MEDIAN_LIMIT_US} us in the median, {P99_LIMIT_US} us in the 99th percentile.{simulated}",
        num_texts=2,
    )


def _agreement(measurement: Measurement) -> Table:
    rows: list[tuple[str, str]] = []
    check = measurement.boundaries
    if check is None:
        rows.append(("boundaries against events", "not checked, as said above"))
    else:
        verdict = "agree" if not check.num_early and not check.num_lost else "DIFFER"
        rows.append(
            (
                "boundaries against events",
                f"{verdict}: {check.num_timed} of {check.num_instructions} timed, durations differ by "
                f"{_number(check.difference_us.median, 1)} us (p99 {_number(check.difference_us.p99, 1)}), seen "
                f"{_number(check.lag_us.median, 0)} us late (p99 {_number(check.lag_us.p99, 0)}), {check.num_early} "
                f"early, {check.num_lost} lost",
            )
        )
    for case in measurement.visible:
        setting = "not set" if case.setting is None else case.setting
        if case.agrees is None:
            told = f"not checked: CUDA does not say; NVML: {case.by_nvml or case.trouble}"
        else:
            told = f"{'agree' if case.agrees else 'DIFFER'}: CUDA {case.by_cuda}, NVML {case.by_nvml or case.trouble}"
        rows.append((f"CUDA_VISIBLE_DEVICES {setting}", told))
    return Table(title="What must agree", headers=("what", "seen"), rows=tuple(rows), num_texts=2)


def _costs(cost_us: Quantiles) -> Sequence[str]:
    return (f"{cost_us.num}", _number(cost_us.median, 1), _number(cost_us.p99, 1), _number(cost_us.worst, 0))


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
