"""Who may set clocks, before anybody tries."""

import os
from pathlib import Path

import pytest

from perseus_dist.device.rights import SIMULATED_GPUS, find_missing_right, may_set_clocks, owns_simulated_gpus
from perseus_dist.simulator.stream import STATE_VARIABLE


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "state"
    path.touch()
    return {SIMULATED_GPUS: str(path)}


def test_the_name_is_the_simulators() -> None:
    assert SIMULATED_GPUS == STATE_VARIABLE


@pytest.mark.parametrize(("capabilities", "missing"), [("000001ffffffffff", ""), ("00000000a80425fb", "CAP_SYS_ADMIN")])
def test_root_may_where_it_has_the_capability(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capabilities: str, missing: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    status = tmp_path / "status"
    status.write_text(f"Name:\tclockd\nCapEff:\t{capabilities}\n")
    found = find_missing_right({}, status)
    assert missing in found
    assert bool(found) == bool(missing)
    assert find_missing_right({}, tmp_path / "missing") == ""


def test_who_started_simulated_gpus_may(state: dict[str, str]) -> None:
    assert may_set_clocks(state)
    assert owns_simulated_gpus(state)


@pytest.mark.parametrize("named", [{}, {SIMULATED_GPUS: ""}, {SIMULATED_GPUS: "/nowhere/state"}])
def test_another_user_may_not(monkeypatch: pytest.MonkeyPatch, state: dict[str, str], named: dict[str, str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: Path(state[SIMULATED_GPUS]).stat().st_uid + 12345)
    assert not may_set_clocks(state)
    assert not may_set_clocks(named)
    assert not owns_simulated_gpus(state)
    assert "needs root, and this process runs as user id" in find_missing_right(named)
