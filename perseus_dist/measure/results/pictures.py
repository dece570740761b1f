"""Pictures of a measurement: curves over the clock, and how long changes of clocks take."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perseus_dist.measure.clock_sweep import KINDS, Point
from perseus_dist.measure.measurement import Measurement
from perseus_dist.measure.preset_match import preset_clock_mhz
from perseus_dist.measure.saving import PipelineSaving
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.report.plots import theme
from perseus_dist.report.plots.frontier_plot import MarkedPoint, plot_frontier
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.units import j_from_uj, s_from_ps

_LOOKS = {"F": ("forward", theme.PLANS), "B": ("backward", theme.ACCENT)}
_CLASSES = {"F": "forward", "B": "backward"}
_CURVES_IN = (9.0, 3.1)
_THROTTLED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80


def plot_curves(measurement: Measurement) -> Figure:
    """Time, power and energy of forward and backward over the clock; the closest model as a thin line."""
    with theme.style():
        fig = Figure(figsize=_CURVES_IN, layout="constrained")
        axes = fig.subplots(1, 3)
        for ax, label in zip(axes, ("time [ms]", "power [W]", "energy of a run [J]"), strict=True):
            ax.set_title(label, loc="left")
            ax.set_xlabel("clock [MHz]")
            ax.spines[["top", "right"]].set_visible(False)
        for kind in KINDS:
            points = [point for point in measurement.points if point.kind == kind]
            _draw_points(axes, points, kind)
            if measurement.presets:
                _draw_preset(axes, points, kind, measurement)
        clocks_mhz = {point.clock_mhz for point in measurement.points}
        for ax in axes:
            ax.set_ylim(0, 1.08 * ax.get_ylim()[1])
            if len(clocks_mhz) == 1:  # ticks between clocks say nothing, and the last would be cut off
                ax.set_xticks(list(clocks_mhz))
    return fig


def plot_latencies(measurement: Measurement) -> Figure:
    """Median and 90th percentile of every target: until the clock was read back, and until kernels felt it."""
    latencies = measurement.latencies
    with theme.style():
        fig = Figure(figsize=(8.0, 1.2 + 0.26 * len(latencies)), layout="constrained")
        ax = fig.add_subplot(xlabel="from the request [ms]", ylabel="target [MHz]")
        for offset, name, colour, figures in (
            (0.14, "kernels", theme.PLANS, [latency.kernels_s for latency in latencies]),
            (-0.14, "read back by NVML", theme.MUTED, [latency.read_back_s for latency in latencies]),
        ):
            at = [(row, quantiles) for row, quantiles in enumerate(figures) if quantiles.num]
            rows = [row + offset for row, _ in at]
            medians = [1e3 * quantiles.median for _, quantiles in at]
            p90s = [1e3 * quantiles.p90 for _, quantiles in at]
            ax.hlines(rows, medians, p90s, color=colour, linewidth=1.2)
            ax.plot(medians, rows, "o", ms=4, color=colour, label=f"{name}: median, and line to the 90th percentile")
        ax.set_yticks(range(len(latencies)), [str(latency.clock_mhz) for latency in latencies])
        ax.set_xlim(left=0)
        ax.invert_yaxis()
        ax.spines[["top", "right"]].set_visible(False)
        fig.legend(loc="outside lower center", ncols=2, frameon=False)
    return fig


def plot_pipeline(frontier: Frontier, saving: PipelineSaving) -> Figure:
    """The pipeline's frontier, with the plan that the headline speaks of."""

    def marked(name: str, time_ps: int, energy_uj: int) -> MarkedPoint:
        return MarkedPoint(name=name, time_s=float(s_from_ps(time_ps)), energy_j=float(j_from_uj(energy_uj)))

    baseline = frontier.baseline
    chosen = frontier.execution(frontier.point_for_deadline(baseline.time_ps))
    time_ps = frontier.time_ps[frontier.deadline_points]
    return plot_frontier(
        times_s=s_from_ps(time_ps),
        energies_j=j_from_uj(frontier.total_uj[frontier.deadline_points]),
        bounds_j=j_from_uj(frontier.bound.total_uj(time_ps)),
        baselines=[marked("all-max", baseline.time_ps, baseline.total_uj)],
        chosen=marked("plan at no slowdown", chosen.time_ps, chosen.total_uj),
        t_min_s=float(s_from_ps(frontier.baseline.time_ps)),
        t_star_s=float(s_from_ps(frontier.t_star_ps)),
        title=f"PP{saving.pp_size} M{saving.num_microbatches} 1F1B of the measured stage, planned",
    )


def _draw_points(axes: Sequence[Axes], points: Sequence[Point], kind: str) -> None:
    name, colour = _LOOKS[kind]
    clocks = [point.clock_mhz for point in points]
    figures = (
        [1e3 * point.time_s for point in points],
        [point.power_w for point in points],
        [point.energy_j for point in points],
    )
    capped = [index for index, point in enumerate(points) if point.event_reasons & _THROTTLED]
    lowest = min(range(len(points)), key=lambda index: clocks[index])
    for ax, values in zip(axes, figures, strict=True):
        ax.plot(clocks, values, "o", ms=3, mfc="none", mec=colour, mew=0.8)
        ax.plot([clocks[i] for i in capped], [values[i] for i in capped], "x", ms=6, color=theme.INK)
        below = kind == "F" and ax is axes[1]  # where the two curves lie close together
        ax.annotate(
            name,
            (clocks[lowest], values[lowest]),
            xytext=(0, -7 if below else 7),
            va="top" if below else "bottom",
            textcoords="offset points",
            color=colour,
        )


def _draw_preset(axes: Sequence[Axes], points: Sequence[Point], kind: str, measurement: Measurement) -> None:
    """The model's curve through the measured mean at the highest clock."""
    preset = PRESETS[measurement.presets[0].preset]
    highest_mhz = max(point.clock_mhz for point in points)
    lowest_mhz = min(point.clock_mhz for point in points)
    top = [point for point in points if point.clock_mhz == highest_mhz]
    top_s = sum(point.time_s for point in top) / len(top)
    top_w = sum(point.power_w for point in top) / len(top)
    scale = measurement.gpu.clocks_mhz[0] / preset.clocks_mhz[0]
    top_mhz = preset_clock_mhz(preset, highest_mhz / measurement.gpu.clocks_mhz[0])
    clocks = [clock for clock in preset.clocks_mhz if lowest_mhz <= clock * scale <= highest_mhz]
    name = _CLASSES[kind]
    modelled_s, modelled_w = preset.kernel_time_s(name, 1.0, top_mhz), preset.kernel_power_w(name, top_mhz)
    times_s = [top_s * preset.kernel_time_s(name, 1.0, clock) / modelled_s for clock in clocks]
    powers_w = [top_w * preset.kernel_power_w(name, clock) / modelled_w for clock in clocks]
    energies_j = [time_s * power_w for time_s, power_w in zip(times_s, powers_w, strict=True)]
    for ax, values in zip(axes, ([1e3 * time_s for time_s in times_s], powers_w, energies_j), strict=True):
        ax.plot([clock * scale for clock in clocks], values, color=theme.HAIRLINE, linewidth=0.8, zorder=1)
