"""The exact frontier against an independent linear programme.

The programme is written from the problem statement: an instruction lasts a convex combination of its measured times and
costs the same combination of its energies. It is given all points and not their hull, in floating-point numbers, and
shares no code with the package.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus_dist import _solver
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import concatenated_begin, make_problem
from perseus_dist.planning.profile.cost_curve import CostCurve, cost_curve
from perseus_dist.planning.profile.profile import Measurements, read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import j_from_uj, ms_from_ps, s_from_ps, uw_from_w

Points = Sequence[tuple[float, float]]  # (time, energy above waiting) of one instruction at each of its clocks
Edges = Sequence[tuple[int, int]]

MILLISECOND_PS = 10**9


def least_energy(points: Sequence[Points], edges: Edges, deadline: float) -> float:
    """Least energy of all instructions together within a deadline; infinite where nothing is in time.

    Variables are the starts of all instructions, and the weights of their points. Any units will do.
    """
    # Here, since each process of a run of the tests imports this module, and one of them runs it.
    from scipy.optimize import linprog  # type: ignore[import-untyped]
    from scipy.sparse import csr_array, hstack  # type: ignore[import-untyped]

    num_edges, num_instructions = len(edges), len(points)
    owner = np.repeat(np.arange(num_instructions), [len(of_one) for of_one in points])
    time, energy = np.concatenate([np.array(of_one, dtype=np.float64) for of_one in points]).T
    weight = np.arange(len(owner))
    before, after = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    ending = np.concatenate((before, np.arange(num_instructions)))  # start + duration <= start of the next, <= deadline
    row = np.arange(len(ending))
    duration = csr_array((time, (owner, weight)), shape=(num_instructions, len(owner)))
    shape = (len(row), num_instructions)
    starts = csr_array((np.ones(len(row)), (row, ending)), shape=shape)
    starts -= csr_array((np.ones(num_edges), (row[:num_edges], after)), shape=shape)
    total_weight = csr_array((np.ones(len(owner)), (owner, weight)), shape=duration.shape)
    solved = linprog(
        np.concatenate((np.zeros(num_instructions), energy)),
        A_ub=hstack([starts, duration[ending]]),
        b_ub=np.concatenate((np.zeros(num_edges), np.full(num_instructions, deadline))),
        A_eq=hstack([csr_array((num_instructions, num_instructions)), total_weight]),
        b_eq=np.ones(num_instructions),
        bounds=(0, None),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solved.status == 2:
        return float("inf")
    assert solved.status == 0, solved.message
    return float(solved.fun)


Convex = tuple[Sequence[int], Sequence[int], int]  # hull [ms], slope [W] from each vertex to the next, least energy [J]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomProblem:
    """Instructions with integer hulls."""

    instructions: Sequence[Convex]
    edges: Edges

    def points(self) -> list[Points]:
        """In ms and J."""
        of_all: list[Points] = []
        for durations_ms, slopes_w, least_j in self.instructions:
            saved_j = np.array([0.0, *np.diff(durations_ms) * np.array(slopes_w) / 1e3]).cumsum()
            of_all.append(list(zip(durations_ms, (least_j + saved_j[-1] - saved_j).tolist(), strict=True)))
        return of_all

    def solve(self) -> _solver.FrontierResult:
        return solve(
            [np.array(durations_ms) * MILLISECOND_PS for durations_ms, _, _ in self.instructions],
            [np.array([*slopes_w, 0]) * 10**6 for _, slopes_w, _ in self.instructions],
            self.edges,
        )

    @property
    def least_j(self) -> int:
        return sum(least_j for _, _, least_j in self.instructions)


def solve(hulls_ps: Sequence[np.ndarray], slopes_uw: Sequence[np.ndarray], edges: Edges) -> _solver.FrontierResult:
    """The native frontier of instructions that each have a curve of their own."""
    edge = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return _solver.solve_frontier(
        hull_begin=concatenated_begin(hulls_ps),
        hull_ps=np.concatenate(hulls_ps).astype(np.int64),
        slope_uw=np.concatenate(slopes_uw).astype(np.int64),
        curve_of=np.arange(len(hulls_ps), dtype=np.int32),
        edge_from=np.ascontiguousarray(edge[:, 0]),
        edge_to=np.ascontiguousarray(edge[:, 1]),
        blocking_uw=0,
        num_to_t_star=0,
        num_beyond=0,
        extra_ps=np.empty(0, dtype=np.int64),
    )


def check(
    frontier: _solver.FrontierResult, least_j: float, points: Sequence[Points], edges: Edges, scale_j: float
) -> None:
    """Compare at both ends, between and beyond. Points are in ms and J; energies are judged by ``scale_j``."""
    time_ms, energy_j = ms_from_ps(frontier.time_ps[::-1]), least_j + j_from_uj(frontier.energy_uj[::-1])
    t_min_ms, t_max_ms = float(time_ms[0]), float(time_ms[-1])
    for share in (0.0, 0.03, 0.2, 0.45, 0.7, 1.0, 1.5):
        deadline_ms = t_min_ms + share * (t_max_ms - t_min_ms)
        expected_j = least_energy(points, edges, deadline_ms)
        assert np.interp(deadline_ms, time_ms, energy_j) == pytest.approx(expected_j, rel=0, abs=1e-6 * scale_j)
    assert least_energy(points, edges, t_min_ms - 1e-3) == float("inf")


def edges_of(num_instructions: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Any DAG, from unconnected to complete, whatever the order of the instructions."""

    def along(order: Sequence[int]) -> st.SearchStrategy[list[tuple[int, int]]]:
        pairs = [(a, b) for k, a in enumerate(order) for b in order[k + 1 :]]
        return st.lists(st.sampled_from(pairs), unique=True, max_size=30) if pairs else st.just([])

    return st.permutations(range(num_instructions)).flatmap(along)


@st.composite
def random_problems(draw: st.DrawFn) -> RandomProblem:
    few = draw(st.booleans())  # distinct values, so that many paths and prices tie
    durations = st.sets(st.integers(1, 5 if few else 200), min_size=1, max_size=5)
    instructions = []
    for _ in range(draw(st.integers(1, 10))):
        durations_ms = sorted(draw(durations))
        num_slopes = len(durations_ms) - 1
        slopes = st.sets(st.integers(1, 6 if few else 10**4), min_size=num_slopes, max_size=num_slopes)
        instructions.append((durations_ms, sorted(draw(slopes), reverse=True), draw(st.integers(1, 20))))
    return RandomProblem(instructions=instructions, edges=draw(edges_of(len(instructions))))


@given(random_problems())
@settings(max_examples=80)
def test_random_convex_curves(problem: RandomProblem) -> None:
    check(problem.solve(), problem.least_j, problem.points(), problem.edges, problem.least_j)


ONE_CHOICE: Convex = ([10], [], 3)
TWO_CHOICES: Convex = ([10, 20], [5], 3)
LAYERS = [(a, b) for a in range(9) for b in range(9) if b // 3 == a // 3 + 1]


@pytest.mark.parametrize(
    ("instructions", "edges"),
    [
        pytest.param([TWO_CHOICES] * 9, LAYERS, id="ties everywhere"),
        pytest.param([ONE_CHOICE] * 9, LAYERS, id="no choice anywhere"),
        pytest.param([ONE_CHOICE, TWO_CHOICES] * 4 + [ONE_CHOICE], LAYERS, id="half without a choice"),
        pytest.param([TWO_CHOICES] * 6, [(0, 1), (1, 2), (3, 4), (4, 5)], id="two pipelines"),
        pytest.param([TWO_CHOICES, ([30], [], 1), ([1, 40], [9], 2)], [], id="no edge"),
        pytest.param([([0, 10], [5], 1), ([0], [], 1), ([0, 7], [5], 1)], [(0, 1), (1, 2)], id="down to no time"),
        pytest.param([([1, 2, 10**6], [10**7, 1], 1), ([1, 10**5], [40], 1)], [(0, 1)], id="slopes far apart"),
    ],
)
def test_degenerate_problems(instructions: list[Convex], edges: Edges) -> None:
    problem = RandomProblem(instructions=instructions, edges=edges)
    check(problem.solve(), problem.least_j, problem.points(), edges, problem.least_j)


# (time [ms], energy [0.1 J]) at each clock, in any order: noisy, not convex, with plateaus and equal times.
tables = st.lists(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=8), min_size=1, max_size=8
)


@given(tables.flatmap(lambda table: st.tuples(st.just(table), edges_of(len(table)))), st.sampled_from([0.0, 45.0]))
@settings(max_examples=80)
def test_random_measured_tables(case: tuple[list[list[tuple[int, int]]], Edges], blocking_w: float) -> None:
    table, edges = case
    curves = [measured_curve(rows, blocking_w) for rows in table]
    frontier = solve([curve.hull_ps for curve in curves], [curve.slope_uw for curve in curves], edges)
    points = [[(ms, tenths / 10 - blocking_w * ms / 1e3) for ms, tenths in rows] for rows in table]
    least_j = sum(min(energy_j for _, energy_j in of_one) for of_one in points)
    measured_j = sum(max(tenths for _, tenths in rows) / 10 for rows in table)
    check(frontier, least_j, points, edges, measured_j)


def measured_curve(rows: Sequence[tuple[int, int]], blocking_w: float) -> CostCurve:
    times_s, energies_j = np.array([[ms / 1e3 for ms, _ in rows]]), np.array([[tenths / 10 for _, tenths in rows]])
    measurements = Measurements(
        clocks_mhz=1410 - 15 * np.arange(len(rows)),
        gpus=("",),
        times_s=times_s,
        energies_j=energies_j,
        num_samples=np.ones_like(times_s),
        time_std_s=np.full_like(times_s, np.nan),
        energy_std_j=np.full_like(times_s, np.nan),
    )
    return cost_curve(measurements, stage=0, kind="F", blocking_uw=int(uw_from_w(blocking_w)))


@pytest.mark.parametrize(
    ("name", "blocking_w", "microbatches"),
    [
        pytest.param("gpt3-175b+a100_sxm_bf16", 83.64, 24, marks=pytest.mark.stress),
        ("bloom+a40_bf16", 70.38, 12),
    ],
)
def test_published_profiles(shared_data: Path, name: str, blocking_w: float, microbatches: int) -> None:
    """Exactly, and to a tolerance: that bound lies below what the programme finds, within what it certifies."""
    profile = read_profile(shared_data / "sosp24" / "stage_profile" / f"{name}.csv")
    schedule = one_f_one_b(pp=8, microbatches=microbatches)
    problem = make_problem(schedule, profile, blocking_uw_of_rank=[int(uw_from_w(blocking_w))] * 8)
    points = []
    for instruction in problem.dag.instructions:
        measured = profile.measurements[instruction.stage, instruction.kind]
        times_s, energies_j = measured.times_s[0], measured.energies_j[0]
        points.append(list(zip(times_s.tolist(), (energies_j - blocking_w * times_s).tolist(), strict=True)))
    edges = problem.dag.edges.tolist()

    @cache
    def least_total_j(deadline_s: float) -> float:
        # Sums of times with more digits than picoseconds have may end a little later.
        return least_energy(points, edges, deadline_s + 1e-10) + 8 * blocking_w * deadline_s

    bounds = {tolerance: plan_frontier(problem, num_points=2, tolerance=tolerance).bound for tolerance in (0.0, 1e-4)}
    first_ps = max(bound.time_ps[0] for bound in bounds.values())
    last_ps = min(bound.time_ps[-1] for bound in bounds.values())
    for tolerance, bound in bounds.items():
        assert bound.tolerance <= tolerance
        deadlines_ps = np.union1d(np.linspace(first_ps, last_ps, 20).astype(np.int64), bound.time_ps[[0, -1]])
        for deadline_s, total_j in zip(s_from_ps(deadlines_ps), j_from_uj(bound.total_uj(deadlines_ps)), strict=True):
            expected_j = least_total_j(deadline_s)
            assert total_j * (1 - 1e-6) <= expected_j <= total_j * (1 + bound.tolerance + 1e-6)


Transfer = tuple[int, str, int]  # stage that sends, kind of its computation, microbatch


def transfers_of(*, pp: int, microbatches: int) -> list[Transfer]:
    forwards = [(stage, "F", microbatch) for stage in range(pp - 1) for microbatch in range(microbatches)]
    return [*forwards, *((stage + 1, "B", microbatch) for stage, _, microbatch in forwards)]


def megatron_1f1b(stage: int, *, pp: int, microbatches: int) -> Iterator[str | tuple[Transfer, ...]]:
    """Computations of a stage, and the calls between them with the transfers that each waits for.

    As in ``forward_backward_pipelining_without_interleaving``; transfers beyond the ends of the pipeline are named too.
    """
    warmup = pp - 1 - stage
    for microbatch in range(warmup):
        yield ((stage - 1, "F", microbatch),)
        yield "F"
        yield ((stage, "F", microbatch),)
    yield ((stage - 1, "F", warmup),)
    for number in range(microbatches - warmup):
        yield "F"
        yield ((stage, "F", warmup + number), (stage + 1, "B", number))
        yield "B"
        received = [(stage - 1, "F", warmup + number + 1)] if number + 1 < microbatches - warmup else []
        yield ((stage, "B", number), *received)
    for microbatch in range(microbatches - warmup, microbatches):
        yield ((stage + 1, "B", microbatch),)
        yield "B"
        yield ((stage, "B", microbatch),)


@pytest.mark.parametrize("transfer_ms", [0.1, 5, 200])
def test_transfers_that_block_their_sender(shared_data: Path, tmp_path: Path, transfer_ms: float) -> None:
    """The programme is written from what Megatron-LM calls: a transfer begins once both of its sides have called."""
    text = (shared_data / "sosp24" / "stage_profile" / "gpt3-175b+a100_sxm_bf16.csv").read_text().rstrip("\n")
    send_s = {(stage, kind): (stage + 1) * transfer_ms / 4e3 for stage in range(8) for kind in "FB"}
    send_s[7, "F"] = send_s[0, "B"] = 0.0
    rows = [f"{stage},send_{kind.lower()},0,{time_s!r},0" for (stage, kind), time_s in send_s.items() if time_s]
    (tmp_path / "profile.csv").write_text("\n".join([text, *rows]) + "\n")
    profile, schedule, blocking_w = read_profile(tmp_path / "profile.csv"), one_f_one_b(pp=8, microbatches=12), 83.64
    problem = make_problem(schedule, profile, blocking_uw_of_rank=[int(uw_from_w(blocking_w))] * 8)
    bound = plan_frontier(problem, num_points=2).bound
    points: list[Points] = []
    edges: list[tuple[int, int]] = []

    def node(choices: Points, *after: int) -> int:
        points.append(choices)
        edges.extend((before, len(points) - 1) for before in after)
        return len(points) - 1

    transfers = {key: node([(send_s[key[0], key[1]], 0.0)]) for key in transfers_of(pp=8, microbatches=12)}
    for stage in range(8):
        last: list[int] = []
        for step in megatron_1f1b(stage, pp=8, microbatches=12):
            if isinstance(step, str):
                measured = profile.measurements[stage, step]
                times_s, energies_j = measured.times_s[0], measured.energies_j[0]
                choices = list(zip(times_s.tolist(), (energies_j - blocking_w * times_s).tolist(), strict=True))
                last = [node(choices, *last)]
            else:
                called = node([(0.0, 0.0)], *last)
                moved = [transfers[key] for key in step if key in transfers]
                edges.extend((called, transfer) for transfer in moved)
                last = [called, *moved]
    deadlines_ps = np.linspace(bound.time_ps[0], bound.time_ps[-1], 12).astype(np.int64)
    for deadline_s, total_j in zip(s_from_ps(deadlines_ps), j_from_uj(bound.total_uj(deadlines_ps)), strict=True):
        expected_j = least_energy(points, edges, deadline_s + 1e-10) + 8 * blocking_w * deadline_s
        assert total_j == pytest.approx(expected_j, rel=1e-6)
