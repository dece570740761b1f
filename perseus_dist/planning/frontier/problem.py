"""A planning problem: a schedule's DAG with a cost curve for every instruction, as the arrays that the solver reads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from perseus_dist import _solver
from perseus_dist.errors import PlanningError
from perseus_dist.planning.profile.cost_curve import CostCurve, cost_curves
from perseus_dist.planning.profile.power_bounds import MAX_GPU_POWER_W, MAX_TENSOR_PARALLEL, MIN_GPU_POWER_W
from perseus_dist.planning.profile.profile import Profile
from perseus_dist.planning.schedule.dag import Dag, Int32Array, build_dag
from perseus_dist.planning.schedule.instruction import TIMED_APART
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.units import PS_PER_S, UW_PER_W, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanningProblem:
    """A DAG, the curves of its instructions, and what waiting costs.

    Attributes:
        dag: The instructions and their precedence.
        curves: The distinct cost curves, by stage and kind.
        curve_of: (num_instructions) int32 index into ``curves``.
        blocking_uw: (num_ranks) [uW] drawn by all GPUs of a pp_rank while they wait.
        tensor_parallel: GPUs that share each instruction.
        edge_from, edge_to: (num_needed_edges) int32, the DAG's edges without those that rank order implies.
        microbatch: (num_instructions) int32.
        hull_begin, hull_ps, slope_uw: The hulls of all curves end to end, as the solver reads them.
        menu: The clocks of all curves, likewise.
    """

    dag: Dag
    curves: tuple[CostCurve, ...]
    curve_of: Int32Array
    blocking_uw: IntArray
    tensor_parallel: int
    edge_from: Int32Array
    edge_to: Int32Array
    microbatch: Int32Array
    hull_begin: Int32Array
    hull_ps: IntArray
    slope_uw: IntArray
    menu: _solver.Menu

    @property
    def num_instructions(self) -> int:
        """Nodes of the DAG."""
        return len(self.dag.instructions)

    @property
    def total_blocking_uw(self) -> int:
        """[uW] drawn by all GPUs of the pipeline while they wait."""
        return int(self.blocking_uw.sum())

    @property
    def clocked_before(self) -> IntArray:
        """(num_instructions) what changes its clock before it on its pp_rank, constants left out; -1 for nothing."""
        is_constant = self.clocks_mhz(np.zeros(self.num_instructions, dtype=np.int64)) == 0
        before = self.dag.previous_on_rank.astype(np.int64)
        while (skipped := (before >= 0) & is_constant[before]).any():
            before[skipped] = self.dag.previous_on_rank[before[skipped]]
        return before

    def latencies_ps(self, switch_latency_ps: int) -> IntArray:
        """[ps] from asking for a clock to having it, of the clocks of all curves end to end.

        Args:
            switch_latency_ps: [ps] of those that the profile does not say.
        """
        return np.concatenate(
            [
                np.full(len(curve.clocks_mhz), switch_latency_ps) if curve.latencies_ps is None else curve.latencies_ps
                for curve in self.curves
            ]
        )

    def clocks_mhz(self, clock_indices: NDArray[np.integer]) -> IntArray:
        """(num_instructions) [MHz] of a plan given as indices into each instruction's ``clocks_mhz``."""
        begin = concatenated_begin(curve.clocks_mhz for curve in self.curves)
        clocks = np.concatenate([curve.clocks_mhz for curve in self.curves])
        return clocks[begin[self.curve_of] + clock_indices.astype(np.int64)]

    def clock_indices(self, clocks_mhz: IntArray) -> Int32Array:
        """(num_instructions) the inverse of ``clocks_mhz``, for one plan."""
        indices = np.empty(self.num_instructions, dtype=np.int32)
        for index, curve in enumerate(self.curves):
            is_own = self.curve_of == index
            indices[is_own] = np.searchsorted(-curve.clocks_mhz, -clocks_mhz[is_own])
        return indices


def make_problem(
    schedule: Schedule, profile: Profile, *, blocking_uw_of_rank: Sequence[int], tensor_parallel: int = 1
) -> PlanningProblem:
    """Join a schedule and a profile.

    Args:
        schedule: One that ``check_schedule`` accepts.
        profile: Measurements per GPU of every instruction that the schedule runs, of the transfers between stages
            that take time, and of time between iterations.
        blocking_uw_of_rank: (num_ranks) [uW] blocking power of ONE GPU of each pp_rank.
        tensor_parallel: GPUs that share each instruction.

    Raises:
        ProfileError: The profile does not fit the schedule.
        PlanningError: There is not one blocking power for each pp_rank, it is none of a GPU, or the group has no GPU or
            more than 4,096.
    """
    _check_blocking(blocking_uw_of_rank, schedule.num_ranks)
    if not (isinstance(tensor_parallel, int) and 1 <= tensor_parallel <= MAX_TENSOR_PARALLEL):
        raise PlanningError(
            f"tensor_parallel: saw {tensor_parallel!r}, expected a whole number from 1 to {MAX_TENSOR_PARALLEL}; give "
            "1 for none"
        )
    dag = build_dag(schedule, {(stage, kind) for stage, kind in profile.measurements if kind in TIMED_APART})
    curves = cost_curves(
        profile,
        stages_kinds=((instruction.stage, instruction.kind) for instruction in dag.instructions),
        blocking_uw_of_stage=[blocking_uw_of_rank[rank] for rank in schedule.rank_of_stage],
        tensor_parallel=tensor_parallel,
    )
    blocking_uw = np.array(blocking_uw_of_rank, dtype=np.int64) * tensor_parallel
    return problem_of(dag, curves, blocking_uw=blocking_uw, tensor_parallel=tensor_parallel)


def _check_blocking(blocking_uw_of_rank: Sequence[int], num_ranks: int) -> None:
    if len(blocking_uw_of_rank) != num_ranks:
        raise PlanningError(
            f"blocking_uw_of_rank: saw {len(blocking_uw_of_rank)} values, expected {num_ranks}, one for each "
            "pp_rank; give those"
        )
    low_uw, high_uw = round(MIN_GPU_POWER_W * UW_PER_W), round(MAX_GPU_POWER_W * UW_PER_W)
    for power_uw in blocking_uw_of_rank:
        if not isinstance(power_uw, Integral) or not (power_uw == 0 or low_uw <= power_uw <= high_uw):
            raise PlanningError(
                f"blocking_uw_of_rank: saw {power_uw!r}, expected 0, or whole microwatts of one GPU from {low_uw} to "
                f"{high_uw}; convert watts by units.uw_from_w"
            )


def problem_of(
    dag: Dag, curves: Mapping[tuple[int, str], CostCurve], *, blocking_uw: IntArray, tensor_parallel: int
) -> PlanningProblem:
    """A problem of parts that are known to fit; ``blocking_uw`` (num_ranks) is of all GPUs of a pp_rank."""
    index = {key: k for k, key in enumerate(curves)}
    curve_of = np.array([index[i.stage, i.kind] for i in dag.instructions], dtype=np.int32)
    before, after = dag.edges[:, 0], dag.edges[:, 1]
    implied = (dag.pp_rank[before] == dag.pp_rank[after]) & (np.maximum(before, after) < dag.num_scheduled)
    needed = ~implied | (dag.previous_on_rank[after] == before)
    distinct = tuple(curves.values())
    _check_range(distinct, curve_of)
    return PlanningProblem(
        dag=dag,
        curves=distinct,
        curve_of=curve_of,
        blocking_uw=blocking_uw,
        tensor_parallel=tensor_parallel,
        edge_from=np.ascontiguousarray(before[needed]),
        edge_to=np.ascontiguousarray(after[needed]),
        microbatch=np.array([i.microbatch for i in dag.instructions], dtype=np.int32),
        hull_begin=concatenated_begin(curve.hull_ps for curve in distinct),
        hull_ps=np.concatenate([curve.hull_ps for curve in distinct]),
        slope_uw=np.concatenate([curve.slope_uw for curve in distinct]),
        menu=menu_maker(distinct, curve_of, dag)(
            np.concatenate([curve.durations_ps for curve in distinct]),
            np.concatenate([curve.effective_uj for curve in distinct]),
        ),
    )


def menu_maker(
    curves: Sequence[CostCurve], curve_of: Int32Array, dag: Dag
) -> Callable[[IntArray, IntArray], _solver.Menu]:
    """Makes menus of the clocks of all curves end to end, with times [ps] and energies [uJ] of each.

    Args:
        curves: Of the problem, or more of them.
        curve_of: (num_instructions) int32 index into ``curves``.
        dag: The instructions.
    """
    curve_begin = concatenated_begin(curve.clocks_mhz for curve in curves)
    clock_mhz = np.concatenate([curve.clocks_mhz for curve in curves]).astype(np.int32)
    choice_begin = concatenated_begin(curve.choices for curve in curves)
    choice = np.concatenate([curve.choices for curve in curves])

    def make(durations_ps: IntArray, effective_uj: IntArray) -> _solver.Menu:
        return _solver.Menu(
            curve_begin=curve_begin,
            clock_mhz=clock_mhz,
            duration_ps=durations_ps,
            effective_uj=effective_uj,
            choice_begin=choice_begin,
            choice=choice,
            curve_of=curve_of,
            previous_on_rank=dag.previous_on_rank,
        )

    return make


def _check_range(curves: Sequence[CostCurve], curve_of: Int32Array) -> None:
    """No path of instructions is longer than 64 bits of picoseconds can say."""
    counts = np.bincount(curve_of, minlength=len(curves)).tolist()
    total_ps = sum(count * int(curve.durations_ps.max()) for count, curve in zip(counts, curves, strict=True))
    if total_ps > np.iinfo(np.int64).max // 4:
        raise PlanningError(
            f"all instructions together take {total_ps / PS_PER_S:.3g} s at their slowest, expected at most "
            f"{np.iinfo(np.int64).max / 4 / PS_PER_S:.3g} s; check that the profile's times are in seconds"
        )


def concatenated_begin(arrays: Iterable[NDArray[np.generic]]) -> Int32Array:
    """(num_arrays + 1) int32: where each array begins once all are laid end to end."""
    return np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int32)
