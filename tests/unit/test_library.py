"""The library's face: a profile and a schedule in, seconds, watts and joules out."""

import copy
import csv
import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import perseus_dist
from perseus_dist import Frontier, Schedule
from perseus_dist.cli import main
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.plan import plan_for_deadline, plan_for_straggler
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.schedule import gpipe, interleaved, joint_exchanges, one_f_one_b
from perseus_dist.units import PS_PER_MS, UW_PER_W

PROFILE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
SCHEDULE = Schedule.one_f_one_b(pp=4, microbatches=6)
CORE = plan_frontier(
    make_problem(one_f_one_b(pp=4, microbatches=6), read_profile(PROFILE), blocking_uw_of_rank=[80 * UW_PER_W] * 4)
)


@pytest.fixture(scope="module")
def frontier() -> Frontier:
    return perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=80)


def test_a_frontier_is_the_planning_core_s_in_seconds_and_joules(frontier: Frontier) -> None:
    assert frontier.times_s.tolist() == (CORE.time_ps[CORE.deadline_points] / 1e12).tolist()
    assert frontier.energies_j.tolist() == (CORE.total_uj[CORE.deadline_points] / 1e6).tolist()
    assert (frontier.lower_bounds_j <= frontier.energies_j).all()
    assert (frontier.fastest_s, frontier.t_star_s) == (frontier.times_s[0], frontier.times_s[-1])
    assert len(frontier) == len(frontier.times_s) > 100
    assert (frontier.fastest.time_s, frontier.least_energy.time_s) == (frontier.fastest_s, frontier.t_star_s)
    assert frontier.t_min_s == frontier.all_max.time_s >= frontier.fastest_s
    assert (frontier.all_max.time_s, frontier.all_max.energy_j) == (
        CORE.baseline.time_ps / 1e12,
        CORE.baseline.total_uj / 1e6,
    )
    assert (frontier.all_max.saving_percent, frontier.all_max.slowdown_percent) == (0, 0)


@pytest.mark.parametrize("profile", [PROFILE, str(PROFILE), perseus_dist.read_profile(PROFILE), read_profile(PROFILE)])
@pytest.mark.parametrize("power_w", [80, 80.0, np.float32(80), [80] * 4, (80, 80, 80, 80), np.full(4, 80)])
def test_arguments_may_be_of_any_type_that_makes_sense(frontier: Frontier, profile: str, power_w: float) -> None:
    same = perseus_dist.plan(profile, SCHEDULE, blocking_power_w=power_w)
    assert same.energies_j.tolist() == frontier.energies_j.tolist()


def test_every_argument_of_plan_counts() -> None:
    schedule = Schedule.one_f_one_b(pp=4, microbatches=2)
    powers_w = [60.0, 70.0, 80.0, 90.0]
    seen = []

    def progress(phase: str, done: float) -> None:
        seen.append((phase, done))

    frontier = perseus_dist.plan(
        PROFILE,
        schedule,
        blocking_power_w=powers_w,
        tensor_parallel=2,
        switch_latency_s=0.012,
        slowdowns=[1.03],
        deadlines_s=(0.7,),
        progress=progress,
    )
    problem = make_problem(
        one_f_one_b(pp=4, microbatches=2),
        read_profile(PROFILE),
        blocking_uw_of_rank=[int(power_w * UW_PER_W) for power_w in powers_w],
        tensor_parallel=2,
    )
    deadlines_ps = [round(1.03 * frontier.all_max.time_s * 1e12), 700_000_000_500]
    expected = plan_frontier(problem, switch_latency_ps=12 * PS_PER_MS, deadlines_ps=deadlines_ps)
    assert frontier.times_s.tolist() == (expected.time_ps[expected.deadline_points] / 1e12).tolist()
    assert frontier.energies_j.tolist() == (expected.total_uj[expected.deadline_points] / 1e6).tolist()
    assert "tensor parallel 2, 12 ms per clock change" in frontier.summary()
    assert all(0 <= done <= 1 for _, done in seen)


def test_at_finds_what_the_planning_core_finds(frontier: Frontier) -> None:
    all_max_ps = CORE.baseline.time_ps
    for plan, expected in (
        (frontier.at(slowdown=1.05), plan_for_deadline(CORE, round(1.05 * all_max_ps))),
        (frontier.at(deadline_s=1.3), plan_for_deadline(CORE, 1_300_000_000_500)),
        (frontier.at(straggler_s=1.9), plan_for_straggler(CORE, 1_900_000_000_500)),
    ):
        assert plan.time_s == expected.execution.time_ps / 1e12
        assert plan.energy_j == expected.energy_uj / 1e6
        assert list(plan.clocks_mhz.values()) == expected.execution.clocks_mhz.tolist()
        assert plan.gap_percent == pytest.approx(100 * (plan.energy_j / plan.lower_bound_j - 1))
        assert plan.clock_changes == tuple(expected.execution.changes.tolist())


def test_a_plan_that_waits_for_a_straggler_says_so(frontier: Frontier) -> None:
    plan = frontier.at(straggler_s=1.9)
    assert plan.straggler_s == pytest.approx(1.9)
    assert plan.average_power_w == pytest.approx(plan.energy_j / 1.9)
    assert plan.time_s > frontier.t_star_s  # waiting costs the same anyway
    assert "Energies count until the straggler's iteration ends at 1.900000 s." in plan.summary().splitlines()
    assert "ends at 1.900000 s.</p>" in plan._repr_html_()
    assert plan.saving_interval_percent is not None
    low, high = plan.saving_interval_percent
    assert f"{low:.1f} to {high:.1f}" in plan.summary()
    assert f"{low:.1f} to {high:.1f}" in plan._repr_html_()
    alone = frontier.at(slowdown=1.05)
    assert alone.straggler_s is None
    assert alone.average_power_w == pytest.approx(alone.energy_j / alone.time_s)


def test_instructions_say_what_runs_when(frontier: Frontier) -> None:
    plan = frontier.at(slowdown=1.05)
    first = plan.instructions[0]
    assert (first.pp_rank, first.instruction, first.start_s) == (0, "0F0", 0)
    assert [each.instruction for each in plan.instructions] == [str(each) for order in SCHEDULE.ranks for each in order]
    assert max(each.end_s for each in plan.instructions) == plan.time_s
    working_s = sum(each.end_s - each.start_s for each in plan.instructions)
    waiting_j = 80 * (4 * plan.time_s - working_s)
    assert sum(each.energy_j for each in plan.instructions) + waiting_j == pytest.approx(plan.energy_j)
    assert {each.instruction: each.clock_mhz for each in plan.instructions} == plan.clocks_mhz


def test_a_constant_has_no_clock(tmp_path: Path) -> None:
    rows = ["stage,instruction,frequency,time,energy", "0,load,1000,0.01,1"]
    rows += [
        f"0,{name},{clock},{100 / clock},{clock / 40}" for name in ("forward", "backward") for clock in (1000, 800)
    ]
    (tmp_path / "profile.csv").write_text("\n".join(rows))
    schedule = Schedule.from_text("0LOAD0 0F0 0B0")
    plan = perseus_dist.plan(tmp_path / "profile.csv", schedule, blocking_power_w=5).fastest
    assert plan.clocks_mhz == {"0LOAD0": None, "0F0": 1000, "0B0": 1000}


def test_files_are_those_of_the_command_line(tmp_path: Path) -> None:
    given = ("--schedule", "1f1b", "--pp", "4", "--microbatches", "6", "--blocking-power-w", "80", "--slowdown", "1.05")
    assert main(["plan", str(PROFILE), *given, "--out", str(tmp_path / "cli")]) == 0
    planned = perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=80, slowdowns=[1.05])
    plan = planned.at(slowdown=1.05)
    plan.save(tmp_path / "plan.json")
    planned.save(str(tmp_path / "frontier.csv"))
    planned.save(tmp_path / "frontier.npz")
    for name in ("plan.json", "frontier.csv"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "cli" / name).read_bytes()
    assert json.loads((tmp_path / "plan.json").read_text()) == plan.to_dict()
    for folder in (tmp_path, tmp_path / "cli"):
        loaded = perseus_dist.load_frontier(folder / "frontier.npz")
        assert loaded.at(slowdown=1.05).clocks_mhz == plan.clocks_mhz
        assert loaded.energies_j.tolist() == planned.energies_j.tolist()
    plan.save_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_summaries_and_pictures_are_plain_text_html_and_figures(frontier: Frontier) -> None:
    plan = frontier.at(slowdown=1.05)
    profile = perseus_dist.read_profile(PROFILE)
    comparison = perseus_dist.compare(frontier)
    job, undisturbed = (
        perseus_dist.emulate(frontier, pipelines=2, stragglers=stragglers) for stragglers in ([1.1, 1.2], [])
    )
    shown = (frontier, plan, profile, SCHEDULE, comparison, job)
    for each in (*shown, undisturbed):
        text, html = each.summary(), each._repr_html_()
        assert "\x1b" not in text
        assert not any(line != line.rstrip() for line in text.splitlines())
        assert html.startswith(("<table>", "<p>"))
        assert html.count("<table>") == html.count("</table>") >= 1
        assert "\n" not in repr(each)
    for figure in (frontier.plot(chosen=plan, title="a & b"), *(each.plot(title="a & b") for each in shown)):
        assert figure._repr_svg_().startswith("<?xml")  # type: ignore[attr-defined]
    assert [each._repr_html_().count("<img ") for each in shown] == [1] * len(shown)
    assert "<img " not in undisturbed._repr_html_()
    with pytest.raises(ValueError, match="plot: saw an emulation without stragglers"):
        undisturbed.plot()
    for each in shown:
        with pytest.raises(ValueError, match="title: saw 3, expected a text"):
            each.plot(title=3)  # type: ignore[arg-type]


def test_a_schedule_is_shown_without_a_profile() -> None:
    lines = Schedule.one_f_one_b(pp=2, microbatches=3).summary().splitlines()
    assert [line.split() for line in lines[-2:]] == [["0", "0", "6", "2", "25.0"], ["1", "1", "6", "1", "25.0"]]
    (ax,) = Schedule.one_f_one_b(pp=2, microbatches=3).plot().axes
    assert ax.get_xlim() == (0, 12)  # F0 on both, then three times F and B on the last, and B0 on the first
    assert [text.get_text() for text in ax.texts] == list("010212001122")
    uneven = Schedule.from_text("0LOAD0 0F0 1F0 1B0 0B0 0STEP\n2F0 2I0 2W0")
    assert [line.split()[-2:] for line in uneven.summary().splitlines()[-2:]] == [["2", "25.0"], ["1", "62.5"]]
    assert "<img " in uneven._repr_html_()
    idle = Schedule.interleaved(pp=4, microbatches=8, chunks=2).summary().splitlines()
    assert [line.split()[-1] for line in idle[-4:]] == ["15.8"] * 4  # 3 of 19: (pp - 1) / (chunks * m + pp - 1)


def test_a_profile_is_drawn_by_instruction_and_stage(tmp_path: Path) -> None:
    profile = perseus_dist.read_profile(PROFILE)
    figure = profile.plot()
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["forward", "backward", "", ""]
    assert [len(ax.lines) for ax in figure.axes] == [4] * 4
    found = profile.measurements[0, "F"]
    drawn = figure.axes[0].lines[0].get_xydata()
    np.testing.assert_array_equal(drawn, np.stack([found.clocks_mhz, found.times_s[0]], axis=1))
    rows = [f"{stage},load,1000,0.01,1" for stage in range(9)]
    rows += [f"{stage},{name},{mhz},0.01,1" for stage in range(9) for name in ("forward", "backward") for mhz in (9, 8)]
    (tmp_path / "stages.csv").write_text("\n".join(["stage,instruction,frequency,time,energy", *rows]))
    many = perseus_dist.read_profile(tmp_path / "stages.csv").plot().axes
    assert len(many) == 7
    assert many[-1].get_ylabel() == "stage"


def test_comparisons_and_emulations_are_saved(frontier: Frontier, tmp_path: Path) -> None:
    comparison = perseus_dist.compare(frontier, slowdown=1.05)
    comparison.save(tmp_path / "comparison.csv")
    with (tmp_path / "comparison.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [plan.name for plan in comparison.plans]
    assert [float(row["energy_j"]) for row in rows] == [plan.energy_j for plan in comparison.plans]
    comparison.save(str(tmp_path / "comparison.json"))
    document = json.loads((tmp_path / "comparison.json").read_text())
    assert document["plans"] == [plan._asdict() for plan in comparison.plans]
    assert {name: len(sweep) for name, sweep in document["sweeps"].items()} == {
        name: len(sweep) for name, sweep in comparison.sweeps.items()
    }
    job = perseus_dist.emulate(frontier, pipelines=8, stragglers=[1.1])
    job.save(tmp_path / "emulation.json")
    document = json.loads((tmp_path / "emulation.json").read_text())
    assert document["stragglers"] == [each._asdict() for each in job.stragglers]
    assert (document["num_gpus"], len(document["plans"])) == (32, 3)
    for each, name in ((comparison, "comparison.txt"), (job, "emulation.csv")):
        with pytest.raises(ValueError, match=f"path: saw '{name}', expected a name that ends in .*json; rename it"):
            each.save(name)


def test_pictures_go_into_axes_and_figures_that_are_given(frontier: Frontier) -> None:
    figure = Figure(figsize=(8, 5))
    assert frontier.plot(ax=figure.add_axes((0.1, 0.1, 0.8, 0.7))) is figure
    empty = Figure(figsize=(12, 6))
    assert frontier.fastest.plot(fig=empty) is empty
    assert empty.axes


def test_without_matplotlib_tables_remain(frontier: Frontier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    job = perseus_dist.emulate(frontier, pipelines=2, stragglers=1.1)
    shown = (
        frontier,
        frontier.fastest,
        perseus_dist.read_profile(PROFILE),
        SCHEDULE,
        perseus_dist.compare(frontier),
        job,
    )
    for draw in [each.plot for each in shown]:
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'perseus-dist\[report\]'"):
            draw()
    assert "<img" not in "".join(each._repr_html_() for each in shown)


def test_schedules_are_the_planning_core_s(tmp_path: Path) -> None:
    for schedule, expected in (
        (Schedule.gpipe(pp=2, microbatches=3), gpipe(pp=2, microbatches=3)),
        (Schedule.one_f_one_b(pp=3, microbatches=4), one_f_one_b(pp=3, microbatches=4)),
        (
            Schedule.interleaved(pp=2, microbatches=4, chunks=2, microbatch_group_size=4),
            interleaved(pp=2, microbatches=4, chunks=2, microbatch_group_size=4),
        ),
        (
            Schedule.interleaved(pp=2, microbatches=4, chunks=2, overlap_p2p=False),
            joint_exchanges(interleaved(pp=2, microbatches=4, chunks=2)),
        ),
    ):
        assert (schedule.ranks, schedule.joint, schedule.digest()) == (
            expected.ranks,
            expected.joint,
            expected.digest(),
        )
        assert Schedule.from_text(str(schedule)) == schedule
        schedule.save(tmp_path / "orders.txt")
        assert Schedule.read(tmp_path / "orders.txt") == schedule
    uneven = Schedule.from_text("0F0 1F0 1B0 0B0\n2F0 2B0")
    assert repr(uneven) == "<Schedule: 2 pp_ranks with 3 stages, 1 microbatches>"


def test_processes_can_hand_everything_to_each_other(frontier: Frontier) -> None:
    again = pickle.loads(pickle.dumps(frontier))
    assert again.energies_j.tolist() == frontier.energies_j.tolist()
    for plan in (frontier.all_max, frontier.fastest, frontier.at(slowdown=1.05), frontier.at(straggler_s=1.9)):
        same = pickle.loads(pickle.dumps(plan))
        assert (same.to_dict(), same.instructions) == (plan.to_dict(), plan.instructions)
    for each in (SCHEDULE, perseus_dist.compare(frontier), perseus_dist.emulate(frontier, pipelines=2)):
        assert str(pickle.loads(pickle.dumps(each))) == str(each)
    assert copy.deepcopy(SCHEDULE) == SCHEDULE


def test_a_profile_is_saved_as_it_was_read(tmp_path: Path) -> None:
    profile = perseus_dist.read_profile(PROFILE)
    profile.save(tmp_path / "copy.csv")
    copy = perseus_dist.read_profile(str(tmp_path / "copy.csv"))
    assert copy.summary() == profile.summary()
    for key, found in profile.measurements.items():
        assert copy.measurements[key].times_s.tolist() == found.times_s.tolist()
    assert repr(copy) == "<Profile copy.csv: 4 stages, 8 instructions, 855-1410 MHz>"


def test_a_profile_with_transfers_says_the_clocks_of_computations(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    path.write_text(PROFILE.read_text() + "0,send_f,0,0.002,0\n0,between_iterations,,0.1,\n")
    assert repr(perseus_dist.read_profile(path)) == "<Profile profile.csv: 4 stages, 10 instructions, 855-1410 MHz>"


def test_comparison_is_that_of_the_command_line(frontier: Frontier, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--schedule", "1f1b", "--pp", "4", "--microbatches", "6", "--blocking-power-w", "80")
    assert main(["compare", str(PROFILE), *given, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    comparison = perseus_dist.compare(frontier)
    assert [plan._asdict() for plan in comparison.plans] == document["plans"]
    assert {name: [plan._asdict() for plan in sweep] for name, sweep in comparison.sweeps.items()} == document["sweeps"]
    assert comparison["envpipe"].name == "EnvPipe"
    assert "envpipe" in comparison
    assert "zeus" not in comparison
    assert [comparison[key] for key in comparison] == list(comparison.plans)
    assert len(comparison) == len(comparison.plans)
    with pytest.raises(KeyError, match="saw 'zeus', expected one of all_max, zeus_global"):
        comparison["zeus"]
    by_factor, by_time = (
        perseus_dist.compare(frontier, slowdown=1.1),
        perseus_dist.compare(frontier, deadline_s=1.1 * frontier.all_max.time_s),
    )
    assert by_factor["perseus_deadline"] == by_time["perseus_deadline"]
    assert 5 < by_factor["zeus_per_stage"].slowdown_percent <= 10


def test_emulation_is_that_of_the_command_line(frontier: Frontier, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--schedule", "1f1b", "--pp", "4", "--microbatches", "6", "--blocking-power-w", "80")
    assert main(["emulate", str(PROFILE), *given, "--pipelines", "8", "--straggler", "1.1,1.3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    planned = perseus_dist.plan(PROFILE, SCHEDULE, blocking_power_w=80, slowdowns=[1.1, 1.3])
    job = perseus_dist.emulate(planned, pipelines=8, stragglers=[1.1, 1.3])
    assert [each._asdict() for each in job.plans] == document["plans"]
    assert [each._asdict() for each in job.stragglers] == document["stragglers"]
    assert (job.num_pipelines, job.num_gpus) == (document["pipelines"], document["num_gpus"]) == (8, 32)
    assert len(perseus_dist.emulate(frontier, pipelines=8, stragglers=1.1).stragglers) == 1
    assert job._repr_html_().count("<table>") == 2
    assert perseus_dist.emulate(frontier, pipelines=8)._repr_html_().count("<table>") == 1
