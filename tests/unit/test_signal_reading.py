"""Signals that are read for a caller who does not wait for it."""

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from perseus_dist.errors import PlanningError
from perseus_dist.planner.job.facts.policies import PricePolicySet
from perseus_dist.planner.runtime.prices import Prices
from perseus_dist.planner.runtime.signals import signal_files
from perseus_dist.planner.runtime.signals.fetched_signal import Fetched, FetchedSignal
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.planner.store.store import Store

ROW = "timestamp,duration,value\n2026-11-23T00:00:00+00:00,30,"


def test_a_signal_that_changes_while_a_caller_leaves_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller waits for a provider; the thread that reads for it is still at work when another one could begin."""
    asked, may_answer = threading.Event(), threading.Event()
    names = [f"{number}.csv" for number in range(8)]  # most of them are read before the provider

    def look(_: FetchedSignal, wait_s: float = 0.0) -> Fetched:
        if wait_s:
            asked.set()
            may_answer.wait(10)
        return Fetched(content=None, trouble="it has not answered")

    async def play() -> None:
        with closing(Store(None)) as store:
            files = SignalFiles(tmp_path)
            prices = Prices(store, {}, files)
            for name in names:
                (tmp_path / name).write_text(f"{ROW}5\n")
                await prices.read(name)
                await prices.set(PricePolicySet(name=name, jobs=(), signal=name, deadline_s=2e9, iterations=1))
            reading = asyncio.create_task(prices.read("slow.toml"))
            await asyncio.to_thread(asked.wait, 10)
            reading.cancel()
            await asyncio.wait([reading])
            for name in names:
                (tmp_path / name).write_text(f"{ROW}55\n")
            prices.refresh()
            await asyncio.sleep(0.3)
            may_answer.set()
            for _ in range(20):
                prices.refresh()
                await asyncio.sleep(0.05)
            contents = [files.signals[name].content for name in names]
            assert {content[0].value for content in contents if isinstance(content, tuple)} == {55.0}
            prices.close()

    (tmp_path / "slow.toml").write_text('url = "http://127.0.0.1:9"')
    monkeypatch.setattr(FetchedSignal, "look", look)
    asyncio.run(play())


def test_a_signal_that_could_not_be_read_is_read_again_once_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was away, as with a file system, and one that the planner's user might not read at first."""
    path, name = tmp_path / "tariff.csv", "tariff.csv"
    path.write_text(f"{ROW}5\n")
    files = SignalFiles(tmp_path)
    files.refresh([name])
    whole = files.signals[name]
    assert (whole.trouble, whole.content is None) == ("", False)
    path.rename(tmp_path / "away")
    files.refresh([name])
    assert "No such file" in files.signals[name].trouble
    (tmp_path / "away").rename(path)
    files.refresh([name])
    assert (files.signals[name].trouble, files.signals[name].content) == ("", whole.content)

    def refuse(path: Path) -> NoReturn:
        raise PlanningError(f"{path}: Permission denied")

    again = SignalFiles(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(signal_files, "read_signal", refuse)
        again.refresh([name], name)
    assert "Permission denied" in again.signals[name].trouble
    before_ns = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before_ns:
        path.chmod(0o644)
    again.refresh([name], name)
    assert (again.signals[name].trouble, again.signals[name].content) == ("", whole.content)
