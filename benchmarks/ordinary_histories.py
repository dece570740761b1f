"""Jobs with one to three ordinary disturbances, each over again: how much slower are they than undisturbed afterwards?

    python benchmarks/ordinary_histories.py [--count 120] [--processes 2] [--out FILE] [--record]

A disturbance is a GPU that is slow for a while, one that heat caps, or one with a power limit, of any length at any
moment from the job's first iteration on. Jobs have 1 to 8 pipelines of 2 to 4 stages, a saved profile or a sweep of
their own. All is simulated, in virtual time. Histories go on for ``ROOM`` iterations after the last disturbance has
ended; their last 20 are held against the undisturbed time, and all invariants of ``simulate --chaos`` are judged.
The exit code is 1 if a history ends more than 0.5 % slower, or breaks an invariant.
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import NamedTuple

from measuring import conditions, print_table, record_result

from perseus_dist.simulation.chaos.scenario.events import Event, HeatCap, PowerCap, SlowDown
from perseus_dist.simulation.chaos.scenario.scenario import SAVED, SWEEP, Scenario, ScenarioJob
from perseus_dist.simulation.chaos.trial import judge

ROOM = 130  # iterations after the last disturbance: two sweeps, 20 to settle, and those that are judged
NUM_JUDGED = 20
ALLOWED_PERCENT = 0.5
COLUMNS = ("profile", "DP", "do not hold", "slower at the end, median [%]", "worst [%]")
COMMAND = "python benchmarks/ordinary_histories.py --record"


class Outcome(NamedTuple):
    """What came of a history: [%] slower than undisturbed at its end, None where it crashed, and what it broke."""

    number: int
    dp: int
    profile: str
    slower_percent: float | None
    broken: tuple[str, ...]
    cpu_s: float

    @property
    def holds(self) -> bool:
        """Neither slower at the end than allowed, nor anything broken."""
        return not self.broken and self.slower_percent is not None and self.slower_percent <= ALLOWED_PERCENT


def main() -> int:
    """Play them."""
    parser = argparse.ArgumentParser(description="Play jobs with disturbances that end, and see what stays behind.")
    parser.add_argument("--count", type=int, default=120, metavar="N")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--out", type=Path, default=Path("ordinary-histories.json"), metavar="FILE")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/ordinary_histories.json")
    args = parser.parse_args()

    before = conditions()
    outcomes = []
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        for outcome in pool.map(play_number, range(args.count)):
            outcomes.append(outcome)
            if not outcome.holds:
                print(_sentence(outcome), file=sys.stderr, flush=True)
    failed = [outcome for outcome in outcomes if not outcome.holds]
    document = {"simulated_gpus": True, "conditions": before, "histories": [one._asdict() for one in outcomes]}
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(before)
    rows = _rows(outcomes)
    print_table(COLUMNS, rows)
    if args.record:
        record_result("ordinary_histories", command=COMMAND, columns=COLUMNS, rows=rows)
    cpu_s = sum(one.cpu_s for one in outcomes)
    print(f"{len(failed)} of {len(outcomes)} histories do not hold; {cpu_s:.0f} s of CPU time")
    return 1 if failed else 0


def draw(number: int) -> Scenario:
    """The history of a number: always the same."""
    rng = random.Random(f"ordinary history {number}")
    job = ScenarioJob(
        schedule=rng.choice(("1f1b", "1f1b", "gpipe")),
        pp=rng.choice((2, 3, 4)),
        dp=rng.choice((1, 1, 2, 3, 4, 8)),
        microbatches=rng.choice((4, 6, 8)),
        imbalance=rng.choice((0.0, 0.1, 0.3)),
        noise_percent=rng.choice((0.0, 0.5, 1.0)),
        profile=rng.choice((SAVED, SWEEP)),
        gpu=rng.choice(("a100", "a40", "h100")),
    )
    events: list[Event] = []
    for _ in range(rng.randint(1, 3)):
        begin, rank = rng.randint(0, 120), rng.randrange(job.num_ranks)
        events += _disturbance(rng, begin, begin + rng.randint(3, 60), rank)
    events.sort(key=lambda event: event.iteration)
    return Scenario(job=job, iterations=events[-1].iteration + ROOM, seed=number, events=tuple(events))


def play_number(number: int) -> Outcome:
    """Play a history and judge it."""
    return outcome_of(draw(number))


def outcome_of(scenario: Scenario) -> Outcome:
    """Play and judge a history that is known by its seed."""
    begin_s = time.process_time()
    run, broken = judge(scenario)
    slower = None
    if run is not None:
        end_s = median(iteration.time_s for iteration in run.iterations[-NUM_JUDGED:])
        slower = 100 * (end_s / run.jobs[-1].undisturbed_time_s - 1)
    return Outcome(
        number=scenario.seed,
        dp=scenario.job.dp,
        profile=scenario.job.profile,
        slower_percent=slower,
        broken=tuple(f"{one.name}: {one.sentence}" for one in broken),
        cpu_s=round(time.process_time() - begin_s, 2),
    )


def _disturbance(rng: random.Random, begin: int, end: int, rank: int) -> list[Event]:
    match rng.randrange(3):
        case 0:
            slowdown = rng.choice((1.05, 1.1, 1.2, 1.4))
            return [
                SlowDown(iteration=begin, rank=rank, slowdown=slowdown),
                SlowDown(iteration=end, rank=rank, slowdown=1.0),
            ]
        case 1:
            return [
                HeatCap(iteration=begin, rank=rank, thermal_cap_mhz=rng.choice((900, 1005, 1200))),
                HeatCap(iteration=end, rank=rank, thermal_cap_mhz=None),
            ]
        case _:
            return [
                PowerCap(iteration=begin, rank=rank, power_limit_w=rng.choice((200.0, 250.0, 280.0))),
                PowerCap(iteration=end, rank=rank, power_limit_w=None),
            ]


def _sentence(outcome: Outcome) -> str:
    slower = "it crashed" if outcome.slower_percent is None else f"{outcome.slower_percent:+.2f} % at the end"
    return "; ".join((f"{outcome.number}: {slower}", *outcome.broken))


def _rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for profile, dp in itertools.product((SAVED, SWEEP), sorted({outcome.dp for outcome in outcomes})):
        chosen = [outcome for outcome in outcomes if (outcome.profile, outcome.dp) == (profile, dp)]
        slower = [one.slower_percent for one in chosen if one.slower_percent is not None]
        if slower:
            does_not_hold = sum(not one.holds for one in chosen)
            rows.append(
                (profile, str(dp), f"{does_not_hold} of {len(chosen)}", f"{median(slower):+.2f}", f"{max(slower):+.2f}")
            )
    return rows


if __name__ == "__main__":
    sys.exit(main())
