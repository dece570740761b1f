"""Gaps of realised plans to the exact bound, and the processor time of planning, on smooth and rough profiles.

    python benchmarks/realised_gaps.py [--against SOLVER] [--only TEXT] [--seeds 2] [--record [NAME]]

Profiles:

- GPT-3 A100 and Bloom A40: as published with the Perseus paper. The second is what real noise looks like.
- Bloom on A100 and GPT-3 on A40 are not shared. In their place stand *exchanged* ones: every clock of one GPU gets the
  times and energies of the smooth law of the one model (a least-squares cubic in the clock, for every stage and kind),
  times the residuals of the other GPU's measurement at the same quantile of clocks.
- "8 clocks": every fifth or eighth clock of the first two.

Noise is normal, independent at every clock, stage and kind, on times and on energies. Every case is planned as
``plan_frontier`` does by default, in a process of its own; processor time is that of both steps, on all threads.
With noise, figures are means over seeds, and the worst gap is the worst of all. Savings are at T_min.

With ``--against`` every case is planned as well by another build of the solver (a ``_solver*.so``), one after the
other, so that both ran on the same machine at the same time.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from measuring import A100_BLOCKING_W, A100_PROFILE, print_table, record_result

from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.planning.schedule.schedule import Schedule, gpipe, one_f_one_b
from perseus_dist.units import ps_from_s, uw_from_w

A40_PROFILE = A100_PROFILE.parent / "bloom+a40_bf16.csv"
A40_BLOCKING_W = 70.38
SCHEDULES = {
    "1F1B PP8 M12": one_f_one_b(pp=8, microbatches=12),
    "1F1B PP8 M96": one_f_one_b(pp=8, microbatches=96),
    "GPipe PP8 M12": gpipe(pp=8, microbatches=12),
    "1F1B PP16 M128": one_f_one_b(pp=16, microbatches=128),
}
CASES = (  # schedule, latency [ms], noise [%]
    *(("1F1B PP8 M12", latency_ms, noise) for latency_ms in (0, 12) for noise in (0, 1)),
    *((schedule, 0, noise) for schedule in ("1F1B PP8 M96", "GPipe PP8 M12", "1F1B PP16 M128") for noise in (0, 1)),
    ("1F1B PP8 M96", 12, 0),
)
COLUMNS = (
    *(
        "profile",
        "schedule",
        "noise [%]",
        "latency [ms]",
        "plans",
        "CPU [s]",
        "mean gap [%]",
        "worst [%]",
        "saving [%]",
    ),
    *("CPU before [s]", "mean before [%]", "worst before [%]", "saving before [%]", "CPU, ratio", "mean gap, ratio"),
)


# Puts another build of the solver in the installed one's place before anything imports it.
_START = """
import importlib.util, pathlib, runpy, sys
_, solver, *sys.argv = sys.argv
if solver:
    import perseus_dist
    spec = importlib.util.spec_from_file_location("perseus_dist._solver", solver)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["perseus_dist._solver"] = perseus_dist._solver = module
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one planning: processor time [s], number of plans up to T*, their gaps as shares, and the saving at T_min."""

    cpu_s: float
    num_plans: int
    mean_gap: float
    worst_gap: float
    saving: float


def main() -> None:
    """Plan all cases; or one of them, in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="SOLVER", help="another build of the native solver")
    parser.add_argument("--only", default="", help="cases with this text in 'profile, schedule, noise, latency'")
    parser.add_argument("--seeds", type=int, default=2, help="drawn profiles for each case with noise")
    parser.add_argument(
        "--record", nargs="?", const="realised_gaps", metavar="NAME", help="write benchmarks/results/NAME.json"
    )
    parser.add_argument(
        "--measure", nargs=4, metavar=("PROFILE", "SCHEDULE", "MS", "PERCENT"), help="print one as JSON"
    )
    args = parser.parse_args()
    if args.measure:
        name, schedule, latency_ms, noise = args.measure
        profile, blocking_w = profiles()[name]
        problems = drawn(SCHEDULES[schedule], profile, blocking_w, float(noise) / 100, args.seeds)
        print(json.dumps([asdict(planned(problem, float(latency_ms))) for problem in problems]))
        return
    rows = []
    for name in profiles():
        for schedule, latency_ms, noise in CASES:
            if args.only not in f"{name}, {schedule}, {noise} %, {latency_ms} ms":
                continue
            case = ("--measure", name, schedule, latency_ms, noise, "--seeds", args.seeds)
            ours = figures_of(None, *case)
            theirs = figures_of(args.against, *case) if args.against else []
            rows.append((name, schedule, str(noise), str(latency_ms), *cells(ours), *compared(ours, theirs)))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print_table(COLUMNS, rows)
    if args.record:
        against = " --against SOLVER" if args.against else ""
        only = f" --only '{args.only}'" if args.only else ""
        name = "" if args.record == "realised_gaps" else f" {args.record}"
        command = f"python benchmarks/realised_gaps.py --seeds {args.seeds}{only}{against} --record{name}"
        columns = COLUMNS if args.against else COLUMNS[:9]
        record_result(args.record, command=command, columns=columns, rows=[row[: len(columns)] for row in rows])


def profiles() -> dict[str, tuple[Profile, float]]:
    """By name, with the blocking power [W] of one GPU."""
    a100, a40 = read_profile(A100_PROFILE), read_profile(A40_PROFILE)
    return {
        "GPT-3 A100": (a100, A100_BLOCKING_W),
        "Bloom A40": (a40, A40_BLOCKING_W),
        "exchanged, clocks of A100": (exchanged(smooth=a40, rough=a100), A100_BLOCKING_W),
        "exchanged, clocks of A40": (exchanged(smooth=a100, rough=a40), A40_BLOCKING_W),
        "GPT-3 A100, 8 clocks": (thinned(a100, 5), A100_BLOCKING_W),
        "Bloom A40, 8 clocks": (thinned(a40, 8), A40_BLOCKING_W),
    }


def exchanged(*, smooth: Profile, rough: Profile) -> Profile:
    """The law of one profile at the other's clocks, with the other's residuals."""
    measurements = {}
    for key, found in rough.measurements.items():
        x = found.clocks_mhz / found.clocks_mhz.max()
        law = smooth.measurements[key]
        x_law = law.clocks_mhz / law.clocks_mhz.max()
        arrays = {}
        for name in ("times_s", "energies_j"):
            own = getattr(found, name)
            own_fit = np.exp(np.polyval(np.polyfit(x, np.log(own[0]), 3), x))
            fit = np.exp(np.polyval(np.polyfit(x_law, np.log(getattr(law, name)[0]), 3), x))
            arrays[name] = own / own_fit * fit
        measurements[key] = replace(found, **arrays)
    return Profile(source="exchanged", measurements=measurements)


def thinned(profile: Profile, step: int) -> Profile:
    """Every so-manieth clock, from the highest."""

    def of(found: Measurements) -> Measurements:
        keep = np.argsort(-found.clocks_mhz)[::step]
        arrays = ("times_s", "energies_j", "num_samples", "time_std_s", "energy_std_j")
        kept = {name: getattr(found, name)[:, keep] for name in arrays}
        return replace(found, clocks_mhz=found.clocks_mhz[keep], **kept)

    return replace(profile, measurements={key: of(found) for key, found in profile.measurements.items()})


def drawn(
    schedule: Schedule, profile: Profile, blocking_w: float, noise: float, num_seeds: int
) -> Iterator[PlanningProblem]:
    """The problem, or one for each seed of the noise; measured stages are laid out over all ranks."""
    blocking_uw = [int(uw_from_w(blocking_w))] * schedule.num_ranks
    wide = tiled(profile, schedule.num_ranks)
    for seed in range(num_seeds if noise else 1):
        random = np.random.default_rng(seed)
        noisy = replace(wide, measurements={key: with_noise(m, noise, random) for key, m in wide.measurements.items()})
        yield make_problem(schedule, noisy, blocking_uw_of_rank=blocking_uw)


def tiled(profile: Profile, num_stages: int) -> Profile:
    """A measured profile laid over so many stages."""
    found = profile.measurements
    measurements = {
        (stage, kind): found[stage * profile.num_stages // num_stages, kind]
        for stage in range(num_stages)
        for kind in {kind for _, kind in found}
    }
    return replace(profile, measurements=dict(sorted(measurements.items())))


def with_noise(found: Measurements, noise: float, random: np.random.Generator) -> Measurements:
    """One measurement with relative normal noise on times and energies."""
    if not noise:
        return found
    shape = found.times_s.shape
    return replace(
        found,
        times_s=found.times_s * random.normal(1, noise, shape),
        energies_j=found.energies_j * random.normal(1, noise, shape),
    )


def planned(problem: PlanningProblem, latency_ms: float) -> Figures:
    """Plan once."""
    began_s = time.process_time()
    frontier = plan_frontier(problem, switch_latency_ps=int(ps_from_s(latency_ms / 1e3)))
    cpu_s = time.process_time() - began_s
    all_max = frontier.baseline
    total_uj = frontier.total_uj[frontier.point_for_deadline(all_max.time_ps)]
    gaps = frontier.gaps[frontier.deadline_points]
    return Figures(
        cpu_s=cpu_s,
        num_plans=len(gaps),
        mean_gap=float(gaps.mean()),
        worst_gap=float(gaps.max()),
        saving=1 - int(total_uj) / all_max.total_uj,
    )


def figures_of(solver: Path | None, *arguments: object) -> list[Figures]:
    """All seeds of a case in a fresh process, by the installed solver or by another build."""
    command = [sys.executable, "-c", _START, str(solver or ""), __file__, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [Figures(**figures) for figures in json.loads(done.stdout)]


def cells(figures: Sequence[Figures]) -> tuple[str, ...]:
    """Number of plans, processor time, mean and worst gap, and the saving at T_min."""
    return (
        str(round(statistics.fmean(one.num_plans for one in figures))),
        f"{statistics.fmean(one.cpu_s for one in figures):.3f}",
        f"{100 * statistics.fmean(one.mean_gap for one in figures):.3f}",
        f"{100 * max(one.worst_gap for one in figures):.3f}",
        f"{100 * statistics.fmean(one.saving for one in figures):.2f}",
    )


def compared(ours: Sequence[Figures], theirs: Sequence[Figures]) -> tuple[str, ...]:
    """The same of the other build, and ours as a ratio of it."""
    if not theirs:
        return ("",) * 6
    cpu = sum(one.cpu_s for one in ours) / sum(one.cpu_s for one in theirs)
    gap = sum(one.mean_gap for one in ours) / sum(one.mean_gap for one in theirs)
    return (*cells(theirs)[1:], f"{cpu:.2f}", f"{gap:.2f}")


if __name__ == "__main__":
    main()
