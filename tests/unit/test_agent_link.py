"""The agent's link to the planner: which way its stream goes, and what that costs."""

import asyncio
from pathlib import Path

import pytest

from perseus_dist.agent.link.link import PlannerAddress, PlannerLink


def test_a_stream_to_a_replica_that_no_relay_knows_stays_without_looking_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = PlannerLink(lambda: None, None, lambda _: None, relay=str(tmp_path / "relay.sock"))
    link._planners.choose("planner:50151")
    link._planners.note_redirect("10.0.0.7:50151")
    looks: list[PlannerAddress] = []
    monkeypatch.setattr(link, "_relay_for", looks.append)

    async def wait() -> None:
        waiting = asyncio.ensure_future(
            link._until_relay_is_back(PlannerAddress(link._planners.choose("planner:50151")))
        )
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    link._loop.run_until_complete(wait())
    link._loop.close()
    assert not looks
