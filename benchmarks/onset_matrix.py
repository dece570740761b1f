"""A fault that begins at every iteration of a young job, and ends: is the job as fast again as without Perseus?

    python benchmarks/onset_matrix.py [--every 1] [--processes 2] [--folder build/onset-matrix] [--out FILE] [--record]

The matrix: onset at iterations 0 to 40 x DP 2, 3, 4, 8 x a slow GPU, a power cap, heat x what comes with it (the fault
ends and nothing else happens; the rank's agent dies meanwhile and stays dead; the planner is killed and started again
meanwhile). Every history is written to a scenario file in the folder and played from it in virtual time, with Perseus
and without; ``perseus-dist simulate --virtual-time --scenario FILE`` plays one again. The bar: from the 21st iteration
after the fault's end on (iterations of sweeps not counted) the job takes no more than 0.5 % longer than the same
history without Perseus, as the median of 20 iterations. ``--every N`` plays every Nth history, spread over the matrix.
The exit code is 1 if a history misses the bar.
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from measuring import append_result, conditions, print_table

from perseus_dist.simulation.chaos.calm import calm_of
from perseus_dist.simulation.chaos.invariants import settled_time
from perseus_dist.simulation.chaos.play import play
from perseus_dist.simulation.chaos.scenario.events import (
    Event,
    HeatCap,
    PowerCap,
    Process,
    ProcessAction,
    ProcessEvent,
    SlowDown,
)
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.scenario.scenario_file import format_scenario, read_scenario
from perseus_dist.simulation.chaos.standing import History
from perseus_dist.simulation.chaos.world.virtual_world import open_virtual_world

ONSETS, DATA_PARALLEL = range(41), (2, 3, 4, 8)
FAULTS = ("slow", "power cap", "heat")
COMPANIONS = ("recovers", "agent dies", "planner restarts")
RANK = 1  # the last stage of the first pipeline
DURATION, MEANWHILE, PLANNER_AWAY = 20, 10, 3  # iterations
ROOM = 130  # iterations after the fault's end: two sweeps, 20 to settle, 20 that are judged


class Case(NamedTuple):
    """One history of the matrix."""

    onset: int
    dp: int
    fault: str
    companion: str

    @property
    def file_name(self) -> str:
        """Of its scenario file."""
        return f"{self.fault}-{self.companion}-dp{self.dp}-{self.onset:02}.json".replace(" ", "-")


class Outcome(NamedTuple):
    """What came of a history: a sentence where it missed the bar or could not be judged, and [s] of CPU time."""

    case: Case
    sentence: str
    cpu_s: float


def main() -> int:
    """Play the matrix."""
    parser = argparse.ArgumentParser(description="Play a fault at every onset, and see whether the job recovers.")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="play every Nth history")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--folder", type=Path, default=Path("build/onset-matrix"), metavar="DIR")
    parser.add_argument("--out", type=Path, default=Path("onset-matrix.json"), metavar="FILE")
    parser.add_argument("--record", action="store_true", help="add a row to benchmarks/results/onset_matrix.json")
    args = parser.parse_args()
    cases = list(itertools.starmap(Case, itertools.product(ONSETS, DATA_PARALLEL, FAULTS, COMPANIONS)))
    chosen = _spread(cases, args.every)
    args.folder.mkdir(parents=True, exist_ok=True)
    files = []
    for case in chosen:
        files.append(args.folder / case.file_name)
        files[-1].write_text(format_scenario(scenario_of(case)))

    before = conditions()
    outcomes = []
    for outcome in _played(chosen, files, args.processes):
        outcomes.append(outcome)
        if outcome.sentence:
            print(f"{outcome.case.file_name}: {outcome.sentence}", file=sys.stderr, flush=True)
    missed = [outcome for outcome in outcomes if outcome.sentence]
    args.out.write_text(json.dumps(_document(before, len(cases), outcomes), indent=1) + "\n")
    print(before)
    _print(outcomes)
    if args.record:
        append_result(
            "onset_matrix",
            command="python benchmarks/onset_matrix.py --record",
            columns=("date", "commit", "histories", "miss the bar"),
            row=(f"{len(outcomes):,}{_part(args.every)}", str(len(missed))),
        )
    print(f"{len(missed)} of {len(outcomes)} histories missed the bar ({len(cases)} are in the matrix)")
    return 1 if missed else 0


def scenario_of(case: Case) -> Scenario:
    """The history of a case."""
    end = case.onset + DURATION
    events: list[Event] = [_fault(case.fault, case.onset, is_on=True), _fault(case.fault, end, is_on=False)]
    middle = case.onset + MEANWHILE
    if case.companion == "agent dies":
        events.append(ProcessEvent(iteration=middle, action=ProcessAction.KILL, process=Process.AGENT, rank=RANK))
    elif case.companion == "planner restarts":
        events += [
            ProcessEvent(iteration=middle, action=ProcessAction.KILL, process=Process.PLANNER),
            ProcessEvent(iteration=middle + PLANNER_AWAY, action=ProcessAction.RESTART, process=Process.PLANNER),
        ]
    events.sort(key=lambda event: event.iteration)
    job = ScenarioJob(schedule="1f1b", pp=2, dp=case.dp, microbatches=4)
    return Scenario(job=job, iterations=end + ROOM, events=tuple(events))


def play_file(case: Case, file: Path) -> Outcome:
    """Play a scenario file, and judge when it has settled."""
    begin_s = time.process_time()
    scenario = read_scenario(file)
    try:
        run = play(scenario, open_virtual_world)
    except Exception as error:  # a history that cannot be played is one that misses the bar
        return Outcome(case, f"{type(error).__name__}: {error}", time.process_time() - begin_s)
    history = History(scenario)
    broken = settled_time.check(run, history)
    sentence = broken[0].sentence if broken else ""
    if not calm_of(run, history).settled:
        sentence = "sweeps left too few iterations to be judged"
    return Outcome(case, sentence, time.process_time() - begin_s)


def _fault(kind: str, iteration: int, *, is_on: bool) -> Event:
    if kind == "slow":
        return SlowDown(iteration=iteration, rank=RANK, slowdown=1.3 if is_on else 1.0)
    if kind == "power cap":
        return PowerCap(iteration=iteration, rank=RANK, power_limit_w=250.0 if is_on else None)
    return HeatCap(iteration=iteration, rank=RANK, thermal_cap_mhz=1005 if is_on else None)


def _spread(cases: Sequence[Case], every: int) -> list[Case]:
    """Every Nth of them, in an order that is always the same and has nothing to do with what they are."""
    shuffled = list(cases)
    random.Random("onset matrix").shuffle(shuffled)
    return shuffled[::every]


def _played(cases: Sequence[Case], files: Sequence[Path], processes: int) -> Iterator[Outcome]:
    if processes == 1:
        yield from map(play_file, cases, files)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(play_file, cases, files)


def _print(outcomes: Sequence[Outcome]) -> None:
    played = Counter((outcome.case.fault, outcome.case.companion, outcome.case.dp) for outcome in outcomes)
    missed = Counter(
        (outcome.case.fault, outcome.case.companion, outcome.case.dp) for outcome in outcomes if outcome.sentence
    )
    print_table(
        ("fault", "with it", *(f"DP {dp}" for dp in DATA_PARALLEL), "onsets that missed the bar"),
        [
            (
                fault,
                companion,
                *(f"{missed[fault, companion, dp]} of {played[fault, companion, dp]}" for dp in DATA_PARALLEL),
                _onsets(outcomes, fault, companion),
            )
            for fault, companion in itertools.product(FAULTS, COMPANIONS)
        ],
    )


def _onsets(outcomes: Sequence[Outcome], fault: str, companion: str) -> str:
    found = sorted(
        (outcome.case.onset, outcome.case.dp)
        for outcome in outcomes
        if outcome.sentence and (outcome.case.fault, outcome.case.companion) == (fault, companion)
    )
    return ", ".join(f"{onset} (DP {dp})" for onset, dp in found) or "none"


def _part(every: int) -> str:
    return f" (--every {every})" if every > 1 else ""


def _document(before: str, num_cases: int, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    missed = [outcome for outcome in outcomes if outcome.sentence]
    return {
        "simulated_gpus": True,
        "conditions": before,
        "cases": num_cases,
        "played": len(outcomes),
        "missed": len(missed),
        "cpu_s": round(sum(outcome.cpu_s for outcome in outcomes), 1),
        "failures": [{**outcome.case._asdict(), "sentence": outcome.sentence} for outcome in missed],
    }


if __name__ == "__main__":
    sys.exit(main())
