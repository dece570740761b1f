"""Latencies of clock changes by their target: in profiles, in problems, in plans."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import perseus_dist
from perseus_dist.errors import ProfileError
from perseus_dist.planning.frontier.frontier import Frontier, plan_first, plan_frontier
from perseus_dist.planning.frontier.frontier_file import load_frontier, save_frontier
from perseus_dist.planning.frontier.plan import latency_figures, plan_document, plan_for_deadline
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.profile.profile import Profile, read_profile, write_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import PS_PER_MS, IntArray

HEADER = "stage,instruction,frequency,time,energy,samples,time_p90"
COMPUTATIONS = [
    f"{stage},{name},{clock},{scale * (0.13 - 0.00005 * clock)},{scale * (1.7 + 0.0116 * clock)},1,"
    for stage in (0, 1)
    for name, scale in (("forward", 1), ("backward", 2))
    for clock in range(1400, 790, -100)
]
SCHEDULE = one_f_one_b(pp=2, microbatches=4)


def profile_with(path: Path, *changes: str) -> Path:
    """A profile of two stages with these rows in front of it."""
    path.write_text("\n".join([HEADER, *changes, *COMPUTATIONS]) + "\n")
    return path


def problem_of(profile: Profile) -> PlanningProblem:
    return make_problem(SCHEDULE, profile, blocking_uw_of_rank=[80_000_000, 80_000_000])


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    """Rank 0 knows three targets, one from two rows; rank 1 knows none."""
    rows = (
        "0,clock_change,1400,0.004,0,1,0.005",
        "0,clock_change,1000,0.010,,1,0.012",
        "0,clock_change,1000,0.014,0,3,0.020",
        "0,clock_change,800,0.5,0,2,",
    )
    return read_profile(profile_with(tmp_path / "profile.csv", *rows))


def test_rows_of_one_target_count_by_their_samples(profile: Profile) -> None:
    assert profile.clock_changes.keys() == {0}
    changes = profile.clock_changes[0]
    assert changes.clocks_mhz.tolist() == [1400, 1000, 800]
    np.testing.assert_allclose(changes.times_s, [0.004, 0.013, 0.5])
    np.testing.assert_allclose(changes.p90_s, [0.005, 0.018, np.nan])
    assert changes.num_samples.tolist() == [1, 4, 2]
    assert profile.num_stages == 2
    assert {kind for _, kind in profile.measurements} == {"F", "B"}


def test_what_is_written_is_read_again(profile: Profile, tmp_path: Path) -> None:
    write_profile(profile, tmp_path / "copy.csv")
    again = read_profile(tmp_path / "copy.csv").clock_changes[0]
    for name in ("clocks_mhz", "times_s", "p90_s", "num_samples"):
        np.testing.assert_array_equal(getattr(again, name), getattr(profile.clock_changes[0], name))
    write_profile(replace(profile, clock_changes={}), tmp_path / "plain.csv")
    assert (tmp_path / "plain.csv").read_text().startswith("stage,instruction,frequency,time,energy,samples,time_std,")
    assert "time_p90" not in (tmp_path / "plain.csv").read_text()


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        ("0,clock_change,1400,12,0,1,", "a change of clocks of 12 s"),  # ms
        ("0,clock_change,1400,0.012,3.5,1,", "3.5 J"),
        ("0,clock_change,1400,0.012,0,1,0.011", "90th percentile 0.011 s"),
        ("0,clock_change,1400,0.012,0,1,14", "90th percentile 14 s"),
        ("0,clock_change,0,0.012,0,1,", "column 'frequency': saw '0'"),
        ("0,clock_change,1400,0,0,1,", "column 'time': saw '0'"),
        ("0,clock_change,1400,nan,0,1,", "column 'time': saw 'nan'"),
        ("0,clock_change,1400,0.012,0,1,-0.1", "column 'time_p90': saw '-0.1'"),
        ("7,clock_change,1400,0.012,0,1,", "changes of clocks of stage 7 and no computation"),
        ("0,forward,1390,0.07,17,1,0.08", "time_p90 of 'forward'"),
    ],
)
def test_refused_in_one_line(tmp_path: Path, row: str, seen: str) -> None:
    path = profile_with(tmp_path / "profile.csv", row)
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:2: ")
    assert seen in message
    assert "\n" not in message


def test_changes_alone_are_no_profile(tmp_path: Path) -> None:
    (tmp_path / "profile.csv").write_text(f"{HEADER}\n0,clock_change,1400,0.012,0,1,\n")
    with pytest.raises(ProfileError, match="saw changes of clocks alone"):
        read_profile(tmp_path / "profile.csv")


def test_the_nearest_target_counts_and_elsewhere_the_constant(profile: Profile) -> None:
    problem = problem_of(profile)
    stages = np.concatenate([np.full(len(curve.clocks_mhz), curve.stage) for curve in problem.curves])
    latencies_ms = problem.latencies_ps(12 * PS_PER_MS) / PS_PER_MS
    assert latencies_ms[stages == 0].tolist() == 2 * [4, 4, 4, 13, 13, 13, 500]  # of two as near, the higher
    assert set(latencies_ms[stages == 1].tolist()) == {12}


def changes_to(frontier: Frontier, pp_rank: int, clock_mhz: int) -> int:
    """How often plans change to a clock within an iteration."""
    of_rank = frontier.problem.dag.pp_rank == pp_rank
    clocks_mhz = frontier.problem.clocks_mhz(frontier.clock_indices)[:, of_rank]
    return int(((clocks_mhz[:, 1:] == clock_mhz) & (clocks_mhz[:, :-1] != clock_mhz)).sum())


def test_plans_change_to_no_clock_that_takes_too_long(tmp_path: Path) -> None:
    """A target slower than any instruction is never changed to; the same plans are made where all take as long."""
    slow_mhz = range(800, 1400, 100)
    rows = [f"{stage},clock_change,{mhz},0.001,0,1," for stage in (0, 1) for mhz in (1400, *slow_mhz)]
    quick = plan_frontier(problem_of(read_profile(profile_with(tmp_path / "quick.csv", *rows))), num_points=40)
    constant = problem_of(read_profile(profile_with(tmp_path / "none.csv")))
    same = plan_frontier(constant, num_points=40, switch_latency_ps=PS_PER_MS)
    np.testing.assert_array_equal(quick.clock_indices, same.clock_indices)
    np.testing.assert_array_equal(quick.time_ps, same.time_ps)
    rows = [row.replace("0.001", "0.4") if row.startswith("0,") and ",800," in row else row for row in rows]
    slow = plan_frontier(problem_of(read_profile(profile_with(tmp_path / "slow.csv", *rows))), num_points=40)
    assert changes_to(quick, 0, 800) > 0
    assert changes_to(slow, 0, 800) == 0
    assert changes_to(slow, 1, 800) > 0
    assert slow.time_ps[0] <= slow.baseline.time_ps


def test_a_first_plan_counts_them_too(profile: Profile) -> None:
    first = plan_first(problem_of(profile))
    assert changes_to(first, 0, 800) == 0


def test_a_saved_frontier_plays_the_same(profile: Profile, tmp_path: Path) -> None:
    frontier = plan_frontier(problem_of(profile), num_points=20, switch_latency_ps=12 * PS_PER_MS)
    save_frontier(frontier, tmp_path / "frontier.npz")
    loaded = load_frontier(tmp_path / "frontier.npz")
    np.testing.assert_array_equal(loaded.problem.latencies_ps(0), frontier.problem.latencies_ps(0))
    point = len(frontier.time_ps) // 2
    assert loaded.execution(point).total_uj == frontier.execution(point).total_uj
    document = plan_document(plan_for_deadline(loaded, int(frontier.time_ps[point])))
    assert document["switch_latency_ms"] == 12
    expected_ms = {"1400": 4, "1300": 4, "1200": 4, "1100": 13, "1000": 13, "900": 13, "800": 500}
    assert document["switch_latency_by_clock_ms"] == {"0": expected_ms}


def test_every_clock_of_a_stage_is_told_where_its_instructions_have_others(profile: Profile) -> None:
    problem = problem_of(profile)
    forward, backward = (curve for curve in problem.curves if curve.latencies_ps is not None)
    fewer = [
        replace(curve, clocks_mhz=curve.clocks_mhz[kept], latencies_ps=cast("IntArray", curve.latencies_ps)[kept])
        for curve, kept in ((forward, slice(None, 5)), (backward, slice(None, 2)))
    ]
    told = latency_figures(replace(problem, curves=tuple(fewer)), 0)["switch_latency_by_clock_ms"]
    assert told == {"0": {"1400": 4, "1300": 4, "1200": 4, "1100": 13, "1000": 13}}


def test_an_argument_counts_more_than_the_profile(profile: Profile, tmp_path: Path) -> None:
    write_profile(profile, tmp_path / "profile.csv")
    path, schedule = tmp_path / "profile.csv", perseus_dist.Schedule.one_f_one_b(pp=2, microbatches=4)
    told = perseus_dist.plan(path, schedule, blocking_power_w=80)
    free = perseus_dist.plan(path, schedule, blocking_power_w=80, switch_latency_s=0)
    assert "0 to 500 ms per clock change" in told.summary()
    assert "per clock change" not in free.summary()
    assert free.at(slowdown=1.0).energy_j < told.at(slowdown=1.0).energy_j
