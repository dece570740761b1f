"""Leaves stress tests that would begin too late to a faster machine, or to the nightly run.

``.ci/run`` has a limit of time, and machines of one kind differ by a factor of three. It says in
``PERSEUS_TESTS_BEGIN_BY``, in seconds since the epoch, until when a stress test may begin; without it, all run.
Other tiers' tests always do.
"""

import os
import time

import pytest

_REASON = "left to a faster machine"
_BEGIN_BY_S = float(os.environ.get("PERSEUS_TESTS_BEGIN_BY", "inf"))  # before conftest.py takes settings away


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a stress test after the time."""
    if time.time() > _BEGIN_BY_S and item.get_closest_marker("stress"):
        pytest.skip(_REASON)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many were left."""
    skipped = terminalreporter.stats.get("skipped", [])
    left = [report.nodeid for report in skipped if _REASON in str(report.longrepr)]
    if left:
        terminalreporter.write_line(f"the machine is slow: {len(left)} stress tests were left, from {left[0]} on")
