"""The energy of a whole data-parallel job, without and with a straggler."""

import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from perseus_dist.errors import ArgumentError
from perseus_dist.library import arguments
from perseus_dist.library.comparison import as_frontier
from perseus_dist.library.frontier import Frontier
from perseus_dist.library.pictures import can_draw, draw_savings, html_picture
from perseus_dist.library.tables import Column, format_table, html_table
from perseus_dist.planning import emulation as core
from perseus_dist.planning.frontier import frontier as core_frontier
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.value_equality import ValueEquality
from perseus_dist.units import j_from_uj, s_from_ps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLAN_COLUMNS: tuple[Column, ...] = (
    ("no straggler", "name", "s"),
    ("iteration\n[s]", "time_s", ".6f"),
    ("slowdown\n[%]", "slowdown_percent", "+z.3f"),
    ("job\n[J]", "job_energy_j", ".1f"),
    ("saving\n[%]", "saving_percent", ".2f"),
)
STRAGGLER_COLUMNS: tuple[Column, ...] = (
    ("straggler R", "straggler", "g"),
    ("iteration T'\n[s]", "time_s", ".6f"),
    ("others' plan\n[s]", "others_time_s", ".6f"),
    ("all-max job\n[J]", "all_max_energy_j", ".1f"),
    ("planned job\n[J]", "job_energy_j", ".1f"),
    ("slowdown\n[%]", "slowdown_percent", "+z.3f"),
    ("intrinsic\n[%]", "intrinsic_saving_percent", ".2f"),
    ("extrinsic\n[%]", "extrinsic_saving_percent", ".2f"),
    ("together\n[%]", "saving_percent", ".2f"),
)


class UndisturbedJob(NamedTuple):
    """A job without a straggler, all its pipelines under one plan.

    Attributes:
        plan: Identifier, for programs: ``all_max``, ``fastest`` or ``all_max_time``.
        name: Name, for people.
        time_s: [s] of the iteration.
        slowdown_percent: [%] time above that of all-max.
        job_energy_j: [J] of all pipelines.
        saving_percent: [%] energy below that of all-max.
    """

    plan: str
    name: str
    time_s: float
    slowdown_percent: float
    job_energy_j: float
    saving_percent: float


class StragglingJob(NamedTuple):
    """A job with one straggler, at the same average power as the others.

    Attributes:
        straggler: R, how many times slower the straggler is.
        time_s: [s] T', how long the iteration lasts.
        slowdown_percent: [%] time that the plans add to T'.
        others_time_s: [s] the iteration time of the plan of those that wait.
        all_max_energy_j: [J] of all pipelines at maximum clocks.
        job_energy_j: [J] of all pipelines under the plans.
        intrinsic_saving_percent: [%] saving of the plan for the time of all-max, without reacting to the straggler.
        extrinsic_saving_percent: [%] saving of the others on top, by the plan for T'.
        saving_percent: [%] both together.
    """

    straggler: float
    time_s: float
    slowdown_percent: float
    others_time_s: float
    all_max_energy_j: float
    job_energy_j: float
    intrinsic_saving_percent: float
    extrinsic_saving_percent: float
    saving_percent: float


class Emulation(ValueEquality):
    """The energy of a job of equal pipelines. ``emulate`` gives one.

    Attributes:
        num_pipelines: Data-parallel pipelines, the straggler included.
        num_gpus: GPUs of all of them.
        plans: An ``UndisturbedJob`` at all-max, of the fastest plan and at T_min.
        stragglers: A ``StragglingJob`` for each straggler that was asked for.

    Example:
        >>> job = perseus_dist.emulate(frontier, pipelines=16, stragglers=[1.1, 1.2])
        >>> [round(each.saving_percent, 1) for each in job.stragglers]
        [21.2, 23.9]
    """

    def __init__(self, planned: core_frontier.Frontier, *, pipelines: int, stragglers: Sequence[float]) -> None:
        """Emulate with a frontier of the planning core, which counts in integers."""
        alone = core.emulate(planned, pipelines=pipelines, straggler=1)
        problem = planned.problem
        self.num_pipelines = pipelines
        self.num_gpus = pipelines * problem.dag.schedule.num_ranks * problem.tensor_parallel
        self.plans = (
            _undisturbed(alone, "all_max", "all-max", alone.reference),
            _undisturbed(alone, "fastest", "fastest", core.iteration_at(planned, 0)),
            _undisturbed(alone, "all_max_time", "at T_min", alone.intrinsic),
        )
        self.stragglers = tuple(
            _straggling(core.emulate(planned, pipelines=pipelines, straggler=straggler)) for straggler in stragglers
        )

    def summary(self) -> str:
        """A table without a straggler, and one with a line for each straggler.

        Example:
            >>> perseus_dist.emulate(frontier, pipelines=16).summary().splitlines()[0]
            '16 pipelines, 64 GPUs'
        """
        title = size_text(self.num_pipelines, self.num_gpus)
        tables = (format_table(columns, records, is_plain=True).rstrip("\n") for columns, records in self._tables())
        return "\n\n".join([title, *tables])

    def plot(self, *, title: str | None = None, ax: "Axes | None" = None) -> "Figure":
        """Draw a bar for each straggler: the intrinsic saving, and on top the extrinsic one.

        Args:
            title: Above the picture; the size of the job unless given.
            ax: Matplotlib axes to draw into; without it a figure is made.

        Returns:
            The figure, for ``savefig``; a notebook shows it.

        Raises:
            ValueError: The emulation has no stragglers.
            ModuleNotFoundError: There is no matplotlib; the message says how to install it.

        Example:
            >>> perseus_dist.emulate(frontier, pipelines=16, stragglers=[1.1, 1.2]).plot().savefig("savings.svg")
        """
        if not self.stragglers:
            raise ArgumentError("plot: saw an emulation without stragglers, expected one or more; give stragglers=")
        savings = [
            (job.straggler, job.intrinsic_saving_percent, job.extrinsic_saving_percent) for job in self.stragglers
        ]
        named = size_text(self.num_pipelines, self.num_gpus) if title is None else title
        return draw_savings(savings, title=named, ax=ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all figures as JSON, as ``perseus-dist emulate --json`` has them.

        Args:
            path: Ends in ``.json``.

        Raises:
            ValueError: ``path`` is no path, or ends otherwise.
            OutputError: The place cannot be written to; nothing is left half-written.

        Example:
            >>> perseus_dist.emulate(frontier, pipelines=16, stragglers=1.2).save("emulation.json")
        """
        expected = "a file's path, such as 'emulation.json'"
        document = {
            "pipelines": self.num_pipelines,
            "num_gpus": self.num_gpus,
            "plans": [job._asdict() for job in self.plans],
            "stragglers": [job._asdict() for job in self.stragglers],
        }
        target = arguments.path("path", path, expected=expected, suffixes=(".json",))
        write_output(target, json.dumps(document).encode() + b"\n")

    def __repr__(self) -> str:
        return f"<Emulation: {size_text(self.num_pipelines, self.num_gpus)}, {len(self.stragglers)} stragglers>"

    def _repr_html_(self) -> str:
        picture = html_picture(self.plot()) if self.stragglers and can_draw() else ""
        return "".join(html_table(columns, records) for columns, records in self._tables()) + picture

    def _tables(self) -> list[tuple[tuple[Column, ...], list[dict[str, object]]]]:
        tables = [(PLAN_COLUMNS, [job._asdict() for job in self.plans])]
        if self.stragglers:
            tables.append((STRAGGLER_COLUMNS, [job._asdict() for job in self.stragglers]))
        return tables


def size_text(num_pipelines: int, num_gpus: int) -> str:
    """As in "16 pipelines, 64 GPUs"."""
    return f"{num_pipelines} pipeline{'s' * (num_pipelines > 1)}, {num_gpus} GPU{'s' * (num_gpus > 1)}"


def emulate(frontier: Frontier, *, pipelines: int, stragglers: float | Iterable[float] = ()) -> Emulation:
    """Add up the energy of a job of equal data-parallel pipelines, one of which may be a straggler.

    A straggler R times slower than all-max makes every iteration last T' = R x the time of all-max; the others draw
    blocking power from their own end until then. Savings are against all-max with the same straggler, which counts in
    every sum, as in the large-scale emulation of Perseus (SOSP '24).

    Args:
        frontier: The plans of one pipeline.
        pipelines: Data-parallel pipelines, 1 or more.
        stragglers: R, or several, each from 1 (none) to 1000.

    Raises:
        ValueError: An argument is of another type, or lies outside of what makes sense.

    Example:
        >>> job, = emulate(frontier, pipelines=16, stragglers=1.2).stragglers
        >>> round(job.intrinsic_saving_percent, 2), round(job.extrinsic_saving_percent, 2)
        (13.17, 10.72)
    """
    planned = as_frontier(frontier)._planned  # noqa: SLF001 - of one package
    num_pipelines = arguments.positive_int("pipelines", pipelines)
    expected = f"how many times slower the straggler is, from 1 to {arguments.MAX_STRAGGLER:g}, such as 1.2"
    degrees = [
        arguments.number(name, straggler, low=1, high=arguments.MAX_STRAGGLER, expected=expected)
        for name, straggler in arguments.several("stragglers", stragglers).items()
    ]
    return Emulation(planned, pipelines=num_pipelines, stragglers=degrees)


def _undisturbed(alone: core.Emulation, key: str, name: str, plan: core.Iteration) -> UndisturbedJob:
    return UndisturbedJob(
        plan=key,
        name=name,
        time_s=float(s_from_ps(plan.time_ps)),
        slowdown_percent=100 * (plan.time_ps / alone.reference.time_ps - 1),
        job_energy_j=float(j_from_uj(alone.pipelines * plan.total_uj)),
        saving_percent=100 * (1 - plan.total_uj / alone.reference.total_uj),
    )


def _straggling(job: core.Emulation) -> StragglingJob:
    return StragglingJob(
        straggler=job.straggler,
        time_s=float(s_from_ps(job.t_prime_ps)),
        slowdown_percent=100 * job.slowdown_share,
        others_time_s=float(s_from_ps(job.others.time_ps)),
        all_max_energy_j=float(j_from_uj(job.all_max_uj)),
        job_energy_j=float(j_from_uj(job.planned_uj)),
        intrinsic_saving_percent=100 * job.intrinsic_share,
        extrinsic_saving_percent=100 * job.extrinsic_share,
        saving_percent=100 * job.saving_share,
    )
