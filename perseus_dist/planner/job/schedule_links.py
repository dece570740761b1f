"""Links of a schedule: which computations send results to which on another pp_rank, and what goes before them."""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_dist.planning.schedule.dag import build_dag, inputs_of
from perseus_dist.planning.schedule.instruction import (
    OVERLAPPED_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    SENDS,
    Instruction,
    Kind,
)
from perseus_dist.planning.schedule.results import transfers_of
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule

Int64Array = NDArray[np.int64]

_MOST_REPLAYED = 16_384  # instructions and transfers
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
    """Precedence of a schedule's instructions where no transfer takes time, by their places.

    Attributes:
        before: What ends before each begins, each after all of its own.
        computations: (num_computations) places of the computations of all ranks, one after the other.
    """

    before: tuple[tuple[int, ...], ...]
    computations: Int64Array


class TimedOrder(NamedTuple):
    """Precedence of instructions and of transfers that take time, by their places, each after all that it waits for.

    Attributes:
        before: What ends before each begins.
        computations: As of ``Precedence``.
        transfer: Sending stage and kind of each transfer; None of an instruction.
    """

    before: tuple[tuple[int, ...], ...]
    computations: Int64Array
    transfer: tuple[tuple[int, str] | None, ...]


class Links(NamedTuple):
    """Links of a schedule.

    Attributes:
        num_computations: (num_ranks) of each.
        sends_block: As of ``Schedule``.
        rank_of_stage: pp_rank of each stage.
        ways: By sending stage; forward, and backward from the stage after it.
        has_own_transfers: The schedule names its transfers itself, or runs forwards and backwards as one.
        precedence: Where calls hold pp_ranks up.
        is_replayed: Whether ``timed_order`` knows it: it is not so large that replays would keep the planner from its
            other jobs.
    """

    num_computations: tuple[int, ...]
    sends_block: bool
    rank_of_stage: tuple[int, ...]
    ways: dict[int, tuple[Way, Way]]
    has_own_transfers: bool
    precedence: Precedence | None
    is_replayed: bool

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
    num_replayed = sum(map(len, schedule.ranks)) + len(transfers_of(schedule, timed=None))
    is_named = any(one.kind in SENDS or one.kind == OVERLAPPED_FORWARD for order in schedule.ranks for one in order)
    return Links(
        num_computations=tuple(map(len, orders)),
        sends_block=schedule.sends_block,
        rank_of_stage=tuple(schedule.rank_of_stage),
        ways=_ways(schedule, place),
        has_own_transfers=is_named,
        precedence=_precedence(schedule, orders) if schedule.joint or schedule.exchange.holds_up else None,
        is_replayed=num_replayed <= _MOST_REPLAYED,
    )


def _precedence(schedule: Schedule, orders: Sequence[Sequence[Instruction]]) -> Precedence:
    before = {instruction: [*needed] for instruction, needed in inputs_of(schedule).items()}
    for order in schedule.ranks:
        for previous, instruction in pairwise(order):
            before[instruction].append(previous)
    place = {one: at for at, one in enumerate(TopologicalSorter(before).static_order())}
    return Precedence(
        before=tuple(tuple(place[one] for one in before[instruction]) for instruction in place),
        computations=np.array([place[one] for order in orders for one in order], dtype=np.int64),
    )


@lru_cache(maxsize=8)
def timed_order(schedule_text: str) -> TimedOrder | None:
    """Of a schedule; None where it is too large."""
    if not links_of(schedule_text).is_replayed:
        return None
    schedule = parse_schedule(schedule_text)
    dag = build_dag(schedule, {(stage, kind) for stage in range(schedule.num_stages) for kind in SENDS})
    needed: dict[int, list[int]] = {at: [] for at in range(len(dag.instructions))}
    for before, after in dag.edges.tolist():
        needed[after].append(before)
    place = {one: at for at, one in enumerate(TopologicalSorter(needed).static_order())}
    is_computation = [one.kind in _COMPUTATIONS for one in dag.instructions[: dag.num_scheduled]]
    return TimedOrder(
        before=tuple(tuple(place[before] for before in needed[one]) for one in place),
        computations=np.array([place[at] for at, is_one in enumerate(is_computation) if is_one], dtype=np.int64),
        transfer=tuple(None if one < dag.num_scheduled else dag.instructions[one][:2] for one in place),
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
