"""All-max where computations of a pp_rank have different maximum clocks: changes between them take the latency."""

from pathlib import Path

import numpy as np
import pytest

import perseus_dist
from perseus_dist import Schedule
from perseus_dist.cli import main
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.noise_margin import margin_for, plan_with_margin
from perseus_dist.planning.frontier.noisy_replay import NoisyReplay
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.units import PS_PER_MS, UW_PER_W

SCHEDULE = Schedule.one_f_one_b(pp=2, microbatches=4)
LATENCY_MS = 10


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Forwards at 1410 MHz and below, backwards at 1365 MHz and below."""
    rows = ["stage,instruction,frequency,time,energy"]
    for stage in range(2):
        for name, time_s, highest in (("forward", 0.03, 1410), ("backward", 0.06, 1365)):
            for clock in range(highest, 700, -45):
                share = clock / 1410
                rows.append(f"{stage},{name},{clock},{time_s / share},{time_s / share * (100 + 300 * share**3)}")
    path = tmp_path / "profile.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_the_time_of_all_max_can_be_met(profile: Path, tmp_path: Path) -> None:
    frontier = perseus_dist.plan(profile, SCHEDULE, blocking_power_w=80, switch_latency_s=LATENCY_MS / 1e3)
    free = perseus_dist.plan(profile, SCHEDULE, blocking_power_w=80)
    assert sum(frontier.all_max.clock_changes) > 0
    assert free.t_min_s < frontier.t_min_s
    assert frontier.at(slowdown=1.0).time_s <= frontier.t_min_s
    assert "all-max" in frontier.summary()
    assert perseus_dist.compare(frontier)["perseus_all_max_time"].saving_percent > 0
    assert perseus_dist.emulate(frontier, pipelines=2, stragglers=1.2).stragglers[0].slowdown_percent == 0
    frontier.save(tmp_path / "frontier.npz")
    assert perseus_dist.load_frontier(tmp_path / "frontier.npz").t_min_s == frontier.t_min_s


def test_a_latency_counts_in_all_max_whoever_says_it(profile: Path) -> None:
    said = perseus_dist.plan(profile, SCHEDULE, blocking_power_w=80, switch_latency_s=LATENCY_MS / 1e3)
    with profile.open("a") as file:
        for stage in range(2):
            file.writelines(f"{stage},clock_change,{clock},{LATENCY_MS / 1e3},\n" for clock in range(1410, 700, -45))
    measured = perseus_dist.plan(profile, SCHEDULE, blocking_power_w=80)
    assert (said.t_min_s, said.all_max.energy_j) == (measured.t_min_s, measured.all_max.energy_j)


@pytest.mark.parametrize("command", [["plan"], ["compare"], ["emulate", "--pipelines", "2"]])
def test_commands_need_no_deadline(command: list[str], profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--schedule", "1f1b", "--pp", "2", "--microbatches", "4", "--blocking-power-w", "80"]
    assert main([*command[:1], str(profile), *options, "--switch-latency-ms", str(LATENCY_MS), *command[1:]]) == 0
    assert capsys.readouterr().err == ""


def test_plans_with_a_margin_for_noise_are_held_against_the_same(profile: Path) -> None:
    problem = make_problem(SCHEDULE, read_profile(profile), blocking_uw_of_rank=[80 * UW_PER_W] * 2)
    latency_ps = LATENCY_MS * PS_PER_MS
    bare = plan_frontier(problem, switch_latency_ps=latency_ps, num_points=8)
    stretched = plan_with_margin(
        problem, 0.1, lambda one: plan_frontier(one, switch_latency_ps=latency_ps, num_points=8)
    )
    assert stretched.baseline.time_ps == bare.baseline.time_ps
    assert stretched.point_for_deadline(stretched.baseline.time_ps) >= 0


def test_a_margin_for_noise_is_found_where_all_max_changes_clocks(profile: Path) -> None:
    header, *rows = profile.read_text().splitlines()
    noisy = [f"{row},64,{float(row.split(',')[3]) * 0.03}" for row in rows]
    profile.write_text("\n".join([f"{header},samples,time_std", *noisy]) + "\n")
    problem = make_problem(SCHEDULE, read_profile(profile), blocking_uw_of_rank=[80 * UW_PER_W] * 2)
    latency_ps = LATENCY_MS * PS_PER_MS
    assert margin_for(problem, switch_latency_ps=latency_ps).noise > 0
    at_max = np.zeros(problem.num_instructions, dtype=np.int32)
    assert NoisyReplay(problem, switch_latency_ps=latency_ps).lateness(at_max) == pytest.approx(0, abs=1e-9)
