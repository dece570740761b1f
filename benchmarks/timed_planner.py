"""``perseus-dist planner`` that times what it does, message by message, for ``replica_scale.py``.

    TIMES=FILE python benchmarks/timed_planner.py planner [options]

Times are the event loop's own processor time, so that other programs on the machine are not in them, but for commits.
SIGUSR1 writes a JSON object into ``FILE`` and begins anew. It has seconds of each

- message: of a node, from one read to the next: decoding, and all that its ranks' jobs make of it;
- tick: of a job, as is each report: of a straggler, by an operator;
- commit: from the request to the flush, as the clock on the wall says;
- write: all other work of the loop from a report until its last switch is written, for each stream that has got one.
"""

import json
import os
import signal
import sys
import time
from asyncio import events
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

from perseus_dist.cli.main import main
from perseus_dist.planner.lifecycle.events import StragglerReported, Tick
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.service import node_service
from perseus_dist.planner.store.store import Store

TIMES: dict[str, list[float]] = defaultdict(list)


class _Loop:
    """Work of the loop so far, and since the newest report of a straggler, whose switches are being written."""

    spent_s = 0.0
    at_report_s = at_write_s = 0.0
    messages_s = 0.0
    at_report_messages_s = 0.0
    num_written = num_streams = 0


class _TimedContext:
    """A stream that says how long its reader has been busy between two reads."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._since_s: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def read(self) -> Any:
        if self._since_s is not None:
            spent_s = time.thread_time() - self._since_s
            TIMES["message"].append(spent_s)
            _Loop.messages_s += spent_s
        data = await self._context.read()
        self._since_s = time.thread_time()
        return data

    async def write(self, data: bytes) -> None:
        await self._context.write(data)
        if _Loop.num_written == _Loop.num_streams:
            return  # something else, long after the switch
        _Loop.num_written += 1
        _Loop.at_write_s = _Loop.spent_s - (_Loop.messages_s - _Loop.at_report_messages_s)


def end_switch() -> None:
    """Take note of what the switches of the report before have cost."""
    if _Loop.num_written:
        TIMES["write"].append((_Loop.at_write_s - _Loop.at_report_s) / _Loop.num_written)
    _Loop.num_written = 0


def install() -> None:
    """Put the clocks where the work is."""
    serve, tell, commit = node_service.NodeService.serve, JobActor.tell, Store.commit
    run = vars(events.Handle)["_run"]

    async def timed_serve(self: Any, context: Any) -> None:
        _Loop.num_streams += 1
        try:
            await serve(self, cast("Any", _TimedContext(context)))
        finally:
            _Loop.num_streams -= 1

    def timed_tell(self: Any, event: Any, answer: Any = None) -> None:
        began_s = time.thread_time()
        tell(self, event, answer)
        spent_s = time.thread_time() - began_s
        if isinstance(event, Tick):
            TIMES["tick"].append(spent_s)
        elif isinstance(event, StragglerReported):
            end_switch()
            TIMES["report"].append(spent_s)
            _Loop.at_report_s, _Loop.at_report_messages_s = _Loop.spent_s, _Loop.messages_s

    def timed_commit(self: Any, *arguments: Any, **named: Any) -> Any:
        began_s = time.monotonic()
        done = commit(self, *arguments, **named)
        done.add_done_callback(lambda _: TIMES["commit"].append(time.monotonic() - began_s))
        return done

    def timed_run(self: Any) -> None:
        began_s = time.thread_time()
        run(self)
        _Loop.spent_s += time.thread_time() - began_s

    node_service.NodeService.serve = timed_serve  # type: ignore[method-assign]
    Store.commit = timed_commit  # type: ignore[method-assign]
    JobActor.tell = timed_tell  # type: ignore[method-assign]
    setattr(events.Handle, "_run", timed_run)  # noqa: B010 - asyncio has no other door


def write() -> None:
    """Write all times, and forget them."""
    end_switch()
    whole = Path(os.environ["TIMES"])
    partial = whole.with_suffix(".partial")
    partial.write_text(json.dumps(TIMES))
    partial.rename(whole)
    TIMES.clear()


if __name__ == "__main__":
    install()
    signal.signal(signal.SIGUSR1, lambda _number, _frame: write())
    sys.exit(main())
