"""Jobs of all shapes that nothing disturbs: does each keep its target, and are its figures true?

    python benchmarks/undisturbed_jobs.py [--count 220] [--processes 2] [--record]

Drawn are schedule, stages, chunks, pipelines, microbatches from one on, GPU, imbalance up to three times the first
stage's work, noise, length of computations, layers, target, a saved profile or a sweep: shapes that ``simulate
--chaos`` leaves out are among them. All is simulated, in virtual time, and judged by the invariants of ``--chaos``.
The exit code is 1 if one breaks.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from measuring import conditions, print_table, record_result
from ordinary_histories import Outcome, outcome_of

from perseus_dist.simulation.chaos.scenario.scenario import SAVED, SWEEP, Scenario, ScenarioJob

COLUMNS = ("schedule", "jobs", "do not hold", "invariants that these break")
COMMAND = "python benchmarks/undisturbed_jobs.py --record"


def main() -> int:
    """Play them."""
    parser = argparse.ArgumentParser(description="Play jobs that nothing disturbs, of all shapes.")
    parser.add_argument("--count", type=int, default=220, metavar="N")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/undisturbed_jobs.json")
    args = parser.parse_args()

    before = conditions()
    outcomes = []
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        for outcome in pool.map(play_number, range(args.count)):
            outcomes.append(outcome)
            for sentence in outcome.broken:
                print(f"{outcome.number} ({draw(outcome.number).job}): {sentence}", file=sys.stderr, flush=True)
    print(before)
    rows = _rows(outcomes)
    print_table(COLUMNS, rows)
    if args.record:
        record_result("undisturbed_jobs", command=COMMAND, columns=COLUMNS, rows=rows)
    return 1 if any(outcome.broken for outcome in outcomes) else 0


def draw(number: int) -> Scenario:
    """The job of a number: always the same."""
    rng = random.Random(f"undisturbed job {number}")
    schedule = rng.choice(("1f1b", "gpipe", "interleaved"))
    is_interleaved = schedule == "interleaved"
    pp = rng.choice((2, 3, 4) if is_interleaved else (1, 2, 3, 4, 6))
    chunks = rng.choice((2, 3)) if is_interleaved else 1
    layers = rng.choice((0, pp * chunks * rng.choice((12, 24, 48)) + rng.choice((0, 1))))
    job = ScenarioJob(
        schedule=schedule,
        pp=pp,
        chunks=chunks,
        dp=rng.choice((1, 1, 2, 3)),
        microbatches=pp * rng.choice((1, 2, 3)) if is_interleaved else rng.choice((1, 2, 3, 4, 8)),
        gpu=rng.choice(("a100", "a40", "h100")),
        imbalance=rng.choice((0.0, 0.1, 0.5, 2.0)),
        noise_percent=rng.choice((0.0, 0.5, 1.0)),
        time_scale=rng.choice((0.5, 1.0, 1.0, 5.0, 30.0)),
        layers=layers,
        profile=rng.choice((SAVED, SWEEP)),
        target=rng.choice(("t_min", "slowdown=1.05", "slowdown=1.3", "slowdown=3")),
    )
    return Scenario(job=job, iterations=rng.choice((40, 80, 150)), seed=number)


def play_number(number: int) -> Outcome:
    """Play a job and judge it."""
    return outcome_of(draw(number))


def _rows(outcomes: Sequence[Outcome]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    jobs = [(draw(outcome.number).job.schedule, outcome) for outcome in outcomes]
    for schedule in sorted({schedule for schedule, _ in jobs}):
        broken = [outcome.broken for of, outcome in jobs if of == schedule]
        names = Counter(sentence.partition(":")[0] for sentences in broken for sentence in sentences)
        told = ", ".join(f"{name} ({count})" for name, count in sorted(names.items())) or "none"
        rows.append((schedule, str(len(broken)), str(sum(map(bool, broken))), told))
    return rows


if __name__ == "__main__":
    sys.exit(main())
