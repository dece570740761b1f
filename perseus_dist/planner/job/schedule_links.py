"""Links of a schedule: which computations send results to which on another pp_rank, and what goes before them."""

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_dist.planning.frontier.replay import ends_of
from perseus_dist.planning.schedule.dag import Dag, Int32Array, build_dag
from perseus_dist.planning.schedule.instruction import (
    OVERLAPPED_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    SENDS,
    Instruction,
    Kind,
)
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule

Int64Array = NDArray[np.int64]

_COMPUTATIONS = frozenset(Kind)
_BACKWARDS = (Kind.BACKWARD, Kind.INPUT_GRADIENT)


class Way(NamedTuple):
    """One direction of a link, by the places of computations in the order of all ranks, one after the other.

    Attributes:
        sent: (num_transfers) computations whose results are sent.
        received: (num_transfers) computations that begin with them.
    """

    sent: Int64Array
    received: Int64Array


class Precedence(NamedTuple):
    """Precedence in an iteration, by indices of instructions and, where they take time, transfers.

    Attributes:
        num_nodes: Instructions and transfers.
        edge_from, edge_to: (num_edges) the first ends before the second begins.
        computations: (num_computations) indices of the computations of all ranks, one after the other.
        transfers: (num_transfers) indices of the transfers.
        link: (num_transfers) indices into ``links``.
        links: Sending stage and kind.
    """

    num_nodes: int
    edge_from: Int32Array
    edge_to: Int32Array
    computations: Int64Array
    transfers: Int64Array
    link: Int64Array
    links: tuple[tuple[int, str], ...]

    def ends_ns(self, durations_ns: Int64Array) -> Int64Array:
        """(num_nodes) [ns] when each ends at the earliest, of (num_nodes) durations."""
        return ends_of(durations_ns, self.edge_from, self.edge_to)


class Replay:
    """The durations of an iteration, played with other transfers.

    Attributes:
        measured_ns: [ns] of the iteration, on the first pp_rank, so that clocks of hosts do not matter.
    """

    def __init__(self, precedence: Precedence, num_on_first: int, begins_ns: Int64Array, ends_ns: Int64Array) -> None:
        """Play one.

        Args:
            precedence: With its transfers.
            num_on_first: Computations of the first pp_rank.
            begins_ns: (num_computations) [ns] of all ranks, one after the other.
            ends_ns: The same.
        """
        last = num_on_first - 1
        self.measured_ns = int(ends_ns[last] - begins_ns[0])
        self._precedence = precedence
        self._first, self._last = int(precedence.computations[0]), int(precedence.computations[last])
        self._durations_ns = np.zeros(precedence.num_nodes, dtype=np.int64)
        self._durations_ns[precedence.computations] = ends_ns - begins_ns

    def lasts_ns(self, transfers_ns: Mapping[tuple[int, str], float]) -> int:
        """[ns] of the iteration with transfers that take this long [ns] by (sending stage, kind), others nothing."""
        of_links_ns = np.array([round(transfers_ns.get(link, 0)) for link in self._precedence.links], dtype=np.int64)
        self._durations_ns[self._precedence.transfers] = of_links_ns[self._precedence.link]
        ends_ns = self._precedence.ends_ns(self._durations_ns)
        return int(ends_ns[self._last] - ends_ns[self._first] + self._durations_ns[self._first])


class Links(NamedTuple):
    """Links of a schedule.

    Attributes:
        num_computations: (num_ranks) of each.
        sends_block: As of ``Schedule``.
        rank_of_stage: pp_rank of each stage.
        ways: By sending stage; forward, and backward from the stage after it.
        has_own_transfers: The schedule names its transfers itself, or runs forwards and backwards as one.
        precedence: Where calls hold pp_ranks up, and no transfer takes time.
    """

    num_computations: tuple[int, ...]
    sends_block: bool
    rank_of_stage: tuple[int, ...]
    ways: dict[int, tuple[Way, Way]]
    has_own_transfers: bool
    precedence: Precedence | None

    @property
    def all_ways(self) -> list[Way]:
        """Of each link, there and back."""
        return [way for ways in self.ways.values() for way in ways]

    @property
    def all_keys(self) -> list[tuple[int, str]]:
        """Sending stage and kind of each of ``all_ways``."""
        return [key for stage in self.ways for key in (way_there(stage), way_back(stage))]


def way_there(stage: int) -> tuple[int, str]:
    """Sending stage and kind of a link's forward transfers."""
    return stage, SEND_FORWARD


def way_back(stage: int) -> tuple[int, str]:
    """The same of its backward transfers."""
    return stage + 1, SEND_BACKWARD


@lru_cache(maxsize=64)
def links_of(schedule_text: str) -> Links:
    """Of a schedule that ``parse_schedule`` accepts."""
    schedule = parse_schedule(schedule_text)
    orders = [[one for one in order if one.kind in _COMPUTATIONS] for order in schedule.ranks]
    place = {one: at for at, one in enumerate(one for order in orders for one in order)}
    is_named = any(one.kind in SENDS or one.kind == OVERLAPPED_FORWARD for order in schedule.ranks for one in order)
    holds_up = bool(schedule.joint) or schedule.exchange.holds_up
    return Links(
        num_computations=tuple(map(len, orders)),
        sends_block=schedule.sends_block,
        rank_of_stage=tuple(schedule.rank_of_stage),
        ways=_ways(schedule, place),
        has_own_transfers=is_named,
        precedence=_precedence(build_dag(schedule)) if holds_up else None,
    )


@lru_cache(maxsize=8)
def with_transfers(schedule_text: str) -> Precedence:
    """Of a schedule where transfers take time."""
    schedule = parse_schedule(schedule_text)
    return _precedence(build_dag(schedule, {(stage, kind) for stage in range(schedule.num_stages) for kind in SENDS}))


def _precedence(dag: Dag) -> Precedence:
    is_computation = [one.kind in _COMPUTATIONS for one in dag.instructions[: dag.num_scheduled]]
    number: dict[tuple[int, str], int] = {}
    link = [number.setdefault(one[:2], len(number)) for one in dag.instructions[dag.num_scheduled :]]
    return Precedence(
        num_nodes=len(dag.instructions),
        edge_from=np.ascontiguousarray(dag.edges[:, 0]),
        edge_to=np.ascontiguousarray(dag.edges[:, 1]),
        computations=np.flatnonzero(is_computation),
        transfers=np.arange(dag.num_scheduled, len(dag.instructions)),
        link=np.array(link, dtype=np.int64),
        links=tuple(number),
    )


def _ways(schedule: Schedule, place: dict[Instruction, int]) -> dict[int, tuple[Way, Way]]:
    pairs: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # by the stages of both
    for sent, at in place.items():
        kinds, step = ((Kind.FORWARD,), 1) if sent.kind == Kind.FORWARD else (_BACKWARDS, -1)
        if sent.kind in kinds:
            received = (Instruction(sent.stage + step, kind, sent.microbatch) for kind in kinds)
            pairs[sent.stage, sent.stage + step] += [(at, place[one]) for one in received if one in place]

    def way(sender: int, receiver: int) -> Way:
        places = np.array(pairs[sender, receiver], dtype=np.int64).reshape(-1, 2)
        return Way(places[:, 0], places[:, 1])

    return {
        stage: (way(stage, stage + 1), way(stage + 1, stage))
        for stage, (sender, receiver) in enumerate(pairwise(schedule.rank_of_stage))
        if sender != receiver
    }
