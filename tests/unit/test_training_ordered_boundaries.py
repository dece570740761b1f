"""Boundaries are published while they come in the promised order, and no longer."""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.record import Event
from perseus_dist.boundaries.ring import RingWriter
from perseus_dist.hooks import Hook
from perseus_dist.planning.schedule.instruction import Instruction, parse_instruction
from perseus_dist.training.rank.ordered_boundaries import OrderedBoundaries

ORDER = [parse_instruction(token) for token in ["1LOAD0", "1F0", "4F0", "4B0", "1B0", "1TIED", "1REDUCE", "1STEP"]]


class Rank:
    """One rank, and what its agent reads."""

    def __init__(self) -> None:
        ring, doorbell_fd = RingWriter(), os.eventfd(0, os.EFD_NONBLOCK)
        self._fds = os.dup(ring.fd), os.dup(doorbell_fd)
        self.reader = BoundaryReader(*self._fds)
        self.boundaries = OrderedBoundaries(Hook(ring, doorbell_fd), ORDER, rank=3)
        self._iteration = -1

    def run(self, order: Sequence[Instruction], *work: int | None) -> list[str]:
        """Run an iteration, which did this work; what was published, short."""
        self._iteration += 1
        self.boundaries.begin_iteration(self._iteration)
        for instruction in order:
            self.boundaries.begin(instruction)
            self.boundaries.end(instruction)
        self.boundaries.end_iteration(self._iteration, *cast("tuple[int, int | None]", work))
        return self.published()

    def published(self) -> list[str]:
        read = [passed.boundary for passed in self.reader.read(0)]
        return [
            f"WORK {b.timed_sequence} {b.device_ns}"
            if b.event is Event.WORK
            else f"{b.event.name} {b.kind}{b.chunk}"
            if b.kind
            else b.event.name
            for b in read
        ]

    def close(self) -> None:
        self.boundaries.hook.close()
        self.reader.close()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def rank() -> Iterator[Rank]:
    rank = Rank()
    yield rank
    rank.close()


def test_chunks_are_counted_and_synchronisation_is_marked(rank: Rank) -> None:
    assert rank.run(ORDER) == [
        "ITERATION_BEGIN",
        *(f"{event} {kind}" for kind in ("LOAD0", "F0", "F1", "B1", "B0") for event in ("BEGIN", "END")),
        "MARK grad_sync0",
        *(f"{event} {kind}" for kind in ("TIED0", "REDUCE0", "STEP0") for event in ("BEGIN", "END")),
        "ITERATION_END",
    ]


@pytest.mark.parametrize(
    ("order", "num_published"),
    [
        ([ORDER[1], ORDER[0], *ORDER[2:]], 0),  # swapped
        (ORDER[:4], 8),  # too short
        ([*ORDER, ORDER[-1]], 16 + 1),  # too long
        ([Instruction(1, "LOAD", 1), *ORDER[1:]], 0),  # another microbatch
        ([*ORDER[:6], Instruction(9, "STEP", -1)], 12 + 1),  # a stage of another rank
    ],
)
def test_another_order_releases_once_and_is_silent_until_it_fits_again(
    rank: Rank, order: list[Instruction], num_published: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = rank.run(ORDER)
    with caplog.at_level(logging.WARNING):
        astray = rank.run(order)
        assert astray[-1] == "MARK release0"
        assert len(astray) == 1 + num_published + 1
        assert rank.run(order) == []
        assert rank.run(ORDER) == []  # followed
        assert rank.run(ORDER) == whole
        assert rank.run(order)[-1] == "MARK release0"
    (record,) = caplog.records
    assert "rank 3" in record.getMessage()


@pytest.mark.parametrize(
    ("work", "published"), [((4096,), ["WORK 4096 -1"]), ((0, 250), ["WORK 0 250"]), ((0, 0), ["WORK 0 0"]), ((0,), [])]
)
def test_work_is_told_just_before_the_end_where_it_is_known(
    rank: Rank, work: tuple[int | None, ...], published: list[str]
) -> None:
    assert rank.run(ORDER, *work)[-1 - len(published) :] == [*published, "ITERATION_END"]
    astray = rank.run(ORDER[1:], *work)
    followed = rank.run(ORDER, *work)
    assert not [said for said in (*astray, *followed) if said.startswith("WORK")]


def test_an_abandoned_iteration_releases(rank: Rank) -> None:
    rank.boundaries.begin_iteration(0)
    rank.boundaries.begin(ORDER[0])
    rank.boundaries.abandon_iteration()
    assert rank.published() == ["ITERATION_BEGIN", "BEGIN LOAD0", "MARK release0"]
    assert rank.run(ORDER) == []
    assert len(rank.run(ORDER)) == 2 * len(ORDER) + 3
