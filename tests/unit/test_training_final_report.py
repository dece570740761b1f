"""The report at the end of a job that no launcher of ours outlives."""

import atexit
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.training.final_report import make_report_at_exit


def test_a_folder_has_one_report_however_often_the_job_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[Any] = []
    monkeypatch.setattr(atexit, "register", lambda *call: registered.append(call))
    for folder in ("a", "a", "b"):
        make_report_at_exit(str(tmp_path / folder), lambda: None)
    assert len(registered) == 2
