"""Where the node relay listens, and who may come there."""

import os
import stat
from pathlib import Path

import pytest

from perseus_dist.relay.process import RelayConfig, RelayError, _listen
from perseus_dist.rpc.node_wire import NodeHello


class Server:
    """Of gRPC, as far as it listens."""

    def add_insecure_port(self, address: str) -> None:
        Path(address.removeprefix("unix:")).touch(0o777)


def look() -> NodeHello:
    return NodeHello("node7")


@pytest.mark.parametrize(("group", "mode"), [(None, 0o700), (str(os.getgid()), 0o710)])
def test_a_folder_that_the_relay_makes_lets_in_those_who_may_connect(
    group: str | None, mode: int, tmp_path: Path
) -> None:
    folder = tmp_path / "relay"
    config = RelayConfig(planners=("planner:1",), socket_path=folder / "relay.sock", group=group, look=look)
    _listen(Server(), config)  # type: ignore[arg-type]
    assert stat.S_IMODE(folder.stat().st_mode) == mode
    assert folder.stat().st_gid == os.getgid()


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "relay"
    folder.mkdir(mode=0o700)
    group = str(os.getgid())
    config = RelayConfig(planners=("planner:1",), socket_path=folder / "relay.sock", group=group, look=look)
    _listen(Server(), config)  # type: ignore[arg-type]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("group", ["99999999999", "4294967295"])
def test_a_number_that_no_group_can_have_is_refused_before_the_relay_listens(group: str, tmp_path: Path) -> None:
    folder = tmp_path / "relay"
    config = RelayConfig(planners=("planner:1",), socket_path=folder / "relay.sock", group=group, look=look)
    with pytest.raises(RelayError, match="there is no such group"):
        _listen(Server(), config)  # type: ignore[arg-type]
    assert not folder.exists()


@pytest.mark.parametrize(("group", "mode"), [(None, 0o600), (str(os.getgid()), 0o660)])
def test_a_group_comes_in_once_the_socket_is_its_own(
    group: str | None, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before = tmp_path / "relay.sock", []
    chown = os.chown

    def look_and_give(name: Path, user: int, group: int) -> None:
        before.append(stat.S_IMODE(name.stat().st_mode))
        chown(name, user, group)

    monkeypatch.setattr(os, "chown", look_and_give)
    config = RelayConfig(planners=("planner:1",), socket_path=path, group=group, look=look)
    _listen(Server(), config)  # type: ignore[arg-type]
    assert before == ([] if group is None else [0o600])
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_socket_that_cannot_be_given_to_the_group_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    config = RelayConfig(planners=("planner:1",), socket_path=tmp_path / "relay.sock", group="1", look=look)
    with pytest.raises(RelayError, match="Operation not permitted"):
        _listen(Server(), config)  # type: ignore[arg-type]
    assert not config.socket_path.exists()
