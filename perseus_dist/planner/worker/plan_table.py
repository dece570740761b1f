"""Plan tables: what each pp_rank needs of a frontier, a row of clocks per plan."""

from collections.abc import Iterator

import numpy as np

from perseus_dist.messages.from_planner import Expected, PlanTable
from perseus_dist.planner.worker.measured_profile import stages_of_ranks
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.problem import concatenated_begin
from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.units import j_from_uj, s_from_ps


def plan_tables(frontier: Frontier, *, revision: int, base_revision: int = 0) -> Iterator[PlanTable]:
    """The table of each pp_rank, in order. All ranks of a pp_rank share one.

    A constant instruction has clock 0, which leaves the clock as it is. What an instruction is expected to take is that
    of the slowest GPU of a tensor-parallel group, and its energy the mean GPU's; nothing is in a table beside another
    one (``base_revision``), whose profile stays the one to compare with. Where ranks keep one clock, the iteration is
    their only instruction, and nothing of it is expected: what it takes is what the slowest rank does.
    """
    problem = frontier.problem
    schedule, instructions = problem.dag.schedule, problem.dag.instructions
    clocks_mhz = np.concatenate([curve.clocks_mhz for curve in problem.curves]).astype("<u2")
    first_clock = concatenated_begin(curve.clocks_mhz for curve in problem.curves)[problem.curve_of]
    curves = {(curve.stage, curve.kind): curve for curve in problem.curves}
    times_s = tuple(s_from_ps(frontier.time_ps).tolist())
    energies_j = tuple(j_from_uj(frontier.total_uj).tolist())
    digest = schedule.digest()
    sees_instructions = frontier.granularity == Granularity.INSTRUCTION
    begin = 0
    for order, stages in zip(schedule.ranks, stages_of_ranks(schedule), strict=True):
        own = slice(begin, begin := begin + len(order))
        own_mhz = clocks_mhz[first_clock[own] + frontier.clock_indices[:, own].astype(np.int64)]
        if not sees_instructions:
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
        )


def _expected(curve: CostCurve, chunk: int, tensor_parallel: int) -> Expected:
    return Expected(
        chunk=chunk,
        kind=curve.kind,
        clocks_mhz=tuple(curve.clocks_mhz.tolist()),
        times_s=tuple(s_from_ps(curve.durations_ps).tolist()),
        energies_j=tuple((j_from_uj(curve.energies_uj) / tensor_parallel).tolist()),
    )
