"""Schedules of the same kind in other sizes, with their constants; none is guessed of a kind that is not known."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.calls.dualpipev import dualpipev
from perseus_dist.planning.schedule.instruction import LOAD, NO_MICROBATCH, Instruction, Kind
from perseus_dist.planning.schedule.resized import resized
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    Schedule,
    gpipe,
    interleaved,
    joint_exchanges,
    one_f_one_b,
    overlapped,
)
from perseus_dist.planning.schedule.schedule_text import parse_schedule

CHUNKS = 2
INTERLEAVED: dict[str, Callable[[Schedule], Schedule]] = {
    "plain": lambda schedule: replace(schedule, exchange=Exchange.OVERLAPPED),
    "joint": joint_exchanges,
    "pairs": overlapped,
    "joint pairs": lambda schedule: overlapped(joint_exchanges(schedule)),
}


def with_constants(schedule: Schedule, *, loads: bool) -> Schedule:
    """As frameworks run it: the first and the last pp_rank load, and have tied weights; all reduce and step."""
    last = schedule.num_ranks - 1
    ranks = []
    for pp_rank, order in enumerate(schedule.ranks):
        is_outer = pp_rank in (0, last)
        own: list[Instruction] = []
        for one in order:
            if loads and is_outer and one.kind == Kind.FORWARD:
                own.append(Instruction(one.stage, LOAD, one.microbatch))
            own.append(one)
        at_end = [*(["TIED"] if is_outer else []), "REDUCE", "STEP"]
        ranks.append((*own, *(Instruction(pp_rank, kind, NO_MICROBATCH) for kind in at_end)))
    return replace(schedule, ranks=tuple(ranks), exchange=Exchange.SERIAL if loads else schedule.exchange)


@pytest.mark.parametrize("make", [one_f_one_b, gpipe])
@pytest.mark.parametrize("loads", [False, True])
def test_other_microbatches_and_stages(make: Callable[..., Schedule], *, loads: bool) -> None:
    for microbatches in (4, 5, 12):
        before = with_constants(make(pp=4, microbatches=microbatches), loads=loads)
        for pp in (2, 3, 4, 6):
            for wanted in (1, 3, 4, 16):
                expected = with_constants(make(pp=pp, microbatches=wanted), loads=loads)
                assert resized(before, microbatches=wanted, pp=pp) == expected


def test_two_stages_do_not_tell_of_one_between_them() -> None:
    before = with_constants(one_f_one_b(pp=2, microbatches=4), loads=True)
    assert resized(before, microbatches=8) == with_constants(one_f_one_b(pp=2, microbatches=8), loads=True)
    assert resized(before, microbatches=4, pp=3) is None


@pytest.mark.parametrize("kind", INTERLEAVED)
@pytest.mark.parametrize("group", [None, 8])
def test_interleaved_ones_keep_chunks_and_groups(kind: str, group: int | None) -> None:
    def make(microbatches: int) -> Schedule:
        plain = interleaved(pp=4, microbatches=microbatches, chunks=CHUNKS, microbatch_group_size=group)
        return with_constants(INTERLEAVED[kind](plain), loads=False)

    for wanted in (8, 16, 24):
        assert resized(make(16), microbatches=wanted) == make(wanted)
    with pytest.raises(ScheduleError):
        make(17 if group is None else 2)
    assert resized(make(16), microbatches=17 if group is None else 2) is None


def test_dualpipev_keeps_its_kind() -> None:
    def make(pp: int, microbatches: int) -> Schedule:
        bare = dualpipev(pp=pp, microbatches=microbatches)
        return replace(with_constants(bare, loads=False), exchange=bare.exchange)

    assert resized(make(4, 10), microbatches=13) == make(4, 13)
    assert resized(make(4, 10), microbatches=9, pp=3) == make(3, 9)
    assert resized(make(4, 10), microbatches=7) is None


def test_one_rank_that_runs_pairs() -> None:
    def make(microbatches: int) -> Schedule:
        return overlapped(one_f_one_b(pp=1, microbatches=microbatches))

    assert resized(make(4), microbatches=8) == make(8)


@pytest.mark.parametrize(
    "text",
    [
        "0F0 0F1 0B1 0B0\n1F0 1B0 1F1 1B1\n",  # another order
        "0F0 0I0 0F1 0I1 0W0 0W1\n1F0 1I0 1W0 1F1 1I1 1W1\n",
        "0F0 0F1 0STEP 0B0 0B1\n1F0 1B0 1F1 1B1 1STEP\n",  # a constant amid the computations
        "0F0 0F1 0B0 0B1\n1F0 1LOAD1 1B0 1F1 1B1\n",  # that is another microbatch's
    ],
)
def test_kinds_that_are_not_known(text: str) -> None:
    assert resized(parse_schedule(text), microbatches=4) is None
