"""Ranks of a torchtitan job: the order of its dimensions, and which of them are one node of a plan."""

from types import SimpleNamespace

import pytest

from perseus_dist.pipelining.titan import place_in
from perseus_dist.training.rank.job_member import TopologyError


def dims(pp: int = 1, replicate: int = 1, shard: int = 1, cp: int = 1, tp: int = 1, ep: int = 1) -> SimpleNamespace:
    return SimpleNamespace(pp=pp, cp=cp, tp=tp, ep=ep, world_size=pp * replicate * shard * cp * tp)


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        (dims(pp=4), (4, 1, 1)),
        (dims(pp=2, shard=2), (2, 2, 1)),
        (dims(pp=2, replicate=2, shard=2, cp=2, tp=2), (2, 4, 4)),
        (dims(pp=2, shard=4, ep=4), (2, 1, 4)),  # experts of all four: one node
        (dims(pp=2, shard=4, tp=2, ep=4), (2, 2, 4)),
        (dims(pp=2, shard=2, tp=4, ep=2), (2, 2, 4)),
    ],
)
def test_every_rank_has_a_place_of_its_own(layout: SimpleNamespace, sizes: tuple[int, int, int]) -> None:
    places = [place_in(layout, rank=rank, local_rank=rank % 8) for rank in range(layout.world_size)]
    assert {(place.pp_size, place.dp_size, place.tp_size) for place in places} == {sizes}
    pp_size, dp_size, tp_size = sizes
    expected = [(p, d, t) for p in range(pp_size) for d in range(dp_size) for t in range(tp_size)]  # tp is innermost
    assert [(place.pp_rank, place.dp_rank, place.tp_rank) for place in places] == expected


def test_groups_that_only_overlap_are_refused() -> None:
    with pytest.raises(TopologyError, match="by 2 ranks together and experts by 3"):
        place_in(dims(pp=2, shard=3, tp=2, ep=3), rank=0, local_rank=0)
