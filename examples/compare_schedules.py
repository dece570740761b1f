"""What the schedule is worth: 1F1B, interleaved 1F1B and a zero-bubble schedule of your own, planned on one profile.

    python examples/compare_schedules.py examples/profiles/gpu_model_pp4.csv --blocking-power-w 80 --plot schedules.svg

Each schedule cuts the same work differently, so each gets the profile cut as it needs it. 1F1B takes it as it was
measured: a forward and a backward of every stage. Interleaved has two model chunks on each pp_rank, which are taken to
be halves. The zero-bubble schedule runs a backward as input gradient (I) and weight gradient (W); no other stage waits
for the latter, and --weight-share says how much of a backward it is. Measured rows of the parts are better, where you
have them. Of a profile forwards and backwards count, at each clock: transfers, which each cut has others of, are not
compared, nor is the memory that a schedule needs.
"""

import argparse
import csv
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import perseus_dist
from perseus_dist import Frontier, Schedule

Part = tuple[int, str, float]  # stage, instruction, share of the time and energy that was measured
NUM_CHUNKS = 2
AMOUNTS = ("time", "energy", "time_std", "energy_std")  # the last two are where a sweep measured them


def zero_bubble(*, pp: int, microbatches: int) -> str:
    """ZB-H1 of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR '24), as schedule text.

    As 1F1B, with a forward more before the first backward on each pp_rank, and weight gradients as many microbatches
    late as there are pp_ranks before it: they fill the time in which 1F1B waits, at 1F1B's peak memory.
    """
    lines = []
    for pp_rank in range(pp):
        warm_up = min(pp - pp_rank, microbatches)
        order = [f"F{microbatch}" for microbatch in range(warm_up)]
        for microbatch in range(microbatches):
            order.append(f"I{microbatch}")
            if microbatch >= pp_rank:
                order.append(f"W{microbatch - pp_rank}")
            if warm_up + microbatch < microbatches:
                order.append(f"F{warm_up + microbatch}")
        order += [f"W{microbatch}" for microbatch in range(max(0, microbatches - pp_rank), microbatches)]
        lines.append(" ".join(f"{pp_rank}{instruction}" for instruction in order))
    return "\n".join(lines)


def cut(profile: Path, cut_of: Callable[[int, str], Iterable[Part]], to: Path) -> Path:
    """Write a profile whose rows are parts of another's forwards and backwards."""
    with profile.open(newline="", encoding="utf-8-sig") as source, to.open("w", newline="") as target:
        names, *rows = ([cell.strip() for cell in cells] for cells in csv.reader(source) if cells)
        writer = csv.DictWriter(target, names)
        writer.writeheader()
        for row in (dict(zip(names, cells, strict=True)) for cells in rows):
            if row["instruction"] not in ("forward", "backward"):
                continue
            for stage, instruction, share in cut_of(round(float(row["stage"])), row["instruction"]):
                amounts = {name: share * float(row[name]) for name in AMOUNTS if row.get(name)}
                writer.writerow(row | amounts | {"stage": stage, "instruction": instruction})
    return to


def plan_all(
    profile: Path, *, microbatches: int, blocking_power_w: float, weight_share: float, folder: Path
) -> dict[str, Frontier]:
    """The frontier of each schedule, by its name."""
    pp = perseus_dist.read_profile(profile).num_stages

    def whole(stage: int, instruction: str) -> Iterable[Part]:
        return [(stage, instruction, 1)]

    def chunks(stage: int, instruction: str) -> Iterable[Part]:
        return [(chunk * pp + stage, instruction, 1 / NUM_CHUNKS) for chunk in range(NUM_CHUNKS)]

    def halves(stage: int, instruction: str) -> Iterable[Part]:
        if instruction != "backward":
            return [(stage, instruction, 1)]
        return [(stage, "backward_input", 1 - weight_share), (stage, "backward_weight", weight_share)]

    problems = {
        "1F1B": (cut(profile, whole, folder / "whole.csv"), Schedule.one_f_one_b(pp=pp, microbatches=microbatches)),
        "interleaved": (
            cut(profile, chunks, folder / "chunks.csv"),
            Schedule.interleaved(pp=pp, microbatches=microbatches, chunks=NUM_CHUNKS),
        ),
        "zero bubble": (
            cut(profile, halves, folder / "halves.csv"),
            Schedule.from_text(zero_bubble(pp=pp, microbatches=microbatches)),
        ),
    }
    return {
        name: perseus_dist.plan(measured, schedule, blocking_power_w=blocking_power_w)
        for name, (measured, schedule) in problems.items()
    }


def table(frontiers: dict[str, Frontier]) -> str:
    """Each schedule at maximum clocks, under its plan as fast as those, and under its plan as fast as 1F1B at them."""
    reference = frontiers["1F1B"].all_max
    lines = [
        "                  at maximum clocks     plan, as fast       plan, as fast as 1F1B at maximum clocks",
        "schedule        time [s]  energy [J]      energy [J]      time [s]  energy [J]  saving against it [%]",
    ]
    for name, frontier in frontiers.items():
        all_max, as_fast = frontier.all_max, frontier.at(slowdown=1)
        line = f"{name:<14}{all_max.time_s:>10.4f}{all_max.energy_j:>12.1f}{as_fast.energy_j:>16.1f}"
        try:
            plan = frontier.at(deadline_s=reference.time_s)
        except ValueError:  # no plan of this schedule is
            line += f"{'-':>14}{'-':>12}{'-':>23}"
        else:
            saving_percent = 100 * (1 - plan.energy_j / reference.energy_j)
            line += f"{plan.time_s:>14.4f}{plan.energy_j:>12.1f}{saving_percent:>23.2f}"
        lines.append(line)
    return "\n".join(lines)


def plot(frontiers: dict[str, Frontier], path: Path) -> None:
    """Draw all frontiers into one picture, and where each schedule is at maximum clocks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    ax = figure.add_subplot(xlabel="iteration time [s]", ylabel="energy of an iteration [J]")
    for name, frontier in frontiers.items():
        (curve,) = ax.plot(frontier.times_s, frontier.energies_j, ".", markersize=3, label=name)
        ax.plot(frontier.all_max.time_s, frontier.all_max.energy_j, "s", color=curve.get_color())
    ax.legend(title="squares: at maximum clocks")
    figure.savefig(path)


def main() -> int:
    """Print the table, and draw the picture if one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=Path, help="a profile with forward and backward of every stage")
    parser.add_argument("--microbatches", type=int, default=16)
    parser.add_argument("--blocking-power-w", type=float, required=True, help="of one GPU that waits for a peer")
    parser.add_argument("--weight-share", type=float, default=0.5, help="of a backward that is the weight gradient")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    args = parser.parse_args()
    if not 0 < args.weight_share < 1:
        parser.error(f"--weight-share: saw {args.weight_share:g}, expected a number between 0 and 1")
    with tempfile.TemporaryDirectory() as folder:
        try:
            frontiers = plan_all(
                args.profile,
                microbatches=args.microbatches,
                blocking_power_w=args.blocking_power_w,
                weight_share=args.weight_share,
                folder=Path(folder),
            )
        except perseus_dist.PerseusError as error:
            print(f"compare_schedules.py: {error}", file=sys.stderr)
            return 2
    print(table(frontiers))
    if args.plot is not None:
        plot(frontiers, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
