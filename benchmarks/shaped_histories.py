"""Disturbances with a shape in time that ``--chaos`` and ``ordinary_histories.py`` do not draw: is the promise kept?

    python benchmarks/shaped_histories.py [--count 20] [--shapes ramp ripple ...] [--processes 2] [--record]

A shape is what a GPU, or all of them, do over a while: become slow bit by bit, come and go in a rhythm, one after the
other. So many histories of each shape are drawn and played in virtual time, on simulated GPUs, with all invariants of
``simulate --chaos`` judged. The exit code is 1 if a history breaks one.
"""

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median

from measuring import conditions, print_table, record_result
from ordinary_histories import Outcome, outcome_of

from perseus_dist.simulation.chaos.scenario.events import (
    Event,
    HeatCap,
    PowerCap,
    Process,
    ProcessAction,
    ProcessEvent,
    SlowDown,
    SlowLink,
    TargetOrder,
)
from perseus_dist.simulation.chaos.scenario.scenario import SAVED, SWEEP, Scenario, ScenarioJob

ROOM = 150  # iterations after the last event
COLUMNS = ("shape", "histories", "break an invariant", "slower at the end, median [%]", "worst [%]", "broken")
COMMAND = "python benchmarks/shaped_histories.py --record"
HEAT_MHZ = {"a100": 1005, "a40": 1005, "h100": 1305}
POWER_W = {"a100": (200, 380), "a40": (150, 280), "h100": (350, 650)}


def main() -> int:
    """Play them."""
    parser = argparse.ArgumentParser(description="Play jobs with disturbances of many shapes, and judge them.")
    parser.add_argument("--count", type=int, default=20, metavar="N", help="histories of each shape (default: 20)")
    parser.add_argument("--shapes", nargs="+", choices=tuple(SHAPES), default=tuple(SHAPES), metavar="SHAPE")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/shaped_histories.json")
    args = parser.parse_args()

    before = conditions()
    names = [(shape, number) for number in range(args.count) for shape in args.shapes]
    outcomes: dict[str, list[Outcome]] = {shape: [] for shape in args.shapes}
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        for (shape, number), outcome in zip(names, pool.map(play_name, names), strict=True):
            outcomes[shape].append(outcome)
            if outcome.broken:
                print(f"{shape} {number}: {'; '.join(outcome.broken)}", file=sys.stderr, flush=True)
    print(before)
    rows = [_row(shape, of_shape) for shape, of_shape in outcomes.items()]
    print_table(COLUMNS, rows)
    if args.record:
        record_result("shaped_histories", command=COMMAND, columns=COLUMNS, rows=rows)
    everything = [one for of_shape in outcomes.values() for one in of_shape]
    num_broken = sum(bool(one.broken) for one in everything)
    cpu_s = sum(one.cpu_s for one in everything)
    print(f"{num_broken} of {len(everything)} histories break an invariant; {cpu_s:.0f} s of CPU time")
    return 1 if num_broken else 0


def draw(shape: str, number: int) -> Scenario:
    """A shape's history of a number: always the same."""
    rng = random.Random(f"{shape} {number}")
    job = ScenarioJob(
        schedule="1f1b",
        pp=rng.choice((1, 2, 3, 4)),
        dp=rng.choice((1, 2, 3, 4)),
        microbatches=rng.choice((2, 4, 6)),
        gpu=rng.choice(tuple(HEAT_MHZ)),
        imbalance=rng.choice((0.0, 0.1, 0.3)),
        noise_percent=rng.choice((0.0, 0.3, 0.5, 1.0)),
        profile=rng.choice((SAVED, SWEEP)),
        time_scale=rng.choice((1.0, 3.0, 10.0)),
    )
    events = sorted(SHAPES[shape](rng, job, rng.randrange(80)), key=lambda event: event.iteration)
    return Scenario(job=job, iterations=events[-1].iteration + ROOM, seed=number, events=tuple(events))


def play_name(name: tuple[str, int]) -> Outcome:
    """Play the history of a shape and a number, and judge it."""
    return outcome_of(draw(*name))


def _row(shape: str, outcomes: list[Outcome]) -> tuple[str, ...]:
    slower = [one.slower_percent for one in outcomes if one.slower_percent is not None]
    names = sorted({sentence.split(":")[0] for one in outcomes for sentence in one.broken})
    num_broken = sum(bool(one.broken) for one in outcomes)
    return (
        shape,
        str(len(outcomes)),
        str(num_broken),
        f"{median(slower):+.2f}" if slower else "-",
        f"{max(slower):+.2f}" if slower else "-",
        ", ".join(names) or "none",
    )


def _slow(rank: int, begin: int, end: int, slowdown: float) -> Iterator[Event]:
    yield SlowDown(iteration=begin, rank=rank, slowdown=slowdown)
    yield SlowDown(iteration=end, rank=rank, slowdown=1.0)


def _ramp(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """A GPU becomes slow bit by bit, and recovers bit by bit or at once."""
    rank, period = rng.randrange(job.num_ranks), rng.choice((2, 5, 10))
    share, num_steps = rng.choice((0.004, 0.01, 0.02)), rng.randrange(4, 14)
    slowdowns = [1 + share * step for step in range(1, num_steps + 1)]
    slowdowns += [*reversed(slowdowns[:-1]), 1.0] if rng.random() < 0.5 else [1.0]
    for number, slowdown in enumerate(slowdowns):
        yield SlowDown(iteration=begin + number * period, rank=rank, slowdown=round(slowdown, 4))


def _all_at_once(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """All GPUs become slow by the same share, within an iteration of each other, and recover likewise."""
    slowdown, length = round(1 + 0.3 * rng.random(), 3), rng.randrange(5, 70)
    for rank in range(job.num_ranks):
        yield from _slow(rank, begin + rng.choice((0, 0, 1)), begin + length + rng.choice((0, 0, 1)), slowdown)


def _stagger(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """Each GPU is a little slow for a while of its own."""
    for rank in range(job.num_ranks):
        first = begin + rng.randrange(60)
        yield from _slow(rank, first, first + rng.randrange(10, 60), rng.choice((1.02, 1.05, 1.1)))


def _ripple(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """A GPU comes and goes in a rhythm."""
    rank, slowdown = rng.randrange(job.num_ranks), rng.choice((1.05, 1.1, 1.2, 1.4))
    num_slow, num_well = rng.randrange(1, 12), rng.randrange(1, 12)
    for number in range(rng.randrange(3, 12)):
        first = begin + number * (num_slow + num_well)
        yield from _slow(rank, first, first + num_slow, slowdown)


def _again(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """The same GPU is slow four times, with long pauses."""
    rank = rng.randrange(job.num_ranks)
    for _ in range(4):
        end = begin + rng.randrange(15, 40)
        yield from _slow(rank, begin, end, 1.2)
        begin = end + rng.randrange(20, 50)


def _handover(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """As one GPU recovers another becomes slow."""
    for _ in range(rng.randrange(2, 6)):
        end = begin + rng.randrange(8, 35)
        yield from _slow(rng.randrange(job.num_ranks), begin, end, rng.choice((1.1, 1.2, 1.3)))
        begin = end


def _targets(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """An operator changes the target often, while a GPU is slow."""
    first = begin
    for _ in range(rng.randrange(2, 8)):
        target = rng.choice(("t_min", "slowdown=1.05", "slowdown=1.1", "slowdown=1.2"))
        yield TargetOrder(iteration=begin, target=target)
        begin += rng.randrange(1, 25)
    yield from _slow(rng.randrange(job.num_ranks), first + 3, begin + 5, 1.15)
    yield TargetOrder(iteration=begin + 8, target="t_min")


def _without_planner(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """The planner is away for ten iterations, about when one or two GPUs become hot or slow."""
    yield ProcessEvent(iteration=begin + 15, action=ProcessAction.KILL, process=Process.PLANNER)
    yield ProcessEvent(iteration=begin + 25, action=ProcessAction.RESTART, process=Process.PLANNER)
    for rank in rng.sample(range(job.num_ranks), min(job.num_ranks, 2)):
        first = begin + rng.randrange(20)
        end = first + rng.randrange(20, 60)
        if rng.random() < 0.5:
            yield HeatCap(iteration=first, rank=rank, thermal_cap_mhz=HEAT_MHZ[job.gpu])
            yield HeatCap(iteration=end, rank=rank, thermal_cap_mhz=None)
        else:
            yield from _slow(rank, first, end, 1.25)


def _from_the_start(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """A GPU is slow from the first iteration on, for a few."""
    yield from _slow(rng.randrange(job.num_ranks), 0, 1 + begin % 12, 1.3)


def _link(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """A link is slow now and then."""
    rank = rng.randrange(job.num_ranks)
    for _ in range(rng.randrange(1, 5)):
        end = begin + rng.randrange(2, 30)
        transfer_s = rng.choice((0.003, 0.02, 0.07)) * job.time_scale
        yield SlowLink(iteration=begin, rank=rank, transfer_s=transfer_s)
        yield SlowLink(iteration=end, rank=rank, transfer_s=None)
        begin = end + rng.randrange(2, 20)


def _tighter_caps(rng: random.Random, job: ScenarioJob, begin: int) -> Iterator[Event]:
    """A power cap becomes tighter in steps, and is lifted."""
    rank = rng.randrange(job.num_ranks)
    for limit_w in sorted((round(rng.uniform(*POWER_W[job.gpu])) for _ in range(rng.randrange(2, 6))), reverse=True):
        yield PowerCap(iteration=begin, rank=rank, power_limit_w=limit_w)
        begin += rng.randrange(3, 25)
    yield PowerCap(iteration=begin, rank=rank, power_limit_w=None)


SHAPES: dict[str, Callable[[random.Random, ScenarioJob, int], Iterator[Event]]] = {
    "ramp": _ramp,
    "all-at-once": _all_at_once,
    "stagger": _stagger,
    "ripple": _ripple,
    "again": _again,
    "handover": _handover,
    "targets": _targets,
    "without-planner": _without_planner,
    "from-the-start": _from_the_start,
    "link": _link,
    "tighter-caps": _tighter_caps,
}


if __name__ == "__main__":
    sys.exit(main())
