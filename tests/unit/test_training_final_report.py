"""The report at the end of a job that no launcher of ours outlives."""

import atexit
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.training.final_report import make_report_at_exit
from perseus_dist.training.report_launcher import ReportLauncher


def test_a_folder_has_one_report_however_often_the_job_begins_anew_and_all_leave_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[Any] = []
    done: list[str] = []
    monkeypatch.setattr(atexit, "register", lambda *call: registered.append(call))
    monkeypatch.delattr(sys, "last_value", raising=False)  # of a test that failed before
    monkeypatch.setattr(ReportLauncher, "make", lambda _: done.append("report"))
    for number, folder in enumerate(("a", "a", "b")):
        make_report_at_exit(str(tmp_path / folder), partial(done.append, f"leave {number}"))
    for make, *arguments in registered:
        make(*arguments)
    assert done == ["leave 0", "leave 1", "report", "leave 2", "report"]
