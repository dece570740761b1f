"""What profiling costs a job and its saving: clocks chosen by what is uncertain, beside the whole menu on all replicas.

    python benchmarks/sweep_cost.py [--record]

Jobs in virtual time on simulated GPUs, from their first iteration until a plan is in force, and on for thirty more; all
figures are the simulator's truth. "Before" walks down the thinned menu on all ranks together, until energy has risen
three times, and holds each clock for 100 periods of the energy counter; "after" is the default. Bars, on the mean of a
GPU model's jobs: a third of the iterations, and at most 0.2 points of saving less.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean

from measuring import conditions, print_table, record_result

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import virtual_job

BEFORE = Policy(
    num_first_clocks=24, max_sweep_rounds=1, shares_sweep=False, num_profile_periods=100, plans_between_clocks=False
)
AFTER = Policy()
NUM_PLANNED, NUM_SETTLING = 30, 3
MAX_ITERATIONS = 2000
COLUMNS = (
    "GPU",
    "PP x M x DP",
    "iteration [s]",
    "noise [%]",
    "imbalance [%]",
    "sweep before [iterations]",
    "after [iterations]",
    "longer before [s]",
    "after [s]",
    "saved before [%]",
    "after [%]",
    "slowdown after [%]",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job: its iterations take about ``time_scale`` times 0.14 s a microbatch."""

    gpu: str
    pp: int
    microbatches: int
    dp: int
    time_scale: float
    noise_percent: float
    imbalance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was measured of it.

    Attributes:
        full_s: [s] an iteration at full clocks.
        num_swept: Iterations from the first at a clock of the sweep until planning.
        longer_s: [s] that they took longer than at full clocks.
        saved: Share of energy under the plan.
        slowdown: Share of time.
    """

    full_s: float
    num_swept: int
    longer_s: float
    saved: float
    slowdown: float


CASES = tuple(
    Case(gpu=gpu, pp=pp, microbatches=m, dp=dp, time_scale=scale, noise_percent=noise, imbalance=imbalance)
    for gpu in ("a100", "h100", "a40")
    for pp, m, dp, scale, noise, imbalance in (
        (1, 4, 1, 1.0, 1.0, 0.0),
        (2, 8, 1, 0.3, 2.0, 0.1),
        (4, 8, 1, 1.0, 0.0, 0.1),
        (4, 8, 1, 4.0, 1.0, 0.1),
        (8, 16, 1, 0.5, 1.0, 0.1),
        (2, 8, 2, 0.5, 1.0, 0.3),
        (4, 8, 2, 4.0, 1.0, 0.1),
        (4, 8, 3, 1.0, 0.5, 0.0),
        (4, 8, 4, 0.5, 1.0, 0.1),
        (2, 8, 8, 2.0, 2.0, 0.2),
    )
)


def main() -> int:
    """Run all cases; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=("a100", "h100", "a40"), help="these jobs alone")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/sweep_cost.json")
    args = parser.parse_args()
    print(conditions(), flush=True)
    rows: list[tuple[str, ...]] = []
    pairs: defaultdict[str, list[tuple[Outcome, Outcome]]] = defaultdict(list)
    for case in CASES:
        if args.gpu in (None, case.gpu):
            before, after = _play(case, BEFORE), _play(case, AFTER)
            pairs[case.gpu].append((before, after))
            rows.append(_row(case, before, after))
            print(*rows[-1], file=sys.stderr, flush=True)
    is_met = True
    for gpu, of_gpu in pairs.items():
        share, lost = _bars(of_gpu)
        is_met &= share <= 1 / 3 and lost <= 0.002
        rows.append(_mean_row(gpu, of_gpu))
        print(f"{gpu}: {100 * share:.1f} % of the iterations, {100 * lost:+.2f} points of saving less", file=sys.stderr)
    print_table(COLUMNS, rows)
    if args.record:
        record_result("sweep_cost", command="python benchmarks/sweep_cost.py --record", columns=COLUMNS, rows=rows)
    return 0 if is_met else 1


def _play(case: Case, policy: Policy) -> Outcome:
    simulated = SimulatedJob(
        schedule=one_f_one_b(pp=case.pp, microbatches=case.microbatches),
        num_pipelines=case.dp,
        num_iterations=MAX_ITERATIONS,
        imbalance=case.imbalance,
        time_scale=case.time_scale,
    )
    with virtual_job(simulated, case.gpu, policy, noise_percent=case.noise_percent, seed=1) as job:
        while job.planner.job.switch is None:
            if len(job.iterations) > MAX_ITERATIONS:
                raise SystemExit(f"{case}: no plan in {MAX_ITERATIONS} iterations")
            job.run_iteration()
        for _ in range(NUM_SETTLING + NUM_PLANNED):
            job.run_iteration()
        iterations = job.iterations
        first = next(k for k, one in enumerate(iterations) if one.phase == "profiling")
        swept = list(takewhile(lambda one: one.phase == "profiling", iterations[first:]))
        full = iterations[policy.num_warmup_iterations : first]
        following = [report.iteration for report in job.reports[0] if report.point != NO_POINT]
        planned = [iterations[number] for number in following[NUM_SETTLING:]]
        full_s = fmean(one.time_s for one in full)
        return Outcome(
            full_s=full_s,
            num_swept=len(swept),
            longer_s=sum(one.time_s - full_s for one in swept),
            saved=1 - fmean(one.energy_j for one in planned) / fmean(one.energy_j for one in full),
            slowdown=fmean(one.time_s for one in planned) / full_s - 1,
        )


def _bars(pairs: list[tuple[Outcome, Outcome]]) -> tuple[float, float]:
    """(share of the iterations, share of energy saved less), on the mean over jobs."""
    share = fmean(after.num_swept / before.num_swept for before, after in pairs)
    return share, fmean(before.saved - after.saved for before, after in pairs)


def _row(case: Case, before: Outcome, after: Outcome) -> tuple[str, ...]:
    return (
        case.gpu,
        f"{case.pp} x {case.microbatches} x {case.dp}",
        f"{before.full_s:.2f}",
        f"{case.noise_percent:g}",
        f"{100 * case.imbalance:g}",
        str(before.num_swept),
        str(after.num_swept),
        f"{before.longer_s:.1f}",
        f"{after.longer_s:.1f}",
        f"{100 * before.saved:.2f}",
        f"{100 * after.saved:.2f}",
        f"{100 * after.slowdown:+.2f}",
    )


def _mean_row(gpu: str, pairs: list[tuple[Outcome, Outcome]]) -> tuple[str, ...]:
    def mean(of: Callable[[Outcome], float], side: int) -> str:
        return f"{fmean(of(pair[side]) for pair in pairs):.2f}"

    share, _ = _bars(pairs)
    return (
        gpu,
        "mean",
        mean(lambda one: one.full_s, 0),
        "",
        "",
        mean(lambda one: one.num_swept, 0),
        f"{mean(lambda one: one.num_swept, 1)} ({100 * share:.0f} % of before, job by job)",
        mean(lambda one: one.longer_s, 0),
        mean(lambda one: one.longer_s, 1),
        mean(lambda one: 100 * one.saved, 0),
        mean(lambda one: 100 * one.saved, 1),
        mean(lambda one: 100 * one.slowdown, 1),
    )


if __name__ == "__main__":
    sys.exit(main())
