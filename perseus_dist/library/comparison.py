"""The plans beside the baselines."""

import csv
import io
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from perseus_dist.library import arguments
from perseus_dist.library.frontier import Frontier
from perseus_dist.library.pictures import can_draw, draw_comparison, html_picture
from perseus_dist.library.tables import Column, format_table, html_table
from perseus_dist.planning.baselines import comparison as core
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.value_equality import ValueEquality
from perseus_dist.units import j_from_uj, s_from_ps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS = "perseus_"
"""How the identifiers of perseus-dist's own plans begin."""

COLUMNS: tuple[Column, ...] = (
    ("plan", "name", "s"),
    ("time\n[s]", "time_s", ".6f"),
    ("slowdown\n[%]", "slowdown_percent", "+z.3f"),
    ("energy\n[J]", "energy_j", ".2f"),
    ("saving\n[%]", "saving_percent", ".2f"),
    ("power\n[W]", "power_w", ".1f"),
    ("clock changes\nper rank", "max_changes_per_rank", "d"),
)


class ComparedPlan(NamedTuple):
    """One way to run the iteration.

    Attributes:
        plan: Identifier, for programs: ``all_max``, ``zeus_global``, ``envpipe``, ``perseus_t_star``, ...
        name: Name, for people.
        time_s: [s] of the iteration.
        slowdown_percent: [%] time above that of all-max.
        energy_j: [J] of the pipeline, waiting included.
        saving_percent: [%] energy below that of all-max.
        power_w: [W] average of all GPUs together.
        max_changes_per_rank: Clock changes in an iteration, on the pp_rank that has most.
    """

    plan: str
    name: str
    time_s: float
    slowdown_percent: float
    energy_j: float
    saving_percent: float
    power_w: float
    max_changes_per_rank: int


class Comparison(ValueEquality):
    """All-max, Zeus-global, Zeus-per-stage, EnvPipe, and perseus-dist by rank, phase and instruction.

    ``compare`` gives one. Plans by rank and by phase (``perseus_rank_deadline``, ``perseus_phase_t_star``, ...) are
    those with the least energy no later than the deadline, and than T*; they are left out where computations of a rank
    were measured at other maximum clocks.

    Zeus-global has one clock for all GPUs, Zeus-per-stage one for each stage; both are shown with the least energy no
    later than the deadline (``, fastest`` where nothing meets it), and with the least energy at any time.

    Attributes:
        plans: A ``ComparedPlan`` for each; rows of a ``pandas.DataFrame``.
        sweeps: By ``zeus_global`` and ``zeus_per_stage``, all that the two can choose from, from the highest clock
            down.

    Example:
        >>> comparison = perseus_dist.compare(frontier, slowdown=1.05)
        >>> comparison["envpipe"].saving_percent < comparison["perseus_deadline"].saving_percent
        True
    """

    def __init__(self, compared: core.Comparison) -> None:
        """Wrap a comparison of the planning core, which counts in integers."""
        self.plans = tuple(map(_record, compared.plans))
        self.sweeps = {name: tuple(map(_record, sweep)) for name, sweep in compared.sweeps.items()}

    def summary(self) -> str:
        """A line for each plan: time, slowdown, energy, saving, power and clock changes.

        Example:
            >>> print(perseus_dist.compare(frontier).summary().splitlines()[2])
            all-max                         1.464470    +0.000  1645.78    0.00  1123.8              0
        """
        return format_table(COLUMNS, (plan._asdict() for plan in self.plans), is_plain=True).rstrip("\n")

    def plot(self, *, title: str = "plans and baselines", ax: "Axes | None" = None) -> "Figure":
        """Draw energy against iteration time: a point for each plan, and a line of what each Zeus baseline has.

        Args:
            title: Above the picture.
            ax: Matplotlib axes to draw into; without it a figure is made.

        Returns:
            The figure, for ``savefig``; a notebook shows it.

        Raises:
            ModuleNotFoundError: There is no matplotlib; the message says how to install it.

        Example:
            >>> perseus_dist.compare(frontier, slowdown=1.05).plot().savefig("comparison.svg")
        """
        baselines = [plan for plan in self.plans if not plan.plan.startswith(OURS)]
        ours = [plan for plan in self.plans if plan.plan.startswith(OURS)]
        sweeps = {sweep[0].name: [_point(plan) for plan in sweep] for sweep in self.sweeps.values() if sweep}
        points = [_point(plan) for plan in (*baselines, *ours)]
        return draw_comparison(points, sweeps, num_baselines=len(baselines), title=title, ax=ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the comparison.

        Args:
            path: Ends in ``.csv``, for spreadsheets: a row for each plan; or in ``.json``: ``plans`` and ``sweeps``, as
                ``perseus-dist compare --json`` has them.

        Raises:
            ValueError: ``path`` is no path, or ends otherwise.
            OutputError: The place cannot be written to; nothing is left half-written.

        Example:
            >>> perseus_dist.compare(frontier).save("comparison.csv")
        """
        expected = "a file's path, such as 'comparison.csv'"
        target = arguments.path("path", path, expected=expected, suffixes=(".csv", ".json"))
        write_output(target, (self._csv() if target.suffix == ".csv" else self._json()).encode())

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([ComparedPlan._fields, *self.plans])
        return text.getvalue()

    def _json(self) -> str:
        document = {
            "plans": [plan._asdict() for plan in self.plans],
            "sweeps": {name: [plan._asdict() for plan in sweep] for name, sweep in self.sweeps.items()},
        }
        return json.dumps(document) + "\n"

    def __getitem__(self, plan: str) -> ComparedPlan:
        """The plan of this key."""
        found = {each.plan: each for each in self.plans}
        if plan not in found:
            raise KeyError(f"saw {plan!r}, expected one of {', '.join(found)}")
        return found[plan]

    def __iter__(self) -> Iterator[str]:
        """The keys of all plans."""
        return (plan.plan for plan in self.plans)

    def __len__(self) -> int:
        """How many plans there are."""
        return len(self.plans)

    def __repr__(self) -> str:
        return f"<Comparison: {', '.join(self)}>"

    def _repr_html_(self) -> str:
        table = html_table(COLUMNS, (plan._asdict() for plan in self.plans))
        return table + (html_picture(self.plot()) if can_draw() else "")


def compare(frontier: Frontier, *, slowdown: float | None = None, deadline_s: float | None = None) -> Comparison:
    """Set the frontier's plans beside the baselines, replayed on the same measured times and energies.

    Args:
        frontier: What perseus-dist chooses from. Its switch latency counts for the baselines too.
        slowdown: What the Zeus baselines may take, as a multiple of the time of all-max, and one more deadline for
            perseus-dist; the time of all-max unless given.
        deadline_s: [s] The same as a time. At most one of the two.

    Raises:
        ValueError: ``frontier`` is no frontier, both deadlines are given, one is no positive number, or the fastest
            plan is later.

    Example:
        >>> compare(frontier, slowdown=1.05)["perseus_deadline"].slowdown_percent <= 5
        True
    """
    planned = as_frontier(frontier)._planned  # noqa: SLF001 - of one package
    if slowdown is None and deadline_s is None:
        return Comparison(core.compare(planned))
    said, deadline_ps = arguments.one_time_ps(planned.baseline.time_ps, slowdown=slowdown, deadline_s=deadline_s)
    with arguments.naming(said):
        return Comparison(core.compare(planned, deadline_ps=deadline_ps))


def as_frontier(value: object) -> Frontier:
    """The argument ``frontier``.

    Raises:
        ArgumentError: The value is no frontier.
    """
    expected = "a Frontier; make one by plan(profile, schedule, blocking_power_w=80)"
    return arguments.instance("frontier", value, Frontier, expected=expected)


def _point(plan: ComparedPlan) -> tuple[str, float, float]:
    return plan.name, plan.time_s, plan.energy_j


def _record(plan: core.ComparedPlan) -> ComparedPlan:
    return ComparedPlan(
        plan=plan.key,
        name=plan.name,
        time_s=float(s_from_ps(plan.execution.time_ps)),
        slowdown_percent=100 * plan.slowdown_share,
        energy_j=float(j_from_uj(plan.execution.total_uj)),
        saving_percent=100 * plan.saving_share,
        power_w=plan.power_w,
        max_changes_per_rank=int(plan.execution.changes.max()),
    )
