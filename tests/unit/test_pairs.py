"""Schedules in which a forward and a backward run as one, with profiles that lack rows, and the plans of them."""

from pathlib import Path

import numpy as np
import pytest

import perseus_dist
from perseus_dist.errors import ProfileError
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.instruction import OVERLAPPED_FORWARD
from perseus_dist.planning.schedule.schedule import format_schedule, interleaved, overlapped
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.simulated_profile import profile_of_schedule
from perseus_dist.simulation.virtual.run import virtual_job
from perseus_dist.simulator.presets import find_preset
from perseus_dist.simulator.work import WorkTimes
from perseus_dist.units import PS_PER_MS

SCHEDULE = overlapped(interleaved(pp=2, microbatches=6, chunks=2))
WORK = WorkTimes(forward_s=0.05, backward_s=0.093, imbalance=0.1)
BLOCKING_UW = [80_000_000] * 2


def profile_text(*, overlap_s: float = 20e-6) -> str:
    return profile_of_schedule(find_preset("a100"), WORK, SCHEDULE, constants_s={OVERLAPPED_FORWARD: overlap_s})


def without(text: str, name: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if f",{name}," not in line)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "profile.csv"
    path.write_text(text)
    return path


def all_max_ps(path: Path) -> int:
    problem = make_problem(SCHEDULE, read_profile(path), blocking_uw_of_rank=BLOCKING_UW)
    return replay_all_max(problem).time_ps


def test_a_row_for_what_names_a_pairs_forward_may_be_missing_or_zero(tmp_path: Path) -> None:
    bare = without(profile_text(), "overlap_f")
    texts = [profile_text(overlap_s=20e-6), bare, bare + "".join(f"{stage},overlap_f,,0,\n" for stage in range(4))]
    times_ps = [all_max_ps(written(tmp_path, text)) for text in texts]
    assert times_ps[1] == times_ps[2]
    assert 0 < times_ps[0] - times_ps[1] < PS_PER_MS
    assert all_max_ps(written(tmp_path, profile_text(overlap_s=0.01))) > max(times_ps) + 20 * PS_PER_MS


def test_the_library_plans_without_it_and_reads_the_frontier_back(tmp_path: Path) -> None:
    (tmp_path / "schedule.txt").write_text(format_schedule(SCHEDULE))
    schedule = perseus_dist.Schedule.read(tmp_path / "schedule.txt")
    profile = written(tmp_path, without(profile_text(), "overlap_f"))
    frontier = perseus_dist.plan(profile, schedule, blocking_power_w=80)
    frontier.save(tmp_path / "frontier.npz")
    assert perseus_dist.load_frontier(tmp_path / "frontier.npz").summary() == frontier.summary()


@pytest.mark.parametrize(
    ("line", "seen"),
    [("0,overlap_f,,0,0.1", "0.1 J in 0 s"), ("0,forward,1410,0,3", "'time'"), ("0,load,1410,0,0", "'time'")],
)
def test_energy_in_no_time_and_computations_in_none_are_refused(tmp_path: Path, line: str, seen: str) -> None:
    with pytest.raises(ProfileError, match=seen):
        read_profile(written(tmp_path, profile_text() + line + "\n"))


def test_a_profile_without_pairs_is_refused_by_what_it_lacks(tmp_path: Path) -> None:
    profile = read_profile(written(tmp_path, without(profile_text(), "forward_backward")))
    with pytest.raises(ProfileError, match=r"stage 0 has .*forward.*, expected forward_backward too"):
        make_problem(SCHEDULE, profile, blocking_uw_of_rank=BLOCKING_UW)


def test_plans_last_as_long_as_they_promise_where_constants_lie_between_computations(tmp_path: Path) -> None:
    """A change of clocks has the whole gap to arrive in, also where a constant in it began no earlier than before."""
    problem = make_problem(SCHEDULE, read_profile(written(tmp_path, profile_text())), blocking_uw_of_rank=BLOCKING_UW)
    frontier = plan_frontier(problem, switch_latency_ps=12 * PS_PER_MS)
    played = [frontier.execution(point) for point in range(len(frontier.time_ps))]
    np.testing.assert_array_equal([one.time_ps for one in played], frontier.time_ps)
    np.testing.assert_array_equal([one.total_uj for one in played], frontier.total_uj)


def test_a_saved_profile_without_pairs_is_said_to_lack_them_and_measured_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = without(without(profile_text(), "forward_backward"), "overlap_f")
    simulated = SimulatedJob(
        schedule=SCHEDULE, num_pipelines=1, num_iterations=0, imbalance=0.1, profile=str(written(tmp_path, saved))
    )
    with caplog.at_level("DEBUG"), virtual_job(simulated, "a100", quick_plans=True) as job:
        while job.planner.job.plan is None:
            assert job.run_iteration() is not None
            assert len(job.iterations) < 60
        assert b",forward_backward," in job.planner.job.plan.profile_csv
        job.end()
        assert job.clocks_left_locked == 0
    (said,) = {record.message for record in caplog.records if "saved profile cannot be planned with" in record.message}
    assert "stage 0 forward_backward" in said
    assert "not measured" in said
