"""What is killed, how, and under which control: the cases of the kill matrix, and the table of what came of them."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """A process of a node on which a job trains."""

    TRAINER = "trainer"
    AGENT = "agent"
    LEASE_HOLDER = "lease holder"
    CLOCKD = "clockd"
    PLANNER = "planner"


class Way(StrEnum):
    """How parts are killed."""

    GROUP = "cgroup.kill"
    NAMESPACE = "death of a PID namespace"
    LOOP = "SIGKILL in a loop"
    TERM = "SIGTERM, then SIGKILL"


class Control(StrEnum):
    """Who sets clocks."""

    CLOCKD = "clockd"
    DIRECT = "direct"


class Result(StrEnum):
    """What became of the GPU's clock.

    HELD is a restore at once, and later a lock under the living lease of the job that trains on. SWEPT is a lock that
    nothing was left to restore, and that the node's sweep has lifted.
    """

    UNLOCKED = "unlocked"
    HELD = "held"
    SWEPT = "swept"
    LOCKED = "LOCKED"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run.

    Attributes:
        killed: The parts that really die: see ``effective_parts``.
    """

    killed: frozenset[Part]
    way: Way
    control: Control

    @property
    def leaves_nothing(self) -> bool:
        """Whether no process is left that could restore the clock."""
        return {Part.TRAINER, Part.AGENT, Part.LEASE_HOLDER} <= self.killed

    @property
    def leaves_job(self) -> bool:
        """Whether the trainer goes on."""
        return Part.TRAINER not in self.killed

    @property
    def ends_lease(self) -> bool:
        """Whether the lease on the clock ends, for a moment at least."""
        return self.killed != {Part.PLANNER}

    def __str__(self) -> str:
        return f"{describe_parts(self.killed)} by {self.way} under {self.control}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a case.

    Attributes:
        seconds: [s] from the last kill to the restore, or to the end of the trainer, whichever restore took longer.
        detail: What went wrong; empty if nothing did.
    """

    case: Case
    result: Result
    seconds: float
    detail: str = ""


def effective_parts(chosen: frozenset[Part], way: Way, control: Control) -> frozenset[Part]:
    """Which parts die when some are chosen.

    clockd is the lease holder under its control, and is not there under direct control. A PID namespace is a container
    of the job, whose first process is the trainer: it dies as a whole, the lease process of direct control with it.
    clockd and the planner have PID namespaces of their own.
    """
    holder = Part.CLOCKD if control is Control.CLOCKD else Part.LEASE_HOLDER
    parts = {holder if part is Part.LEASE_HOLDER else part for part in chosen}
    if control is Control.DIRECT:
        parts.discard(Part.CLOCKD)
    contained = {Part.TRAINER, Part.AGENT} | ({Part.LEASE_HOLDER} if control is Control.DIRECT else set())
    if way is Way.NAMESPACE and parts & contained:
        parts |= contained
    return frozenset(parts)


def subsets() -> Iterator[frozenset[Part]]:
    """Every subset of the parts but the empty one, small ones first."""
    for size in range(1, len(Part) + 1):
        yield from map(frozenset, itertools.combinations(Part, size))


def all_cases() -> list[Case]:
    """One for each way, control and set of parts that dies; subsets that come to the same are one."""
    cases: dict[Case, None] = {}
    for chosen, way, control in itertools.product(subsets(), Way, Control):
        killed = effective_parts(chosen, way, control)
        if killed:
            cases[Case(killed=killed, way=way, control=control)] = None
    return list(cases)


def describe_parts(parts: frozenset[Part]) -> str:
    """In the order of their definition."""
    return " + ".join(part for part in Part if part in parts)


def table(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Heads, and a row for each subset of the parts with a cell for each way and control."""
    columns = list(itertools.product(Way, Control))
    found = {outcome.case: outcome for outcome in outcomes}
    rows = [["killed", *(f"{way}, {control}" for way, control in columns)]]
    for chosen in subsets():
        cells = [_cell(found, chosen, way, control) for way, control in columns]
        if any(cells):
            rows.append([describe_parts(chosen), *cells])
    return rows


def _cell(found: Mapping[Case, Outcome], chosen: frozenset[Part], way: Way, control: Control) -> str:
    killed = effective_parts(chosen, way, control)
    if not killed:
        return "nothing dies"
    outcome = found.get(Case(killed=killed, way=way, control=control))
    return "" if outcome is None else f"{outcome.result} {outcome.seconds:.2f} s"
