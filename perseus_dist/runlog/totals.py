"""Sums over all iterations of a job, whether their lines were kept or not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.runlog.file_content import read_content
from perseus_dist.runlog.json_fields import Fields, FieldsError, read_json
from perseus_dist.unit_scales import UJ_PER_J

_NS_PER_S = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalFigures:
    """Iterations of a rank, or of the whole job.

    Attributes:
        num_iterations: How many.
        time_s: [s] all of them together.
        num_energies: Of how many the energy is known.
        energy_j: [J] all of those together.
    """

    num_iterations: int = 0
    time_s: float = 0.0
    num_energies: int = 0
    energy_j: float = 0.0

    def document(self) -> dict[str, float | int | None]:
        """As ``report.json`` has it; the energy is null where that of an iteration is not known."""
        is_known = self.num_iterations > 0 and self.num_energies == self.num_iterations
        return {
            "num_iterations": self.num_iterations,
            "time_s": self.time_s,
            "energy_j": self.energy_j if is_known else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """By what the iterations ran under."""

    without_plan: TotalFigures
    under_plan: TotalFigures

    def document(self) -> dict[str, dict[str, float | int | None]]:
        """As ``report.json`` has it."""
        return {"without_plan": self.without_plan.document(), "under_plan": self.under_plan.document()}


def read_totals(path: Path, reports: Sequence[IterationReport], *, is_whole: bool) -> RunTotals | None:
    """A rank's sums: those that its agent has written, and what its lines tell of iterations after those.

    Args:
        path: ``totals-<rank>.json``.
        reports: Ascending; the newest are among them.
        is_whole: Whether these are all iterations, so that nothing is missing without the file.

    Returns:
        None where neither tells all.
    """
    last_iteration, sums = -1, {name: TotalFigures() for name in ("without_plan", "under_plan")}
    try:
        document = Fields(read_json(read_content(path)))
        last_iteration = document.whole("last_iteration", low=-1)
        sums = {name: _figures(document.inner(name)) for name in sums}
    except (OSError, ValueError, FieldsError):
        if not is_whole:
            return None
    later = [report for report in reports if report.iteration > last_iteration]
    return RunTotals(
        without_plan=_with(sums["without_plan"], [report for report in later if report.point == NO_POINT]),
        under_plan=_with(sums["under_plan"], [report for report in later if report.point != NO_POINT]),
    )


def job_totals(of_ranks: Mapping[int, RunTotals | None], num_ranks: int) -> RunTotals | None:
    """The whole job's: its ranks train the same iterations, and draw their energies together.

    Returns:
        None where the sums of a rank are not known.
    """
    known = [totals for totals in of_ranks.values() if totals is not None]
    if not known or len(known) != num_ranks:
        return None
    return RunTotals(
        without_plan=_of_job([totals.without_plan for totals in known]),
        under_plan=_of_job([totals.under_plan for totals in known]),
    )


def _figures(fields: Fields) -> TotalFigures:
    return TotalFigures(
        num_iterations=fields.whole("num_iterations"),
        time_s=fields.whole("time_ns") / _NS_PER_S,
        num_energies=fields.whole("num_energies"),
        energy_j=fields.whole("energy_uj") / UJ_PER_J,
    )


def _with(sums: TotalFigures, reports: Sequence[IterationReport]) -> TotalFigures:
    energies_j = [report.energy_j for report in reports if report.energy_j is not None]
    return TotalFigures(
        num_iterations=sums.num_iterations + len(reports),
        time_s=sums.time_s + sum(report.time_s for report in reports),
        num_energies=sums.num_energies + len(energies_j),
        energy_j=sums.energy_j + sum(energies_j),
    )


def _of_job(parts: Sequence[TotalFigures]) -> TotalFigures:
    num_iterations = max(part.num_iterations for part in parts)
    is_known = all(part.num_energies == num_iterations for part in parts)
    return TotalFigures(
        num_iterations=num_iterations,
        time_s=max(part.time_s for part in parts),
        num_energies=num_iterations if is_known else 0,
        energy_j=sum(part.energy_j for part in parts),
    )
