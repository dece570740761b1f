"""What an interleaved job loses that is planned as if it were plain 1F1B, as a table in markdown.

    python benchmarks/interleaved_as_plain.py [--microbatches 32] [--slowdown 1.0] [--json FILE]

A job of V chunks a rank is planned three ways, each for the given slowdown against all-maximum clocks:

- own: on its own DAG.
- plain: on that of plain 1F1B, where a rank's chunks are one stage (times and energies summed clock by clock). An
  instruction then runs at the clock that its pp_rank, kind and microbatch have in that plan, whatever its chunk.
- overlapped: where pairs of the steady state exchange jointly (``joint_exchanges``), as if they did not.

All three are replayed on the job's own DAG and measured times. Where a plan comes out slower than it was made for, its
saving is no saving at the same speed; the last column says what the own plan saves within the plain plan's time.

Profiles are those of ``growth.py``: measured GPT-3 175B on A100, its stages laid over the virtual ones, and synthetic
ones, no two stages alike. Blocking power is the A100's.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
from growth import FAMILIES, Family, one_gpu, synthetic_profile, tiled_profile
from measuring import A100_BLOCKING_W, conditions, print_table

from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import Execution, replay
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.profile.profile import Profile
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import Schedule, interleaved, joint_exchanges, one_f_one_b
from perseus_dist.units import IntArray, j_from_uj, s_from_ps, uw_from_w

HEADS = (
    "profile",
    "interleaved",
    "pairs exchange",
    "all-max [s]",
    "all-max [J]",
    *(f"{plan}: {value}" for plan in ("own", "plain", "overlapped") for value in ("time [s]", "energy [J]")),
    "own within plain's time",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An iteration under one plan, beside that at all-maximum clocks."""

    time_s: float
    slowdown_percent: float
    energy_j: float
    saving_percent: float

    @property
    def cells(self) -> tuple[str, str]:
        """Time and energy, with what they are against all-max."""
        return (
            f"{self.time_s:.3f} ({self.slowdown_percent:+.2f} %)",
            f"{self.energy_j:,.0f} (-{self.saving_percent:.1f} %)",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One interleaved job, planned each way."""

    family: Family
    pp: int
    chunks: int
    microbatches: int
    joint: bool
    all_max: Outcome
    own: Outcome
    plain: Outcome
    overlapped: Outcome | None
    own_within_plain_time: Outcome

    @property
    def row(self) -> tuple[str, ...]:
        """As the table has it."""
        return (
            self.family,
            f"PP{self.pp} V{self.chunks} M{self.microbatches}",
            "jointly" if self.joint else "singly",
            f"{self.all_max.time_s:.3f}",
            f"{self.all_max.energy_j:,.0f}",
            *self.own.cells,
            *self.plain.cells,
            *(self.overlapped.cells if self.overlapped else ("", "")),
            self.own_within_plain_time.cells[1],
        )


def main() -> None:
    """Plan and replay every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microbatches", type=int, default=32)
    parser.add_argument("--slowdown", type=float, default=1.0, help="what all plans are made for")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    args = parser.parse_args()
    when = conditions()
    figures = [
        one
        for family, pp, chunks in product(FAMILIES, (4, 8), (2, 4))
        for one in compare(family, pp, chunks, args.microbatches, args.slowdown)
    ]
    print(f"{when}; planned for {args.slowdown:g} times the all-max time.\n")
    print_table(HEADS, [one.row for one in figures])
    if args.json:
        document = {"conditions": when, "slowdown": args.slowdown, "cases": [asdict(one) for one in figures]}
        write_output(args.json, (json.dumps(document, indent=1) + "\n").encode())


def compare(family: Family, pp: int, chunks: int, microbatches: int, slowdown: float) -> Iterator[Figures]:
    """The figures of one job, with pairs that exchange singly, then jointly."""
    profile = (tiled_profile if family == "measured" else synthetic_profile)(pp * chunks, chunks)
    singly = interleaved(pp=pp, microbatches=microbatches, chunks=chunks)
    overlapped = frontier_of(singly, profile)
    plain = frontier_of(one_f_one_b(pp=pp, microbatches=microbatches), merged(profile, pp))
    for own in (overlapped, frontier_of(joint_exchanges(singly), profile)):
        problem, baseline = own.problem, own.baseline
        as_plain = replay(problem, as_in_plain(problem, plain.problem, clocks_within(plain, slowdown)))
        as_overlapped = replay(problem, clocks_within(overlapped, slowdown))
        within = own.execution(own.point_for_deadline(max(as_plain.time_ps, baseline.time_ps)))
        yield Figures(
            family=family,
            pp=pp,
            chunks=chunks,
            microbatches=microbatches,
            joint=own is not overlapped,
            all_max=outcome(baseline, baseline),
            own=outcome(replay(problem, clocks_within(own, slowdown)), baseline),
            plain=outcome(as_plain, baseline),
            overlapped=None if own is overlapped else outcome(as_overlapped, baseline),
            own_within_plain_time=outcome(within, baseline),
        )


def merged(profile: Profile, pp: int) -> Profile:
    """The chunks of each pp_rank as one stage; all stages of these profiles have the same clocks."""
    measurements = {}
    for pp_rank, kind in product(range(pp), (Kind.FORWARD, Kind.BACKWARD)):
        chunks = [profile.measurements[stage, kind] for stage in range(pp_rank, profile.num_stages, pp)]
        times_s = np.sum([chunk.times_s[0] for chunk in chunks], axis=0)
        energies_j = np.sum([chunk.energies_j[0] for chunk in chunks], axis=0)
        measurements[pp_rank, str(kind)] = one_gpu(chunks[0].clocks_mhz, times_s, energies_j)
    return Profile(source=f"{profile.source}, chunks merged", measurements=measurements)


def frontier_of(schedule: Schedule, profile: Profile) -> Frontier:
    """All plans of a job of A100s."""
    blocking_uw = int(uw_from_w(A100_BLOCKING_W))
    return plan_frontier(make_problem(schedule, profile, blocking_uw_of_rank=[blocking_uw] * schedule.num_ranks))


def clocks_within(frontier: Frontier, slowdown: float) -> IntArray:
    """(num_instructions) the plan for a slowdown, as indices for ``replay``."""
    point = frontier.point_for_deadline(round(slowdown * frontier.baseline.time_ps))
    clock_indices: IntArray = frontier.clock_indices[point].astype(np.int64)
    return clock_indices


def as_in_plain(problem: PlanningProblem, plain: PlanningProblem, clock_indices: IntArray) -> IntArray:
    """(num_instructions) for each instruction the clock that its pp_rank, kind and microbatch have in a plain plan."""
    clock_of = dict(zip(plain.dag.instructions, clock_indices.tolist(), strict=True))
    ranks = problem.dag.pp_rank.tolist()
    clocks = (clock_of[one._replace(stage=rank)] for one, rank in zip(problem.dag.instructions, ranks, strict=True))
    return np.fromiter(clocks, dtype=np.int64)


def outcome(execution: Execution, baseline: Execution) -> Outcome:
    """What an iteration takes, and against all-maximum clocks."""
    return Outcome(
        time_s=float(s_from_ps(execution.time_ps)),
        slowdown_percent=100 * (execution.time_ps / baseline.time_ps - 1),
        energy_j=float(j_from_uj(execution.total_uj)),
        saving_percent=100 * (1 - execution.total_uj / baseline.total_uj),
    )


if __name__ == "__main__":
    main()
