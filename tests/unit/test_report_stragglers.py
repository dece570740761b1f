"""Stragglers in a report: from a folder of two pipelines of two stages, one GPU of which is throttled, throttled more,
and let go again, to figures, words, a picture and a trace.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus_dist.report.analysis.straggler_text import period_rows
from perseus_dist.report.analysis.stragglers import StragglerFigures
from perseus_dist.report.plots.straggler_plot import MAX_LINES, plot_stragglers
from perseus_dist.report.plots.theme import figure_bytes
from perseus_dist.report.run_report import STRAGGLERS_SVG, build_report, summary_text, write_report

BLOCKING_W = 80.0
TARGET_S = 1.0
TAIL_S = 0.02  # gradient synchronisation and the step, in all times of plans
TIMES_S = tuple(TARGET_S + 0.01 * point for point in range(46))
START = "2026-11-21T10:00:{:06.3f}+00:00"

PLANNED_FROM, INJECTED, DEEPENED, LIFTED, NUM_ITERATIONS = 20, 60, 90, 120, 160
SLOW_RANK = 3
DETECTED, SWITCHED, OWN_PLAN = 63, 66, 72
DETECTED_DEEPER, SWITCHED_DEEPER = 92, 95
RECOVERED, FULL_SPEED = 121, 123
WAITING_POINTS = 16, 31


def energy_j(time_s: float) -> float:
    """Of one pipeline, until its own end."""
    return 1000.0 - 300.0 * (1 - ((1.45 - time_s) / 0.45) ** 2) + 160.0 * (time_s - 1.0)


def straggler_time_s(iteration: int) -> float:
    """Of the slow pipeline, until it waits for gradient synchronisation."""
    if INJECTED < iteration <= DEEPENED:
        return 1.16 * (TARGET_S - TAIL_S)
    if DEEPENED < iteration <= LIFTED:
        return 1.32 * (TARGET_S - TAIL_S)
    return TARGET_S - TAIL_S


def points(iteration: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(table revision, point) of both pipelines."""
    if iteration < PLANNED_FROM:
        return (0, -1), (0, -1)
    waiting = 0
    if SWITCHED <= iteration < FULL_SPEED:
        waiting = WAITING_POINTS[iteration >= SWITCHED_DEEPER]
    return (1, waiting), ((2, 4) if OWN_PLAN <= iteration < FULL_SPEED else (1, 0))


def line(iteration: int, dp_rank: int) -> dict[str, Any]:
    """Of a rank."""
    (revision, point), slow = points(iteration)[dp_rank], straggler_time_s(iteration)
    usual_s = TIMES_S[points(iteration)[0][1]] if point >= 0 else TARGET_S
    own_s = slow if dp_rank else usual_s - TAIL_S
    time_s = max(slow, usual_s - TAIL_S) + TAIL_S
    drawn_j = energy_j(TIMES_S[point] if dp_rank == 0 and point >= 0 else TARGET_S)
    ends_s = own_s + TAIL_S
    return {
        "iteration": iteration,
        "time_s": time_s,
        "pipeline_time_s": own_s,
        "energy_j": (drawn_j * (1.1 if point < 0 else 1.0) + 160.0 * (time_s - ends_s)) / 2,
        "table_revision": revision,
        "point": point,
        "kind_times": [{"kind": "F", "time_ratio": 1.0, "requested_mhz": 1410}],
        "tokens": 4096.0,
        "input_wait_s": None,
    }


def event(sequence: int, kind: str, iteration: int, **more: Any) -> dict[str, Any]:
    """A line of events.jsonl."""
    return {
        "at": START.format(iteration / 4),
        "sequence": sequence,
        "kind": kind,
        "iteration": iteration,
        "sentence": f"{kind} at iteration {iteration}",
        "effective_iteration": -1,
        "switch_revision": 0,
        "rank": -1,
        "dp_rank": -1,
        "degree": 0.0,
        "low": 0.0,
        "high": 0.0,
        "cause": "",
        "t_prime_s": 0.0,
        "points": [],
    } | more


def switch(sequence: int, iteration: int, effective: int, point: tuple[int, int], t_prime_s: float) -> dict[str, Any]:
    """A line of events.jsonl."""
    return event(
        sequence,
        "switch",
        iteration,
        effective_iteration=effective,
        switch_revision=sequence,
        points=list(point),
        t_prime_s=t_prime_s,
    )


def verdict(sequence: int, iteration: int, degree: float) -> dict[str, Any]:
    """A line of events.jsonl."""
    about = {"rank": SLOW_RANK, "dp_rank": 1, "cause": "thermal"}
    return event(sequence, "verdict", iteration, degree=degree, low=degree - 0.01, high=degree + 0.01, **about)


def injected(iteration: int, cap_mhz: int | None) -> dict[str, Any]:
    """A line of injected.jsonl."""
    at = START.format(iteration / 4)
    return {"at": at, "iteration": iteration, "gpu": SLOW_RANK, "thermal_cap_mhz": cap_mhz}


EVENTS = (
    switch(1, 17, PLANNED_FROM, (0, 0), 0.0),
    verdict(2, DETECTED, 1.17),
    switch(3, DETECTED, SWITCHED, (16, 0), 1.1568),
    switch(4, 70, OWN_PLAN, (16, 4), 1.1568),
    verdict(5, 75, 1.172),
    verdict(6, DETECTED_DEEPER, 1.33),
    switch(7, DETECTED_DEEPER, SWITCHED_DEEPER, (31, 4), 1.3136),
    event(8, "recovered", RECOVERED, rank=SLOW_RANK, dp_rank=1),
    switch(9, RECOVERED, FULL_SPEED, (0, 0), 0.0),
)
INJECTIONS = (injected(INJECTED, 1005), injected(DEEPENED, 800), injected(LIFTED, None))


def job(**changes: Any) -> dict[str, Any]:
    """job.json."""
    phases = ("warming_up", "profiling", "planning", "enforcing", "done")
    document = {
        "job_id": "gpt",
        "phase": "done",
        "reason": "every rank's trainer has ended",
        "schedule": "0F0 0B0\n1F0 1B0\n",
        "pp_size": 2,
        "dp_size": 2,
        "tp_size": 1,
        "num_ranks": 4,
        "target": "t_min",
        "simulated": True,
        "started_at": START.format(0),
        "updated_at": START.format(50),
        "phases": [{"phase": phase, "reason": phase, "at": START.format(n)} for n, phase in enumerate(phases)],
        "table_revision": 1,
        "saved_j": 12345.0,
        "blocking_power_w": BLOCKING_W,
        "frontier_baseline_time_s": TARGET_S,
        "frontier_baseline_energy_j": 1.1 * energy_j(TARGET_S),
    }
    return document | changes


def header(rank: int) -> dict[str, Any]:
    """The first line of a timeline."""
    return {
        "rank": rank,
        "pp_rank": rank % 2,
        "dp_rank": rank // 2,
        "tp_rank": 0,
        "wall_minus_monotonic_ns": 1_795_255_200 * 10**9,
        "gpu": {"uuid": f"GPU-{rank}", "name": "NVIDIA A100", "control": "direct", "refusal": ""},
        "simulated": True,
        "switch_latency_s": 0.01,
    }


def write_lines(path: Path, lines: Iterable[Any]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))


def write_run(folder: Path) -> None:
    """All of it."""
    (folder / "job.json").write_text(json.dumps(job()))
    points_csv = (f"{time_s:.9f},{energy_j(time_s):.6f},{energy_j(time_s):.6f}\n" for time_s in TIMES_S)
    (folder / "frontier.csv").write_text("time_s,energy_j,lower_bound_j\n" + "".join(points_csv))
    for rank in range(4):
        write_lines(folder / f"rank-{rank}.jsonl", [line(n, rank // 2) for n in range(NUM_ITERATIONS)])
        write_lines(folder / f"timeline-{rank}.jsonl", [header(rank)])
    write_lines(folder / "events.jsonl", EVENTS)
    write_lines(folder / "injected.jsonl", INJECTIONS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path)
    return tmp_path


def figures_of(folder: Path) -> StragglerFigures:
    figures = build_report(folder).stragglers
    assert figures is not None
    return figures


def test_each_step_of_a_straggler_is_counted_from_its_injection(folder: Path) -> None:
    report = build_report(folder)
    assert report.notes == ()
    assert report.stragglers is not None
    (episode,) = report.document()["stragglers"]["episodes"]
    first, second = episode["steps"]
    assert (episode["rank"], episode["dp_rank"], episode["cause"]) == (SLOW_RANK, 1, "thermal")
    assert (first["injected_iteration"], first["thermal_cap_mhz"], first["detected_iteration"]) == (60, 1005, 63)
    assert (first["detected_after_iterations"], first["switched_after_iterations"]) == (3, 6)
    assert (second["injected_iteration"], second["thermal_cap_mhz"], second["switched_iteration"]) == (90, 800, 95)
    assert (second["detected_after_iterations"], second["switched_after_iterations"]) == (2, 5)
    assert first["degree"] == 1.172  # as it was refined later
    assert second["degree"] == 1.33
    assert (episode["low"], episode["high"]) == pytest.approx((1.32, 1.34))
    assert (episode["lifted_iteration"], episode["over_after_iterations"]) == (LIFTED, 1)
    assert (episode["full_speed_iteration"], episode["full_speed_after_iterations"]) == (FULL_SPEED, 3)


def test_a_straggler_that_a_planner_which_began_anew_never_tells_of_is_over_when_nobody_waits_any_more(
    folder: Path,
) -> None:
    (folder / "injected.jsonl").unlink()
    detected = [event for event in EVENTS if event["iteration"] <= DETECTED_DEEPER]
    anew = [switch(1, 118, FULL_SPEED, (0, 0), 0.0), verdict(2, 140, 1.5)]
    write_lines(folder / "events.jsonl", [*detected, *anew])
    first, second = figures_of(folder).episodes
    assert (first.over_iteration, first.full_speed_iteration, first.high) == (118, FULL_SPEED, 1.34)
    assert ([step.detected_iteration for step in second.steps], second.over_iteration) == ([140], None)

    # A planner that has kept the switch tells again of whom it still finds slow, and later that it is over.
    kept = [verdict(1, 110, 1.33), event(2, "recovered", RECOVERED, rank=SLOW_RANK, dp_rank=1)]
    write_lines(folder / "events.jsonl", [*detected, *kept, switch(3, RECOVERED, FULL_SPEED, (0, 0), 0.0)])
    (episode,) = figures_of(folder).episodes
    assert (episode.over_iteration, episode.full_speed_iteration) == (RECOVERED, FULL_SPEED)

    # What an operator has reported is over where the operator says so: planners with a store keep it.
    reported = event(1, "reported", INJECTED, dp_rank=1, degree=1.16)
    cleared = event(2, "cleared", RECOVERED, dp_rank=1)
    write_lines(folder / "events.jsonl", [reported, switch(1, 100, 100, (0, 0), 0.0), cleared])
    (episode,) = figures_of(folder).episodes
    assert episode.over_iteration == RECOVERED


def test_a_rank_that_switches_late_counts(folder: Path) -> None:
    lines = [line(n, 0) for n in range(NUM_ITERATIONS)]
    for late in (SWITCHED, SWITCHED + 1, FULL_SPEED):
        lines[late] |= {"point": line(late - 3, 0)["point"]}
    write_lines(folder / "rank-0.jsonl", lines)
    (episode,) = figures_of(folder).episodes
    assert episode.steps[0].switched_iteration == SWITCHED + 2
    assert episode.full_speed_iteration == FULL_SPEED + 1


def test_what_waiting_saved_is_held_against_the_frontier(folder: Path) -> None:
    (period,) = figures_of(folder).periods
    assert (period.straggling, period.others) == ((1,), (0,))
    assert period.before is not None
    assert period.after is not None
    assert (period.before.first_iteration, period.before.last_iteration) == (PLANNED_FROM, INJECTED - 1)
    assert period.before.energy_j == pytest.approx(1000.0)
    assert period.after.first_iteration == FULL_SPEED
    assert period.after.energy_j == pytest.approx(1000.0)
    first, second = period.waits
    # The other pipeline's plan takes 1.16 s: 3.2 ms more than the straggler, less than what counts as later.
    assert (first.measured.first_iteration, first.measured.last_iteration) == (SWITCHED, DEEPENED - 1)
    assert (first.measured.time_s, first.straggler_time_s) == pytest.approx((1.16, 1.16 * 0.98))
    assert first.others_time_s == pytest.approx(1.14)
    assert first.num_later == 0
    assert first.measured.energy_j == pytest.approx(energy_j(1.16))
    assert first.waiting_j == pytest.approx(1000.0 + 160.0 * 0.16)
    assert first.planned_j == pytest.approx(energy_j(1.16))
    # What it could have waited for is 1.1568 s; the best plan within takes 1.15 s, and waits.
    assert first.promised_j == pytest.approx(energy_j(1.15) + 160.0 * 0.01)
    # 1.3136 s: the plan of 1.31 s, and waiting.
    assert second.promised_j == second.planned_j == pytest.approx(energy_j(1.31) + 160.0 * 0.0036)
    waiting_j, drawn_j, promised_j = (
        24 * one + 25 * other  # iterations of each wait
        for one, other in (
            (1025.6, 1000.0 + 160.0 * 0.3136),
            (energy_j(1.16), energy_j(1.31) + 160.0 * 0.0036),
            (energy_j(1.15) + 1.6, energy_j(1.31) + 160.0 * 0.0036),
        )
    )
    document = period.document()
    assert document["share_of_promise"] == pytest.approx((waiting_j - drawn_j) / (waiting_j - promised_j))
    assert document["share_of_plan"] == pytest.approx(1.0)


def test_nothing_is_promised_where_the_iterations_before_were_slow_already(folder: Path) -> None:
    """As where a GPU throttles while an operator changes the target: all iterations of the new plan are slow."""
    (folder / "injected.jsonl").unlink()
    for rank in (2, 3):
        slow = 1.16 * (TARGET_S - TAIL_S)
        lines = [line(n, 1) for n in range(NUM_ITERATIONS)]
        for one in lines[PLANNED_FROM + 2 : INJECTED + 1]:
            one["pipeline_time_s"] = slow
        write_lines(folder / f"rank-{rank}.jsonl", lines)
    report = build_report(folder)
    assert report.stragglers is not None
    (period,) = report.stragglers.periods
    assert period.before is None
    document = period.document()
    assert (document["share_of_plan"], document["share_of_promise"]) == (None, None)
    for wait in document["waits"]:
        assert wait["measured"]["energy_j"] > 0
        assert {wait[name] for name in ("waiting_j", "planned_j", "promised_j", "share_of_promise")} == {None}
    assert "of what the frontier promises" not in summary_text(report)
    assert all(row[-3:] == ("", "", "") for row in period_rows(report.stragglers))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.45])
def test_a_straggler_that_is_only_a_little_slow_before_is_held_against_it(folder: Path, share: float) -> None:
    for rank in (2, 3):
        lines = [line(n, 1) for n in range(NUM_ITERATIONS)]
        for one in lines[PLANNED_FROM : INJECTED + 1]:
            one["pipeline_time_s"] *= 1 + 0.16 * share
        write_lines(folder / f"rank-{rank}.jsonl", lines)
    (period,) = figures_of(folder).periods
    assert period.before is not None
    for wait in period.waits:
        assert wait.waiting_j is not None
        assert wait.promised_j is not None
        assert wait.promised_j < wait.waiting_j


def test_a_pipeline_that_is_later_than_the_straggler_is_told(folder: Path) -> None:
    lines = [line(n, 0) for n in range(NUM_ITERATIONS)]
    for late in (70, 71, 72):
        lines[late]["pipeline_time_s"] = 1.2
    write_lines(folder / "rank-0.jsonl", lines)
    (period,) = figures_of(folder).periods
    assert [wait.num_later for wait in period.waits] == [3, 0]
    assert "in 3 of 49 iterations a pipeline was later" in summary_text(build_report(folder))


def test_nothing_is_promised_where_the_frontier_is_of_another_table(folder: Path) -> None:
    (folder / "job.json").write_text(json.dumps(job(table_revision=5)))
    (period,) = figures_of(folder).periods
    assert [wait.promised_j for wait in period.waits] == [None, None]
    assert period.waits[0].waiting_j is not None
    assert period.document()["share_of_promise"] is None


def test_energies_that_are_not_known_leave_times(folder: Path) -> None:
    for rank in range(4):
        lines = (line(n, rank // 2) | {"energy_j": None} for n in range(NUM_ITERATIONS))
        write_lines(folder / f"rank-{rank}.jsonl", lines)
    report = write_report(build_report(folder), folder)
    assert report.stragglers is not None
    (period,) = report.stragglers.periods
    assert [wait.measured.energy_j for wait in period.waits] == [None, None]
    assert period.waits[0].straggler_time_s == pytest.approx(1.1368)
    assert len(plot_stragglers(report.stragglers, target_time_s=0.0, title="t").axes) == 1


def test_it_is_shown_everywhere_and_said_to_be_simulated(folder: Path) -> None:
    report = write_report(build_report(folder), folder)
    text = summary_text(report)
    (row,) = [one for one in text.splitlines() if "1005 MHz" in one]
    assert " ".join(row.split()) == "rank 3, pipeline 1 thermal 17.2 % 60 (1005 MHz) 63 (+3) 66 (+6)"
    (row,) = [one for one in text.splitlines() if "800 MHz" in one]
    assert " ".join(row.split()) == "33.0 % 90 (800 MHz) 92 (+2) 95 (+5) 121 (+1) 123 (+3)"
    assert "all of this on simulated GPUs" in text.splitlines()
    assert "saved since the first plan, against all-maximum clocks: 12,345 J" in text.splitlines()
    page = (folder / "report.html").read_text()
    assert "<h2>Stragglers</h2>" in page
    assert page.count("<svg") == 3  # iterations, frontier, stragglers
    assert "<li>all of this on simulated GPUs</li>" in page
    assert (folder / STRAGGLERS_SVG).exists()
    document = json.loads((folder / "report.json").read_text())
    assert len(document["stragglers"]["episodes"]) == len(document["stragglers"]["periods"]) == 1
    assert document["saved_j"] == 12345.0
    planned_j = report.iterations.energy_j[report.iterations.is_in_force]
    assert document["planned"]["energy_per_token_j"] == pytest.approx(np.median(planned_j) / (2 * 4096)), (
        "two pipelines"
    )


def test_where_nobody_straggles_nothing_is_said_of_it(folder: Path) -> None:
    write_report(build_report(folder), folder)
    write_lines(folder / "events.jsonl", [EVENTS[0]])
    (folder / "injected.jsonl").unlink()
    report = write_report(build_report(folder), folder)
    assert report.stragglers is None
    assert not (folder / STRAGGLERS_SVG).exists()
    assert "traggler" not in re.sub(r"<style>.*?</style>", "", (folder / "report.html").read_text(), flags=re.DOTALL)
    assert "straggler" not in summary_text(report)
    (folder / "events.jsonl").unlink()  # as before there were any
    assert build_report(folder).document()["stragglers"] is None


def test_lines_that_are_cut_off_are_left_out_and_older_ones_understood(folder: Path) -> None:
    text = (folder / "events.jsonl").read_text()
    (folder / "events.jsonl").write_text(text + text[:50])
    with (folder / "rank-2.jsonl").open("a") as file:
        file.write('{"iteration": 160, "time_s": 1.0, "kind_times": [{"ki')
    new = ("kind_times", "tokens", "input_wait_s")
    older = ({k: v for k, v in line(n, 0).items() if k not in new} for n in range(NUM_ITERATIONS))
    write_lines(folder / "rank-0.jsonl", older)
    report = build_report(folder)
    assert report.stragglers is not None
    assert len(report.stragglers.episodes) == 1
    assert report.notes == (
        "rank-2.jsonl: 1 of 161 lines are cut off or no JSON, and left out",
        "events.jsonl: 1 of 10 lines are cut off or no JSON, and left out",
    )


def test_a_throttle_that_nobody_detected_is_told(folder: Path) -> None:
    write_lines(folder / "events.jsonl", EVENTS[:1])
    report = build_report(folder)
    assert report.stragglers is None
    assert "no verdict answers the throttle of rank 3 to 1005 MHz, injected at iteration 60" in report.notes
    write_lines(folder / "events.jsonl", EVENTS[:5])
    report = build_report(folder)
    (note,) = [note for note in report.notes if "no verdict" in note]
    assert "800 MHz" in note


def test_a_verdict_like_the_one_before_does_not_answer_a_new_injection(folder: Path) -> None:
    write_lines(folder / "events.jsonl", [*EVENTS[:5], verdict(6, 91, 1.174), *EVENTS[5:]])
    (episode,) = figures_of(folder).episodes
    assert [step.detected_iteration for step in episode.steps] == [DETECTED, DETECTED_DEEPER]


def test_without_injections_iterations_count_from_the_detection(folder: Path) -> None:
    (folder / "injected.jsonl").unlink()
    (episode,) = figures_of(folder).episodes
    (step,) = episode.document()["steps"]
    assert (step["detected_after_iterations"], step["switched_after_iterations"]) == (None, 3)
    assert step["degree"] == 1.33
    assert episode.document()["full_speed_after_iterations"] == FULL_SPEED - RECOVERED


def test_an_operators_report_is_an_episode_and_a_degree_of_1_is_none(folder: Path) -> None:
    def told(sequence: int, kind: str, iteration: int, degree: float) -> dict[str, Any]:
        return event(sequence, kind, iteration, dp_rank=1, degree=degree)

    (folder / "injected.jsonl").unlink()
    events = [told(2, "reported", 62, 1.16), EVENTS[2], told(4, "cleared", 119, 1.16), EVENTS[8]]
    write_lines(folder / "events.jsonl", events)
    (episode,) = figures_of(folder).episodes
    assert (episode.rank, episode.dp_rank, episode.cause) == (-1, 1, "reported")
    assert (episode.over_iteration, episode.full_speed_iteration) == (119, FULL_SPEED)
    assert "pipeline 1  reported" in summary_text(build_report(folder))
    taken_back = [events[0], EVENTS[2], told(4, "reported", 119, 1.0), EVENTS[8], told(11, "cleared", 150, 1.0)]
    write_lines(folder / "events.jsonl", taken_back)
    assert figures_of(folder).episodes == (episode,), "a report of degree 1 ends it"
    write_lines(folder / "events.jsonl", [told(1, "reported", 62, 1.0), told(2, "cleared", 70, 1.0)])
    assert build_report(folder).stragglers is None


def test_a_straggler_that_is_not_over_yet(folder: Path) -> None:
    write_lines(folder / "events.jsonl", EVENTS[:7])
    figures = figures_of(folder)
    (episode,) = figures.episodes
    assert (episode.over_iteration, episode.full_speed_iteration, episode.end) == (None, None, None)
    assert figures.periods[0].after is None
    write_report(build_report(folder), folder)


def test_full_speed_is_not_back_while_another_straggles(folder: Path) -> None:
    other = {"rank": 2, "dp_rank": 1, "cause": "power_cap", "degree": 1.1, "low": 1.09, "high": 1.11}
    events = list(EVENTS)
    events[6:6] = [event(10, "verdict", 92, **other)]
    events[8:8] = [event(11, "recovered", 100, **other), switch(12, 100, 103, (31, 4), 1.3136)]
    write_lines(folder / "events.jsonl", events)
    slow, slight = figures_of(folder).episodes
    assert (slight.over_iteration, slight.full_speed_iteration) == (100, None)
    assert slow.full_speed_iteration == FULL_SPEED


def test_a_planner_that_begins_anew_tells_the_same_straggler_again(folder: Path) -> None:
    again = [verdict(1, 100, 1.33) | {"at": START.format(25)}, *EVENTS[7:]]
    write_lines(folder / "events.jsonl", [*EVENTS[:7], *again])
    (episode,) = figures_of(folder).episodes
    assert len(episode.steps) == 2
    assert episode.full_speed_iteration == FULL_SPEED


def test_a_single_pipeline_waits_for_nobody(folder: Path) -> None:
    (folder / "job.json").write_text(json.dumps(job(dp_size=1, num_ranks=2)))
    for rank in range(2):
        lines = [line(n, 1) for n in range(NUM_ITERATIONS)]
        write_lines(folder / f"rank-{rank}.jsonl", lines)
    about = {"rank": 1, "dp_rank": 0}
    own = switch(4, 70, OWN_PLAN, (4, 0), 0.0) | {"points": [4]}
    back = switch(9, RECOVERED, FULL_SPEED, (0, 0), 0.0) | {"points": [0]}
    events = [verdict(2, DETECTED, 1.17) | about, own, EVENTS[7] | about, back]
    write_lines(folder / "events.jsonl", events)
    figures = figures_of(folder)
    assert figures.periods == ()
    (episode,) = figures.episodes
    assert (episode.steps[0].switched_iteration, episode.full_speed_iteration) == (OWN_PLAN, FULL_SPEED)
    write_report(build_report(folder), folder)


def test_ranks_of_a_tensor_parallel_group_are_one_straggler(folder: Path) -> None:
    (folder / "injected.jsonl").unlink()
    write_lines(folder / "timeline-2.jsonl", [header(2) | {"pp_rank": 1}])
    write_lines(folder / "events.jsonl", [*EVENTS[:7], EVENTS[7] | {"rank": 2}, EVENTS[8]])
    (episode,) = figures_of(folder).episodes
    assert episode.over_iteration == RECOVERED


def trace_of(folder: Path) -> list[dict[str, Any]]:
    runs = [[0, kind, 0, 10**9 + begin, 10**9 + begin + 10**8, 0, 1410] for kind, begin in (("F", 0), ("B", 10**8))]
    kept = {"iteration": 3, "begin_ns": 10**9, "end_ns": 2 * 10**9, "runs": runs}
    for rank in range(4):
        write_lines(folder / f"timeline-{rank}.jsonl", [header(rank), kept])
    write_report(build_report(folder), folder)
    events: list[dict[str, Any]] = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return events


def test_the_trace_has_what_happened_on_a_track_of_its_own(folder: Path) -> None:
    events = trace_of(folder)
    instants = [one for one in events if one["ph"] == "i"]
    assert [one["cat"] for one in instants] == [one["kind"] for one in EVENTS]
    (process,) = [one for one in events if one["name"] == "process_name" and one["args"]["name"] == "job"]
    assert {one["pid"] for one in instants} == {process["pid"]}
    assert all(one["pid"] != process["pid"] for one in events if one["ph"] == "X")
    (box, *_) = [one for one in events if one["name"] == "iteration 3"]
    (seen, *_) = [one for one in instants if one["cat"] == "verdict"]
    # The iteration begins at second 1 on the host's clock, iteration 63 is 15.75 s after the start.
    assert seen["ts"] - box["ts"] == pytest.approx((DETECTED / 4 - 1) * 1e6, abs=1)
    assert min(one["ts"] for one in events if "ts" in one) >= 0
    assert seen["name"] == "verdict: rank 3 thermal x 1.170"
    (waits, *_) = [one for one in instants if one["cat"] == "switch" and one["args"]["t_prime_s"]]
    assert (waits["name"], waits["args"]["points"]) == ("switch 3 for T' 1.157 s", [16, 0])


def test_events_of_another_time_do_not_stretch_the_trace(folder: Path) -> None:
    write_lines(folder / "events.jsonl", [EVENTS[0], EVENTS[1] | {"at": "1970-01-01T00:00:00+00:00"}])
    assert sum(one["ph"] == "i" for one in trace_of(folder)) == 1
    assert any(
        "trace.json is without 1 events" in note for note in json.loads((folder / "report.json").read_text())["notes"]
    )


def test_a_great_many_pipelines_are_a_line_and_a_band(folder: Path) -> None:
    figures, num = figures_of(folder), 3 * MAX_LINES
    pipelines = figures.pipelines
    rows = [0] * (num - 1) + [1]
    many = replace(
        pipelines,
        dp_ranks=tuple(range(num)),
        **{name: getattr(pipelines, name)[rows] for name in ("own_time_s", "energy_j", "table_revision", "point")},
    )
    slow = replace(figures.episodes[0], dp_rank=num - 1)
    fig = plot_stragglers(replace(figures, pipelines=many, episodes=(slow,)), target_time_s=1.0, title="t")
    assert all(len(ax.collections) == 1 for ax in fig.axes)
    assert f"{num - 1} pipelines, own" in {text.get_text() for text in fig.axes[0].texts}
    figure_bytes(fig)


def test_one_slow_iteration_does_not_flatten_the_picture(folder: Path) -> None:
    figures = figures_of(folder)
    time_s = figures.pipelines.time_s.copy()
    time_s[70] = 60.0
    pipelines = replace(figures.pipelines, time_s=time_s)
    fig = plot_stragglers(replace(figures, pipelines=pipelines), target_time_s=1.0, title="t")
    assert fig.axes[0].get_ylim()[1] < 2.5


def test_iterations_of_other_hosts_are_missing_not_invented(folder: Path) -> None:
    for rank in (2, 3):
        for name in ("rank", "timeline"):
            (folder / f"{name}-{rank}.jsonl").unlink()
    figures = figures_of(folder)
    assert figures.pipelines.dp_ranks == (0,)
    assert figures.periods == ()
    assert figures.episodes[0].steps[0].switched_iteration == SWITCHED
    for rank in (0, 1):
        (folder / f"rank-{rank}.jsonl").unlink()
    report = write_report(build_report(folder), folder)
    assert report.stragglers is not None
    assert not np.size(report.stragglers.pipelines.number)
    assert report.stragglers.episodes[0].steps[0].switched_iteration is None


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2**70), st.floats(), st.text(max_size=3), st.sampled_from([[], {}, [7]])
)
KEYS = (
    "at",
    "sequence",
    "kind",
    "iteration",
    "effective_iteration",
    "rank",
    "dp_rank",
    "degree",
    "t_prime_s",
    "points",
)
INJECTED_KEYS = ("at", "iteration", "gpu", "thermal_cap_mhz")


@pytest.mark.parametrize("num_examples", [5, pytest.param(15, marks=pytest.mark.stress)])
def test_no_spoilt_event_breaks_the_report(folder: Path, num_examples: int) -> None:
    @settings(max_examples=num_examples)
    @given(
        st.lists(st.tuples(st.integers(0, len(EVENTS) - 1), st.sampled_from(KEYS), VALUES), max_size=4),
        st.lists(st.tuples(st.integers(0, 2), st.sampled_from(INJECTED_KEYS), VALUES), max_size=2),
    )
    def holds(events: list[tuple[int, str, Any]], injections: list[tuple[int, str, Any]]) -> None:
        for name, lines, spoils in (("events", EVENTS, events), ("injected", INJECTIONS, injections)):
            spoilt = [dict(one) for one in lines]
            for place, key, value in spoils:
                spoilt[place][key] = value
            write_lines(folder / f"{name}.jsonl", spoilt)
        report = write_report(build_report(folder), folder)
        json.dumps(report.document(), allow_nan=False)

    holds()
