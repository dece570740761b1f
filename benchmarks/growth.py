"""How planning grows with the pipeline, from 192 to 32,768 instructions: time, peak memory, work done.

    python benchmarks/growth.py [--max-instructions 4096] [--limit-s 900] [--record]

Every case is planned in a fresh process, three times where that is quick, and the run with the median time counts.
Times are those of ``plan_frontier``; memory is the peak resident set of the whole process, Python and numpy included
(about 40 MiB). What was measured is kept in ``growth.json``, and not measured again while it stands there; the table
is printed from it, and docs/pictures/growth.svg drawn. The exponent is the slope of a least-squares line through the
logarithms of time and number of instructions, over all cases that came so far. ``--record`` writes the tables of the
documentation; remove ``growth.json`` before, so that all of it is measured on one commit.

Two families of profiles:

- measured: GPT-3 175B on A100. Stage s of num_stages takes what the measured stage s * 8 // num_stages takes, divided
  by the number of chunks. 38 clocks, and stages alike, so that there are many ties.
- synthetic: 61 clocks from 1980 to 990 MHz, and no two stages alike.

      time(f)  = load * work / chunks * (a * f_max / f + 1 - a)      work: forward 50 ms, backward 100 ms
      power(f) = 100 W + 600 W * (f / f_max)^2.6                     blocking: 80 W
      energy   = power * time

  with load drawn from 1 .. 1.15 and a from 0.75 .. 0.80 for each stage, uniformly, seed 2024.
"""

import argparse
import json
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
from measuring import A100_BLOCKING_W, A100_PROFILE, conditions, in_fresh_process

from perseus_dist import _solver
from perseus_dist.errors import PlanningError
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import interleaved, one_f_one_b
from perseus_dist.units import FloatArray, IntArray, uw_from_w

HERE = Path(__file__).resolve().parent
Family = Literal["measured", "synthetic"]
FAMILIES: tuple[Family, ...] = ("measured", "synthetic")
QUICK_S = 20.0  # cases that take no longer are run three times
KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The size of a pipeline."""

    pp: int
    chunks: int
    microbatches: int

    @property
    def name(self) -> str:
        """As the table has it."""
        schedule = "1F1B" if self.chunks == 1 else "interleaved"
        chunks = "" if self.chunks == 1 else f" V{self.chunks}"
        return f"{schedule} PP{self.pp}{chunks} M{self.microbatches}"

    @property
    def num_instructions(self) -> int:
        """Forward and backward computations."""
        return 2 * self.pp * self.chunks * self.microbatches


CASES = (
    *(Case(pp=8, chunks=1, microbatches=microbatches) for microbatches in (12, 32, 96, 128)),
    Case(pp=8, chunks=4, microbatches=64),
    Case(pp=16, chunks=4, microbatches=64),
    Case(pp=16, chunks=4, microbatches=256),
)


def main() -> None:
    """Measure what is missing, print the table and draw; or measure one case in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-instructions", type=int, default=10**9, help="leave larger cases out")
    parser.add_argument("--limit-s", type=float, default=900.0, help="give a case up after so long")
    parser.add_argument("--figures", type=Path, default=HERE / "growth.json", help="what was measured")
    parser.add_argument(
        "--svg", type=Path, default=HERE.parent / "docs" / "pictures" / "growth.svg", help="where to draw"
    )
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/growth*.json")
    parser.add_argument("--measure", nargs=2, metavar=("FAMILY", "CASE"), help="print one case as JSON, and stop")
    args = parser.parse_args()
    if args.measure:
        family, index = args.measure
        print(json.dumps(measure(problem_of_case(family, CASES[int(index)]), args.limit_s)))
        return
    figures: list[dict[str, Any]] = json.loads(args.figures.read_text()) if args.figures.exists() else []
    for family in FAMILIES:
        for index, case in enumerate(CASES):
            known = any(figure["family"] == family and figure["case"] == case.name for figure in figures)
            if known or case.num_instructions > args.max_instructions:
                continue
            figures.append(
                {"family": family, "case": case.name, "num_instructions": case.num_instructions}
                | median_run(family, index, args.limit_s)
            )
            write_output(args.figures, (json.dumps(figures, indent=1) + "\n").encode())
    # it loads matplotlib, whose memory no measured process should have
    from growth_report import draw, print_report, record_report

    print_report(figures)
    if args.record:
        record_report(figures)
    draw(figures, args.svg)


def median_run(family: Family, index: int, limit_s: float) -> dict[str, Any]:
    """The figures of the run with the median time."""
    when = conditions()
    runs: list[dict[str, Any]] = []
    while len(runs) < 3 and all(run.get("total_s", limit_s) < QUICK_S for run in runs):
        runs.append(in_fresh_process(__file__, "--measure", family, index, "--limit-s", limit_s))
        print(f"{family} {CASES[index].name}: {runs[-1].get('total_s', 'not finished')}", file=sys.stderr)
    return sorted(runs, key=lambda run: float(run.get("total_s", limit_s)))[len(runs) // 2] | {"conditions": when}


def measure(problem: PlanningProblem, limit_s: float) -> dict[str, Any]:
    """Plan once, in a process that did nothing else. Where the limit was hit, ``reached`` says how far it came."""
    figures: dict[str, Any] = {"limit_s": limit_s}
    reached: dict[str, float] = {}
    solve_frontier = _solver.solve_frontier
    began = time.perf_counter()

    def counted(**arguments: Any) -> _solver.FrontierResult:
        """The native call, whose result knows what ``Frontier`` does not carry."""
        result = solve_frontier(**arguments)
        counts = {"augmentations": result.num_augmentations, "moves": result.num_moves}
        figures.update(pieces=len(result.time_ps) - 1, **counts)
        if not result.cancelled:
            figures["solve_s"] = time.perf_counter() - began
        return result

    def within_limit(phase: str, share: float) -> bool:
        reached[phase] = share
        return time.perf_counter() - began < limit_s

    peak = "peak_mib"
    with mock.patch.object(_solver, "solve_frontier", counted):
        try:
            frontier = plan_frontier(problem, tolerance=0, progress=within_limit)
        except PlanningError:  # cancelled
            figures["reached"] = reached
            peak = "peak_so_far_mib"
        else:
            gaps = 100 * frontier.gaps[frontier.deadline_points]
            figures |= {"plans": len(frontier.time_ps), "max_gap_percent": gaps.max(), "mean_gap_percent": gaps.mean()}
            figures |= {"realise_s": frontier.realise_seconds, "total_s": time.perf_counter() - began}
    figures[peak] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB
    return figures


def problem_of_case(family: Family, case: Case) -> PlanningProblem:
    """The schedule of a case with a profile of a family."""
    num_stages = case.pp * case.chunks
    if case.chunks == 1:
        schedule = one_f_one_b(pp=case.pp, microbatches=case.microbatches)
    else:
        schedule = interleaved(pp=case.pp, microbatches=case.microbatches, chunks=case.chunks)
    if family == "measured":
        profile, blocking_w = tiled_profile(num_stages, case.chunks), A100_BLOCKING_W
    else:
        profile, blocking_w = synthetic_profile(num_stages, case.chunks), 80.0
    return make_problem(schedule, profile, blocking_uw_of_rank=[int(uw_from_w(blocking_w))] * case.pp)


def tiled_profile(num_stages: int, chunks: int) -> Profile:
    """The measured profile, laid over more and smaller stages."""
    measured = read_profile(A100_PROFILE)
    return Profile(
        source=f"{A100_PROFILE.name}, tiled",
        measurements={
            (stage, kind): one_gpu(found.clocks_mhz, found.times_s[0] / chunks, found.energies_j[0] / chunks)
            for stage in range(num_stages)
            for kind in (Kind.FORWARD, Kind.BACKWARD)
            for found in [measured.measurements[stage * measured.num_stages // num_stages, kind]]
        },
    )


def synthetic_profile(num_stages: int, chunks: int) -> Profile:
    """The formula above."""
    clocks_mhz = np.linspace(1980, 990, 61).round().astype(np.int64)
    x = clocks_mhz / 1980
    rng = np.random.default_rng(2024)
    measurements = {}
    for stage in range(num_stages):
        load, a = rng.uniform(1, 1.15), rng.uniform(0.75, 0.80)
        for kind, work_s in ((Kind.FORWARD, 0.050), (Kind.BACKWARD, 0.100)):
            times_s = load * work_s / chunks * (a / x + 1 - a)
            measurements[stage, str(kind)] = one_gpu(clocks_mhz, times_s, (100 + 600 * x**2.6) * times_s)
    return Profile(source="synthetic", measurements=measurements)


def one_gpu(clocks_mhz: IntArray, times_s: FloatArray, energies_j: FloatArray) -> Measurements:
    """Measurements of one GPU, one sample each; all arrays (num_clocks)."""
    shape = (1, len(clocks_mhz))
    return Measurements(
        clocks_mhz=clocks_mhz,
        gpus=("",),
        times_s=times_s.reshape(shape),
        energies_j=energies_j.reshape(shape),
        num_samples=np.ones(shape),
        time_std_s=np.full(shape, np.nan),
        energy_std_j=np.full(shape, np.nan),
    )


if __name__ == "__main__":
    main()
