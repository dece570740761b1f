"""Who may set clocks, before anybody tries."""

import os
from pathlib import Path

import pytest

from perseus_dist.device.rights import SIMULATED_GPUS, may_set_clocks
from perseus_dist.simulator.stream import STATE_VARIABLE


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "state"
    path.touch()
    return {SIMULATED_GPUS: str(path)}


def test_the_name_is_the_simulators() -> None:
    assert SIMULATED_GPUS == STATE_VARIABLE


def test_root_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert may_set_clocks({})


def test_who_started_simulated_gpus_may(state: dict[str, str]) -> None:
    assert may_set_clocks(state)


@pytest.mark.parametrize("named", [{}, {SIMULATED_GPUS: ""}, {SIMULATED_GPUS: "/nowhere/state"}])
def test_another_user_may_not(monkeypatch: pytest.MonkeyPatch, state: dict[str, str], named: dict[str, str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: Path(state[SIMULATED_GPUS]).stat().st_uid + 12345)
    assert not may_set_clocks(state)
    assert not may_set_clocks(named)
