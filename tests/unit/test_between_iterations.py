"""Time between iterations: a row of a profile, which every plan, bound, file and picture counts behind all else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perseus_dist.agent.process.startup import saved_profile_from_spec
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.errors import ProfileError, ScheduleError
from perseus_dist.planning.coarse.coarse_frontier import plan_coarse_frontier
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.frontier_file import load_frontier, save_frontier
from perseus_dist.planning.frontier.plan import plan_for_deadline
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.profile import read_profile, write_profile
from perseus_dist.planning.schedule.calls.dualpipev import dualpipev
from perseus_dist.planning.schedule.dag import BETWEEN
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.instruction import profile_name
from perseus_dist.planning.schedule.results import transfers_of
from perseus_dist.planning.schedule.schedule import (
    Schedule,
    format_schedule,
    gpipe,
    interleaved,
    joint_exchanges,
    one_f_one_b,
)
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.report.trace.trace import trace_events
from perseus_dist.units import UW_PER_W

HEADER = "stage,instruction,frequency,time,energy\n"
EXTRA = "0,between_iterations,,0.25,\n"
EXTRA_PS = 250_000_000_000
SCHEDULES: dict[str, Schedule] = {
    "1f1b": one_f_one_b(pp=3, microbatches=4),
    "gpipe": gpipe(pp=2, microbatches=3),
    "interleaved": interleaved(pp=2, microbatches=4, chunks=2),
    "joint": joint_exchanges(interleaved(pp=2, microbatches=4, chunks=2)),
    "dualpipev": dualpipev(pp=2, microbatches=4),
    "one stage": one_f_one_b(pp=1, microbatches=2),
}


def profile_text(schedule: Schedule, *, transfer_ms: float = 0) -> str:
    rows = [
        f"{stage},{name},{clock},{ms * slower / 1e3},{watts * ms * slower / 1e3}"
        for stage in range(schedule.num_stages)
        for name, ms in (("forward", 10 + stage), ("backward", 20))
        for clock, slower, watts in ((1400, 1.0, 300), (1200, 1.1, 240), (1000, 1.3, 190))
    ]
    if transfer_ms:
        links = sorted({transfer[:2] for transfer in transfers_of(schedule, None).values()})
        rows += [f"{stage},{profile_name(kind)},,{transfer_ms / 1e3}," for stage, kind in links]
    return HEADER + "\n".join(rows) + "\n"


def problem_of_text(folder: Path, schedule: Schedule, text: str) -> PlanningProblem:
    path = folder / "profile.csv"
    path.write_text(text)
    blocking_uw = [(70 + 10 * rank) * UW_PER_W for rank in range(schedule.num_ranks)]
    return make_problem(schedule, read_profile(path), blocking_uw_of_rank=blocking_uw)


@pytest.mark.parametrize("transfer_ms", [0, 7])
@pytest.mark.parametrize("name", SCHEDULES)
def test_it_is_behind_all_else_and_every_gpu_waits(name: str, transfer_ms: int, tmp_path: Path) -> None:
    schedule = SCHEDULES[name]
    text = profile_text(schedule, transfer_ms=transfer_ms)
    bare, later = (problem_of_text(tmp_path, schedule, one) for one in (text, text + EXTRA))
    assert later.dag.instructions == (*bare.dag.instructions, BETWEEN)
    assert not later.dag.on_rank[-1]
    without, played = replay_all_max(bare), replay_all_max(later)
    extra_uj = bare.total_blocking_uw * EXTRA_PS // 10**12
    assert played.time_ps == without.time_ps + EXTRA_PS
    assert played.total_uj == without.total_uj + extra_uj
    assert played.start_ps[-1] == played.end_ps[:-1].max() == without.end_ps.max()
    assert np.array_equal(played.start_ps[:-1], without.start_ps)

    frontiers = [plan_frontier(one) for one in (bare, later)]
    assert np.array_equal(frontiers[1].bound.time_ps, frontiers[0].bound.time_ps + EXTRA_PS)
    assert np.array_equal(frontiers[1].bound.effective_uj, frontiers[0].bound.effective_uj)
    assert frontiers[1].time_ps[0] == frontiers[0].time_ps[0] + EXTRA_PS
    save_frontier(frontiers[1], tmp_path / "frontier.npz")
    again = load_frontier(tmp_path / "frontier.npz")
    deadline_ps = round(1.1 * played.time_ps)
    plan, read = (plan_for_deadline(one, deadline_ps) for one in (frontiers[1], again))
    assert read.execution.time_ps == plan.execution.time_ps <= deadline_ps
    assert read.execution.total_uj == plan.execution.total_uj
    events = list(trace_events([("plan", read.execution)]))
    assert [event["ts"] for event in events if event.get("name") == str(BETWEEN)][:1] == [
        (read.execution.time_ps - EXTRA_PS) / 1e6
    ]


@pytest.mark.parametrize("granularity", [Granularity.RANK, Granularity.PHASE])
def test_plans_with_shared_clocks_count_it(granularity: Granularity, tmp_path: Path) -> None:
    schedule = SCHEDULES["1f1b"]
    later = problem_of_text(tmp_path, schedule, profile_text(schedule) + EXTRA)
    frontier = plan_coarse_frontier(later, granularity)
    assert frontier.baseline.time_ps == replay_all_max(later).time_ps
    save_frontier(frontier, tmp_path / "frontier.npz")
    assert np.array_equal(load_frontier(tmp_path / "frontier.npz").time_ps, frontier.time_ps)


def test_a_profile_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    path.write_text(profile_text(SCHEDULES["gpipe"]) + EXTRA)
    write_profile(read_profile(path), path)
    assert "0,between_iterations,0,0.25,0.0" in path.read_text()
    assert float(read_profile(path).measurements[BETWEEN[:2]].times_s[0, 0]) == 0.25


@pytest.mark.parametrize(
    "row", ["1,between_iterations,,0.25,", "0,between_iterations,1400,0.25,", "0,between_iterations,,0.25,3"]
)
def test_what_is_none_is_refused(row: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="expected stage 0, no frequency and no energy") as caught:
        problem_of_text(tmp_path, SCHEDULES["1f1b"], profile_text(SCHEDULES["1f1b"]) + row + "\n")
    assert "profile.csv:20:" in str(caught.value)


def test_a_schedule_runs_nothing_of_that_name() -> None:
    with pytest.raises(ScheduleError, match="what profiles call time between iterations"):
        parse_schedule("0F0 0B0 0BETWEEN_ITERATIONS\n")


def test_a_job_with_such_a_profile_learns_its_own(tmp_path: Path) -> None:
    """It is no sample of a rank: the planner would refuse one without a clock."""
    path = tmp_path / "profile.csv"
    path.write_text(profile_text(SCHEDULES["gpipe"]) + EXTRA)
    place: dict[str, Any] = dict.fromkeys(("rank", "pp_rank", "dp_rank", "tp_rank", "local_rank"), 0)
    sizes: dict[str, Any] = {"pp_size": 2, "dp_size": 1, "tp_size": 1}
    schedule = format_schedule(one_f_one_b(pp=2, microbatches=2))
    saved = saved_profile_from_spec(RankSpec(job_id="job", profile=str(path), schedule=schedule, **place, **sizes))
    assert saved is not None
    assert {sample.kind for sample in saved.samples} == {"F", "B"}
