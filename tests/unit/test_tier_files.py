"""Which files are left out where one tier's tests are asked for."""

from pathlib import Path

import pytest
from tier_files import needed_marks

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("expression", "marks"),
    [
        ("stress and not soak and not alone", {"stress"}),
        ("stress and alone", {"stress", "alone"}),
        ("soak", {"soak"}),
        ("not stress and not soak", set()),
        ("soak or stress", set()),
        ("stress and (alone or soak)", set()),
        ("parametrize and soak", {"soak"}),
        ("", set()),
    ],
)
def test_marks_that_every_test_of_a_tier_has(expression: str, marks: set[str]) -> None:
    assert needed_marks(expression) == marks


def test_marks_of_tiers_stand_in_the_files_of_their_tests() -> None:
    """Where a file imported one from another, the tier would leave it out."""
    helpers = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    named = [path.name for path in helpers if any(f"mark.{one}" in path.read_text() for one in ("stress", "soak"))]
    assert set(named) <= {"tier_files.py"}  # whose docstrings say so
