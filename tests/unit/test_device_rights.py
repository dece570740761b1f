"""Who may set clocks, before anybody tries."""

import os
from pathlib import Path

import pytest

from perseus_dist.device.rights import SIMULATED_GPUS, find_missing_right, owns_simulated_gpus
from perseus_dist.simulator.stream import STATE_VARIABLE


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "state"
    path.touch()
    return {SIMULATED_GPUS: str(path)}


def test_the_name_is_the_simulators() -> None:
    assert SIMULATED_GPUS == STATE_VARIABLE


@pytest.mark.parametrize(
    ("capabilities", "uid_map", "missing"),
    [
        ("000001ffffffffff", "0 0 4294967295", ""),
        ("00000000a80425fb", "0 0 4294967295", "CAP_SYS_ADMIN"),
        ("000001ffffffffff", "0 1000 1", "user namespace"),
    ],
)
def test_root_may_where_the_driver_will_take_it_for_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capabilities: str, uid_map: str, missing: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "status").write_text(f"Name:\tclockd\nCapEff:\t{capabilities}\n")
    (tmp_path / "uid_map").write_text(f"         {uid_map}\n")
    found = find_missing_right({}, tmp_path)
    assert missing in found
    assert bool(found) == bool(missing)
    assert find_missing_right({}, tmp_path / "missing") == ""


def test_who_started_simulated_gpus_may(state: dict[str, str]) -> None:
    assert find_missing_right(state) == ""
    assert owns_simulated_gpus(state)


@pytest.mark.parametrize("named", [{}, {SIMULATED_GPUS: ""}, {SIMULATED_GPUS: "/nowhere/state"}])
def test_another_user_may_not(monkeypatch: pytest.MonkeyPatch, state: dict[str, str], named: dict[str, str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: Path(state[SIMULATED_GPUS]).stat().st_uid + 12345)
    assert "needs root" in find_missing_right(state)
    assert not owns_simulated_gpus(state)
    assert "needs root, and this process runs as user id" in find_missing_right(named)
