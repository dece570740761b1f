"""One rank's stream to the planner in virtual time: in order and without a loss until it breaks, then opened again.

Both ends know of a break by themselves: at once where a process has died, after their keepalive's time where the other
end is silent. Delays are as in ``agent.link``.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from perseus_dist.messages.from_agent import AgentMessage
from perseus_dist.messages.from_planner import PlannerMessage
from perseus_dist.simulation.virtual.lease import NEVER_NS

AGENT_NOTICES_NS = 10_000_000_000
"""Until an agent takes a silent planner for gone (``rpc.connection``)."""

PLANNER_NOTICES_NS = 15_000_000_000
"""Until the planner takes a silent agent for gone (``planner.service.server``)."""

_FIRST_DELAY_NS, _LONGEST_DELAY_NS = 100_000_000, 1_500_000_000


class Arrived(NamedTuple):
    """Messages that have come through a link by now, in order.

    Attributes:
        connected: A new stream is open, as the agent sees it; its messages come after it.
        to_agent: Messages.
        disconnected: The agent's stream is gone.
        to_planner: (stream, message).
        detached: Streams that have ended, as the planner sees it.
    """

    connected: bool
    to_agent: list[PlannerMessage]
    disconnected: bool
    to_planner: list[tuple[int, AgentMessage]]
    detached: list[int]


class VirtualLink:
    """One rank's link to the planner.

    Attributes:
        delay_ns: [ns] that every message takes, in either direction.
        repeat_share: Of the messages, that arrive twice.
        lose_share: Of the messages, that are lost; a stream without a gap breaks then.
        agent_stream, planner_stream: The stream that either end has open; None for none.
        next_ns: When ``arrived`` has something to tell; 0 for now.
    """

    def __init__(self, new_stream: Callable[[], int], noise: random.Random, chance: random.Random) -> None:
        """Begin, without a stream.

        Args:
            new_stream: Gives its number.
            noise: Of the delays until the next attempt.
            chance: Of what happens to messages.
        """
        self.delay_ns = 0
        self.repeat_share = self.lose_share = 0.0
        self.agent_stream: int | None = None
        self.planner_stream: int | None = None
        self._new_stream = new_stream
        self._noise = noise
        self._chance = chance
        self._to_planner: deque[tuple[int, int, AgentMessage]] = deque()  # (arrives, stream, message)
        self._to_agent: deque[tuple[int, int, PlannerMessage]] = deque()
        self._detached: list[int] = []
        self._cut_ns: int | None = None  # since when nothing comes through
        self._cuts: set[str] = set()  # why
        self._stopped_ns: int | None = None  # since when the agent's process is stopped
        self._is_planner_there = True
        self._is_disconnected = False  # and the agent does not know yet
        self._retry_ns: int | None = None
        self._retry_delay_ns = _FIRST_DELAY_NS
        self.next_ns = NEVER_NS

    # ---- what happens to it

    def begin(self, now_ns: int, *, is_planner_there: bool) -> bool:
        """A new agent wants a stream: whether it has one at once."""
        self._is_planner_there = is_planner_there
        self._retry_delay_ns = _FIRST_DELAY_NS
        if is_planner_there and self._cut_ns is None:
            self._open()
        else:
            self._wait(now_ns)
        self._look_ahead()
        return self.agent_stream is not None

    def accept(self) -> None:
        """The planner has accepted the stream: after the next break the first attempt comes soon."""
        self._retry_delay_ns = _FIRST_DELAY_NS

    def break_now(self, now_ns: int, *, agent_dies: bool = False, opens_again: bool = True) -> None:
        """Both ends see the stream break; what is on its way is lost."""
        if self.planner_stream is not None and self._is_planner_there:
            self._detached.append(self.planner_stream)
        self.planner_stream = None
        self._to_planner.clear()
        self._to_agent.clear()
        if agent_dies:
            self.agent_stream, self._retry_ns, self._is_disconnected = None, None, False
            self._stopped_ns = None
        else:
            self._lose(now_ns)
        if not opens_again:
            self._retry_ns = None
        self._look_ahead()

    def cut(self, why: str, now_ns: int) -> None:
        """Nothing comes through from now on, until that is mended."""
        self._cuts.add(why)
        self._cut_ns = now_ns if self._cut_ns is None else self._cut_ns
        self._look_ahead()

    def mend(self, why: str, now_ns: int) -> None:
        """Delayed messages come through; an end that gave up meanwhile has left the other one a dead stream."""
        if why not in self._cuts:
            return
        self._cuts.discard(why)
        if not self._cuts:
            self._cut_ns = None
            self._settle(now_ns)
        self._look_ahead()

    def stop_agent(self, now_ns: int) -> None:
        """The agent's process is stopped."""
        self._stopped_ns = now_ns
        self._look_ahead()

    def continue_agent(self, now_ns: int) -> None:
        """The agent goes on."""
        self._stopped_ns = None
        self._settle(now_ns)
        self._look_ahead()

    def lose_planner(self, now_ns: int) -> None:
        """The planner's process is gone."""
        self._is_planner_there = False
        self.break_now(now_ns)
        self._detached.clear()
        self._look_ahead()

    def find_planner(self) -> None:
        """The planner is there again."""
        self._is_planner_there = True
        self._look_ahead()

    # ---- messages

    def send(self, message: AgentMessage, now_ns: int) -> None:
        """The agent says something; dropped if no stream is open."""
        if self.agent_stream is not None:
            for _ in range(self._num_arriving(now_ns)):
                self._to_planner.append((now_ns + self.delay_ns, self.agent_stream, message))
            self._look_ahead()

    def say(self, stream: int, message: PlannerMessage, now_ns: int) -> None:
        """The planner says something on a stream; dropped if that is gone."""
        if stream == self.planner_stream:
            for _ in range(self._num_arriving(now_ns)):
                self._to_agent.append((now_ns + self.delay_ns, stream, message))
            self._look_ahead()

    def arrived(self, now_ns: int) -> Arrived:
        """Messages that have come through by now."""
        is_stopped, connected = self._stopped_ns is not None, False
        if self._cut_ns is not None and not is_stopped and now_ns >= self._cut_ns + AGENT_NOTICES_NS:
            self._lose(now_ns)
        since_ns = self._silent_since_ns
        if since_ns is not None and self.planner_stream is not None and now_ns >= since_ns + PLANNER_NOTICES_NS:
            self._detached.append(self.planner_stream)
            self.planner_stream = None
        disconnected = self._is_disconnected and not is_stopped
        self._is_disconnected &= is_stopped
        if self._retry_ns is not None and not is_stopped and now_ns >= self._retry_ns:
            if self._is_planner_there and self._cut_ns is None:
                if self.planner_stream is not None:
                    self._detached.append(self.planner_stream)
                self._open()
                connected = True
            else:
                self._wait(now_ns)
        to_agent: list[PlannerMessage] = []
        to_planner: list[tuple[int, AgentMessage]] = []
        if self._cut_ns is None:
            while self._to_planner and self._to_planner[0][0] <= now_ns:
                _, stream, message = self._to_planner.popleft()
                if stream == self.planner_stream:
                    to_planner.append((stream, message))
            while self._to_agent and self._to_agent[0][0] <= now_ns and not is_stopped:
                _, stream, said = self._to_agent.popleft()
                if stream == self.agent_stream:
                    to_agent.append(said)
        detached, self._detached = self._detached, []
        self._look_ahead()
        return Arrived(connected, to_agent, disconnected, to_planner, detached)

    # ---- inside

    def _num_arriving(self, now_ns: int) -> int:
        """How often a message arrives that is sent now; with one that is lost, its stream breaks."""
        if self.lose_share and self._chance.random() < self.lose_share:
            self.break_now(now_ns)
            return 0
        return 2 if self.repeat_share and self._chance.random() < self.repeat_share else 1

    def _look_ahead(self) -> None:
        """When ``arrived`` has something to tell, now that something was done."""
        is_stopped = self._stopped_ns is not None
        due_ns = 0 if self._detached or (self._is_disconnected and not is_stopped) else NEVER_NS
        if self._cut_ns is None:
            if self._to_planner:
                due_ns = min(due_ns, self._to_planner[0][0])
            if self._to_agent and not is_stopped:
                due_ns = min(due_ns, self._to_agent[0][0])
        elif self.agent_stream is not None and not is_stopped:
            due_ns = min(due_ns, self._cut_ns + AGENT_NOTICES_NS)
        since_ns = self._silent_since_ns
        if since_ns is not None and self.planner_stream is not None:
            due_ns = min(due_ns, since_ns + PLANNER_NOTICES_NS)
        if self._retry_ns is not None and not is_stopped:
            due_ns = min(due_ns, self._retry_ns)
        self.next_ns = due_ns

    @property
    def _silent_since_ns(self) -> int | None:
        """Since when the planner has heard nothing."""
        cut_ns, stopped_ns = self._cut_ns, self._stopped_ns
        if not self._is_planner_there or cut_ns is None:
            return stopped_ns if self._is_planner_there else None
        return cut_ns if stopped_ns is None else min(cut_ns, stopped_ns)

    def _settle(self, now_ns: int) -> None:
        """One end has given up the stream: the other one learns of it."""
        if self._cut_ns is not None or self._stopped_ns is not None:
            return
        if self.agent_stream is None and self.planner_stream is not None:
            self._detached.append(self.planner_stream)
            self.planner_stream = None
        elif self.agent_stream is not None and self.planner_stream is None:
            self._lose(now_ns)

    def _open(self) -> None:
        self.agent_stream = self.planner_stream = self._new_stream()
        self._retry_ns = None

    def _lose(self, now_ns: int) -> None:
        """The agent's end."""
        if self.agent_stream is not None:
            self.agent_stream, self._is_disconnected = None, True
            self._wait(now_ns)

    def _wait(self, now_ns: int) -> None:
        """Ever longer, and different on every rank."""
        self._retry_ns = now_ns + round(self._retry_delay_ns * self._noise.uniform(0.5, 1.0))
        self._retry_delay_ns = min(2 * self._retry_delay_ns, _LONGEST_DELAY_NS)
