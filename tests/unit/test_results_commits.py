"""Recorded results name commits of this history, so that whoever reads a figure can run the program that gave it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
LOST = {"fuzz": {"de4606c28"}, "planner_kills": {"de4606c28"}, "soak_tier": {"2d3d78869"}}
"""Commits that are not in the history, by the result that names them: gone with the next recording, none is added."""


def git(*arguments: str) -> str:
    """Of the checkout, whoever owns it.

    Raises:
        subprocess.CalledProcessError: It is none.
    """
    command = ["git", "-C", str(ROOT), "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def recorded(path: Path) -> Iterator[str]:
    """Of the whole file, and of each row where rows have commits of their own."""
    result = json.loads(path.read_text())
    yield result["commit"]
    if "commit" in result["columns"]:
        yield from (row[result["columns"].index("commit")] for row in result["rows"])


@pytest.fixture(scope="module")
def history() -> list[str]:
    try:
        if git("rev-parse", "--is-shallow-repository") == "true":
            pytest.skip("a shallow clone has no history")
        return git("rev-list", "HEAD").splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no git checkout: {error}")


def test_every_recorded_commit_is_an_ancestor(history: list[str]) -> None:
    lost: dict[str, set[str]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        for commit in recorded(path):
            number = commit.removesuffix("+")  # of a checkout with changes that were not committed
            assert len(number) >= 7, path.name
            if not any(one.startswith(number) for one in history):
                lost.setdefault(path.stem, set()).add(number)
    assert lost == LOST, (
        "record the result again on a commit of the history; one that has been recorded again leaves the list"
    )
