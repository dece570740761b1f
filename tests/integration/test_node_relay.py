"""Planner, node relay and agents' links over real gRPC: what is carried, what each token opens, and who may fail."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from node_relay import RelayedRank, node_relay, num_connections, port_of
from planner_process import planner
from waiting import wait_until

from perseus_dist.relay.process import RelayConfig, run_relay

AWAY = "the stream goes to the planner directly"


def own_connections(address: str) -> int:
    """Of this process, where the agents' links are."""
    return num_connections(os.getpid(), port_of(address))


def test_two_jobs_of_a_node_share_one_connection(tmp_path: Path) -> None:
    with planner(tmp_path) as served, node_relay(tmp_path, served.address) as relay, ExitStack() as ranks:
        links = [
            ranks.enter_context(RelayedRank(job, rank, served.address, relay.socket))
            for job in ("a", "b")
            for rank in (0, 1)
        ]
        wait_until(lambda: all(link.is_attached for link in links))
        assert num_connections(relay.process.pid, port_of(served.address)) == 1
        assert own_connections(served.address) == 0
        listed = subprocess.run(
            [sys.executable, "-m", "perseus_dist", "jobs", "--planner", served.address],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "a " in listed
        assert "b " in listed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
def test_a_relay_that_ends_or_hangs_is_left_at_once(
    tmp_path: Path, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    with planner(tmp_path) as served, node_relay(tmp_path, served.address) as relay, ExitStack() as ranks:
        links = [ranks.enter_context(RelayedRank("a", rank, served.address, relay.socket)) for rank in (0, 1)]
        wait_until(lambda: all(link.is_attached for link in links))
        relay.process.send_signal(number)
        wait_until(lambda: all(link.num_attached == 2 and link.is_attached for link in links))
        assert own_connections(served.address) >= 1
        assert [AWAY in record.getMessage() for record in caplog.records].count(True) == len(links)
        relay.process.send_signal(signal.SIGCONT)


def test_a_relay_that_is_not_there_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with planner(tmp_path) as served, RelayedRank("a", 0, served.address, tmp_path / "none", size=1) as link:
        wait_until(lambda: link.is_attached)
        assert [AWAY in record.getMessage() for record in caplog.records].count(True) == 1


def test_a_relay_of_another_planner_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with planner(tmp_path) as served, node_relay(tmp_path, "127.0.0.1:9") as relay:
        with RelayedRank("a", 0, served.address, relay.socket, size=1) as link:
            wait_until(lambda: link.is_attached)
        assert any("this node relay is for the planner at 127.0.0.1:9" in r.getMessage() for r in caplog.records)


def test_a_planner_that_restarts_is_found_again_by_way_of_the_relay(tmp_path: Path) -> None:
    with ExitStack() as cleanup:
        with planner(tmp_path) as served:
            relay = cleanup.enter_context(node_relay(tmp_path, served.address))
            links = [cleanup.enter_context(RelayedRank("a", rank, served.address, relay.socket)) for rank in (0, 1)]
            wait_until(lambda: all(link.is_attached for link in links))
            served.end(signal.SIGKILL)
        wait_until(lambda: not any(link.is_attached for link in links))
        with planner(tmp_path, "--bind", served.address):
            wait_until(lambda: all(link.is_attached for link in links))
            assert all(link.num_attached >= 2 and link.refusals == [] for link in links)


def test_each_rank_has_the_rights_of_its_own_token(tmp_path: Path) -> None:
    """The job is the first token's: another token is refused by way of the relay as it is without."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text("one-token\n")
    theirs.write_text("another-token\n")
    with (
        planner(tmp_path, "--bind", "127.0.0.1:0") as served,
        node_relay(tmp_path, served.address) as relay,
        RelayedRank("a", 0, served.address, relay.socket, token_file=ours) as first,
    ):
        wait_until(lambda: first.is_attached)
        assert num_connections(relay.process.pid, port_of(served.address)) == 1
        with RelayedRank("a", 1, served.address, relay.socket, token_file=theirs) as second:
            wait_until(lambda: bool(second.troubles))
            assert "job a is another token's" in second.troubles[0]
            assert not second.is_attached
        assert first.is_attached


def test_a_relay_for_a_group_takes_no_rank_without_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = tmp_path / "token"
    token.write_text("one-token\n")
    with (
        planner(tmp_path) as served,
        node_relay(tmp_path, served.address, "--group", str(os.getgid())) as relay,
        RelayedRank("a", 0, served.address, relay.socket, size=1) as without,
        RelayedRank("b", 0, served.address, relay.socket, token_file=token, size=1) as with_token,
    ):
        wait_until(lambda: without.is_attached and with_token.is_attached)
        assert relay.socket.stat().st_mode & 0o777 == 0o660
        assert any("a job needs a token here" in record.getMessage() for record in caplog.records)
        assert num_connections(relay.process.pid, port_of(served.address)) == 1


@pytest.mark.parametrize("trouble", [OSError("no such device"), ValueError("what is that?")], ids=["node", "defect"])
def test_a_node_that_cannot_be_looked_at_keeps_its_relay(tmp_path: Path, trouble: Exception) -> None:
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        raise trouble

    async def serve() -> bool:
        config = RelayConfig(planners=("127.0.0.1:1",), socket_path=tmp_path / "own" / "relay.sock", look=look)  # type: ignore[arg-type]
        relay = asyncio.create_task(run_relay(config))
        while not looks and not relay.done():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        is_there = not relay.done()
        if is_there:
            os.kill(os.getpid(), signal.SIGTERM)
        await relay
        return is_there

    assert asyncio.run(serve())
