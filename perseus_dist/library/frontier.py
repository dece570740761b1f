"""The frontier of an iteration: how its time trades against its energy, and the plans along it."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from perseus_dist.library import arguments
from perseus_dist.library.pictures import can_draw, draw_frontier, html_picture
from perseus_dist.library.plan import Plan
from perseus_dist.library.plan_table import (
    format_plans,
    gap_text,
    html_plans,
    interval_note,
    plans_that_matter,
    problem_text,
)
from perseus_dist.planning.frontier import frontier as core
from perseus_dist.planning.frontier import plan as core_plan
from perseus_dist.planning.frontier.frontier_csv import write_frontier_csv
from perseus_dist.planning.frontier.frontier_file import frontier_from_npz, frontier_npz, save_frontier
from perseus_dist.planning.value_equality import ValueEquality
from perseus_dist.units import FloatArray, j_from_uj, s_from_ps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Frontier(ValueEquality):
    """Plans from the fastest iteration to that of least energy, and the exact bound below which no plan can be.

    ``plan`` makes one, ``load_frontier`` reads one. Energies are those of one pipeline, all its GPUs drawing blocking
    power until the iteration ends. All-max is every computation at the maximum clock.

    Example:
        >>> import perseus_dist
        >>> schedule = perseus_dist.Schedule.one_f_one_b(pp=4, microbatches=8)
        >>> frontier = perseus_dist.plan("profile.csv", schedule, blocking_power_w=80)
        >>> frontier.at(slowdown=1.0)
        <Plan: 1.464 s (slowdown 0.00 %), 1,418 J (saving 13.9 %)>
    """

    def __init__(self, planned: core.Frontier) -> None:
        """Wrap a frontier of the planning core, which counts in integers."""
        expected = "a frontier of the planning core; use plan or load_frontier"
        self._planned = arguments.instance("planned", planned, core.Frontier, expected=expected)

    @property
    def granularity(self) -> str:
        """Which instructions share a clock: ``instruction`` for none, ``phase`` or ``rank``."""
        return str(self._planned.granularity)

    @property
    def t_min_s(self) -> float:
        """[s] the iteration time with every computation at the maximum clock."""
        return float(s_from_ps(self._planned.baseline.time_ps))

    @property
    def fastest_s(self) -> float:
        """[s] the iteration time of the fastest plan, at most T_min."""
        return float(s_from_ps(self._planned.fastest_ps))

    @property
    def t_star_s(self) -> float:
        """[s] the iteration time of the plan with the least energy."""
        return float(s_from_ps(self._planned.t_star_ps))

    @property
    def times_s(self) -> FloatArray:
        """(num_plans) [s] ascending, from the fastest to T*."""
        return s_from_ps(self._planned.time_ps[self._planned.deadline_points])

    @property
    def energies_j(self) -> FloatArray:
        """(num_plans) [J] falling, the energy of each of these plans."""
        return j_from_uj(self._planned.total_uj[self._planned.deadline_points])

    @property
    def lower_bounds_j(self) -> FloatArray:
        """(num_plans) [J] the least energy of any execution in each of these times."""
        return j_from_uj(self._planned.bound.total_uj(self._planned.time_ps[self._planned.deadline_points]))

    @property
    def all_max(self) -> Plan:
        """The iteration with every computation at the maximum clock, which savings and slowdowns are against."""
        return Plan(core_plan.all_max(self._planned))

    @property
    def fastest(self) -> Plan:
        """The fastest plan."""
        return Plan(core_plan.plan_for_deadline(self._planned, self._planned.fastest_ps))

    @property
    def least_energy(self) -> Plan:
        """The plan at T*."""
        return Plan(core_plan.plan_for_deadline(self._planned, self._planned.t_star_ps))

    def at(
        self, *, slowdown: float | None = None, deadline_s: float | None = None, straggler_s: float | None = None
    ) -> Plan:
        """The plan with the least energy within a time; give one of the three.

        Args:
            slowdown: Deadline as a multiple of the time of all-max, such as 1.05.
            deadline_s: [s] Deadline.
            straggler_s: [s] The iteration time T' of a straggler that this pipeline waits for in any case. Energies
                count until then, and the plan may be slower than T*.

        Raises:
            ValueError: None of the three is given, or several; it is no positive number; or even the fastest plan is
                later.

        Example:
            >>> frontier.at(deadline_s=1.5)
            <Plan: 1.500 s (slowdown 2.42 %), 1,383 J (saving 16.0 %)>
            >>> frontier.at(slowdown=0.5)
            Traceback (most recent call last):
            ...
            perseus_dist.errors.PlanningError: slowdown=0.5: the deadline of 0.732235 s cannot be met: ...
        """
        said, time_ps = arguments.one_time_ps(
            self._planned.baseline.time_ps, slowdown=slowdown, deadline_s=deadline_s, straggler_s=straggler_s
        )
        choose = core_plan.plan_for_deadline if straggler_s is None else core_plan.plan_for_straggler
        with arguments.naming(said):
            return Plan(choose(self._planned, time_ps))

    def summary(self) -> str:
        """The problem, all-max, the fastest plan, those at T_min and T*, and the plans' distance from the bound.

        Example:
            >>> print(frontier.summary().splitlines()[0])
            4 pp_ranks, 8 microbatches
        """
        table = format_plans(plans_that_matter(self._planned), is_plain=True)
        notes = filter(None, [gap_text(self._planned), interval_note(self._planned.problem)])
        return "\n".join([f"{self._title()}\n\n{table}", *notes])

    def plot(self, *, chosen: Plan | None = None, title: str | None = None, ax: "Axes | None" = None) -> "Figure":
        """Draw energy against iteration time: plans, bound, all-max and, up to 4,096 instructions, the baselines.

        Args:
            chosen: A plan to mark.
            title: Above the picture; the size of the pipeline unless given.
            ax: Matplotlib axes to draw into; without it a figure is made.

        Returns:
            The figure, for ``savefig``; a notebook shows it.

        Raises:
            ValueError: ``chosen`` is no plan.
            ModuleNotFoundError: There is no matplotlib; the message says how to install it.

        Example:
            >>> frontier.plot(chosen=frontier.at(slowdown=1.05)).savefig("frontier.svg")
        """
        marked = None
        if chosen is not None:
            plan = arguments.instance("chosen", chosen, Plan, expected="a Plan, such as frontier.at(slowdown=1.05)")
            marked = ("chosen", plan._planned.execution)  # noqa: SLF001 - of one package
        return draw_frontier(self._planned, chosen=marked, title=self._title() if title is None else title, ax=ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the frontier.

        Args:
            path: Ends in ``.npz``, for ``load_frontier`` and ``perseus-dist lookup``, with the clocks of every plan; or
                in ``.csv``, for spreadsheets: time, energy and lower bound of each plan.

        Raises:
            ValueError: ``path`` is no path, or ends otherwise.
            OutputError: The place cannot be written to; nothing is left half-written.

        Example:
            >>> frontier.save("frontier.npz")
        """
        target = arguments.path(
            "path", path, expected="a file's path, such as 'frontier.npz'", suffixes=(".npz", ".csv")
        )
        (save_frontier if target.suffix == ".npz" else write_frontier_csv)(self._planned, target)

    def __reduce__(self) -> tuple[Callable[[bytes], "Frontier"], tuple[bytes]]:
        """Pickled as it is saved, so that processes can hand frontiers to each other."""
        return _unpickled, (frontier_npz(self._planned),)

    def __len__(self) -> int:
        return len(self._planned.deadline_points)

    def __repr__(self) -> str:
        return f"<Frontier: {len(self)} plans from {self.fastest_s:.3f} s to {self.t_star_s:.3f} s; {self._title()}>"

    def _repr_html_(self) -> str:
        table = html_plans(plans_that_matter(self._planned))
        picture = html_picture(self.plot()) if can_draw() else ""
        notes = f"{gap_text(self._planned)} {interval_note(self._planned.problem)}"
        return f"<p>{self._title()}</p>{table}<p>{notes}</p>{picture}"

    def _title(self) -> str:
        return problem_text(self._planned.problem, self._planned.switch_latency_ps, self._planned.granularity)


def _unpickled(data: bytes) -> Frontier:
    return Frontier(frontier_from_npz(data, "a pickled Frontier"))
