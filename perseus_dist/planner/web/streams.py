"""Streams of events to browsers: rows and sections that have changed, for as long as the page is looked at."""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from perseus_dist.planner.access.refusal import too_many
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.web.connections import abort_connection
from perseus_dist.planner.web.fragments import Fragments
from perseus_dist.planner.web.views.fleet import MAX_ROWS, planning_words

MAX_STREAMS = 64
MAX_STREAMS_OF_CALLER = 24
WATCH_INTERVAL_S = 0.5
WRITE_TIMEOUT_S = 30.0
SIGN_OF_LIFE_S = 15.0
_AT_ONCE = 16  # rows that are made without letting agents' messages in between
_SHARE = 0.05  # of the loop's time, for all streams together, that looking for jobs may take

_log = logging.getLogger(__name__)

Visible = Callable[[], list[JobActor] | None]
"""Jobs that the caller of a stream may see now; None once the caller is not logged in any more."""

Render = Callable[[], str | None]
"""A section as the caller of a stream may see it now; None once the caller is not logged in any more."""


class Streams:
    """Event streams to all browsers, of which only so many are open at once."""

    def __init__(self, jobs: Jobs, fragments: Fragments) -> None:
        self._jobs = jobs
        self._fragments = fragments
        self._open: Counter[str] = Counter()

    @property
    def num_open(self) -> int:
        """Streams that are looked at."""
        return self._open.total()

    def fleet(self, owner: str, visible: Visible) -> Response:
        """Every row that has changed, and the names of jobs that are gone.

        Raises:
            RefusalError: Too many streams are open.
        """
        return self._bounded(owner, self._rows(visible))

    def job(self, owner: str, job_id: str, visible: Visible) -> Response:
        """Every section of a job's page that has changed.

        Raises:
            RefusalError: Too many streams are open.
        """
        return self._bounded(owner, self._sections(job_id, visible))

    def section(self, owner: str, name: str, render: Render) -> Response:
        """The section of a page that has only one, whenever it has changed.

        Raises:
            RefusalError: Too many streams are open.
        """
        return self._bounded(owner, self._section(name, render))

    def _bounded(self, owner: str, events: AsyncGenerator[bytes, None]) -> Response:
        if self.num_open >= MAX_STREAMS:
            raise too_many(f"{MAX_STREAMS} pages are open already; close one")
        if self._open[owner] >= MAX_STREAMS_OF_CALLER:
            raise too_many(f"{MAX_STREAMS_OF_CALLER} of your pages are open already; close one")
        self._open[owner] += 1
        return _EventStream(events, lambda: self._close(owner))

    def _close(self, owner: str) -> None:
        self._open[owner] -= 1
        if not self._open[owner]:
            del self._open[owner]

    async def _rows(self, visible: Visible) -> AsyncGenerator[bytes, None]:
        sent: dict[str, tuple[JobActor, int]] = {}
        planning = ""
        silent_s = 0.0
        while not self._jobs.is_ending:
            began_s = time.perf_counter()
            actors = visible()
            pause_s = max(WATCH_INTERVAL_S, (time.perf_counter() - began_s) * self.num_open / _SHARE)
            if actors is None:
                break
            rows: dict[str, str] = {}
            for number, actor in enumerate(actors[:MAX_ROWS], start=1):
                changes, row = self._fragments.row(actor)
                if sent.get(actor.job.job_id) != (actor, changes):
                    sent[actor.job.job_id] = (actor, changes)
                    rows[actor.job.job_id] = row
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            if (sentence := planning_words(self._jobs.shared_planning)) != planning:
                planning, silent_s = sentence, 0.0
                yield _event("planning", {"sentence": sentence})
            gone = sorted(sent.keys() - {actor.job.job_id for actor in actors[:MAX_ROWS]})
            for job_id in gone:
                del sent[job_id]
            if rows or gone:
                silent_s = 0.0
                yield _event("rows", {"rows": rows, "gone": gone, "num_jobs": len(actors)})
            elif silent_s >= SIGN_OF_LIFE_S:
                silent_s = 0.0
                yield b":\n\n"
            await asyncio.sleep(pause_s)
            silent_s += pause_s
        yield _event("end", {"why": "restart" if self._jobs.is_ending else "login"})

    async def _section(self, name: str, render: Render) -> AsyncGenerator[bytes, None]:
        sent = ""
        silent_s = 0.0
        while not self._jobs.is_ending:
            began_s = time.perf_counter()
            section = render()
            if section is None:
                break
            pause_s = max(WATCH_INTERVAL_S, (time.perf_counter() - began_s) * self.num_open / _SHARE)
            if section != sent:
                sent, silent_s = section, 0.0
                yield _event("sections", {"sections": {name: section}})
            elif silent_s >= SIGN_OF_LIFE_S:
                silent_s = 0.0
                yield b":\n\n"
            await asyncio.sleep(pause_s)
            silent_s += pause_s
        yield _event("end", {"why": "restart" if self._jobs.is_ending else "login"})

    async def _sections(self, job_id: str, visible: Visible) -> AsyncGenerator[bytes, None]:
        sent: dict[str, str] = {}
        silent_s = 0.0
        while not self._jobs.is_ending:
            actors = visible()
            if not actors:
                break
            sections = await self._fragments.sections(actors[0])
            changed = {name: html for name, html in sections.items() if sent.get(name) != html}
            if changed:
                sent.update(changed)
                silent_s = 0.0
                yield _event("sections", {"job": job_id, "sections": changed})
            elif silent_s >= SIGN_OF_LIFE_S:
                silent_s = 0.0
                yield b":\n\n"
            await asyncio.sleep(WATCH_INTERVAL_S)
            silent_s += WATCH_INTERVAL_S
        yield _event("end", {"why": "restart" if self._jobs.is_ending else "gone"})


def _event(name: str, document: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()


class _EventStream(Response):
    """An answer that goes on until the browser leaves, or reads nothing for long."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], end: Callable[[], None]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        try:
            await self._answer(scope, receive, send)
        finally:
            self._end()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": b"retry: 1000\n\n", "more_body": True})
        listener = asyncio.create_task(_until_left(receive))
        serving = asyncio.create_task(self._serve(send))
        try:
            await asyncio.wait((listener, serving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (listener, serving):
                task.cancel()
            await asyncio.gather(listener, serving, return_exceptions=True)
        failure = None if serving.cancelled() else serving.exception()
        if isinstance(failure, TimeoutError):
            abort_connection(scope)
        elif failure is not None:
            _log.error("a stream of the page failed", exc_info=failure)

    async def _serve(self, send: Send) -> None:
        async with aclosing(self._events):
            async for event in self._events:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_left(receive: Receive) -> None:
    message: Message = {}
    while message.get("type") != "http.disconnect":
        message = await receive()
