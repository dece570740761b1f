"""Execution of an iteration under given clocks: starts, ends, energy and clock changes, on measured times.

A clock change takes the latency of the clock asked for, from request to effect. It is asked for when the clocked
instruction before it on its pp_rank ends; an idle gap hides it, and what the gap does not hide, the next instruction
runs at the old clock. A constant instruction changes no clock.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_dist import _solver
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.schedule.dag import Dag, Int32Array
from perseus_dist.units import PS_PER_S, IntArray, energy_uj


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Execution:
    """One iteration, played on the measured profile.

    Attributes:
        dag: The instructions and their precedence; arrays below are indexed like ``dag.instructions``.
        clocks_mhz: (num_instructions) the clock asked for; 0 for a constant instruction, which keeps what it finds.
        start_ps: (num_instructions) [ps] when the device starts it.
        end_ps: (num_instructions) [ps] when the device ends it.
        energy_uj: (num_instructions) [uJ] drawn by all GPUs of its tensor-parallel group between start and end.
        changes: (num_ranks) clock changes on each pp_rank within the iteration.
        blocking_uw: (num_ranks) [uW] drawn by all GPUs of a pp_rank while they wait.
        time_ps: [ps] iteration time.
        total_uj: [uJ] the whole pipeline, waiting included, until the iteration ends on every rank.
    """

    dag: Dag
    clocks_mhz: IntArray
    start_ps: IntArray
    end_ps: IntArray
    energy_uj: IntArray
    changes: IntArray
    blocking_uw: IntArray
    time_ps: int
    total_uj: int

    @property
    def effective_uj(self) -> int:
        """[uJ] beyond what all GPUs would have drawn waiting."""
        return self.total_uj - energy_uj(int(self.blocking_uw.sum()), self.time_ps)


def replay(problem: PlanningProblem, clock_indices: NDArray[np.integer], *, switch_latency_ps: int = 0) -> Execution:
    """Play one iteration.

    Args:
        problem: The schedule and its cost curves.
        clock_indices: (num_instructions) index into the ``clocks_mhz`` of each instruction's curve; 0 is the maximum.
        switch_latency_ps: [ps] from asking for a clock to having it, where the profile does not say.
    """
    time_ps, effective_uj, start_ps, end_ps, effective_uj_of, changed = _solver.replay(
        menu=problem.menu,
        edge_from=problem.edge_from,
        edge_to=problem.edge_to,
        plan=np.ascontiguousarray(clock_indices, dtype=np.int32),
        latency_ps=problem.latencies_ps(switch_latency_ps),
    )
    waiting_uw = problem.blocking_uw[problem.dag.pp_rank]
    waiting_uj = np.rint(waiting_uw * ((end_ps - start_ps) / PS_PER_S)).astype(np.int64)
    return Execution(
        dag=problem.dag,
        clocks_mhz=problem.clocks_mhz(clock_indices),
        start_ps=start_ps,
        end_ps=end_ps,
        energy_uj=effective_uj_of + waiting_uj,
        changes=np.bincount(problem.dag.pp_rank, weights=changed, minlength=len(problem.blocking_uw)).astype(np.int64),
        blocking_uw=problem.blocking_uw,
        time_ps=time_ps,
        total_uj=effective_uj + energy_uj(problem.total_blocking_uw, time_ps),
    )


def replay_all_max(problem: PlanningProblem, *, switch_latency_ps: int = 0) -> Execution:
    """The reference of every comparison: each instruction at its maximum clock.

    Args:
        problem: As of ``replay``.
        switch_latency_ps: [ps] likewise; it counts where computations of a pp_rank have different maximum clocks.
    """
    return replay(problem, np.zeros(problem.num_instructions, dtype=np.int32), switch_latency_ps=switch_latency_ps)


def ends_of(durations: IntArray, edge_from: Int32Array, edge_to: Int32Array) -> IntArray:
    """(num_instructions) when each instruction of fixed duration ends, if it begins when all before it have ended.

    Args:
        durations: (num_instructions) in whole units of any time.
        edge_from: (num_edges) index of what ends before ``edge_to`` begins.
        edge_to: (num_edges) likewise.
    """
    begin = np.arange(len(durations) + 1, dtype=np.int32)
    zeros = np.zeros(len(durations), dtype=np.int64)
    menu = _solver.Menu(
        curve_begin=begin,
        clock_mhz=zeros.astype(np.int32),
        duration_ps=np.ascontiguousarray(durations),
        effective_uj=zeros,
        choice_begin=begin,
        choice=zeros.astype(np.int32),
        curve_of=begin[:-1],
        previous_on_rank=np.full(len(durations), -1, dtype=np.int32),
    )
    *_, ends, _, _ = _solver.replay(
        menu=menu, edge_from=edge_from, edge_to=edge_to, plan=zeros.astype(np.int32), latency_ps=zeros
    )
    found: IntArray = ends
    return found
