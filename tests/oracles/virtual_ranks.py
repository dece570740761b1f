"""Ranks with a time of their own, and transfers between them that take time: for frameworks' functions to run on.

Ranks are threads of one process. A transfer begins when both sides have come to it, and, where links carry one tensor
at a time, when the one before it is over; a rank that waits for it goes on when it has ended. No clock is read.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

TIMEOUT_S = 60
local = threading.local()  # the Rank whose thread it is

Case = Mapping[str, Any]
Moments = dict[str, tuple[int, int]]  # begin and end of each instruction, and of each transfer


class Transfer:
    """A tensor from one rank to another; also the handle that either waits for."""

    def __init__(self, before: "Transfer | None") -> None:
        self._before = before  # that the link carries first
        self.sent: Future[tuple[int, str]] = Future()
        self.asked: Future[int] = Future()

    @property
    def text(self) -> str:
        return self.sent.result(TIMEOUT_S)[1]

    def moments(self, case: Case) -> tuple[int, int]:
        sent_at, text = self.sent.result(TIMEOUT_S)
        begin = max(sent_at, self.asked.result(TIMEOUT_S))
        if self._before is not None:
            begin = max(begin, self._before.moments(case)[1])
        kind = "F" if "F" in text else "B"
        return begin, begin + case["transfers"][kind][int(text.split(kind)[0])]

    def wait(self) -> None:
        """The rank goes on when it has ended."""
        rank = local.rank
        begin, end = self.moments(rank.case)
        rank.moments[self.text.replace("F", "SEND_F").replace("B", "SEND_B")] = begin, end
        rank.time = max(rank.time, end)


class Link:
    """From one rank to another: the n-th that is asked for is the n-th that is sent."""

    def __init__(self, *, one_at_a_time: bool) -> None:
        self._one_at_a_time = one_at_a_time
        self._transfers: list[Transfer] = []
        self._num_sent = self._num_asked = 0
        self._lock = threading.Lock()

    def _transfer(self, number: int) -> Transfer:
        with self._lock:
            while number >= len(self._transfers):
                self._transfers.append(
                    Transfer(self._transfers[-1] if self._transfers and self._one_at_a_time else None)
                )
            return self._transfers[number]

    def send(self, text: str, time: int) -> Transfer:
        transfer = self._transfer(self._num_sent)
        self._num_sent += 1
        transfer.sent.set_result((time, text))
        return transfer

    def ask(self, time: int) -> Transfer:
        transfer = self._transfer(self._num_asked)
        self._num_asked += 1
        transfer.asked.set_result(time)
        return transfer


class Rank:
    """A rank of a case: its number, its time, and when what it has run began and ended."""

    def __init__(self, case: Case, number: int, links: Mapping[tuple[int, int], Link]) -> None:
        self.case, self.number, self.links = case, number, links
        self.time = 0
        self.moments: Moments = {}

    def run(self, stage: int, kind: str, microbatch: int | str) -> str:
        """An instruction, whose text stands for its result."""
        text = f"{stage}{kind}{microbatch}"
        duration = self.case["durations"][kind][stage]
        self.moments[text] = self.time, self.time + duration
        self.time += duration
        return text

    def send(self, text: str, to: int) -> Transfer:
        return self.links[self.number, to].send(text, self.time)

    def ask(self, of: int) -> Transfer:
        return self.links[of, self.number].ask(self.time)


def moments_of(case: Case, iteration: Callable[[Rank], None]) -> Moments:
    """Run an iteration of a case: on each rank's thread, this."""

    def run(rank: Rank) -> Moments:
        local.rank = rank
        iteration(rank)
        return rank.moments

    links: defaultdict[tuple[int, int], Link] = defaultdict()
    for sender in range(case["pp"]):
        for receiver in range(case["pp"]):
            links[sender, receiver] = Link(one_at_a_time=case["one_at_a_time"])
    with ThreadPoolExecutor(case["pp"]) as pool:
        futures = [pool.submit(run, Rank(case, number, links)) for number in range(case["pp"])]
        return {text: moments for future in futures for text, moments in future.result().items()}
