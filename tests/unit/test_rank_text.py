"""What several ranks say is told once."""

import pytest

from perseus_dist.rank_text import ranks_text, told_once


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([0, 1, 2, 3], "ranks 0-3"),
        ([7, 3, 1, 0, 2], "ranks 0-3, 7"),
        ([1, 3, 5], "ranks 1, 3, 5"),
        ([4, 4], "rank 4"),
    ],
)
def test_ranks(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text


def test_ranks_that_say_the_same_share_a_line() -> None:
    said = {2: "no rights", 0: "no rights", 1: "", 3: "hot", 4: "no rights"}
    assert told_once(said) == ["ranks 0, 2, 4: no rights", "rank 3: hot"]
    assert told_once({0: ""}) == []
