"""A plan: the clock of every instruction, and what an iteration takes and draws under it."""

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from perseus_dist.library import arguments
from perseus_dist.library.pictures import can_draw, draw_timeline, html_picture
from perseus_dist.library.plan_table import format_plans, html_plans, interval_note
from perseus_dist.planning.frontier import plan as core
from perseus_dist.planning.frontier.frontier_file import frontier_from_npz, frontier_npz
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.value_equality import ValueEquality
from perseus_dist.units import j_from_uj, s_from_ps

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PlannedInstruction(NamedTuple):
    """One instruction under a plan.

    Attributes:
        pp_rank: The pp_rank that runs it.
        instruction: Stage, kind and microbatch, as in ``2F0``.
        clock_mhz: [MHz] clock of its GPUs; None for a constant, which no clock changes.
        start_s: [s] from the begin of the iteration.
        end_s: [s] from the begin of the iteration.
        energy_j: [J] of all GPUs of its tensor-parallel group.
    """

    pp_rank: int
    instruction: str
    clock_mhz: int | None
    start_s: float
    end_s: float
    energy_j: float


class Plan(ValueEquality):
    """A clock for every instruction of an iteration. ``Frontier.at`` gives one.

    Energies are those of one pipeline, all its GPUs drawing blocking power until the iteration ends, or until that of
    the straggler they wait for. Saving and slowdown are against all-max, every computation at the maximum clock.

    Example:
        >>> import perseus_dist
        >>> schedule = perseus_dist.Schedule.one_f_one_b(pp=4, microbatches=8)
        >>> plan = perseus_dist.plan("profile.csv", schedule, blocking_power_w=80).at(slowdown=1.05)
        >>> plan
        <Plan: 1.537 s (slowdown 4.97 %), 1,357 J (saving 17.5 %)>
        >>> plan.clocks_mhz["0F1"]
        975
    """

    def __init__(self, planned: core.Plan) -> None:
        """Wrap a plan of the planning core, which counts in integers."""
        expected = "a plan of the planning core; use Frontier.at"
        self._planned = arguments.instance("planned", planned, core.Plan, expected=expected)

    @property
    def time_s(self) -> float:
        """[s] the iteration's time."""
        return float(s_from_ps(self._planned.execution.time_ps))

    @property
    def energy_j(self) -> float:
        """[J] that the pipeline draws, waiting included."""
        return float(j_from_uj(self._planned.energy_uj))

    @property
    def lower_bound_j(self) -> float:
        """[J] that any clocks draw at least in this time."""
        return float(j_from_uj(self._planned.lower_bound_uj))

    @property
    def gap_percent(self) -> float:
        """[%] energy above the lower bound."""
        return 100 * self._planned.gap_share

    @property
    def saving_percent(self) -> float:
        """[%] energy below that of all-max."""
        return 100 * self._planned.saving_share

    @property
    def saving_interval_percent(self) -> tuple[float, float] | None:
        """[%] where the saving is likely to lie, by the profile's errors; None where the profile does not show them.

        Two standard deviations to either side of what is expected, which may be less than ``saving_percent``: plans
        choose clocks that errors made look cheap.
        """
        interval = self._planned.saving_interval
        return None if interval is None else (100 * interval.low, 100 * interval.high)

    @property
    def slowdown_percent(self) -> float:
        """[%] time above that of all-max; negative where it is faster."""
        return 100 * self._planned.slowdown_share

    @property
    def average_power_w(self) -> float:
        """[W] of all GPUs of the pipeline together, waiting included."""
        return self.energy_j / float(s_from_ps(self._planned.until_ps))

    @property
    def straggler_s(self) -> float | None:
        """[s] the iteration time of the straggler that the pipeline waits for, or None."""
        return float(s_from_ps(self._planned.t_prime_ps)) if self._planned.t_prime_ps else None

    @property
    def clock_changes(self) -> tuple[int, ...]:
        """(num_ranks) clock changes of each pp_rank in one iteration."""
        return tuple(self._planned.execution.changes.tolist())

    @property
    def clocks_mhz(self) -> dict[str, int | None]:
        """[MHz] by instruction as in ``2F0``, each pp_rank's in execution order; None for a constant."""
        return {each.instruction: each.clock_mhz for each in self.instructions}

    @property
    def instructions(self) -> tuple[PlannedInstruction, ...]:
        """(num_instructions) with times, pp_rank by pp_rank in execution order; rows of a ``pandas.DataFrame``."""
        execution = self._planned.execution
        columns = (
            execution.dag.pp_rank.tolist(),
            map(str, execution.dag.instructions),
            (clock_mhz or None for clock_mhz in execution.clocks_mhz.tolist()),
            s_from_ps(execution.start_ps).tolist(),
            s_from_ps(execution.end_ps).tolist(),
            j_from_uj(execution.energy_uj).tolist(),
        )
        return tuple(PlannedInstruction(*row) for row in zip(*columns, strict=True))

    def summary(self) -> str:
        """All-max and the plan, a line each: time, slowdown, energy, saving, its interval, above bound, clock changes.

        Example:
            >>> schedule = perseus_dist.Schedule.gpipe(pp=4, microbatches=2)
            >>> frontier = perseus_dist.plan("profile.csv", schedule, blocking_power_w=80)
            >>> print(frontier.at(slowdown=1.0).summary())
                         time  slowdown  energy  saving    interval  above bound  clock changes
            plan          [s]       [%]     [J]     [%]         [%]          [%]       per rank
            all-max  0.629174    +0.000  495.62    0.00                    3.301              0
            plan     0.629174    +0.000  480.24    3.10  2.8 to 3.0        0.095            0-3
            Intervals are by the scatter of times and energies over clocks: the profile has no repeated measurements.
        """
        return "\n".join([format_plans({"plan": self._planned}, is_plain=True).rstrip("\n"), *self._notes()])

    def plot(self, *, title: str = "", fig: "Figure | None" = None) -> "Figure":
        """Draw the timeline: all-max above the plan, on one time axis; colour is the clock.

        Args:
            title: Above the picture.
            fig: An empty matplotlib figure to draw into; without it one of fitting size is made.

        Returns:
            The figure, for ``savefig``; a notebook shows it.

        Raises:
            ModuleNotFoundError: There is no matplotlib; the message says how to install it.
            ValueError: ``fig`` has axes already.

        Example:
            >>> frontier.at(slowdown=1.05).plot().savefig("timeline.svg")
        """
        return draw_timeline(self._planned, name="plan", title=title, fig=fig)

    def to_dict(self) -> dict[str, Any]:
        """The content that ``save`` writes: figures, and for each pp_rank its instructions with their clocks.

        Example:
            >>> frontier.at(slowdown=1.05).to_dict()["ranks"][0]["instructions"][1]
            {'id': '0F1', 'clock_mhz': 975}
        """
        return core.plan_document(self._planned)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON: its figures, and the clocks of every pp_rank in execution order.

        Args:
            path: Ends in ``.json``.

        Raises:
            ValueError: ``path`` is no path, or ends otherwise.
            OutputError: The place cannot be written to; nothing is left half-written.

        Example:
            >>> frontier.at(slowdown=1.05).save("plan.json")
        """
        target = arguments.path("path", path, expected="a file's path, such as 'plan.json'", suffixes=(".json",))
        write_output(target, json.dumps(self.to_dict()).encode() + b"\n")

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write all-max and the plan as a trace for https://ui.perfetto.dev.

        Args:
            path: Ends in ``.json``.

        Raises:
            ValueError: ``path`` is no path, or ends otherwise.
            OutputError: The place cannot be written to; nothing is left half-written.

        Example:
            >>> frontier.at(slowdown=1.05).save_trace("trace.json")
        """
        from perseus_dist.report.trace.trace import write_trace

        executions = [("all-max", self._planned.frontier.baseline), ("plan", self._planned.execution)]
        write_trace(
            executions,
            arguments.path("path", path, expected="a file's path, such as 'trace.json'", suffixes=(".json",)),
        )

    def __reduce__(self) -> tuple[Callable[[bytes, int, int], "Plan"], tuple[bytes, int, int]]:
        """Pickled as its frontier and what it was chosen for."""
        planned = self._planned
        is_all_max = planned.execution is planned.frontier.baseline
        return _unpickled, (
            frontier_npz(planned.frontier),
            0 if is_all_max else planned.deadline_ps,
            planned.t_prime_ps,
        )

    def __repr__(self) -> str:
        return (
            f"<Plan: {self.time_s:.3f} s (slowdown {self.slowdown_percent:z.2f} %), {self.energy_j:,.0f} J "
            f"(saving {self.saving_percent:z.1f} %)>"
        )

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{note}</p>" for note in self._notes())
        return html_plans({"plan": self._planned}) + notes + (html_picture(self.plot()) if can_draw() else "")

    def _notes(self) -> list[str]:
        waiting = [] if self.straggler_s is None else [_waiting_note(self.straggler_s)]
        return [*waiting, *filter(None, [interval_note(self._planned.frontier.problem)])]


def _waiting_note(straggler_s: float) -> str:
    return f"Energies count until the straggler's iteration ends at {straggler_s:.6f} s."


def _unpickled(data: bytes, deadline_ps: int, t_prime_ps: int) -> Plan:
    frontier = frontier_from_npz(data, "a pickled Plan")
    if not deadline_ps:
        return Plan(core.all_max(frontier))
    choose = core.plan_for_straggler if t_prime_ps else core.plan_for_deadline
    return Plan(choose(frontier, deadline_ps))
