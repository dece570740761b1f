"""A database whose file is moved or deleted while a planner has it open."""

from pathlib import Path

import pytest

from perseus_dist.planner.store.fact_database import Change, WriteError
from perseus_dist.planner.store.sqlite_facts import SqliteFacts


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_was_moved_away_takes_nothing_until_it_is_back(tmp_path: Path, *, is_replaced: bool) -> None:
    path, aside = tmp_path / "planner.sqlite", tmp_path / "aside"
    facts = SqliteFacts(path)
    change = Change()
    path.rename(aside)
    if is_replaced:
        path.write_bytes(aside.read_bytes())
    with pytest.raises(WriteError, match="was replaced or deleted"):
        facts.write({"llama": change})
    aside.rename(path)
    facts.write({"llama": change})
    facts.close()
