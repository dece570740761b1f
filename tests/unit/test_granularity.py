"""Which instructions share a clock."""

import pytest

from perseus_dist.planning.schedule.granularity import Granularity, Phase, phases_of, sharing
from perseus_dist.planning.schedule.schedule import Schedule, gpipe, interleaved, one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule


def phases(schedule: Schedule) -> list[str]:
    """By pp_rank, a letter for each instruction."""
    letters = {Phase.WARM_UP: "w", Phase.STEADY: "s", Phase.COOL_DOWN: "c"}
    return ["".join(letters[phase] for phase in phases_of(order)) for order in schedule.ranks]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (one_f_one_b(pp=3, microbatches=4), ["wwwssccc", "wwsssscc", "wssssssc"]),
        (gpipe(pp=2, microbatches=3), ["wwwccc", "wwwccc"]),
        (one_f_one_b(pp=1, microbatches=1), ["wc"]),
        (parse_schedule("0LOAD0 0F0 0F1 0I0 0F2 0I1 0W0 0I2 0W1 0W2 0STEP"), ["wwwsscccccc"]),
    ],
)
def test_phases_by_hand(schedule: Schedule, expected: list[str]) -> None:
    assert phases(schedule) == expected


def test_phases_follow_each_other() -> None:
    for text in phases(interleaved(pp=4, microbatches=8, chunks=2)):
        assert text == "".join(sorted(text, key="wsc".index))


def test_constants_share_no_clock() -> None:
    schedule = parse_schedule("0LOAD0 0F0 0F1 0B0 0B1 0STEP")
    assert sharing(schedule, Granularity.RANK) == [[1, 2, 3, 4]]
    assert sharing(schedule, Granularity.PHASE) == [[1, 2], [3, 4]]
    assert sharing(schedule, Granularity.INSTRUCTION) == [[1], [2], [3], [4]]


@pytest.mark.parametrize("granularity", Granularity)
def test_every_computation_is_in_one_group(granularity: Granularity) -> None:
    schedule = interleaved(pp=4, microbatches=8, chunks=2)
    groups = sharing(schedule, granularity)
    assert sorted(number for group in groups for number in group) == list(range(sum(map(len, schedule.ranks))))
    assert len(groups) == {"rank": 4, "phase": 12, "instruction": 4 * 32}[granularity]
