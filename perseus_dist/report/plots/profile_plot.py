"""A profile as curves: time and energy of each instruction over the clock."""

from collections.abc import Mapping

import matplotlib as mpl
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from perseus_dist.planning.profile.profile import Measurements
from perseus_dist.planning.schedule.instruction import profile_name
from perseus_dist.report.plots import theme

CMAP = "viridis"
PANEL_IN = (2.9, 2.2)
MAX_LEGEND_STAGES = 8
_LAST_COLOUR = 0.9  # the map's end is too bright on white


def plot_profile(measurements: Mapping[tuple[int, str], Measurements], *, title: str = "") -> Figure:
    """Draw time above energy, a column for each kind of instruction and a curve for each stage.

    Times are those of the slowest GPU of a tensor-parallel group, energies the mean of one GPU.

    Args:
        measurements: Keyed by (stage, kind), at least one.
        title: Above the picture.
    """
    kinds = list(dict.fromkeys(kind for _, kind in measurements))
    stages = sorted({stage for stage, _ in measurements})
    norm = Normalize(stages[0], stages[-1] + (stages[-1] - stages[0] or 1) * (1 / _LAST_COLOUR - 1))
    width_in, height_in = PANEL_IN
    with theme.style():
        fig = Figure(figsize=(max(2, len(kinds)) * width_in + 1, 2 * height_in + 1), layout="constrained")
        axes = fig.subplots(2, len(kinds), squeeze=False, sharex="col")
        for column, kind in enumerate(kinds):
            for stage in stages:
                if (found := measurements.get((stage, kind))) is None:
                    continue
                look = {"color": mpl.colormaps[CMAP](norm(stage)), "marker": "o", "ms": 2.5, "linewidth": 1.0}
                name = f"stage {stage}"
                axes[0, column].plot(found.clocks_mhz, found.times_s.max(axis=0), label=name, **look)
                axes[1, column].plot(found.clocks_mhz, found.energies_j.mean(axis=0), label=name, **look)
            axes[0, column].set_title(profile_name(kind).replace("_", " "), loc="left")
            axes[1, column].set_xlabel("clock [MHz]")
        axes[0, 0].set_ylabel("time [s]")
        axes[1, 0].set_ylabel("energy of one GPU [J]")
        for ax in axes.flat:
            ax.spines[["top", "right"]].set_visible(False)
        if title:
            fig.suptitle(theme.drawable(title), x=0.01, ha="left", size=10.5, weight="bold")
        if len(stages) <= MAX_LEGEND_STAGES:
            drawn = {label: line for ax in axes[0] for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
            names = sorted(drawn, key=lambda name: int(name.split()[1]))
            fig.legend(
                [drawn[name] for name in names], names, loc="outside lower center", ncols=len(names), frameon=False
            )
        else:
            fig.colorbar(ScalarMappable(norm, CMAP), ax=axes, label="stage", aspect=40, pad=0.01)
    return fig
