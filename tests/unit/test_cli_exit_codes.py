"""Exit codes of the command line, whoever reads what it prints."""

import os
import sys

import pytest

from perseus_dist.cli.main import main


def test_a_reader_that_leaves_hides_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "__stdout__", stdout)
        assert main(["health", "--planning-worker", "not-there", "--json"]) == 1
