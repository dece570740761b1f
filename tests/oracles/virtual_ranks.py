"""Ranks with a time of their own, and transfers between them that take time: for frameworks' functions to run on.

Ranks are threads of one process. A transfer begins when both sides have come to it, and, where links carry one tensor
at a time, when the one before it is over; a rank that waits for it goes on when it has ended. What several ranks do
together begins when the last of them has come to it, and ends for all at once. No clock is read.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

TIMEOUT_S = 60
local = threading.local()  # the Rank whose thread it is

Case = Mapping[str, Any]
Moments = dict[str, tuple[float, float]]  # begin and end of each instruction, and of each transfer

Arrival = Future[float]


class Transfer:
    """A tensor from one rank to another; also the handle that either waits for."""

    def __init__(self, before: "Transfer | None") -> None:
        self._before = before  # that the link carries first
        self.sent: Future[tuple[float, str]] = Future()
        self.asked: Future[float] = Future()

    @property
    def text(self) -> str:
        return self.sent.result(TIMEOUT_S)[1]

    def moments(self, case: Case) -> tuple[float, float]:
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

    def send(self, text: str, time: float) -> Transfer:
        transfer = self._transfer(self._num_sent)
        self._num_sent += 1
        transfer.sent.set_result((time, text))
        return transfer

    def ask(self, time: float) -> Transfer:
        transfer = self._transfer(self._num_asked)
        self._num_asked += 1
        transfer.asked.set_result(time)
        return transfer


class Rank:
    """A rank of a case: its number, its time, and when what it has run began and ended."""

    def __init__(
        self, case: Case, number: int, links: Mapping[tuple[int, int], Link], arrivals: Mapping[str, Sequence[Arrival]]
    ) -> None:
        self.case, self.number, self.links, self._arrivals = case, number, links, arrivals
        self.time: float = 0
        self.moments: Moments = {}

    def run(self, stage: int, kind: str, microbatch: int | str) -> str:
        """An instruction, whose text stands for its result."""
        text = f"{stage}{kind}{microbatch}"
        duration = self.case.get("lasts", {}).get(text, self.case["durations"][kind][stage])
        self.moments[text] = self.time, self.time + duration
        self.time += duration
        return text

    def run_constant(self, kind: str, call: Callable[[], object]) -> None:
        """What lets its time pass once an iteration."""
        begin = self.time
        call()
        self.moments[f"{self.number}{kind}"] = begin, self.time

    def reduce(self, kind: str, ranks: Iterable[int], duration: float) -> None:
        """An all-reduce of these ranks, once an iteration."""
        arrivals = self._arrivals[kind]
        arrivals[self.number].set_result(self.time)
        self.time = max(arrivals[rank].result(TIMEOUT_S) for rank in ranks) + duration

    def step(self) -> None:
        """An optimizer's step: the gradients' norm over all ranks, and then what the rank does by itself."""
        self.reduce("STEP", range(self.case["pp"]), 0)
        self.time += self.case["at_end"]["step"][self.number]

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
    arrivals = {kind: [Arrival() for _ in range(case["pp"])] for kind in ("TIED", "STEP")}
    with ThreadPoolExecutor(case["pp"]) as pool:
        futures = [pool.submit(run, Rank(case, number, links, arrivals)) for number in range(case["pp"])]
        return {text: moments for future in futures for text, moments in future.result().items()}
