"""``frontier.csv`` of a job: what each plan takes of one pipeline, and the least that any plan could draw."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from perseus_dist.runlog.file_content import read_content

if TYPE_CHECKING:
    from perseus_dist.units import FloatArray

_COLUMNS = ("time_s", "energy_j", "lower_bound_j")


class Point(Protocol):
    """A plan, as the planner's clients know it: seconds and joules."""

    @property
    def time_s(self) -> float: ...  # noqa: D102
    @property
    def energy_j(self) -> float: ...  # noqa: D102
    @property
    def lower_bound_j(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrontierPoints:
    """``frontier.csv``: (num_plans) each, ascending in time."""

    times_s: "FloatArray"
    energies_j: "FloatArray"
    bounds_j: "FloatArray"


def frontier_csv(points: Iterable[Point]) -> str:
    """The text of ``frontier.csv``: a line with names, and one a point."""
    rows = (f"{point.time_s:.9f},{point.energy_j:.6f},{point.lower_bound_j:.6f}\n" for point in points)
    return "".join([",".join(_COLUMNS) + "\n", *rows])


def read_frontier(path: Path, notes: list[str]) -> FrontierPoints | None:
    """The file of a run; None where there is none, and a note where it cannot be understood."""
    import numpy as np  # 9 MB of each agent, which only writes such a file

    try:
        lines = read_content(path).decode().splitlines()
        points = np.array([[float(row[name]) for name in _COLUMNS] for row in csv.DictReader(lines)])
    except FileNotFoundError:
        return None
    except OSError as error:
        notes.append(f"{path.name} is left out: {error.strerror}")
        return None
    except (ValueError, KeyError, TypeError, csv.Error):
        notes.append(f"{path.name} is left out: expected rows of {', '.join(_COLUMNS)}")
        return None
    points = points.reshape(-1, 3)
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        return None
    times_s, energies_j, bounds_j = points[np.argsort(points[:, 0], kind="stable")].T
    return FrontierPoints(times_s=times_s, energies_j=energies_j, bounds_j=bounds_j)
