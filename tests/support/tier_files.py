"""Leaves out files that name no mark of the tier that is asked for: collecting them takes longer than most tests."""

import re
from pathlib import Path

import pytest

_TIERS = {"stress", "soak", "alone"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of ``-m "stress and not soak"``: files without ``mark.stress``. Files that the command line names stay."""
    needed = needed_marks(config.option.markexpr)
    if not needed or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    if collection_path in {config.invocation_params.dir / one.partition("::")[0] for one in config.args}:
        return None
    text = collection_path.read_text()
    return True if any(f"mark.{mark}" not in text for mark in needed) else None


def needed_marks(expression: str) -> set[str]:
    """The tiers' marks that each test of the expression has; none where it is more than marks joined by ``and``."""
    if not re.fullmatch(r"(not )?\w+( and (not )?\w+)*", expression):
        return set()
    return {word for word in expression.split(" and ") if word in _TIERS}
