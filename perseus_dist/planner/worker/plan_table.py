"""Plan tables: what each pp_rank needs of a frontier, a row of clocks per plan."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from perseus_dist.messages.from_planner import Expected, PlanTable
from perseus_dist.planner.worker.measured_profile import stages_of_ranks
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.problem import concatenated_begin
from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.planning.schedule.granularity import Granularity, sharing
from perseus_dist.units import PS_PER_NS, PS_PER_S, j_from_uj, s_from_ps

Clocks = NDArray[np.uint16]


def plan_tables(frontier: Frontier, *, revision: int, base_revision: int = 0, extra_ps: int = 0) -> Iterator[PlanTable]:
    """The table of each pp_rank, in order. All ranks of a pp_rank share one.

    A constant instruction has clock 0, which leaves the clock as it is. What an instruction is expected to take is that
    of the slowest GPU of a tensor-parallel group, and its energy the mean GPU's; nothing is in a table beside another
    one (``base_revision``), whose profile stays the one to compare with. Where ranks keep one clock, or one for each
    phase, the iteration is their only instruction, and nothing of it is expected: what it takes is what the slowest
    rank does. A phase's clock is asked for when the computation before it ends by the plan. Times and energies of plans
    count ``extra_ps`` [ps] at the end of each iteration, in which all GPUs wait.
    """
    problem = frontier.problem
    schedule, instructions = problem.dag.schedule, problem.dag.instructions
    clocks_mhz = np.concatenate([curve.clocks_mhz for curve in problem.curves]).astype("<u2")
    first_clock = concatenated_begin(curve.clocks_mhz for curve in problem.curves)[problem.curve_of]
    curves = {(curve.stage, curve.kind): curve for curve in problem.curves}
    times_s = tuple(s_from_ps(frontier.time_ps + extra_ps).tolist())
    extra_uj = problem.total_blocking_uw * extra_ps // PS_PER_S
    energies_j = tuple(j_from_uj(frontier.total_uj + extra_uj).tolist())
    digest = schedule.digest()
    sees_instructions = frontier.granularity == Granularity.INSTRUCTION
    by_phase = _PhaseClocks(frontier) if frontier.granularity == Granularity.PHASE else None
    begin = 0
    for pp_rank, (order, stages) in enumerate(zip(schedule.ranks, stages_of_ranks(schedule), strict=True)):
        own = slice(begin, begin := begin + len(order))
        own_mhz = clocks_mhz[first_clock[own] + frontier.clock_indices[:, own].astype(np.int64)]
        moments_ns: tuple[int, ...] = ()
        if by_phase is not None:
            own_mhz, moments_ns = by_phase.of_rank(pp_rank, own_mhz, own.start)
        elif not sees_instructions:
            own_mhz = own_mhz.max(axis=1, keepdims=True)  # those of constants are 0
        is_expected = sees_instructions and not base_revision
        computations = sorted({(i.stage, i.kind) for i in instructions[own] if not i.is_constant and is_expected})
        latencies_s = {
            clock_mhz: latency_s
            for curve in problem.curves
            if curve.stage in stages and curve.latencies_ps is not None
            for clock_mhz, latency_s in zip(
                curve.clocks_mhz.tolist(), s_from_ps(curve.latencies_ps).tolist(), strict=True
            )
        }
        yield PlanTable(
            revision=revision,
            num_points=len(times_s),
            num_instructions=own_mhz.shape[1],
            clocks_mhz=own_mhz.tobytes(),
            times_s=times_s,
            energies_j=energies_j,
            expected=tuple(
                _expected(curves[stage, kind], stages.index(stage), problem.tensor_parallel)
                for stage, kind in computations
            ),
            switch_latency_s=float(s_from_ps(frontier.switch_latency_ps)),
            change_clocks_mhz=tuple(latencies_s),
            change_latencies_s=tuple(latencies_s.values()),
            schedule_digest=digest,
            base_revision=base_revision,
            moments_ns=moments_ns,
        )


class _PhaseClocks:
    """Clocks and moments of plans by phase."""

    def __init__(self, frontier: Frontier) -> None:
        self._groups = sharing(frontier.problem.dag.schedule, Granularity.PHASE)
        self._pp_rank = frontier.problem.dag.pp_rank
        points = range(len(frontier.time_ps))
        lasts = [group[-1] for group in self._groups]
        self._ends_ns = np.array([frontier.execution(point).end_ps[lasts] for point in points]) // PS_PER_NS

    def of_rank(self, pp_rank: int, own_mhz: Clocks, begin: int) -> tuple[Clocks, tuple[int, ...]]:
        """(num_points, num_phases + 1) clocks, and all but the first one's moments [ns], row by row.

        Behind the last computation comes the first phase's clock, for the next iteration; a lower one only as that
        begins, since this one may take longer than planned.

        Args:
            pp_rank: Whose.
            own_mhz: (num_points, num_instructions) its clocks.
            begin: Number of its first instruction.
        """
        own = [number for number, group in enumerate(self._groups) if self._pp_rank[group[0]] == pp_rank]
        of_phases = own_mhz[:, [self._groups[number][0] - begin for number in own]]
        behind = np.maximum(of_phases[:, :1], of_phases[:, -1:])
        return np.hstack([of_phases, behind]), tuple(self._ends_ns[:, own].ravel().tolist())


def _expected(curve: CostCurve, chunk: int, tensor_parallel: int) -> Expected:
    return Expected(
        chunk=chunk,
        kind=curve.kind,
        clocks_mhz=tuple(curve.clocks_mhz.tolist()),
        times_s=tuple(s_from_ps(curve.durations_ps).tolist()),
        energies_j=tuple((j_from_uj(curve.energies_uj) / tensor_parallel).tolist()),
    )
