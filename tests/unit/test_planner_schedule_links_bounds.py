"""Links of schedules, and iterations that are played with other transfers."""

from dataclasses import replace

import numpy as np
import pytest
from test_measured_transfers import MS, played

from perseus_dist.planner.job.measured_transfers import transfers_of_runs
from perseus_dist.planner.job.schedule_links import Links, Replay, Way, links_of, way_back, way_there, with_transfers
from perseus_dist.planning.schedule.instruction import SEND_BACKWARD, SEND_FORWARD
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    format_schedule,
    interleaved,
    joint_exchanges,
    one_f_one_b,
    overlapped,
)
from perseus_dist.planning.schedule.schedule_text import parse_schedule

TWO = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"


def places(way: Way) -> list[tuple[int, int]]:
    """Of a sender and its receiver in the order of all ranks."""
    return list(zip(way.sent.tolist(), way.received.tolist(), strict=True))


def test_results_go_to_the_next_stage_and_back_by_microbatch() -> None:
    links = links_of(TWO)
    assert links.num_computations == (4, 4)
    assert links.rank_of_stage == (0, 1)
    [there, back] = links.all_ways
    assert links.all_keys == [(0, SEND_FORWARD), (1, SEND_BACKWARD)] == [way_there(0), way_back(0)]
    assert places(there) == [(0, 4), (1, 6)]
    assert places(back) == [(5, 2), (7, 3)]


def test_gradients_of_inputs_are_sent_and_those_of_weights_are_not() -> None:
    [there, back] = links_of("0F0 0I0 0W0\n1F0 1I0 1W0").all_ways
    assert (places(there), places(back)) == ([(0, 3)], [(4, 1)])
    [there, back] = links_of("0F0 0B0\n1F0 1I0 1W0").all_ways
    assert (places(there), places(back)) == ([(0, 2)], [(3, 1)])
    [there, back] = links_of("0F0 0I0 0W0\n1F0 1B0").all_ways
    assert (places(there), places(back)) == ([(0, 3)], [(4, 1)])


def test_constants_have_no_place_and_stages_of_one_rank_no_link() -> None:
    links = links_of("0LOAD0 0F0 0B0 0STEP\n1LOAD0 1F0 1B0 1STEP")
    assert links.num_computations == (2, 2)
    assert places(links.all_ways[0]) == [(0, 2)]
    alone = links_of("0F0 1F0 1B0 0B0")
    assert (alone.num_computations, alone.ways, alone.all_ways, alone.all_keys) == ((4,), {}, [], [])
    assert list(links_of(format_schedule(interleaved(pp=2, microbatches=2, chunks=2))).ways) == [0, 1, 2]


def says(text: str) -> tuple[bool, bool, bool]:
    """Whether sends block, calls hold pp_ranks up, and transfers are named."""
    links: Links = links_of(text)
    return links.sends_block, links.precedence is not None, links.has_own_transfers


def test_how_pp_ranks_exchange_says_what_a_pause_may_be() -> None:
    plain = interleaved(pp=2, microbatches=4, chunks=2)
    deferred = replace(one_f_one_b(pp=2, microbatches=4), exchange=Exchange.DEFERRED)
    expected = {
        TWO: (True, False, False),
        format_schedule(plain): (False, False, False),
        format_schedule(joint_exchanges(plain)): (False, True, False),
        format_schedule(replace(plain, exchange=Exchange.OVERLAPPED)): (False, True, False),
        format_schedule(deferred): (False, True, False),
        "0F0 0SEND_F0 0B0\n1F0 1B0": (True, False, True),
        "0F0 0B0\n1F0 1B0 1SEND_B0": (True, False, True),
    }
    assert {text: says(text) for text in expected} == expected
    assert links_of(format_schedule(overlapped(plain))).has_own_transfers


def test_transfers_that_a_schedule_names_are_profiled_and_not_measured() -> None:
    times = played(parse_schedule(TWO), {0: 5 * MS}, [0, 0])
    assert transfers_of_runs(TWO, times)
    named = "0F0 0SEND_F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"
    assert transfers_of_runs(named, times) == ()


@pytest.mark.parametrize("begin_ns", [0, 10**15])
@pytest.mark.parametrize(
    ("transfers_ns", "lasts_ns"),
    [
        ({}, 240 * MS),
        ({way_there(0): 1.0}, 240 * MS + 2),
        ({way_back(0): 3.4}, 240 * MS + 2 * 3),
        ({way_there(0): 5.0 * MS, way_back(0): 7.0 * MS}, 240 * MS + 2 * 12 * MS),
        ({(7, SEND_FORWARD): 5.0 * MS}, 240 * MS),
    ],
)
def test_an_iteration_is_played_with_other_transfers_and_nothing_for_those_that_are_not_known(
    transfers_ns: dict[tuple[int, str], float], lasts_ns: int, begin_ns: int
) -> None:
    text = "0F0 0B0 0F1 0B1\n1F0 1B0 1F1 1B1"  # one after the other, 20 and 40 ms each
    times = played(parse_schedule(text), {0: 5 * MS}, [begin_ns, 0], blocks=False)
    begins_ns, ends_ns = (
        np.array([ns for one in times for ns in getattr(one, side)], dtype=np.int64)
        for side in ("begins_ns", "ends_ns")
    )
    replay = Replay(with_transfers(text), links_of(text).num_computations[0], begins_ns, ends_ns)
    assert replay.measured_ns == times[0].ends_ns[-1] - begin_ns
    assert replay.lasts_ns(transfers_ns) == lasts_ns
