"""Profiles: what each instruction takes at each clock."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseus_dist.library import arguments
from perseus_dist.library.pictures import can_draw, draw_profile, html_picture
from perseus_dist.library.tables import Column, format_table, html_table
from perseus_dist.planning.profile import profile as core
from perseus_dist.planning.profile.profile_csv import REQUIRED
from perseus_dist.planning.schedule.instruction import profile_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS: tuple[Column, ...] = (
    ("stage", "stage", "d"),
    ("instruction", "instruction", "s"),
    ("GPUs", "num_gpus", "d"),
    ("clocks", "num_clocks", "d"),
    ("from\n[MHz]", "min_clock_mhz", "d"),
    ("to\n[MHz]", "max_clock_mhz", "d"),
    ("time at max\n[s]", "time_at_max_clock_s", ".6f"),
    ("energy at max\n[J]", "energy_at_max_clock_j", ".3f"),
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Profile(core.Profile):
    """Time [s] and energy [J] of every instruction of every stage, at each clock [MHz] that was tried.

    Attributes:
        source: The file that it was read from.
        measurements: By (stage, kind), arrays over GPUs and clocks: ``clocks_mhz`` (num_clocks) descending, ``times_s``
            and ``energies_j`` (num_gpus, num_clocks) of one GPU, and how they spread.
        rejected: Rows that disagree grossly with the others of their clock, and are left out.
        clock_changes: By stage, how long changes to clocks take: ``clocks_mhz``, ``times_s`` and ``p90_s``.

    Example:
        >>> profile = read_profile("profile.csv")
        >>> profile
        <Profile profile.csv: 4 stages, 8 instructions, 855-1410 MHz>
        >>> float(profile.measurements[0, "F"].times_s[0, 0])  # [s] at the maximum clock
        0.036827
    """

    def summary(self) -> str:
        """A line for each stage and instruction: its clocks, and time and energy of one GPU at the highest.

        Example:
            >>> print(read_profile("profile.csv").summary().splitlines()[2])
                0  forward         1      38    855   1410     0.036827         14.033
        """
        return format_table(_COLUMNS, self._records(), is_plain=True)

    def plot(self, *, title: str | None = None) -> "Figure":
        """Draw time and energy of one GPU over the clock: a column for each instruction, a curve for each stage.

        Args:
            title: Above the picture; the file's name unless given.

        Returns:
            The figure, for ``savefig``; a notebook shows it.

        Raises:
            ModuleNotFoundError: There is no matplotlib; the message says how to install it.

        Example:
            >>> read_profile("profile.csv").plot().savefig("profile.svg")
        """
        return draw_profile(self, title=Path(self.source).name if title is None else title)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimates as a CSV that ``read_profile`` and the command line read.

        Args:
            path: Ends in ``.csv``.

        Raises:
            ValueError: ``path`` is no path, or ends otherwise.
            OutputError: The place cannot be written to.

        Example:
            >>> read_profile("profile.csv").save("copy.csv")
        """
        core.write_profile(
            self, arguments.path("path", path, expected="a file's path, such as 'profile.csv'", suffixes=(".csv",))
        )

    def __repr__(self) -> str:
        found = (int(clock) for found in self.measurements.values() for clock in found.clocks_mhz)
        clocks_mhz = [clock for clock in found if clock]  # transfers have none
        return (
            f"<Profile {Path(self.source).name}: {self.num_stages} stages, {len(self.measurements)} instructions, "
            f"{min(clocks_mhz)}-{max(clocks_mhz)} MHz>"
        )

    def _repr_html_(self) -> str:
        return html_table(_COLUMNS, self._records()) + (html_picture(self.plot()) if can_draw() else "")

    def _records(self) -> Iterator[dict[str, Any]]:
        for (stage, kind), found in self.measurements.items():
            yield {
                "stage": stage,
                "instruction": profile_name(kind),
                "num_gpus": len(found.gpus),
                "num_clocks": len(found.clocks_mhz),
                "min_clock_mhz": int(found.clocks_mhz[-1]),
                "max_clock_mhz": int(found.clocks_mhz[0]),
                "time_at_max_clock_s": float(found.times_s[:, 0].max()),
                "energy_at_max_clock_j": float(found.energies_j[:, 0].mean()),
            }


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile CSV with the columns ``stage,instruction,frequency,time,energy`` in MHz, s and J.

    Time and energy are those of ONE GPU for one microbatch. Instructions are ``forward`` and ``backward``, or
    ``backward_input`` and ``backward_weight`` in place of the latter, or a constant's name. Repeated rows are samples:
    what counts is their mean, without gross outliers. ``samples``, ``time_std``, ``energy_std`` and ``gpu`` may stand
    beside, the latter for the GPUs of a tensor-parallel group.

    Args:
        path: The file.

    Raises:
        ValueError: The file cannot be read, or cannot be planned with; names line and column.

    Example:
        >>> read_profile("profile.csv").num_stages
        4
    """
    profile = core.read_profile(_path("path", path, "the path of a profile CSV, such as 'profile.csv'"))
    return Profile(
        source=profile.source,
        measurements=profile.measurements,
        rejected=profile.rejected,
        clock_changes=profile.clock_changes,
    )


def as_profile(value: object) -> core.Profile:
    """The argument ``profile``: a profile, or the path of one.

    Raises:
        ArgumentError: It is neither.
        ProfileError: It cannot be read.
    """
    if isinstance(value, core.Profile):
        return value
    return core.read_profile(_path("profile", value, "a Profile or the path of a profile CSV, such as 'profile.csv'"))


def _path(name: str, value: object, expected: str) -> Path:
    if hasattr(value, "to_csv"):
        columns = ", ".join(REQUIRED)
        expected = f"a path; give that of value.to_csv('profile.csv', index=False) with the columns {columns}"
    return arguments.path(name, value, expected=expected)
