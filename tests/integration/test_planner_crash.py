"""A process that writes facts is killed at random moments: what it had acknowledged is there, and nothing in pieces."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.sweeps import SamplesReceived
from perseus_dist.planner.store.store import Store

NUM_KILLS = 20

# Begins where the store left off, as a planner does. A line on standard output is an acknowledgement. Commits come in
# bursts, so that many share a transaction.
WRITER = """
import sys
import time
from collections import deque
from pathlib import Path
from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.facts.sweeps import SamplesReceived
from perseus_dist.planner.store.store import Store

store = Store(Path(sys.argv[1]))
facts = store.load().get("job", [])
number = sum(isinstance(fact, SamplesReceived) for fact in facts)
waiting = deque()
while True:
    number += 1
    if number % 50 == 0:
        time.sleep(0.01)
    samples = SamplesReceived(
        rank=0, pp_rank=0, dp_rank=0, tp_rank=0, incarnation=1, series=1, clock_mhz=1400,
        samples=ProfileSamples(sequence=number, sweep_id=1, step=0, samples=()),
    )
    switch = SwitchDecided(
        table_revision=1, switch_revision=number, effective_iteration=number, points=(0,), reason="x" * (number % 5000)
    )
    waiting.append((number, store.commit("job", [samples, switch])))
    while waiting and (waiting[0][1].done() or len(waiting) > 200):
        acknowledged, future = waiting.popleft()
        future.result()
        print(acknowledged, flush=True)
"""


@pytest.mark.stress
def test_nothing_that_was_acknowledged_is_lost_and_revisions_never_go_back(tmp_path: Path) -> None:
    path = tmp_path / "planner.db"
    chance = random.Random(1)
    acknowledged = 0
    for _ in range(NUM_KILLS):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        try:
            assert writer.stdout is not None
            first = writer.stdout.readline()
            time.sleep(chance.uniform(0, 0.1))
        finally:
            writer.kill()
            rest, _ = writer.communicate()
        assert writer.returncode == -signal.SIGKILL
        lines = (first + rest).split("\n")[:-1]  # the last one may be cut short
        acknowledged = max(acknowledged, *map(int, lines))
        store = Store(path)
        facts = store.load()["job"]
        store.close()
        assert _samples(facts) == list(range(1, len(_samples(facts)) + 1)), "in order, without a gap"
        assert len(_samples(facts)) >= acknowledged
        (switch,) = (fact for fact in facts if isinstance(fact, SwitchDecided))
        assert switch.switch_revision == len(_samples(facts)), "both facts of a commit, or none"
    assert acknowledged > NUM_KILLS
    assert not list(tmp_path.glob("*damaged*"))


def _samples(facts: list[Fact]) -> list[int]:
    return [fact.samples.sequence for fact in facts if isinstance(fact, SamplesReceived)]
