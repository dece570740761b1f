"""The report's parts, on small folders written by hand."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus_dist.errors import OutputError
from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.job_status import MeasuredIterations
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b
from perseus_dist.report.analysis.iterations import Iterations, Under, iterations_of, summed_up
from perseus_dist.report.analysis.measured_execution import execution_of, kept_pipelines
from perseus_dist.report.page.picture import inline_picture
from perseus_dist.report.plots.iterations_plot import MAX_POINTS, plot_iterations
from perseus_dist.report.plots.theme import figure_bytes
from perseus_dist.report.run_report import build_report, summary_text, write_report
from perseus_dist.runlog.files import RunFiles, read_run
from perseus_dist.runlog.job import RunFilesError
from perseus_dist.runlog.json_fields import Fields, FieldsError

SCHEDULE = "0LOAD0 0F0 0B0 0STEP\n1F0 1B0 1STEP\n"
MS = 1_000_000
HOST_NS = 10**18

# Of pp_rank 0 and 1: chunk, kind, microbatch, begin [ms], end [ms].
RUNS = (
    ((0, "LOAD", 0, 0, 5), (0, "F", 0, 5, 45), (0, "B", 0, 160, 240), (0, "STEP", -1, 240, 250)),
    ((0, "F", 0, 45, 85), (0, "B", 0, 85, 160), (0, "STEP", -1, 160, 170)),
)
PHASES = ("warming_up", "profiling", "planning", "enforcing", "done")


def kept(pp_rank: int, iteration: int, *, point: int = -1, shift_ns: int = 0, clock_mhz: int = 1410) -> dict[str, Any]:
    begin_ns = iteration * 250 * MS + shift_ns
    return {
        "iteration": iteration,
        "table_revision": 0 if point < 0 else 1,
        "point": point,
        "begin_ns": begin_ns,
        "end_ns": begin_ns + 250 * MS,
        "planned_clocks_mhz": None if point < 0 else [clock_mhz] * len(RUNS[pp_rank]),
        "runs": [
            [chunk, kind, microbatch, begin_ns + begin * MS, begin_ns + end * MS, 0, clock_mhz]
            for chunk, kind, microbatch, begin, end in RUNS[pp_rank]
        ],
    }


def header(rank: int, *, pp_rank: int | None = None, tp_rank: int = 0, offset_ns: int = HOST_NS) -> dict[str, Any]:
    return {
        "rank": rank,
        "pp_rank": rank if pp_rank is None else pp_rank,
        "dp_rank": 0,
        "tp_rank": tp_rank,
        "wall_minus_monotonic_ns": offset_ns,
        "gpu": {"uuid": f"GPU-{rank}", "name": "NVIDIA H100", "control": "clockd", "refusal": ""},
        "simulated": False,
        "switch_latency_s": 0.01,
    }


def job(**changes: Any) -> dict[str, Any]:
    document = {
        "job_id": "gpt <1>",
        "phase": "done",
        "reason": "every rank's trainer has ended",
        "schedule": SCHEDULE,
        "pp_size": 2,
        "dp_size": 1,
        "tp_size": 1,
        "num_ranks": 2,
        "target": "t_min",
        "simulated": False,
        "started_at": "2026-09-21T14:13:20.000+00:00",
        "updated_at": "2026-09-21T15:15:20.000+00:00",
        "phases": [
            {"phase": phase, "reason": phase, "at": f"2026-09-21T14:13:2{i}+00:00"} for i, phase in enumerate(PHASES)
        ],
        "baseline": {"num_iterations": 0},
        "enforced": {"num_iterations": 0},
        "troubles": [],
        "pipelines": [],
    }
    return document | changes


def write(folder: Path, name: str, *lines: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def reports(num: int, *, planned_from: int, energy_j: float = 100.0) -> list[dict[str, Any]]:
    return [
        {
            "iteration": iteration,
            "time_s": 0.25,
            "pipeline_time_s": 0.25,
            "energy_j": energy_j * (0.9 if iteration >= planned_from else 1),
            "table_revision": int(iteration >= planned_from),
            "point": 7 if iteration >= planned_from else -1,
        }
        for iteration in range(num)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """20 iterations: 0-8 free, 9-13 profiling, the plan from 14 on."""
    write(tmp_path, "job.json", job())
    for rank in range(2):
        write(tmp_path, f"rank-{rank}.jsonl", *reports(20, planned_from=14))
        planned = [kept(rank, iteration, point=7, clock_mhz=1200) for iteration in (18, 19)]
        write(tmp_path, f"timeline-{rank}.jsonl", header(rank), kept(rank, 7), kept(rank, 8), *planned)
    return tmp_path


def under(run: RunFiles) -> list[int]:
    return list(map(int, iterations_of(run, range(run.job.num_ranks)).under))


@pytest.mark.parametrize("last_kept", [4, 8])
def test_iterations_are_free_as_long_as_the_rank_that_is_swept_first_says(folder: Path, last_kept: int) -> None:
    """Rank 1 keeps later iterations without a clock, one of them after rank 0's plan began."""
    planned = [kept(0, iteration, point=7, clock_mhz=1200) for iteration in (18, 19)]
    write(folder, "timeline-0.jsonl", header(0), kept(0, last_kept), *planned)
    write(folder, "timeline-1.jsonl", header(1), kept(1, 10), kept(1, 15))
    expected = [Under.NO_CLOCK] * (last_kept + 1) + [Under.SWEEP] * (13 - last_kept) + [Under.PLAN] * 6
    assert under(read_run(folder)) == expected


@pytest.mark.parametrize(("num_free", "expected"), [(3, []), (4, [3]), (5, [3, 4])])
def test_the_first_iterations_are_no_baseline_of_a_plan(folder: Path, num_free: int, expected: list[int]) -> None:
    for rank in range(2):
        planned = kept(rank, 19, point=7, clock_mhz=1200)
        write(folder, f"timeline-{rank}.jsonl", header(rank), kept(rank, num_free - 1), planned)
    iterations = iterations_of(read_run(folder), range(2))
    assert iterations.number[iterations.is_baseline].tolist() == expected


@pytest.mark.parametrize(("num_free", "expected"), [(1, [0]), (3, [2]), (4, [3]), (6, [3, 4, 5])])
def test_without_a_plan_some_iteration_is_the_baseline(folder: Path, num_free: int, expected: list[int]) -> None:
    write(folder, "job.json", job(phases=[{"phase": "observing", "reason": "", "at": ""}]))
    for rank in range(2):
        write(folder, f"rank-{rank}.jsonl", *reports(num_free, planned_from=99))
        write(folder, f"timeline-{rank}.jsonl", header(rank))
    iterations = iterations_of(read_run(folder), range(2))
    assert iterations.number[iterations.is_baseline].tolist() == expected


def test_a_name_that_is_no_text_leaves_the_page_readable(folder: Path) -> None:
    write(folder, "job.json", job(job_id="run \udcff"))
    write_report(build_report(folder), folder)
    assert "run \\udcff" in (folder / "report.html").read_text()


def write_tokens(folder: Path, *tokens: float) -> None:
    for rank, told in enumerate(tokens):
        lines = [{**line, "tokens": told} for line in reports(20, planned_from=14)]
        write(folder, f"rank-{rank}.jsonl", *lines)


def test_energy_is_told_per_token_where_tokens_are_known(folder: Path) -> None:
    write_tokens(folder, 4000.0, 0.0)  # one that does not say takes nothing away
    report = write_report(build_report(folder), folder)
    document = json.loads((folder / "report.json").read_text())
    assert document["baseline"]["energy_per_token_j"] == pytest.approx(200 / 4000)
    assert document["planned"]["energy_per_token_j"] == pytest.approx(180 / 4000)
    sentence = "energy per token: 0.045 J under the plan, 0.05 J at the baseline"
    assert sentence in summary_text(report)
    assert sentence in (folder / "report.html").read_text()


@pytest.mark.parametrize("name", ["report.html", "frontier.svg"])
def test_a_folder_where_a_file_of_the_report_would_be_is_named(folder: Path, name: str) -> None:
    """Of this run there is no frontier, and so no picture of one: what an earlier report has left would go."""
    (folder / name).mkdir()
    with pytest.raises(OutputError, match=f"{name}: cannot be written .Is a directory.; expected a file name"):
        write_report(build_report(folder), folder)


@pytest.mark.parametrize("tokens", [(0.0, 0.0), (4000.0, 4096.0)])
def test_energy_is_not_told_per_token_where_ranks_do_not_agree_on_them(
    folder: Path, tokens: tuple[float, float]
) -> None:
    write_tokens(folder, *tokens)
    report = write_report(build_report(folder), folder)
    document = json.loads((folder / "report.json").read_text())
    assert document["baseline"]["energy_per_token_j"] is document["planned"]["energy_per_token_j"] is None
    assert "per token" not in summary_text(report) + (folder / "report.html").read_text()


def test_iterations_know_what_they_ran_under(folder: Path) -> None:
    run = read_run(folder)
    assert run.notes == ()
    iterations = iterations_of(run, [0, 1])
    assert iterations.under.tolist() == [Under.NO_CLOCK] * 9 + [Under.SWEEP] * 5 + [Under.PLAN] * 6
    assert np.flatnonzero(iterations.is_baseline).tolist() == [3, 4, 5, 6, 7, 8]
    assert np.flatnonzero(iterations.is_in_force).tolist() == [14, 15, 16, 17, 18, 19]
    assert summed_up(iterations, iterations.is_baseline).energy_j == 200
    assert summed_up(iterations, iterations.is_in_force).energy_j == pytest.approx(180)


def test_a_run_without_a_baseline_says_so_and_compares_nothing(folder: Path) -> None:
    """The plan of an earlier run came into force with the first iteration that was seen live."""
    for rank in range(2):
        write(folder, f"rank-{rank}.jsonl", *reports(20, planned_from=0))
    report = build_report(folder)
    assert (report.saving_percent, report.slowdown_percent) == (None, None)
    assert any("this run has no baseline" in note for note in report.notes)
    assert "note: this run has no baseline" in summary_text(report)
    write_report(report, folder)
    assert "this run has no baseline" in (folder / "report.html").read_text()


@pytest.mark.parametrize("is_energy_told", [False, True])
def test_a_plan_that_came_shortly_before_the_end_hides_no_saving(folder: Path, *, is_energy_told: bool) -> None:
    """Planned again by what transfers took, two iterations before the end; no reading of energy lay between them."""
    lines = reports(20, planned_from=14)
    for line in lines[18:]:
        line |= {"table_revision": 2, "energy_j": 80.0 if is_energy_told else None}
    for rank in range(2):
        write(folder, f"rank-{rank}.jsonl", *lines)
    energy_j = 160.0 if is_energy_told else 0.0
    write(folder, "job.json", job(enforced={"num_iterations": 2, "time_s": 0.25, "energy_j": energy_j}))
    report = build_report(folder)
    assert report.is_planned
    assert report.saving_percent == pytest.approx(20 if is_energy_told else 10)
    assert report.slowdown_percent == 0
    assert any("those of the plan before" in note for note in report.notes) is not is_energy_told


@pytest.mark.parametrize(("spread_s", "is_marked"), [(0.01, False), (0.03, True)])
def test_a_baseline_whose_iterations_spread_widely_is_marked(folder: Path, spread_s: float, *, is_marked: bool) -> None:
    measured = {"num_iterations": 15, "time_s": 0.25, "time_spread_s": spread_s, "energy_j": 200.0}
    write(folder, "job.json", job(baseline=measured))
    notes = build_report(folder).notes
    assert any("the baseline's iterations spread by 12 %" in note for note in notes) is is_marked


def test_without_a_plan_or_a_sweep_all_iterations_are_the_baseline(folder: Path) -> None:
    write(folder, "job.json", job(phases=[{"phase": "observing", "reason": "", "at": ""}]))
    for rank in range(2):
        write(folder, f"rank-{rank}.jsonl", *reports(20, planned_from=99))
    run = read_run(folder)
    assert set(under(run)) == {Under.NO_CLOCK}
    assert build_report(folder).baseline.num_iterations == 17


def test_a_plan_that_was_taken_back_shows(folder: Path) -> None:
    lines = reports(20, planned_from=14)
    lines[18] |= {"table_revision": 0, "point": -1}
    for rank in range(2):
        write(folder, f"rank-{rank}.jsonl", *lines)
    assert under(read_run(folder))[14:] == [Under.PLAN] * 4 + [Under.RELEASED, Under.PLAN]


def test_only_whole_iterations_count_and_unknown_energies_stay_unknown(folder: Path) -> None:
    lines = reports(20, planned_from=14)
    lines[5]["energy_j"] = None
    write(folder, "rank-1.jsonl", *lines[1:])
    iterations = iterations_of(read_run(folder), [0, 1])
    assert iterations.number.tolist() == list(range(1, 20))
    assert np.isnan(iterations.energy_j).tolist() == [number == 5 for number in range(1, 20)]


def test_a_report_of_weeks_keeps_begin_and_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_dist.runlog.files._MIN_LINES_PER_RANK", 6)
    monkeypatch.setattr("perseus_dist.runlog.files._MAX_LINES", 12)
    run = read_run(folder)
    assert [report.iteration for report in run.iterations[0]] == [0, 1, 2, 17, 18, 19]
    assert run.notes == (
        "this run is long: figures of single iterations are of its begin, its end and a sample between",
    )


def executions(folder: Path) -> list[Any]:
    run = read_run(folder)
    found = kept_pipelines(run)
    assert found.notes == ()
    assert found.dag is not None
    measured = iterations_of(run, sorted(run.iterations))
    return [execution_of(found.dag, ranks, measured) for ranks in found.iterations[0]]


def test_a_kept_iteration_becomes_an_execution(folder: Path) -> None:
    baseline, *_, planned = executions(folder)
    assert [str(one) for one in baseline.dag.instructions][:4] == ["0LOAD0", "0F0", "0B0", "0STEP"]
    assert (baseline.start_ps // 10**9).tolist() == [0, 5, 160, 240, 45, 85, 160]
    assert (baseline.end_ps // 10**9).tolist() == [5, 45, 240, 250, 85, 160, 170]
    assert baseline.clocks_mhz.tolist() == [0, 1410, 1410, 0, 1410, 1410, 0]
    assert planned.clocks_mhz.tolist() == [0, 1200, 1200, 0, 1200, 1200, 0]
    assert baseline.time_ps == 250 * 10**9
    assert baseline.total_uj == 200 * 10**6
    assert planned.total_uj == 180 * 10**6


def test_ranks_of_other_hosts_are_shifted_onto_one_clock(folder: Path) -> None:
    before = executions(folder)[0]
    booted_earlier_ns = 5_000_000_000
    lines = [kept(1, iteration, shift_ns=booted_earlier_ns) for iteration in (7, 8)]
    write(folder, "timeline-1.jsonl", header(1, offset_ns=HOST_NS - booted_earlier_ns), *lines)
    after = executions(folder)[0]
    assert after.start_ps.tolist() == before.start_ps.tolist()
    # On one host the offsets differ only because they were read at different moments.
    write(folder, "timeline-1.jsonl", header(1, offset_ns=HOST_NS + 3_000), *(kept(1, i) for i in (7, 8)))
    assert executions(folder)[0].start_ps.tolist() == before.start_ps.tolist()


def test_unknown_clocks_are_those_before_and_silent_constants_take_no_time(folder: Path) -> None:
    line = kept(0, 7)
    line["runs"][1][6] = 0  # the forward's clock was not seen
    del line["runs"][3]  # STEP is not reported
    write(folder, "timeline-0.jsonl", header(0), line)
    (execution,) = executions(folder)
    assert execution.clocks_mhz.tolist()[:4] == [0, 1410, 1410, 0]
    assert execution.start_ps[3] == execution.end_ps[3] == execution.end_ps[2]


def test_a_tensor_parallel_group_is_one(folder: Path) -> None:
    write(folder, "job.json", job(tp_size=2, num_ranks=4))
    for rank in range(4):
        line = kept(rank // 2, 7, clock_mhz=1410 - 30 * (rank % 2))
        for run in line["runs"]:
            run[4] += 2 * MS * (rank % 2)
        write(folder, f"rank-{rank}.jsonl", *reports(20, planned_from=14))
        write(folder, f"timeline-{rank}.jsonl", header(rank, pp_rank=rank // 2, tp_rank=rank % 2), line)
    (execution,) = executions(folder)
    assert (execution.end_ps // 10**9).tolist()[1] == 47
    assert execution.clocks_mhz.tolist()[1] == 1380
    assert execution.total_uj == 400 * 10**6


def test_runs_that_do_not_fit_the_schedule_are_left_out(folder: Path) -> None:
    line = kept(0, 7)
    line["runs"][1][2] = 5
    write(folder, "timeline-0.jsonl", header(0), line, kept(0, 8))
    found = kept_pipelines(read_run(folder))
    assert [ranks[0].kept.iteration for ranks in found.iterations[0]] == [8]
    assert "microbatch 5, is not in the schedule" in found.notes[0]
    write(folder, "job.json", job(schedule="0F0 0B0\n"))
    assert "1 pp_ranks, the job 2" in kept_pipelines(read_run(folder)).notes[0]
    write(folder, "job.json", job(schedule="nonsense"))
    assert "the schedule in job.json" in kept_pipelines(read_run(folder)).notes[0]


def test_energy_and_clocks_that_nobody_knows_are_not_invented(folder: Path) -> None:
    for rank in range(2):
        write(folder, f"rank-{rank}.jsonl", *({**line, "energy_j": None} for line in reports(20, planned_from=14)))
        write(
            folder,
            f"timeline-{rank}.jsonl",
            header(rank),
            kept(rank, 8, clock_mhz=0),
            kept(rank, 19, point=7, clock_mhz=0),
        )
    report = write_report(build_report(folder), folder)
    document = report.document()
    assert document["baseline"] == {
        "num_iterations": 6,
        "iteration_time_s": 0.25,
        "iteration_time_spread_s": 0,
        "energy_j": None,
        "energy_spread_j": None,
        "energy_per_token_j": None,
    }
    assert document["saving_percent"] is None
    assert document["slowdown_percent"] == 0
    timeline = (folder / "timeline.svg").read_text()
    assert "saving" not in timeline
    assert (folder / "report.html").exists()
    assert " 0.0" not in summary_text(report).splitlines()[3].split("0.2500")[0]


def test_the_self_check_is_in_text_page_and_document(folder: Path) -> None:
    said = "iterations under the plan take 3.0 % longer than predicted"
    figures = {"full_time_degree": 1.004, "plan_time_degree": 1.03, "plan_energy_degree": 0.995}
    write(folder, "job.json", job(**figures, troubles=[said]))
    report = write_report(build_report(folder), folder)
    measured = "at full clocks +0.4 % time; under the plan +3.0 % time and -0.5 % energy"
    line = f"self-check, measured against predicted: {measured}"
    assert line in summary_text(report).splitlines()
    assert f"trouble: {said}" in summary_text(report).splitlines()
    page = (folder / "report.html").read_text()
    assert line in page
    assert said in page
    document = json.loads((folder / "report.json").read_text())
    assert {name: document[name] for name in figures} == figures
    assert document["full_energy_degree"] is None
    assert document["troubles"] == [said]


@pytest.mark.parametrize(("num_outlasting", "is_told"), [(50, False), (51, True)])
def test_a_simulated_run_whose_host_was_too_slow_says_that_its_figures_mean_nothing(
    folder: Path, num_outlasting: int, *, is_told: bool
) -> None:
    write(folder, "job.json", job(simulated=True))
    write(folder, "simulated-0.json", {"num_instructions": 7, "num_outlasting": 0})
    write(folder, "simulated-1.json", {"num_instructions": 100, "num_outlasting": num_outlasting})
    report = write_report(build_report(folder), folder)
    said = (
        "times and energies of this simulated run mean nothing: the host's real work took longer than the simulated "
        "kernel in 51 % of the instructions of rank 1; give longer --forward-ms and --backward-ms, or train a smaller "
        "model"
    )
    assert (f"trouble: {said}" in summary_text(report).splitlines()) == is_told
    assert ("of this simulated run mean nothing" in (folder / "report.html").read_text()) == is_told
    document = json.loads((folder / "report.json").read_text())
    assert document["troubles"] == [said] * is_told
    assert document["host_outlasting_percent"] == num_outlasting


def test_a_file_of_the_hosts_pace_that_is_spoilt_is_left_out(folder: Path) -> None:
    write(folder, "job.json", job(simulated=True))
    write(folder, "simulated-1.json", {"num_instructions": 5, "num_outlasting": 6})
    report = build_report(folder)
    assert report.outlasting_percent is None
    assert any(note.startswith("simulated-1.json is left out: 'num_outlasting'") for note in report.notes)


def test_the_text_names_things_as_they_are(folder: Path) -> None:
    refused = header(1)
    refused["gpu"] |= {"control": "observe", "refusal": "GPU-1 is a MIG instance"}
    write(folder, "timeline-1.jsonl", refused, kept(1, 8))
    write(folder, "job.json", job(missed_clocks=3, troubles=["rank 0: thermal brake"]))
    report = build_report(folder, losses_equal=False, clocks_left_locked=1)
    text = summary_text(report)
    assert text.startswith("gpt <1>: 2 GPUs (NVIDIA H100), 2 pipeline stages, target T_min\n")
    assert "simulated" not in text
    for line in (
        "losses: NOT equal, bit by bit, with and without Perseus",
        "clocks left locked: 1",
        "trouble: rank 0: thermal brake",
        "trouble: rank 1: its clocks are not set: GPU-1 is a MIG instance",
        "trouble: 3 clocks came too late",
    ):
        assert line in text.splitlines()
    table = [line for line in text.splitlines() if "plan" in line.split("  ")[0] or line.startswith("measured")]
    assert len({len(line) for line in table}) == 1
    write_report(report, folder)
    page = (folder / "report.html").read_text()
    assert "gpt &lt;1&gt;" in page
    assert "gpt <1>" not in page
    assert "1 h 2 min" in page


def iterations(num: int, *, slow: int | None = None) -> Iterations:
    time_s = np.full(num, 0.25)
    if slow is not None:
        time_s[slow] = 9.0
    return Iterations(
        number=np.arange(num),
        time_s=time_s,
        own_time_s=time_s,
        energy_j=np.full(num, np.nan),
        tokens=np.full(num, np.nan),
        table_revision=np.zeros(num, dtype=np.int64),
        point=np.full(num, -1),
        under=np.full(num, Under.NO_CLOCK),
        is_in_force=np.zeros(num, dtype=bool),
    )


def test_one_slow_iteration_does_not_flatten_the_picture() -> None:
    fig = plot_iterations(iterations(50, slow=0), baseline=MeasuredIterations(time_s=0.25), title="t")
    (ax,) = fig.axes  # no energy is known, so there is no panel for it
    assert ax.get_ylim()[1] < 0.3
    beyond = [np.asarray(line.get_xdata()).tolist() for line in ax.lines if line.get_marker() == "^"]
    assert [places for places in beyond if places] == [[0]]
    figure_bytes(fig)


def test_a_million_iterations_are_as_quick_to_see() -> None:
    fig = plot_iterations(iterations(100_000), baseline=MeasuredIterations(), title="t")
    assert max(np.size(line.get_xdata()) for line in fig.axes[0].lines) <= MAX_POINTS + 1


def test_a_single_iteration_can_be_drawn() -> None:
    figure_bytes(plot_iterations(iterations(1), baseline=MeasuredIterations(), title="t"))


def test_pictures_in_a_page_share_no_id_and_follow_its_palette() -> None:
    svg = figure_bytes(plot_iterations(iterations(5), baseline=MeasuredIterations(), title="t"))
    one, other = (inline_picture(svg, name, label="x") for name in ("one", "other"))
    assert 'id="one-figure_1"' in one
    assert "one-" not in other
    assert "var(--ink)" in one
    assert "#1f2328" not in one
    assert "<style" not in one
    assert "<metadata" not in one


@pytest.mark.parametrize(
    ("document", "read"),
    [
        ({"a": True}, lambda fields: fields.whole("a")),
        ({"a": 1.5}, lambda fields: fields.whole("a")),
        ({"a": -1}, lambda fields: fields.whole("a")),
        ({}, lambda fields: fields.whole("a")),
        ({"a": float("nan")}, lambda fields: fields.real("a")),
        ({"a": 10**400}, lambda fields: fields.real("a")),
        ({"a": "1"}, lambda fields: fields.real("a")),
        ({"a": 1}, lambda fields: fields.text("a")),
        ({"a": "yes"}, lambda fields: fields.flag("a")),
        ({"a": [1]}, lambda fields: fields.texts("a")),
        ({"a": {}}, lambda fields: fields.texts("a")),
        ({"a": [1, "2"]}, lambda fields: fields.wholes_or_none("a")),
        ({"a": [[1], [1, 2]]}, lambda fields: fields.rows("a", 2)),
        ({"a": [1]}, lambda fields: fields.each("a")),
        ({"a": []}, lambda fields: fields.inner("a")),
    ],
)
def test_fields_of_another_type_are_refused_in_a_sentence(document: dict[str, Any], read: Any) -> None:
    with pytest.raises(FieldsError, match=r"saw .* expected"):
        read(Fields(document))


def test_missing_fields_are_their_defaults() -> None:
    fields = Fields({"a": None})
    assert fields.whole("a", 3) == 3
    assert fields.real_or_none("a") is None
    assert fields.wholes_or_none("b") is None
    assert fields.texts("b") == ()
    assert not fields.flag("b")


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2**70),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from([[], {}, [[]]]),
)
FILES = ("job.json", "rank-0.jsonl", "timeline-0.jsonl", "timeline-1.jsonl", "frontier.csv", "profile.csv")


@pytest.mark.parametrize("num_examples", [10, pytest.param(25, marks=pytest.mark.stress)])
def test_no_spoilt_folder_breaks_the_report(folder: Path, num_examples: int) -> None:
    whole = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    @settings(max_examples=num_examples)
    @given(st.lists(st.tuples(st.sampled_from(FILES), st.integers(0, 10**6), VALUES), min_size=1, max_size=4))
    def holds(spoils: list[tuple[str, int, Any]]) -> None:
        for path in folder.iterdir():
            path.unlink()
        for path, data in whole.items():
            path.write_bytes(data)
        (folder / "frontier.csv").write_text("time_s,energy_j,lower_bound_j\n0.25,180,179\n0.3,170,170\n")
        (folder / "profile.csv").write_text("stage,instruction,frequency,time,energy\n0,forward,1410,0.04,10\n")
        for name, place, value in spoils:
            spoil(folder / name, place, value)
        with suppress(RunFilesError):
            write_report(build_report(folder), folder)

    holds()


def spoil(path: Path, place: int, value: Any) -> None:
    """Replace one value somewhere in a JSON file, or cut a file off."""
    data = path.read_bytes()
    lines = data.splitlines()
    if path.suffix == ".csv" or place % 5 == 0 or not lines:
        path.write_bytes(data[: place % (len(data) + 1)])
        return
    at = place % len(lines)
    try:
        document = json.loads(lines[at])
    except ValueError:
        return
    holder, key = document, None
    while isinstance(holder, dict | list) and holder:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = keys[place % len(keys)]
        place //= 7
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or place % 3 == 0:
            holder[key] = value
            break
        holder = inner
    lines[at] = json.dumps(document).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")


def test_the_measured_frontier_names_the_middle_pipeline(folder: Path) -> None:
    schedule = format_schedule(one_f_one_b(pp=1, microbatches=1))
    figures = {"num_iterations": 5, "time_s": 0.25, "energy_j": 300.0}
    pipelines = [{"dp_rank": d, "point": 7, "planned_time_s": 0.25, "planned_energy_j": 91.0} for d in range(3)]
    write(
        folder,
        "job.json",
        job(
            schedule=schedule,
            pp_size=1,
            dp_size=3,
            num_ranks=3,
            baseline=figures,
            enforced=figures | {"energy_j": 270.0},
            predicted_saving=0.09,
            predicted_saving_low=0.08,
            predicted_saving_high=0.095,
            pipelines=pipelines,
            frontier_baseline_time_s=0.25,
            frontier_baseline_energy_j=100.0,
            fastest_s=0.25,
            t_star_s=0.3,
        ),
    )
    (folder / "frontier.csv").write_text("time_s,energy_j,lower_bound_j\n0.25,91,90\n0.3,80,80\n")
    for rank in range(3):
        write(folder, f"rank-{rank}.jsonl", *reports(20, planned_from=14, energy_j=100 + rank))
        write(folder, f"timeline-{rank}.jsonl", {**header(rank, pp_rank=0), "dp_rank": rank})
    report = build_report(folder)
    assert report.predicted == pytest.approx((0.25, 273))
    assert report.saving_percent == pytest.approx(10)
    assert report.document()["predicted_saving_interval_percent"] == pytest.approx((8, 9.5))
    assert "predicted saving: likely 8.0 to 9.5 %; the measured one, 10.0 %, lies above it" in summary_text(report)
    from perseus_dist.report.plots.run_pictures import _measured  # what no file tells in numbers

    assert [(point.is_quiet, point.energy_j) for point in _measured(report)] == [
        (True, 100),
        (True, pytest.approx(90)),
        (False, 101),
        (False, pytest.approx(90.9)),
        (True, 102),
        (True, pytest.approx(91.8)),
    ]
    write_report(replace(report, losses_equal=True), folder)
    assert (folder / "frontier.svg").exists()


def test_iteration_reports_of_a_rank_that_began_an_iteration_twice(folder: Path) -> None:
    first, second = reports(1, planned_from=9), reports(1, planned_from=9, energy_j=50.0)
    write(folder, "rank-0.jsonl", *first, *second)
    assert read_run(folder).iterations[0] == (IterationReport(**second[0]),)
