"""Plan tables and measured profiles, against the planning core that they are made for."""

from array import array
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perseus_dist.errors import ProfileError
from perseus_dist.messages.from_agent import Sample
from perseus_dist.messages.from_planner import PlannerMessage, PlanTable
from perseus_dist.planner.job.measured_transfers import Snapshot
from perseus_dist.planner.worker.frontier_build import build_plan, planned_request, summarize
from perseus_dist.planner.worker.measured_profile import measured_profile
from perseus_dist.planner.worker.plan_request import Contribution, PlanningRequest
from perseus_dist.planner.worker.plan_table import plan_tables
from perseus_dist.planning.coarse.coarse_frontier import plan_by
from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.frontier_file import load_frontier
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.frontier.slow_rank import SlowRank, with_slow_ranks
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.granularity import Granularity, sharing
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE
from perseus_dist.planning.schedule.schedule import Schedule, format_schedule, interleaved, one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.rpc.codec import decode_planner_message, encode_planner_message
from perseus_dist.units import UW_PER_W

CLOCKS_MHZ = (1400, 1200, 1000, 800)
BASE_S = {"F": 0.01, "B": 0.02}
BLOCKING_W = (80.0,) * 4


def samples_of(num_chunks: int, *, factor: float = 1.0, clocks_mhz: tuple[int, ...] = CLOCKS_MHZ) -> tuple[Sample, ...]:
    """Slower at lower clocks, and cheaper; ``factor`` makes a rank slower than others."""
    return tuple(
        Sample(
            chunk=chunk,
            kind=kind,
            clock_mhz=clock,
            time_s=factor * (1 + 0.1 * chunk) * base_s * (0.3 + 0.7 * 1400 / clock),
            energy_j=factor * 300 * base_s * (0.4 + 0.6 * (clock / 1400) ** 2),
            time_std_s=0.0,
            energy_std_j=0.01,
            num_runs=4,
            window_s=2.0,
        )
        for chunk in range(num_chunks)
        for kind, base_s in BASE_S.items()
        for clock in clocks_mhz
    )


def contributions(schedule: Schedule, *, tp: int = 1) -> tuple[Contribution, ...]:
    num_chunks = schedule.num_stages // schedule.num_ranks
    return tuple(
        Contribution(pp_rank=pp_rank, tp_rank=tp_rank, samples=samples_of(num_chunks, factor=1 + 0.05 * pp_rank))
        for pp_rank in range(schedule.num_ranks)
        for tp_rank in range(tp)
    )


def frontier_of(schedule: Schedule, *, tp: int = 1, latency_ps: int = 0) -> Frontier:
    profile = measured_profile(
        schedule, contributions(schedule, tp=tp), tensor_parallel=tp, blocking_power_w=BLOCKING_W, source="test"
    )
    problem = make_problem(
        schedule, profile, blocking_uw_of_rank=[80 * UW_PER_W] * schedule.num_ranks, tensor_parallel=tp
    )
    return plan_frontier(problem, switch_latency_ps=latency_ps, num_points=20)


@pytest.mark.parametrize("schedule", [one_f_one_b(pp=3, microbatches=4), interleaved(pp=2, microbatches=4, chunks=2)])
def test_rows_of_all_tables_together_are_the_frontier_s_plans(schedule: Schedule) -> None:
    frontier = frontier_of(schedule)
    tables = list(plan_tables(frontier, revision=7))
    assert [table.num_instructions for table in tables] == [len(order) for order in schedule.ranks]
    for point in range(len(frontier.time_ps)):
        rows: list[int] = []
        for table in tables:
            clocks = array("H", table.clocks_mhz)
            rows += clocks[point * table.num_instructions : (point + 1) * table.num_instructions]
        assert rows == frontier.execution(point).clocks_mhz.tolist()
    assert {(table.revision, table.schedule_digest) for table in tables} == {(7, schedule.digest())}
    assert tables[0].times_s == tuple((frontier.time_ps / 1e12).tolist())


def test_a_table_of_ranks_has_one_clock_for_each_plan() -> None:
    schedule = interleaved(pp=2, microbatches=4, chunks=2)
    request = PlanningRequest(
        request_id=1,
        job_id="job",
        revision=3,
        schedule_text=format_schedule(schedule),
        contributions=contributions(schedule),
        blocking_power_w=BLOCKING_W[:2],
        tp_size=1,
        switch_latency_s=0.01,
        slowdowns=(1.1,),
        granularity=Granularity.RANK,
    )
    frontier = planned_request(request).frontier
    assert frontier.granularity == Granularity.RANK
    tables = list(plan_tables(frontier, revision=3))
    for pp_rank, table in enumerate(tables):
        assert (table.num_instructions, table.expected) == (1, ())
        of_all = [frontier.execution(point).clocks_mhz for point in range(table.num_points)]
        begin = sum(map(len, schedule.ranks[:pp_rank]))
        own = [set(clocks[begin : begin + len(schedule.ranks[pp_rank])].tolist()) for clocks in of_all]
        assert [{clock} for clock in array("H", table.clocks_mhz)] == own
    assert len({array("H", table.clocks_mhz)[0] for table in tables} | {0}) > 1


def test_a_plan_is_on_time_with_a_rank_that_is_slightly_slow_and_without() -> None:
    schedule = one_f_one_b(pp=3, microbatches=4)
    slow = SlowRank(pp_rank=1, factor=1.03)
    request = PlanningRequest(
        request_id=1,
        job_id="job",
        revision=3,
        schedule_text=format_schedule(schedule),
        contributions=contributions(schedule),
        blocking_power_w=BLOCKING_W[:3],
        tp_size=1,
        switch_latency_s=0.0,
    )
    late = []
    for known in ((), (slow,)):
        frontier = planned_request(replace(request, slightly_slow=known)).frontier
        assert frontier.time_ps[0] == frontier.baseline.time_ps
        beside = with_slow_ranks(frontier.problem, [slow])
        late.append(replay(beside, frontier.clock_indices[0]).time_ps / replay_all_max(beside).time_ps)
    assert late[0] > 1.003
    assert late[1] < 1.001


def test_a_rank_is_told_what_its_chunks_take() -> None:
    schedule = interleaved(pp=2, microbatches=4, chunks=2)
    _, table = plan_tables(frontier_of(schedule, tp=2), revision=1)
    assert [(expected.chunk, expected.kind) for expected in table.expected] == [(0, "B"), (0, "F"), (1, "B"), (1, "F")]
    forward = table.expected[3]
    assert forward.clocks_mhz == CLOCKS_MHZ
    measured = [s for s in samples_of(2, factor=1.05) if (s.chunk, s.kind) == (1, "F")]
    assert forward.times_s == pytest.approx([s.time_s for s in measured])
    assert forward.energies_j == pytest.approx([s.energy_j for s in measured])


def test_a_constant_leaves_the_clock_as_it_is_and_is_not_expected_at_clocks() -> None:
    schedule = parse_schedule("0LOAD 0F0 0B0\n1F0 1B0\n")
    load = Sample(
        chunk=0,
        kind="LOAD",
        clock_mhz=1400,
        time_s=0.005,
        energy_j=0.4,
        time_std_s=0.0,
        energy_std_j=0.0,
        num_runs=1,
        window_s=1.0,
    )
    first, second = contributions(schedule)
    first = Contribution(pp_rank=0, tp_rank=0, samples=(*first.samples, load))
    profile = measured_profile(schedule, [first, second], tensor_parallel=1, blocking_power_w=BLOCKING_W, source="test")
    problem = make_problem(schedule, profile, blocking_uw_of_rank=[0, 0])
    table, _ = plan_tables(plan_frontier(problem, num_points=4), revision=1)
    assert set(array("H", table.clocks_mhz)[::3]) == {0}
    assert {expected.kind for expected in table.expected} == {"F", "B"}


def test_replicas_are_averaged_and_tensor_parallel_ranks_stand_side_by_side() -> None:
    schedule = one_f_one_b(pp=1, microbatches=1)
    measured = [
        Contribution(pp_rank=0, tp_rank=tp_rank, samples=samples_of(1, factor=factor))
        for tp_rank, factors in ((0, (1.0, 1.01, 1.2)), (1, (2.0, 2.02, 2.2)))
        for factor in factors
    ]
    profile = measured_profile(schedule, measured, tensor_parallel=2, blocking_power_w=BLOCKING_W, source="test")
    forward = profile.measurements[0, "F"]
    assert forward.gpus == ("0", "1")
    assert forward.times_s[:, 0] == pytest.approx([0.01005, 0.0201])  # the slowest replica was disturbed
    assert forward.num_samples[:, 0].tolist() == [8, 8]


def test_a_gpu_that_lacks_a_clock_is_taken_to_be_like_the_others_of_its_group() -> None:
    schedule = one_f_one_b(pp=1, microbatches=1)
    measured = [
        Contribution(pp_rank=0, tp_rank=0, samples=samples_of(1)),
        Contribution(pp_rank=0, tp_rank=1, samples=samples_of(1, factor=2.0, clocks_mhz=(1400,))),
    ]
    forward = measured_profile(
        schedule, measured, tensor_parallel=3, blocking_power_w=BLOCKING_W, source="test"
    ).measurements[0, "F"]
    assert forward.gpus == ("0", "1", "2")
    assert forward.times_s[:, 0] == pytest.approx([0.01, 0.02, 0.015])
    assert forward.times_s[1].tolist()[1:] == forward.times_s[0].tolist()[1:]


def test_a_stage_that_cannot_be_clocked_keeps_its_one_clock() -> None:
    schedule = one_f_one_b(pp=2, microbatches=4)
    measured = [
        Contribution(pp_rank=0, tp_rank=0, samples=samples_of(1)),
        Contribution(pp_rank=1, tp_rank=0, samples=samples_of(1, factor=1.3, clocks_mhz=(1400,))),
    ]
    profile = measured_profile(schedule, measured, tensor_parallel=1, blocking_power_w=BLOCKING_W, source="test")
    frontier = plan_frontier(make_problem(schedule, profile, blocking_uw_of_rank=[0, 0]), num_points=20)
    first, second = plan_tables(frontier, revision=1)
    assert set(array("H", second.clocks_mhz)) == {1400}
    assert len(set(array("H", first.clocks_mhz))) > 1


def test_saved_rows_count_where_nothing_newer_was_measured() -> None:
    schedule = one_f_one_b(pp=2, microbatches=1)
    saved = tuple(
        Sample(
            chunk=0,
            kind=kind,
            clock_mhz=clock,
            time_s=1.0,
            energy_j=5.0,
            time_std_s=0.0,
            energy_std_j=0.0,
            num_runs=0,
            window_s=0.0,
            stage=stage,
        )
        for stage in (0, 1)
        for kind in "FB"
        for clock in (1400, 1000)
    )
    newer = Contribution(pp_rank=1, tp_rank=0, samples=samples_of(1))
    of_rank_0 = Contribution(pp_rank=0, tp_rank=0, samples=saved)
    profile = measured_profile(
        schedule, [of_rank_0, newer], tensor_parallel=1, blocking_power_w=BLOCKING_W, source="test"
    )
    assert profile.measurements[0, "F"].times_s.tolist() == [[1.0, 1.0]]
    assert profile.measurements[1, "F"].clocks_mhz.tolist() == list(CLOCKS_MHZ)


def changes(clock_mhz: int, time_s: float, *, p90_s: float = 0.0, num_runs: int = 1, stage: int = -1) -> Sample:
    """What a rank has seen of changes to a clock, or what a saved profile says."""
    return Sample(
        chunk=0,
        kind=CLOCK_CHANGE,
        clock_mhz=clock_mhz,
        time_s=time_s,
        energy_j=0.0,
        time_std_s=0.0,
        energy_std_j=0.0,
        num_runs=num_runs,
        window_s=0.0,
        stage=stage,
        time_p90_s=p90_s,
    )


def test_latencies_that_ranks_have_seen_are_in_profile_and_table() -> None:
    """Replicas' are joined; a rank that has seen none has what the saved profile says, and all its stages the same."""
    schedule = interleaved(pp=2, microbatches=2, chunks=2)
    seen = [(changes(1000, 0.010, p90_s=0.011),), (changes(1000, 0.022, p90_s=0.009, num_runs=3),)]
    ranks = [*contributions(schedule), *(Contribution(pp_rank=0, tp_rank=0, samples=samples) for samples in seen)]
    saved = tuple(changes(1400, 0.030 + stage / 1000, stage=stage) for stage in range(4))
    ranks.append(Contribution(pp_rank=1, tp_rank=0, samples=saved))
    profile = measured_profile(schedule, ranks, tensor_parallel=1, blocking_power_w=BLOCKING_W, source="test")
    of_stage = {
        stage: dict(zip(one.clocks_mhz.tolist(), one.times_s.tolist(), strict=True))
        for stage, one in profile.clock_changes.items()
    }
    assert of_stage == {stage: {1000: 0.019} if stage % 2 == 0 else {1400: 0.030 + stage / 1000} for stage in range(4)}
    assert profile.clock_changes[2].p90_s.tolist() == [0.25 * 0.011 + 0.75 * 0.022]  # not less than the median
    problem = make_problem(schedule, profile, blocking_uw_of_rank=[80 * UW_PER_W, 70 * UW_PER_W])
    first, _ = plan_tables(plan_frontier(problem, num_points=4), revision=1)
    assert set(first.change_latencies_s) == {0.019}
    assert set(first.change_clocks_mhz) == set(CLOCKS_MHZ)


def test_clocks_of_phases_come_with_moments() -> None:
    schedule = one_f_one_b(pp=3, microbatches=5)
    profile = measured_profile(
        schedule, contributions(schedule), tensor_parallel=1, blocking_power_w=BLOCKING_W, source="test"
    )
    problem = make_problem(schedule, profile, blocking_uw_of_rank=[80 * UW_PER_W] * 3)
    frontier = plan_by(problem, Granularity.PHASE, switch_latency_ps=10**9)
    groups = sharing(schedule, Granularity.PHASE)
    for pp_rank, table in enumerate(plan_tables(frontier, revision=1)):
        own = [group for group in groups if problem.dag.pp_rank[group[0]] == pp_rank]
        assert table.num_instructions == len(own) + 1
        assert table.expected == ()
        clocks_mhz = np.frombuffer(table.clocks_mhz, dtype="<u2").reshape(table.num_points, -1).tolist()
        moments_ns = np.array(table.moments_ns).reshape(table.num_points, -1).tolist()
        for point, (row, moments) in enumerate(zip(clocks_mhz, moments_ns, strict=True)):
            execution = frontier.execution(point)
            assert row[:-1] == [int(execution.clocks_mhz[group[0]]) for group in own]
            assert row[-1] == max(row[0], row[-2])
            assert moments == [int(execution.end_ps[group[-1]]) // 1000 for group in own]
            assert moments == sorted(moments)


def test_what_was_not_measured_is_named() -> None:
    schedule = one_f_one_b(pp=2, microbatches=1)
    with pytest.raises(ProfileError, match=r"job x: stage 1 backward, stage 1 forward not measured"):
        measured_profile(
            schedule, contributions(schedule)[:1], tensor_parallel=1, blocking_power_w=BLOCKING_W, source="job x"
        )


def test_the_summary_chooses_as_the_frontier_does() -> None:
    frontier = frontier_of(one_f_one_b(pp=3, microbatches=4))
    summary = summarize(frontier)
    for deadline_ps in np.linspace(frontier.time_ps[0], 1.1 * frontier.time_ps[-1], 50).astype(int).tolist():
        assert summary.point_for_deadline(deadline_ps) == frontier.point_for_deadline(deadline_ps)
        assert summary.point_for_straggler(deadline_ps) == frontier.point_for_straggler(deadline_ps)
    assert summary.point_for_deadline(0) == summary.point_for_straggler(0) == 0
    assert (summary.fastest_ps, summary.t_star_ps) == (frontier.fastest_ps, frontier.t_star_ps)


def test_a_request_becomes_tables_a_frontier_file_and_a_profile(tmp_path: Path) -> None:
    schedule = one_f_one_b(pp=2, microbatches=3)
    encoded: list[PlannerMessage] = []

    def encode(message: PlannerMessage) -> bytes:
        encoded.append(message)
        return b"%d" % len(encoded)

    request = PlanningRequest(
        request_id=3,
        job_id="j",
        revision=9,
        schedule_text=format_schedule(schedule),
        contributions=contributions(schedule),
        blocking_power_w=(80.0, 70.0),
        tp_size=1,
        switch_latency_s=0.001,
        deadlines_s=(0.2,),
        slowdowns=(1.0625,),
    )
    result = build_plan(request, encode=encode)
    assert (result.request_id, result.revision, result.tables) == (3, 9, (b"1", b"2"))
    assert all(isinstance(message, PlanTable) and message.revision == 9 for message in encoded)
    saved = tmp_path / "frontier.npz"
    saved.write_bytes(result.frontier_npz)
    frontier = load_frontier(saved)
    assert summarize(frontier) == result.summary
    assert frontier.problem.blocking_uw.tolist() == [80 * UW_PER_W, 70 * UW_PER_W]
    profile = tmp_path / "profile.csv"
    profile.write_bytes(result.profile_csv)
    assert read_profile(profile).measurements.keys() == {(0, "F"), (0, "B"), (1, "F"), (1, "B")}


def request_of(schedule: Schedule, **others: Any) -> PlanningRequest:
    """Of three stages that draw unlike powers while they wait."""
    return PlanningRequest(
        request_id=3,
        job_id="j",
        revision=9,
        schedule_text=format_schedule(schedule),
        contributions=contributions(schedule),
        blocking_power_w=(80.0, 70.0, 80.0),
        tp_size=1,
        switch_latency_s=0.0,
        **others,
    )


def known_transfers(folder: Path, *snapshots: Snapshot) -> tuple[dict[tuple[int, str], float], int]:
    """Transfers that are planned with, and [ps] at all-maximum clocks, where those were seen."""
    schedule = one_f_one_b(pp=3, microbatches=4)
    request = request_of(schedule, snapshots=snapshots)
    planned = planned_request(request, quick=True)
    path = folder / "profile.csv"
    path.write_bytes(planned.profile_csv)
    rows = read_profile(path).measurements
    known = {key: row.times_s.item() for key, row in rows.items() if key[1] in ("SEND_F", "SEND_B")}
    return known, planned.summary.baseline_time_ps


def test_transfers_that_make_iterations_longer_are_planned_with(tmp_path: Path) -> None:
    without, bare_ps = known_transfers(tmp_path)
    assert without == {}
    known, time_ps = known_transfers(tmp_path, (((0, "SEND_F", 0.02), (1, "SEND_B", 0.01)),))
    assert known == {(0, "SEND_F"): 0.02, (1, "SEND_B"): 0.01}
    assert time_ps > bare_ps + 0.02e12
    assert known_transfers(tmp_path, (((0, "SEND_F", 1e-7), (1, "SEND_B", 0.0)),)) == ({}, bare_ps)


def test_transfers_of_several_pipelines_never_make_the_iteration_longer_than_the_slowest_of_them(
    tmp_path: Path,
) -> None:
    slow, slower = ((0, "SEND_F", 0.02),), ((0, "SEND_F", 0.03), (1, "SEND_F", 0.0))
    assert known_transfers(tmp_path, (slow, slower)) == known_transfers(tmp_path, (slower,))
    # Two links, each slow in another pipeline: an iteration waits for one or the other, never for both.
    elsewhere = ((1, "SEND_F", 0.029),)
    alone = max(known_transfers(tmp_path, (slower,)), known_transfers(tmp_path, (elsewhere,)), key=itemgetter(1))
    assert known_transfers(tmp_path, (slower, elsewhere)) == alone
    assert known_transfers(tmp_path, (elsewhere, slower)) == alone


def test_of_several_snapshots_the_quickest_is_what_iterations_are_compared_with(tmp_path: Path) -> None:
    well, slow = known_transfers(tmp_path), (((0, "SEND_F", 0.02),),)
    assert known_transfers(tmp_path, slow, ((),)) == known_transfers(tmp_path, ((),), slow) == well
    assert known_transfers(tmp_path, slow, slow) == known_transfers(tmp_path, slow)


def test_time_that_the_profile_does_not_know_is_in_all_figures_and_deadlines(tmp_path: Path) -> None:
    schedule = one_f_one_b(pp=3, microbatches=4)
    request = request_of(schedule, slowdowns=(1.1,))
    bare = build_plan(request, encode=encode_planner_message)
    later = build_plan(replace(request, extra_s=0.25), encode=encode_planner_message)
    extra_ps, extra_uj = 250_000_000_000, 230 * 250_000
    assert later.summary.baseline_time_ps == bare.summary.baseline_time_ps + extra_ps
    assert later.summary.baseline_uj == bare.summary.baseline_uj + extra_uj
    path = tmp_path / "profile.csv"
    path.write_bytes(later.profile_csv)
    blocking_uw = [round(UW_PER_W * watts) for watts in request.blocking_power_w]
    saved = replay_all_max(make_problem(schedule, read_profile(path), blocking_uw_of_rank=blocking_uw))
    assert saved.time_ps == later.summary.baseline_time_ps, "whoever plans with the profile plans as the service does"
    assert saved.total_uj == later.summary.baseline_uj
    assert later.summary.tail_ps == bare.summary.tail_ps + extra_ps
    assert later.summary.time_ps[0] == bare.summary.time_ps[0] + extra_ps
    assert later.summary.total_uj[0] == bare.summary.total_uj[0] + extra_uj
    assert later.summary.pipeline_degree(1, 1.5) == pytest.approx(bare.summary.pipeline_degree(1, 1.5))
    assert max(later.summary.saving_high) < max(bare.summary.saving_high)
    within_ps = round(1.1 * later.summary.baseline_time_ps)
    point = later.summary.point_for_deadline(within_ps)
    assert within_ps * 0.995 < later.summary.time_ps[point] <= within_ps
    table = decode_planner_message(later.tables[0])
    assert isinstance(table, PlanTable)
    assert table.times_s[point] == pytest.approx(later.summary.time_ps[point] / 1e12)
    assert table.energies_j[point] == pytest.approx(later.summary.total_uj[point] / 1e6)
    short = build_plan(replace(request, extra_s=0.25, deadlines_s=(0.2,)), encode=encode_planner_message)
    assert short.summary.time_ps[0] > 0.2e12
