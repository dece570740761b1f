"""The rank's plan tables and the switch in force: which clocks an iteration runs at.

Revisions never go back: what is older than what is held is dropped. A pipeline with a slow rank may have a table of its
own beside the one that all share, its base, whose profile stays the one to compare with. A switch is followed from its
effective iteration on, or from the next iteration if it came later; until then the one before it stands.
"""

import sys
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from perseus_dist.agent.following.moments import Change
from perseus_dist.messages.from_planner import PlanTable, Switch
from perseus_dist.messages.terms import NO_POINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The clocks of one iteration.

    Attributes:
        clocks_mhz: (num_instructions) 0 leaves the clock as it is; None releases it.
        changes: Of a rank whose instructions cannot be seen, ascending: its later clocks, by time.
        latency_ns: What the plan reckons a clock change with.
        latencies_ns: The same of the clocks [MHz] that have a latency of their own.
        max_slowdown, deadline_s, is_waiting: As in ``Switch``.
    """

    table_revision: int = 0
    point: int = NO_POINT
    clocks_mhz: tuple[int, ...] | None = None
    changes: tuple[Change, ...] = ()
    latency_ns: int = 0
    latencies_ns: Mapping[int, int] = field(default_factory=dict)
    max_slowdown: float = 0.0
    deadline_s: float = 0.0
    is_waiting: bool = False


RELEASED = Row()


class PlanView:
    """Tables by revision, and the switches that count.

    Attributes:
        followed: The switch that is followed, or will be; None before the first and after a release.
        newest_switch: The newest one ever told; None before the first.
        trouble: Why the last table was not taken, in a sentence; empty while all is well.
    """

    def __init__(self, *, num_instructions: int, schedule_digest: str, clocks_mhz: Collection[int]) -> None:
        self._num_instructions = num_instructions
        self._schedule_digest = schedule_digest
        self._allowed_mhz = frozenset(clocks_mhz)
        self._tables: dict[int, PlanTable] = {}
        self._rows: list[tuple[int, Row]] = []  # (from this iteration on, row), ascending
        self._waiting: Switch | None = None  # for its table
        self.followed: Switch | None = None
        self.newest_switch: Switch | None = None
        self.trouble = ""

    @property
    def table_revision(self) -> int:
        """The newest table held that all pipelines share; 0 for none."""
        return max((table.revision for table in self._tables.values() if not table.base_revision), default=0)

    @property
    def newest_table(self) -> PlanTable | None:
        """That one, with the newest slice of the profile."""
        return self._tables.get(self.table_revision)

    def apply_table(self, table: PlanTable, iteration: int) -> None:
        """Hold a table, unless it does not fit this rank or a newer one is held.

        Args:
            table: As the planner sent it.
            iteration: Begun last.
        """
        held = (one.revision for one in self._tables.values() if bool(one.base_revision) == bool(table.base_revision))
        if table.revision < max(held, default=0):
            return
        self.trouble = self._misfit(table)
        if self.trouble:
            return
        in_force = self.row(iteration).table_revision
        self._tables = {r: t for r, t in self._tables.items() if r == in_force or _are_one_base(t, table)}
        self._tables[table.revision] = table
        if self._waiting is not None and self._waiting.table_revision == table.revision:
            self._follow(self._waiting, iteration)

    def apply_switch(self, switch: Switch, iteration: int) -> None:
        """Follow a switch in time, as soon as its table is there, unless a newer one is known."""
        if self.newest_switch is not None and switch.switch_revision < self.newest_switch.switch_revision:
            return
        self.newest_switch = switch
        if switch.point == NO_POINT or switch.table_revision in self._tables:
            self._follow(switch, iteration)
        else:
            self._waiting = switch

    def release(self) -> None:
        """No clocks at once, until the next switch."""
        self._rows = []
        self._waiting = self.followed = None

    def row(self, iteration: int) -> Row:
        """The clocks of an iteration."""
        for first, row in reversed(self._rows):
            if first <= iteration:
                return row
        return RELEASED

    def _follow(self, switch: Switch, iteration: int) -> None:
        self._waiting = None
        self.followed = switch
        row = self._row_of(switch)
        in_force = self.row(iteration)
        # One that was followed already, told again after a break, goes on; a late one begins with the next iteration.
        first = iteration if row == in_force else max(switch.effective_iteration, iteration + 1)
        self._rows = [(iteration, in_force), (first, row)]

    def _row_of(self, switch: Switch) -> Row:
        if switch.point == NO_POINT:
            return RELEASED
        table = self._tables[switch.table_revision]
        if switch.point == table.num_points and self._allowed_mhz:
            full_mhz = (max(self._allowed_mhz),) * self._num_instructions
            return self._row(switch, table, full_mhz, ())
        if switch.point >= table.num_points:
            self.trouble = (
                f"switch to point {switch.point} of table {table.revision}, which has {table.num_points} points"
            )
            return RELEASED
        clocks = array("H", table.clocks_mhz[2 * switch.point * table.num_instructions :][: 2 * table.num_instructions])
        if sys.byteorder == "big":
            clocks.byteswap()
        return self._row(switch, table, tuple(clocks[: self._num_instructions]), _changes(table, switch.point, clocks))

    @staticmethod
    def _row(switch: Switch, table: PlanTable, clocks_mhz: tuple[int, ...], changes: tuple[Change, ...]) -> Row:
        return Row(
            table_revision=table.revision,
            point=switch.point,
            clocks_mhz=clocks_mhz,
            changes=changes,
            latency_ns=round(table.switch_latency_s * 1e9),
            latencies_ns={
                clock_mhz: round(latency_s * 1e9)
                for clock_mhz, latency_s in zip(table.change_clocks_mhz, table.change_latencies_s, strict=True)
            },
            max_slowdown=switch.max_slowdown,
            deadline_s=switch.deadline_s,
            is_waiting=switch.is_waiting,
        )

    def _misfit(self, table: PlanTable) -> str:
        if table.base_revision not in (0, self.table_revision):
            return (
                f"table {table.revision} goes with table {table.base_revision}, the newest that this rank holds is "
                f"table {self.table_revision}"
            )
        if table.schedule_digest != self._schedule_digest:
            return (
                f"table {table.revision} is for schedule {table.schedule_digest[:12]}, this rank runs "
                f"{self._schedule_digest[:12]}"
            )
        num_later = table.num_instructions - 1 if table.moments_ns else 0
        if len(table.moments_ns) != table.num_points * num_later:
            return (
                f"table {table.revision} has {len(table.moments_ns)} moments, expected {num_later} for each of "
                f"{table.num_points} points"
            )
        if num_later and self._num_instructions != 1:
            return f"table {table.revision} changes clocks by time, this rank has a clock for each instruction"
        if table.num_instructions - num_later != self._num_instructions:
            return (
                f"table {table.revision} has {table.num_instructions} instructions, this rank has "
                f"{self._num_instructions}"
            )
        if len(table.clocks_mhz) != 2 * table.num_points * table.num_instructions:
            return (
                f"table {table.revision} has {len(table.clocks_mhz)} bytes of clocks, expected 2 for each of "
                f"{table.num_points} points and {table.num_instructions} instructions"
            )
        clocks = array("H", table.clocks_mhz)
        if sys.byteorder == "big":
            clocks.byteswap()
        unknown = set(clocks) - self._allowed_mhz - {0}
        if unknown and self._allowed_mhz:
            return f"table {table.revision} wants {max(unknown)} MHz, which this GPU does not have or may not be set to"
        return ""


def _changes(table: PlanTable, point: int, clocks_mhz: Sequence[int]) -> tuple[Change, ...]:
    if not table.moments_ns:
        return ()
    num = table.num_instructions - 1
    return tuple(map(Change, table.moments_ns[num * point : num * (point + 1)], clocks_mhz[1:]))


def _are_one_base(held: PlanTable, new: PlanTable) -> bool:
    """Whether one is the base of the other: two tables of a pipeline's own are not held together."""
    return held.revision == new.base_revision or held.base_revision == new.revision
