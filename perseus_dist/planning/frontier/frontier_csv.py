"""The frontier as a CSV, for spreadsheets and checks."""

import os

from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.output_file import write_output
from perseus_dist.units import j_from_uj, s_from_ps

HEADER = "time_s,energy_j,lower_bound_j"


def write_frontier_csv(frontier: Frontier, path: str | os.PathLike[str]) -> None:
    """Write the plans worth choosing for a deadline: ascending time, falling energy, and the bound at that time.

    Every number is the shortest text that reads back the same.

    Raises:
        OutputError: The place cannot be written to; nothing is left half-written.
    """
    time_ps, total_uj = frontier.time_ps[frontier.deadline_points], frontier.total_uj[frontier.deadline_points]
    columns = (s_from_ps(time_ps), j_from_uj(total_uj), j_from_uj(frontier.bound.total_uj(time_ps)))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    lines = (f"{time_s!r},{energy_j!r},{bound_j!r}\n" for time_s, energy_j, bound_j in rows)
    write_output(path, "".join([f"{HEADER}\n", *lines]).encode())
