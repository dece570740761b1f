"""Cost of one instruction at each duration that it can have, and the convex hull that planning works on.

Source: Perseus, SOSP '24, section 4: the energy that counts is the measured one minus blocking power x duration,
because a GPU that has nothing to do draws blocking power anyway. All figures are those of the whole tensor-parallel
group, which is one node with one clock: it lasts as long as its slowest GPU and draws what all of them draw.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perseus_dist.errors import ProfileError
from perseus_dist.planning.profile.curve_doubt import (
    CurveDoubt,
    curve_doubt,
    latencies_p90_ps,
    p90_excess_ps,
    run_spread,
)
from perseus_dist.planning.profile.profile import Measurements, Profile
from perseus_dist.planning.schedule.instruction import OVERLAPPED_FORWARD, SENDS, TIMED_APART, Kind, profile_name
from perseus_dist.units import PS_PER_S, FloatArray, IntArray, ps_from_s, s_from_ps, uj_from_j, w_from_uw

# Two clocks that take the same time to the last digits would make a slope that overflows the solver's 64-bit sums.
MAX_SLOPE_UW = 10**14
_NEXT_TO_NOTHING_PS = 1  # every instruction takes some time, and deadlines name nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostCurve:
    """The clocks of one instruction, and which of them are worth choosing.

    Attributes:
        stage: Virtual stage.
        kind: Instruction kind.
        clocks_mhz: (num_clocks) [MHz] descending; one 0 for a constant instruction.
        durations_ps: (num_clocks) [ps] measured.
        energies_uj: (num_clocks) [uJ] measured, whole group.
        effective_uj: (num_clocks) [uJ] energies_uj minus what the group would draw waiting as long.
        choices: (num_choices) int32 indices of the Pareto-optimal clocks in (duration, effective energy): from the
            fastest measured point (noise can make that another one than the maximum clock) to the least energy.
        hull: (num_vertices) int32 indices of the choices on the lower convex hull.
        hull_ps: (num_vertices) [ps] ascending.
        slope_uw: (num_vertices) [uW] energy saved per time from this vertex to the next, strictly falling, the last
            entry 0.
        latencies_ps: (num_clocks) [ps] from asking for each clock to having it; None where the profile does not say.
        latencies_p90_ps: (num_clocks) [ps] that nine in ten changes to each clock take at most; None likewise.
        doubt: By how much times and energies may be wrong; None where the profile does not show it.
        p90_excess_ps: [ps] by which nine in ten transfers take at most longer than the duration; 0 where the profile
            does not say.
        spread: Standard deviation of one run's time, as a share of it; 0 where the profile does not say.
    """

    stage: int
    kind: str
    clocks_mhz: IntArray
    durations_ps: IntArray
    energies_uj: IntArray
    effective_uj: IntArray
    choices: np.ndarray[tuple[int], np.dtype[np.int32]]
    hull: np.ndarray[tuple[int], np.dtype[np.int32]]
    hull_ps: IntArray
    slope_uw: IntArray
    latencies_ps: IntArray | None = None
    latencies_p90_ps: IntArray | None = None
    doubt: CurveDoubt | None = None
    p90_excess_ps: int = 0
    spread: float = 0.0

    @property
    def at_max(self) -> int:
        """Index of the maximum clock."""
        return 0

    @property
    def at_least_energy(self) -> int:
        """Index of the choice with the least effective energy."""
        return int(self.choices[-1])

    @property
    def saving_share(self) -> float:
        """Share of the measured energy at the maximum clock that the choice of least energy saves, waiting included."""
        saved_uj = self.effective_uj[self.at_max] - self.effective_uj[self.at_least_energy]
        return float(saved_uj / self.energies_uj[self.at_max]) if saved_uj else 0.0

    @property
    def rounding_uj(self) -> float:
        """[uJ] that the hull lies above a choice at most, because its slopes are whole microwatts."""
        falls_uj = self.slope_uw[:-1] * (np.diff(self.hull_ps) / PS_PER_S)
        hull_uj = self.effective_uj[self.at_least_energy] + np.append(np.cumsum(falls_uj[::-1])[::-1], 0)
        above_uj = np.interp(self.durations_ps[self.choices], self.hull_ps, hull_uj) - self.effective_uj[self.choices]
        return max(float(above_uj.max()), 0.0)

    @property
    def slowdown_share(self) -> float:
        """Time of the choice of least energy above that at the maximum clock, as a share of the latter."""
        return float(self.durations_ps[self.at_least_energy] / self.durations_ps[self.at_max]) - 1

    def with_durations(self, durations_ps: IntArray) -> "CostCurve":
        """The curve whose clocks take other times (num_clocks) [ps] and draw the same effective energies."""
        choices = _pareto(durations_ps, self.effective_uj)
        hull, slope_uw = _hull(choices, durations_ps.tolist(), self.effective_uj.tolist())
        return replace(
            self,
            durations_ps=durations_ps,
            choices=np.array(choices, dtype=np.int32),
            hull=np.array(hull, dtype=np.int32),
            hull_ps=durations_ps[hull],
            slope_uw=np.array(slope_uw, dtype=np.int64),
        )


def cost_curves(
    profile: Profile,
    *,
    stages_kinds: Iterable[tuple[int, str]],
    blocking_uw_of_stage: Sequence[int],
    tensor_parallel: int = 1,
) -> dict[tuple[int, str], CostCurve]:
    """The cost curve of every instruction that a schedule runs, keyed by (stage, kind).

    Args:
        profile: Measurements per GPU.
        stages_kinds: (stage, kind) of the schedule's instructions; repetitions do no harm.
        blocking_uw_of_stage: (num_stages) [uW] blocking power of ONE GPU of each stage.
        tensor_parallel: GPUs that share each instruction.

    Raises:
        ProfileError: The profile and the schedule do not run the same stages and instructions, or the profile's GPU
            labels do not fit ``tensor_parallel``.
    """
    wanted = sorted(set(stages_kinds))
    _check_match(profile, wanted)
    curves = {}
    for stage, kind in wanted:
        if kind == OVERLAPPED_FORWARD and (stage, kind) not in profile.measurements:
            curves[stage, kind] = _free_curve(stage, kind)
            continue
        measurements = profile.measurements[stage, kind]
        try:
            curve = cost_curve(
                measurements,
                stage=stage,
                kind=kind,
                blocking_uw=blocking_uw_of_stage[stage],
                tensor_parallel=tensor_parallel,
            )
            changes = profile.clock_changes.get(stage) if kind in set(Kind) else None
            curves[stage, kind] = replace(
                curve,
                latencies_ps=None if changes is None else changes.latencies_ps(curve.clocks_mhz),
                latencies_p90_ps=None if changes is None else latencies_p90_ps(changes, curve.clocks_mhz),
                doubt=curve_doubt(measurements) if kind in set(Kind) else None,
                p90_excess_ps=p90_excess_ps(measurements) if kind in SENDS else 0,
                spread=run_spread(measurements) if kind in set(Kind) else 0.0,
            )
        except ProfileError as error:
            raise ProfileError(f"{profile.source}:{measurements.line}: {error}") from None
    return curves


def cost_curve(
    measurements: Measurements, *, stage: int, kind: str, blocking_uw: int, tensor_parallel: int = 1
) -> CostCurve:
    """The cost curve of one instruction.

    Args:
        measurements: Per GPU.
        stage: Virtual stage.
        kind: Instruction kind; a constant gets a single choice, the mean over all its rows. A transfer without energy
            is one under blocking power, and so is time between iterations.
        blocking_uw: [uW] blocking power of ONE GPU.
        tensor_parallel: GPUs that share the instruction.

    Raises:
        ProfileError: The GPU labels do not fit ``tensor_parallel``.
    """
    clocks_mhz, times_s, energies_j = measurements.clocks_mhz, measurements.times_s, measurements.energies_j
    if kind not in set(Kind):
        clocks_mhz = np.zeros(1, dtype=np.int64)
        weights = measurements.num_samples
        times_s = np.average(times_s, axis=1, weights=weights, keepdims=True)
        energies_j = np.average(energies_j, axis=1, weights=weights, keepdims=True)
    if len(measurements.gpus) not in (1, tensor_parallel):
        labels = ", ".join(measurements.gpus)
        raise ProfileError(
            f"stage {stage} {profile_name(kind)}: saw {len(measurements.gpus)} GPUs ({labels}), expected 1 or the "
            f"{tensor_parallel} of the tensor-parallel group; profile every GPU of the group, or one of them"
        )
    if kind in TIMED_APART and not energies_j.any():
        energies_j = float(w_from_uw(blocking_uw)) * times_s
    time_s, energy_j = _as_one_node(times_s, energies_j, float(w_from_uw(blocking_uw)), tensor_parallel)
    return curve_of_choices(
        stage=stage,
        kind=kind,
        clocks_mhz=clocks_mhz,
        durations_ps=ps_from_s(time_s),
        energies_uj=uj_from_j(energy_j),
        blocking_uw=tensor_parallel * blocking_uw,
    )


def curve_of_choices(
    *, stage: int, kind: str, clocks_mhz: IntArray, durations_ps: IntArray, energies_uj: IntArray, blocking_uw: int
) -> CostCurve:
    """The cost curve of times and energies of a whole group.

    Args:
        stage: Virtual stage.
        kind: Instruction kind.
        clocks_mhz: (num_clocks) [MHz] descending; one 0 for a constant instruction.
        durations_ps: (num_clocks) [ps].
        energies_uj: (num_clocks) [uJ] of the whole group.
        blocking_uw: [uW] of the whole group.
    """
    effective_uj = energies_uj - np.rint(blocking_uw * s_from_ps(durations_ps)).astype(np.int64)
    choices = _pareto(durations_ps, effective_uj)
    hull, slope_uw = _hull(choices, durations_ps.tolist(), effective_uj.tolist())
    return CostCurve(
        stage=stage,
        kind=kind,
        clocks_mhz=clocks_mhz,
        durations_ps=durations_ps,
        energies_uj=energies_uj,
        effective_uj=effective_uj,
        choices=np.array(choices, dtype=np.int32),
        hull=np.array(hull, dtype=np.int32),
        hull_ps=durations_ps[hull],
        slope_uw=np.array(slope_uw, dtype=np.int64),
    )


def _free_curve(stage: int, kind: str) -> CostCurve:
    """The cost curve of an instruction that takes neither time nor energy of its own."""
    return curve_of_choices(
        stage=stage,
        kind=kind,
        clocks_mhz=np.zeros(1, dtype=np.int64),
        durations_ps=np.full(1, _NEXT_TO_NOTHING_PS, dtype=np.int64),
        energies_uj=np.zeros(1, dtype=np.int64),
        blocking_uw=0,
    )


def _check_match(profile: Profile, wanted: Sequence[tuple[int, str]]) -> None:
    """The profile and the schedule run the same stages and the same instructions."""
    num_stages = 1 + max(stage for stage, _ in wanted)
    if num_stages != profile.num_stages:
        direction = "lower" if num_stages > profile.num_stages else "raise"
        raise ProfileError(
            f"{profile.source}: saw {profile.num_stages} stages, expected the schedule's {num_stages}; {direction} "
            "pp= or chunks=, or take a profile with one stage for every chunk of every pp_rank"
        )
    for stage, kind in wanted:
        if kind != OVERLAPPED_FORWARD and (stage, kind) not in profile.measurements:
            has = ", ".join(sorted(profile_name(k) for s, k in profile.measurements if s == stage))
            raise ProfileError(
                f"{profile.source}: stage {stage} has {has}, expected {profile_name(kind)} too, which the schedule "
                "runs there; profile it, or take a schedule without it"
            )
    for stage, kind in profile.measurements.keys() - set(wanted):
        line = profile.measurements[stage, kind].line
        raise ProfileError(
            f"{profile.source}:{line}: column 'instruction': saw {profile_name(kind)!r}, expected an instruction that "
            f"the schedule runs on stage {stage}; correct its name, take its rows out, or put it into a schedule file"
        )


def _as_one_node(
    times_s: FloatArray, energies_j: FloatArray, blocking_w: float, tensor_parallel: int
) -> tuple[FloatArray, FloatArray]:
    """(num_clocks) time [s] and energy [J] of a group: it ends with its slowest GPU, and the others wait for it."""
    if len(times_s) == 1:
        return times_s[0], tensor_parallel * energies_j[0]
    time_s = times_s.max(axis=0)
    return time_s, (energies_j + blocking_w * (time_s - times_s)).sum(axis=0)


def _pareto(durations_ps: IntArray, effective_uj: IntArray) -> list[int]:
    """Indices of the points that no other point beats in both, by ascending duration."""
    choices: list[int] = []
    for index in np.lexsort((effective_uj, durations_ps)).tolist():
        if not choices or effective_uj[index] < effective_uj[choices[-1]]:
            choices.append(index)
    return choices


def _hull(
    choices: Sequence[int], durations_ps: Sequence[int], effective_uj: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Lower convex hull of the choices: (indices, slopes [uW]), in exact integers.

    Vertices are kept by the rounded slopes that the solver works with, so that those fall strictly.
    """

    def slope_uw(k: int, j: int) -> int:
        saved_uj, time_ps = effective_uj[k] - effective_uj[j], durations_ps[j] - durations_ps[k]
        rounded = (2 * saved_uj * PS_PER_S + time_ps) // (2 * time_ps)
        return min(max(rounded, 1), MAX_SLOPE_UW)  # at least 1: it does save something, and the end of the hull has 0

    hull: list[int] = []
    slopes: list[int] = []  # slopes[k]: from hull[k] to hull[k + 1]
    for choice in choices:
        while slopes and slopes[-1] <= slope_uw(hull[-1], choice):
            hull.pop()
            slopes.pop()
        if hull:
            slopes.append(slope_uw(hull[-1], choice))
        hull.append(choice)
    return hull, [*slopes, 0]
