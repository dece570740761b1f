"""The profile in force is the machine's truth."""

import math
from collections import defaultdict
from statistics import fmean

from perseus_dist.simulation.chaos.calm import calm_of
from perseus_dist.simulation.chaos.record import Broken, JobSpan, PlayedRun
from perseus_dist.simulation.chaos.standing import WELL, History
from perseus_dist.simulation.chaos.world.world import ProfileRow

NAME = "profile_truth"
_SHARE = 0.02
_Z = 4.0
_HIDDEN = 1.05  # times as slow, from one clock of a sweep to the next


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge the profile of the plan in force as the run ends, if the run has been left alone (``calm``).

    The truth of a stage is its best replica: the undisturbed time and energy where one is well, else those times the
    least slowdown. A replica is a tensor-parallel group, as slow as its slowest GPU, for which the others wait. Stages
    all of whose replicas are held back by heat, power or a link are left out, as are all where that is what the clocks
    are for. Each time is within 2 % of it, plus four standard errors of the noise that was ordered. Where one stage is
    to be as fast as it can be, nothing runs at its lower clocks after the sweep: they may be as much longer as all
    replicas were slow together in it, up to 5 %, which the step from one clock to the next explains as well. Energies,
    which are fitted from a counter that ticks, are within 2 % on the mean over the clocks of a stage and kind, plus
    four standard errors of that mean by the same noise: a run that takes 3 % less draws 3 % less. A clock between those
    that were measured counts as one run.
    """
    span = run.jobs[-1]
    if not calm_of(run, history).settled or not run.followed[span.last]:
        return []
    noise = span.job.noise_percent / 100
    pp_rank_of = span.job.make_schedule().rank_of_stage
    off: list[tuple[float, str]] = []
    highest_mhz: defaultdict[tuple[int, str], int] = defaultdict(int)
    for row in span.end.profile:
        highest_mhz[row.stage, row.kind] = max(highest_mhz[row.stage, row.kind], row.clock_mhz)
    energies: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    variances: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    for row in span.end.profile:
        of_gpus = _true_slowdowns(history, span, pp_rank_of[row.stage])
        if of_gpus is None:
            continue
        slowdown = max(of_gpus)
        if not row.true_time_s:
            off.append((math.inf, f"stage {row.stage} {row.kind} at {row.clock_mhz} MHz, a clock that no GPU has"))
            continue
        time_share = row.time_s / (slowdown * row.true_time_s) - 1
        allowed = _SHARE + _Z * noise / math.sqrt(max(row.num_runs, 1))
        is_below = row.clock_mhz < highest_mhz[row.stage, row.kind]
        hidden = _slow_in_sweep(run, history, span, pp_rank_of[row.stage]) if is_below and time_share > allowed else 1.0
        if time_share < -allowed or (1 + time_share) / hidden - 1 > allowed:
            off.append((abs(time_share), _row_text(row, slowdown)))
        waiting_s = row.true_time_s * (slowdown - fmean(of_gpus))
        true_j = fmean(of_gpus) * row.true_energy_j + waiting_s * row.blocking_w
        energies[row.stage, row.kind].append(row.energy_j / true_j - 1)
        variances[row.stage, row.kind].append(noise * noise / max(row.num_runs, 1))
    off += [
        (abs(mean), f"stage {stage} {kind}: energies are {100 * mean:+.1f} % off on the mean over {len(shares)} clocks")
        for (stage, kind), shares in energies.items()
        if abs(mean := fmean(shares)) > _SHARE + _Z * math.sqrt(sum(variances[stage, kind])) / len(shares)
    ]
    if not off:
        return []
    _, worst = max(off)
    return [Broken(name=NAME, sentence=f"{len(off)} figures of the profile in force are off; the worst: {worst}")]


def _true_slowdowns(history: History, span: JobSpan, pp_rank: int) -> tuple[float, ...] | None:
    """(tp) how slow each GPU of a pp_rank's best replica is; None where those are no constant factors."""
    job, unwell = span.job, history.at(span.last).gpus
    replicas = [[unwell.get(rank, WELL) for rank in job.group_of(dp_rank, pp_rank)] for dp_rank in range(job.dp)]
    constant = [
        tuple(faults.slowdown for faults in replica)
        for replica in replicas
        if all(faults.is_only_slow for faults in replica)
    ]
    return min(constant, key=max) if constant else None


def _slow_in_sweep(run: PlayedRun, history: History, span: JobSpan, pp_rank: int) -> float:
    """How slow the best replica was in some iterations of sweeps; 1 where that cannot hide, or shows later."""
    groups = [span.job.group_of(dp_rank, pp_rank) for dp_rank in range(span.job.dp)]
    most = 1.0
    standing = history.at(span.last)
    if span.job.pp > 1 or standing.allowed_s(1.0) > 1.0 or standing.target.deadline_s is not None:
        return 1.0
    for i in span.iterations:
        if run.iterations[i].is_sweep:
            gpus = history.at(i).gpus
            most = max(most, min(max(gpus.get(rank, WELL).slowdown for rank in group) for group in groups))
    return most if most <= _HIDDEN else 1.0


def _row_text(row: ProfileRow, slowdown: float) -> str:
    true_s = slowdown * row.true_time_s
    return (
        f"stage {row.stage} {row.kind} at {row.clock_mhz} MHz {row.time_s:.6f} s, truly {true_s:.6f} s "
        f"({100 * row.time_s / true_s - 100:+.1f} %)"
    )
