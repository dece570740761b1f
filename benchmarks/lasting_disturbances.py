"""GPUs and links that come and go for ever, or stay slow: how much longer is the job than without Perseus?

    python benchmarks/lasting_disturbances.py [--processes 2] [--record]

The invariants of drawn histories allow ten iterations for every disturbance, so that one without an end hides what the
guard itself costs. Here nothing is allowed: PP4 M8 on simulated A100, 1F1B unless another schedule is named, saved
profile, target T_min, played in virtual time with Perseus and without. Time and energy are those of all iterations from
the first disturbance on; a broken invariant is named.
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from measuring import conditions, print_table, record_result

from perseus_dist.simulation.chaos.scenario.events import Event, SlowDown, SlowLink
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.trial import judge

ITERATIONS, FIRST = 200, 30
COLUMNS = ("disturbance of one rank", "DP", "longer [%]", "last 60 [%]", "saved [%]", "broken invariants")


class Case(NamedTuple):
    """One history."""

    name: str
    dp: int
    events: tuple[Event, ...]
    schedule: str = "1f1b"


def main() -> None:
    """Read the command line, play all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1, help="histories to play at a time (default: 1)")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/lasting_disturbances.json")
    args = parser.parse_args()
    print(conditions())
    with ProcessPoolExecutor(args.processes) as pool:
        rows = list(pool.map(_row, _cases()))
    print_table(COLUMNS, rows)
    if args.record:
        command = "python benchmarks/lasting_disturbances.py --record"
        record_result("lasting_disturbances", command=command, columns=COLUMNS, rows=rows)


def _cases() -> Iterator[Case]:
    for dp in (1, 2, 4):
        for half in (3, 5, 7, 10, 15, 25):
            events = [
                SlowDown(iteration=begin, rank=1, node=None, slowdown=1.0 if number % 2 else 1.2)
                for number, begin in enumerate(range(FIRST, ITERATIONS, half))
            ]
            yield Case(f"20 % slow for {half} iterations, well for {half}", dp, tuple(events))
        fifth = [
            SlowDown(iteration=begin + after, rank=1, node=None, slowdown=slowdown)
            for begin in range(FIRST, ITERATIONS, 5)
            for after, slowdown in ((0, 1.2), (1, 1.0))
        ]
        yield Case("20 % slow in one iteration of five", dp, tuple(fifth))
        for transfer_s in (0.005, 0.02):
            slow = _slow_link(FIRST, 1, transfer_s)
            yield Case(f"link {1e3 * transfer_s:g} ms slow", dp, (slow,))
            for half in (3, 10, 25):
                links = [
                    _slow_link(begin, 1, None if number % 2 else transfer_s)
                    for number, begin in enumerate(range(FIRST, ITERATIONS, half))
                ]
                name = f"link {1e3 * transfer_s:g} ms slow for {half} iterations, well for {half}"
                yield Case(name, dp, tuple(links))
    for schedule in ("gpipe", "interleaved"):
        yield Case(f"{schedule}, link 20 ms slow", 1, (_slow_link(FIRST, 1, 0.02),), schedule)
    yield Case("links of ranks 1 and 6 20 ms slow", 2, (_slow_link(FIRST, 1, 0.02), _slow_link(FIRST, 6, 0.02)))


def _slow_link(iteration: int, rank: int, transfer_s: float | None) -> SlowLink:
    return SlowLink(iteration=iteration, rank=rank, node=None, transfer_s=transfer_s)


def _row(case: Case) -> tuple[str, ...]:
    job = ScenarioJob(
        schedule=case.schedule,
        chunks=2 if case.schedule == "interleaved" else 1,
        pp=4,
        microbatches=8,
        dp=case.dp,
        gpu="a100",
        imbalance=0.1,
        noise_percent=0.5,
        profile="saved",
        target="t_min",
    )
    run, broken = judge(Scenario(job=job, iterations=ITERATIONS, seed=1, events=case.events))
    assert run is not None, broken
    longer, longer_last = (
        sum(one.time_s for one in run.iterations[begin:]) / sum(one.time_s for one in run.without[begin:]) - 1
        for begin in (FIRST, ITERATIONS - 60)
    )
    drawn = sum(one.energy_j for one in run.iterations[FIRST:]) / sum(one.energy_j for one in run.without[FIRST:])
    names = ", ".join(sorted({one.name for one in broken})) or "none"
    return case.name, str(case.dp), f"{100 * longer:.1f}", f"{100 * longer_last:.1f}", f"{100 * (1 - drawn):.1f}", names


if __name__ == "__main__":
    main()
