"""Replay against a direct implementation of the model in seconds and joules, and the figures of an ``Execution``."""

from collections.abc import Callable, Mapping, Sequence

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import Execution, replay, replay_all_max
from perseus_dist.planning.profile.clock_changes import clock_changes_of
from perseus_dist.planning.profile.profile import Measurements, Profile
from perseus_dist.planning.profile.profile_csv import Row
from perseus_dist.planning.schedule.dag import build_dag
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.units import PS_PER_S, j_from_uj, s_from_ps

Rows = Mapping[int, tuple[float, float]]  # clock [MHz] -> (time [s], energy [J]), from the highest clock down
Table = Mapping[tuple[int, str], Rows]

# Constants before, between and after the instructions that have a clock, on one rank of two.
SCHEDULE = parse_schedule("0LOAD0 0F0 0LOAD1 0F1 0B0 0B1 0STEP\n1F0 1B0 1F1 1B1")
CONSTANTS = {"LOAD", "STEP"}
BLOCKING_W = (40.0, 90.0)


def problem_for(table: Table, latencies_s: Mapping[int, float] | None = None) -> PlanningProblem:
    """``latencies_s`` of each clock [MHz], of all stages."""

    def measured(rows: Rows) -> Measurements:
        times_s, energies_j = np.array(list(rows.values())).T[:, None]
        return Measurements(
            clocks_mhz=np.array(list(rows)),
            gpus=("",),
            times_s=times_s,
            energies_j=energies_j,
            num_samples=np.ones_like(times_s),
            time_std_s=np.full_like(times_s, np.nan),
            energy_std_j=np.full_like(times_s, np.nan),
        )

    changes = {
        stage: clock_changes_of(
            Row(line=1, stage=stage, kind=CLOCK_CHANGE, clock_mhz=mhz, time_s=latency_s, energy_j=0.0)
            for mhz, latency_s in latencies_s.items()
        )
        for stage in (0, 1)
        if latencies_s
    }
    measurements = {key: measured(rows) for key, rows in table.items()}
    profile = Profile(source="made up", measurements=measurements, clock_changes=changes)
    return make_problem(SCHEDULE, profile, blocking_uw_of_rank=[round(watts * 1e6) for watts in BLOCKING_W])


def play(
    table: Table, clocks_mhz: Sequence[int], latency_s: Callable[[int], float]
) -> tuple[list[float], list[float], list[float], int]:
    """(starts, ends, energies, number of clock changes)."""
    instructions = [instruction for order in SCHEDULE.ranks for instruction in order]
    index = {instruction: i for i, instruction in enumerate(instructions)}
    before: dict[int, int] = {}
    for order in SCHEDULE.ranks:
        clocked = [index[instruction] for instruction in order if instruction.kind not in CONSTANTS]
        before |= dict(zip(clocked[1:], clocked, strict=False))
    graph = build_dag(SCHEDULE).to_networkx()
    starts, ends, energies = ([0.0] * len(instructions) for _ in range(3))
    num_changes = 0
    for instruction in nx.topological_sort(graph):
        i, rows = index[instruction], table[instruction.stage, instruction.kind]
        starts[i] = max((ends[index[needed]] for needed in graph.predecessors(instruction)), default=0.0)
        duration, energy = rows[clocks_mhz[i]] if instruction.kind not in CONSTANTS else next(iter(rows.values()))
        if i in before and clocks_mhz[before[i]] != clocks_mhz[i]:
            num_changes += 1
            old_duration, old_energy = rows[min(rows, key=lambda mhz: (abs(mhz - clocks_mhz[before[i]]), -mhz))]
            hidden = starts[i] - ends[before[i]]
            share = min(1.0, max(0.0, latency_s(clocks_mhz[i]) - hidden) / old_duration)
            duration = share * old_duration + (1 - share) * duration
            energy = share * old_energy + (1 - share) * energy
        ends[i] = starts[i] + duration
        energies[i] = energy
    return starts, ends, energies, num_changes


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Clocks of their own for every stage and kind; times and energies in any order."""
    table: dict[tuple[int, str], Rows] = {}
    for stage, kind in [(0, "F"), (0, "B"), (1, "F"), (1, "B"), (0, "LOAD"), (0, "STEP")]:
        clocks = draw(st.sets(st.sampled_from(range(800, 1410, 60)) | st.integers(800, 1410), min_size=1, max_size=5))
        point = st.tuples(st.floats(1e-3, 0.2), st.floats(1, 500))
        only = {0} if kind in CONSTANTS else clocks
        table[stage, kind] = {mhz: draw(point) for mhz in sorted(only, reverse=True)}
    return table


@given(tables(), st.one_of(st.none(), st.just(0.0), st.floats(1e-3, 0.3)), st.data())
def test_replay_follows_the_model(table: Table, constant_s: float | None, data: st.DataObject) -> None:
    clocks = sorted({mhz for rows in table.values() for mhz in rows} - {0}) if constant_s is None else []
    latencies_s = {mhz: data.draw(st.floats(1e-3, 0.3)) for mhz in clocks}
    latency_s = constant_s or 0.0
    problem = problem_for(table, latencies_s)
    indices = [
        data.draw(st.integers(0, len(table[instruction.stage, instruction.kind]) - 1))
        for instruction in problem.dag.instructions
    ]
    seen = replay(problem, np.array(indices), switch_latency_ps=round(latency_s * PS_PER_S))
    starts, ends, energies, num_changes = play(
        table, seen.clocks_mhz.tolist(), lambda mhz: latencies_s.get(mhz, latency_s)
    )
    np.testing.assert_allclose(s_from_ps(seen.start_ps), starts, rtol=0, atol=1e-10)
    np.testing.assert_allclose(s_from_ps(seen.end_ps), ends, rtol=0, atol=1e-10)
    np.testing.assert_allclose(j_from_uj(seen.energy_uj), energies, rtol=0, atol=1e-5)
    assert seen.changes.sum() == num_changes
    check_totals(seen)


def check_totals(execution: Execution) -> None:
    """A GPU draws an instruction's energy while it works, and blocking power until the iteration ends."""
    busy_s = np.bincount(execution.dag.pp_rank, weights=s_from_ps(execution.end_ps - execution.start_ps))
    assert execution.time_ps == execution.end_ps.max()
    waiting_j = np.array(BLOCKING_W) @ (s_from_ps(execution.time_ps) - busy_s)
    assert j_from_uj(execution.total_uj) == pytest.approx(j_from_uj(execution.energy_uj).sum() + waiting_j, abs=1e-4)


FLAT: Table = {
    **{(stage, kind): {1400: (1.0, 300.0), 1000: (1.4, 200.0)} for stage in (0, 1) for kind in ("F", "B")},
    (0, "LOAD"): {0: (0.5, 30.0)},
    (0, "STEP"): {0: (0.25, 20.0)},
}


def test_all_max() -> None:
    """A forward or backward takes 1 s; rank 0 loads for 0.5 s before each forward and steps for 0.25 s at the end."""
    execution = replay_all_max(problem_for(FLAT))
    assert execution.clocks_mhz.tolist() == [0, 1400, 0, 1400, 1400, 1400, 0, 1400, 1400, 1400, 1400]
    starts_s = s_from_ps(execution.start_ps)
    np.testing.assert_allclose(starts_s, [0, 0.5, 1.5, 2, 3.5, 5.5, 6.5, 1.5, 2.5, 3.5, 4.5])
    assert s_from_ps(execution.time_ps) == 6.75
    waiting_j = 40 * (6.75 - 5.25) + 90 * (6.75 - 4)
    assert j_from_uj(execution.total_uj) == pytest.approx(8 * 300 + 2 * 30 + 20 + waiting_j)
    assert execution.changes.tolist() == [0, 0]


def test_changes_are_counted_by_rank_and_constants_change_nothing() -> None:
    problem = problem_for(FLAT)
    slow = {"0F1": 1, "0B1": 1, "1B0": 1, "1F1": 1}
    indices = np.array([slow.get(str(instruction), 0) for instruction in problem.dag.instructions])
    assert replay(problem, indices).changes.tolist() == [3, 2]


def test_latency_is_hidden_by_what_comes_between() -> None:
    problem = problem_for(FLAT)
    indices = np.array([int(str(instruction) == "0F1") for instruction in problem.dag.instructions])
    at_once, late, later = (replay(problem, indices, switch_latency_ps=PS_PER_S * ms // 1000) for ms in (0, 500, 750))
    index = [str(instruction) for instruction in problem.dag.instructions].index("0F1")
    assert [int(e.end_ps[index] - e.start_ps[index]) * 10 // PS_PER_S for e in (at_once, late, later)] == [14, 14, 13]
