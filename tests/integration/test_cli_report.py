"""``perseus-dist report``, on what the agents' own code writes while a job trains in virtual time."""

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree as ET

import pytest

from perseus_dist.agent.core.actions import Action, KeepReports, KeepTimeline
from perseus_dist.agent.link.job_watch import JobSeen, TableSeen
from perseus_dist.agent.process.job_record import JobRecordWriter
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.cli import main
from perseus_dist.messages.job_status import FrontierPoint, JobFrontier, JobProfile
from perseus_dist.messages.terms import Gpu
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planning.schedule.schedule import Schedule, one_f_one_b
from perseus_dist.report.run_report import REPORT_FILES, STRAGGLERS_SVG
from perseus_dist.runlog.report_folder import ReportFolder, timeline_header
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.agent import VirtualAgent
from perseus_dist.simulation.virtual.run import virtual_job
from perseus_dist.simulator.gpu import SimulatedGpu
from perseus_dist.simulator.throttle import Throttle, ThrottleScript
from perseus_dist.units import PS_PER_S, UJ_PER_J, UW_PER_W

START = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
START_NS = round(START.timestamp()) * 10**9
JOB_ID = "gpt-1f2e3d4c"
SLOW_RANK = 3
CAPPED, DEEPENED, LIFTED = 70, 95, 120  # iterations; the plan comes at about 45


class RecordingAgent(VirtualAgent):
    """Also writes what a real agent would."""

    def __init__(self, spec: RankSpec, gpu: SimulatedGpu, folder: Path, incarnation: int) -> None:
        super().__init__(replace(spec, report=str(folder)), gpu, incarnation=incarnation)
        self.spec = spec
        self.folder = ReportFolder(folder, rank=self.spec.rank, num_ranks=self.spec.pp_size * self.spec.dp_size)
        self._nvml_gpu = Gpu(
            uuid=gpu.uuid, name=self._meter.name, driver_version="", clocks_mhz=(), control="direct", refusal=""
        )

    def _do(self, actions: list[Action], now_ns: int) -> None:
        super()._do(actions, now_ns)
        for action in actions:
            if isinstance(action, KeepReports):
                self.folder.append_iterations(action.reports)
            elif isinstance(action, KeepTimeline):
                latency_s = action.switch_latency_s
                header = timeline_header(self.spec, self._nvml_gpu, is_simulated=True, switch_latency_s=latency_s)
                self.folder.replace_timeline({**header, "wall_minus_monotonic_ns": START_NS}, action.iterations)


def record(
    folder: Path, schedule: Schedule, *, num_pipelines: int, num_iterations: int, throttles: Sequence[Throttle] = ()
) -> None:
    """Train a job in virtual time, and leave its report folder."""
    simulated = SimulatedJob(
        schedule=schedule, num_pipelines=num_pipelines, num_iterations=num_iterations, imbalance=0.1, job_id=JOB_ID
    )
    ranks: list[RecordingAgent] = []

    def recording_agent(spec: RankSpec, gpu: SimulatedGpu, *, incarnation: int) -> RecordingAgent:
        ranks.append(RecordingAgent(spec, gpu, folder, incarnation))
        return ranks[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perseus_dist.simulation.virtual.run.VirtualAgent", recording_agent)
        with virtual_job(simulated, "a100") as job:
            report = JobRecordWriter(ranks[0].spec, ranks[0].folder, is_simulated=True, now=START)
            table_revision = 0

            def now() -> datetime:
                return START + timedelta(microseconds=job.machine.now_ns / 1e3)

            def tell() -> None:
                nonlocal table_revision
                plan = job.planner.job.plan
                if plan is not None and plan.revision != table_revision:
                    table_revision = plan.revision
                    report.record(TableSeen(frontier_of(plan), profile_of(plan, schedule.num_ranks)), now())
                report.record(JobSeen(job.status), now())

            script = ThrottleScript(throttles, job.machine.gpus)
            for iteration in range(num_iterations):
                injected = script.apply_due(iteration)
                lines = ({"iteration": iteration, "gpu": one.gpu, "thermal_cap_mhz": one.cap_mhz} for one in injected)
                with (folder / "injected.jsonl").open("a") as file:
                    file.writelines(json.dumps(line) + "\n" for line in lines)
                job.run_iteration()
                tell()
            job.end()
            tell()
            report.write(now(), is_over=True)
            for rank in ranks:
                rank.folder.close()


def frontier_of(plan: JobPlan) -> JobFrontier:
    summary = plan.summary
    return JobFrontier(
        table_revision=plan.revision,
        points=tuple(
            FrontierPoint(time_s=time_ps / PS_PER_S, energy_j=total_uj / UJ_PER_J, lower_bound_j=bound_uj / UJ_PER_J)
            for time_ps, total_uj, bound_uj in zip(
                summary.time_ps, summary.total_uj, summary.lower_bound_uj, strict=True
            )
        ),
        baseline_time_s=summary.baseline_time_ps / PS_PER_S,
        baseline_energy_j=summary.baseline_uj / UJ_PER_J,
        fastest_s=summary.fastest_ps / PS_PER_S,
        t_star_s=summary.t_star_ps / PS_PER_S,
    )


def profile_of(plan: JobPlan, num_gpus: int) -> JobProfile:
    blocking_power_w = plan.summary.total_blocking_uw / UW_PER_W / num_gpus
    return JobProfile(csv=plan.profile_csv.decode(), blocking_power_w=blocking_power_w)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    record(folder, one_f_one_b(pp=2, microbatches=4), num_pipelines=2, num_iterations=70)
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(recorded, tmp_path / "report"))


@pytest.fixture(scope="module")
def straggled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last GPU overheats, overheats more, and cools down: what agents and planner make of it by themselves."""
    folder = tmp_path_factory.mktemp("straggled")
    throttles = [
        Throttle(at=at, gpu=SLOW_RANK, cap_mhz=cap_mhz)
        for at, cap_mhz in ((CAPPED, 1095), (DEEPENED, 900), (LIFTED, None))
    ]
    schedule = one_f_one_b(pp=2, microbatches=4)
    record(folder, schedule, num_pipelines=2, num_iterations=LIFTED + 20, throttles=throttles)
    return folder


def reported(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["report", str(folder), *options, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    document: dict[str, Any] = json.loads(out)
    assert document == json.loads((folder / "report.json").read_text())
    return document


def draw_nothing(_figure: object, file: BinaryIO, **_options: object) -> None:
    file.write(b'<svg viewBox="0 0 1 1"></svg>')


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["report", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


class Page(HTMLParser):
    """What a browser would fetch, and whether every tag is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(path.read_text())
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "hr", "img", "link"):
            self._open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if (name in ("src", "xlink:href") or (name == "href" and tag != "a")) and not (value or "").startswith(
                ("#", "data:")
            ):
                self.fetched.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_tells_what_was_measured_and_what_was_predicted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = json.loads((folder / "job.json").read_text())
    document = reported(folder, capsys, "--clocks-left-locked", "0")
    assert document["job_id"] == JOB_ID
    assert document["phase"] == "done"
    assert document["simulated_gpus"] is True
    assert document["clocks_left_locked"] == 0
    assert document["losses_equal"] is None
    assert document["baseline"]["energy_j"] == job["baseline"]["energy_j"]
    assert document["planned"]["iteration_time_s"] == job["enforced"]["time_s"]
    assert document["saving_percent"] == pytest.approx(7.5, abs=0.5)
    assert document["predicted_saving_percent"] == pytest.approx(document["saving_percent"], abs=0.5)
    assert abs(document["slowdown_percent"]) < 0.1
    assert document["predicted_baseline"]["energy_j"] == pytest.approx(document["baseline"]["energy_j"], rel=0.01)
    assert document["predicted"]["energy_j"] == pytest.approx(document["planned"]["energy_j"], rel=0.01)
    assert [phase["phase"] for phase in document["phases"]][-3:] == ["planning", "enforcing", "done"]
    assert document["notes"] == []
    gpus = document["gpus"]
    assert [(gpu["rank"], gpu["dp_rank"], gpu["pp_rank"]) for gpu in gpus] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 1, 0),
        (3, 1, 1),
    ]
    assert sum(gpu["planned_j"] for gpu in gpus) == pytest.approx(document["planned"]["energy_j"], rel=0.01)
    # The last stage is the heavier one: it stays fast, the first is slowed down, and waits less for it.
    assert gpus[0]["planned_clock_mhz"] < gpus[1]["planned_clock_mhz"] == 1410
    assert gpus[0]["planned_waiting"] < gpus[0]["baseline_waiting"]


def test_writes_pictures_a_trace_and_a_page_that_fetches_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "measured baseline" in out
    assert "predicted plan" in out
    assert "simulated: the GPUs" in out
    assert str(folder / "report.html") in out
    assert [name for name in REPORT_FILES if not (folder / name).is_file()] == [STRAGGLERS_SVG]
    for name in ("frontier.svg", "timeline.svg"):
        assert ET.parse(folder / name).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    page = Page(folder / "report.html")
    assert page.fetched == []
    assert len(page.ids) == len(set(page.ids)) > 0
    assert page.text.count(JOB_ID) >= 2
    assert "simulated GPUs" in page.text
    text = (folder / "report.html").read_text()
    assert text.count("<svg") == 3
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert "#1f2328" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)  # ink follows the page's palette
    used = set(re.findall(r"var\((--[a-z]+)\)", text))
    assert used <= set(re.findall(r"(--[a-z]+):", text))


def test_the_trace_has_the_plan_beside_what_ran(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reported(folder, capsys)
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(names.values()) == [
        "job",
        *(f"pipeline {d}, {what}" for d in (0, 1) for what in ("measured", "planned")),
    ]
    boxes: dict[str, dict[tuple[int, str], dict[str, Any]]] = defaultdict(dict)
    threads: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            boxes[names[event["pid"]]][event["args"]["iteration"], event["name"]] = event
            threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    measured, planned = boxes["pipeline 0, measured"], boxes["pipeline 0, planned"]
    iterations = {iteration for iteration, name in measured if name.startswith("iteration")}
    assert 6 <= len(iterations) <= 8  # 5 under the plan; of the baseline, those that all ranks kept
    assert {iteration for iteration, _ in planned} < iterations
    for key, event in planned.items():
        assert measured[key]["ts"] == pytest.approx(event["ts"], abs=5_000)  # us
        if "clock_mhz" in event["args"]:
            assert measured[key]["args"]["requested_mhz"] == event["args"]["clock_mhz"]
    for spans in threads.values():
        spans.sort()
        assert all(before[1] <= after[0] + 1e-3 for before, after in pairwise(spans))
    counters = [event for event in events if event["ph"] == "C" and names[event["pid"]] == "pipeline 0, planned"]
    assert {event["name"] for event in counters} == {"pp_rank 0 clock", "pp_rank 1 clock"}


def test_a_straggler_is_reported_from_its_injection_to_full_speed(
    straggled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = reported(straggled, capsys)
    assert document["notes"] == []
    (episode,) = document["stragglers"]["episodes"]
    assert (episode["rank"], episode["dp_rank"], episode["cause"]) == (SLOW_RANK, 1, "thermal")
    assert [step["injected_iteration"] for step in episode["steps"]] == [CAPPED, DEEPENED]
    for step in episode["steps"]:
        assert 0 <= step["detected_after_iterations"] <= step["switched_after_iterations"] <= 6
    assert episode["lifted_iteration"] == LIFTED
    assert 0 <= episode["full_speed_after_iterations"] <= 3
    (period,) = document["stragglers"]["periods"]
    assert (period["straggling"], period["others"]) == ([1], [0])
    assert period["share_of_promise"] > 0.9
    assert sum(wait["num_later"] for wait in period["waits"]) == 0
    assert max(wait["measured"]["time_s"] / wait["straggler_time_s"] for wait in period["waits"]) < 1.01
    assert period["after"]["energy_j"] == pytest.approx(period["before"]["energy_j"], rel=0.01)
    assert document["saved_j"] > 0

    assert (straggled / STRAGGLERS_SVG).is_file()
    page = Page(straggled / "report.html")
    assert page.fetched == []
    assert len(page.ids) == len(set(page.ids))
    assert "all of this on simulated GPUs" in page.text
    events = json.loads((straggled / "trace.json").read_text())["traceEvents"]
    kept = [event["ts"] for event in events if event["ph"] == "X"]
    instants = {event["cat"]: event["ts"] for event in events if event["ph"] == "i"}
    assert instants.keys() == {"sweep", "verdict", "switch", "recovered"}
    assert min(kept) < instants["verdict"] < instants["recovered"] < max(kept)


def test_reporting_twice_writes_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reported(folder, capsys)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    reported(folder, capsys)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_a_report_made_again_keeps_what_was_checked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perseus_dist.report.plots.theme.Figure.savefig", draw_nothing)  # nine times the same pictures
    losses = tmp_path / "losses.jsonl"
    losses.write_text('{"step": 0, "loss": 6.25}\n')
    checked = ("--losses", str(losses), "--reference-losses", str(losses), "--clocks-left-locked", "0")
    assert reported(folder, capsys, *checked)["losses_equal"] is True
    for _ in range(2):
        again = reported(folder, capsys)
        assert (again["losses_equal"], again["clocks_left_locked"]) == (True, 0)
    assert "losses: equal" in (folder / "report.html").read_text()
    assert reported(folder, capsys, "--clocks-left-locked", "2")["clocks_left_locked"] == 2
    written = json.loads((folder / "report.json").read_text())
    for spoilt in (
        json.dumps(written | {"started_at": "2020-01-01T00:00:00.000+00:00"}),  # of an earlier run in the same folder
        json.dumps(written | {"job_id": "another"}),
        json.dumps(written | {"losses_equal": "yes"}),
        "[]",
        "{",
    ):
        (folder / "report.json").write_text(spoilt)
        again = reported(folder, capsys)
        assert (again["losses_equal"], again["clocks_left_locked"]) == (None, None)


def test_losses_are_compared_bit_by_bit(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = tmp_path / "ours.jsonl", tmp_path / "theirs.jsonl"
    ours.write_text('{"step": 1, "loss": 0.30000000000000004}\n{"step": 2, "loss": NaN}\n')
    theirs.write_text('{"loss": "0.30000000000000004", "step": 1}\n{"step": 2, "loss": NaN}\n')
    both = ("--losses", str(ours), "--reference-losses", str(theirs))
    assert reported(folder, capsys, *both)["losses_equal"] is True
    assert main(["report", str(folder), *both]) == 0
    assert "losses: equal" in capsys.readouterr().out
    theirs.write_text('{"step": 1, "loss": 0.3}\n{"step": 2, "loss": NaN}\n')
    assert reported(folder, capsys, *both)["losses_equal"] is False
    assert "losses: NOT equal" in (folder / "report.html").read_text()
    theirs.write_text('{"step": 1, "loss": 0.3}\n')
    assert "expected the same steps" in refused(capsys, str(folder), *both)
    theirs.write_text("step 1: 0.3\n")
    assert "theirs.jsonl:1" in refused(capsys, str(folder), *both)
    assert "give both" in refused(capsys, str(folder), "--losses", str(ours))


def test_a_job_that_was_never_planned_gets_an_honest_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = json.loads((folder / "job.json").read_text())
    nothing = dict.fromkeys(job["baseline"], 0)
    reason = "planner 10.0.0.1:50151 cannot be reached: no route to host"
    job |= {
        "phase": "unattached",
        "reason": reason,
        "phases": [{"phase": "unattached", "reason": reason, "at": job["started_at"]}],
        "baseline": nothing,
        "enforced": nothing,
        "predicted_saving": 0.0,
        "table_revision": 0,
        "pipelines": [],
        **dict.fromkeys(("frontier_baseline_time_s", "frontier_baseline_energy_j", "fastest_s", "t_star_s"), 0.0),
    }
    (folder / "job.json").write_text(json.dumps(job))
    for name in ("frontier.csv", "profile.csv"):
        (folder / name).unlink()
    for path in folder.glob("*.jsonl"):  # as if all had stopped before the sweep
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:8] if path.name.startswith("rank") else lines[:3]))
    (folder / "frontier.svg").write_text("of an earlier run")
    document = reported(folder, capsys)
    assert document["baseline"]["num_iterations"] == 5
    assert document["baseline"]["energy_j"] == pytest.approx(1220, rel=0.02)
    assert document["planned"]["num_iterations"] == 0
    assert document["planned"]["energy_j"] is None
    assert document["saving_percent"] is document["predicted_saving_percent"] is document["predicted"] is None
    assert not (folder / "frontier.svg").exists()
    assert (folder / "timeline.svg").exists()
    assert main(["report", str(folder)]) == 0
    assert f"no iteration ran under a plan; unattached: {reason}" in capsys.readouterr().out
    assert reason in Page(folder / "report.html").text


def test_a_job_that_was_killed_is_reported_as_far_as_it_came(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "rank-1.jsonl").open("a") as file:
        file.write('{"iteration": 70, "time_s": 0.7')
    (folder / "timeline-3.jsonl").unlink()
    (folder / "rank-3.jsonl").unlink()
    document = reported(folder, capsys)
    assert document["saving_percent"] == pytest.approx(7.5, abs=0.5)  # the planner's own figures
    assert len(document["gpus"]) == 3
    assert any("rank-1.jsonl: 1 of 71 lines" in note for note in document["notes"])
    assert any("rank-<r>.jsonl: nothing of rank 3" in note for note in document["notes"])
    assert "rank-1.jsonl" in Page(folder / "report.html").text
    assert (folder / "timeline.svg").exists()


def test_without_a_folder_of_a_job_it_says_what_is_expected(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--perseus-report" in refused(capsys, str(tmp_path / "nowhere"))
    assert "--perseus-report" in refused(capsys, str(tmp_path))
    whole = (folder / "job.json").read_text()
    (folder / "job.json").write_text(whole[: len(whole) // 2])
    assert "cut off, or no JSON" in refused(capsys, str(folder))
    (folder / "job.json").write_text(json.dumps({**json.loads(whole), "num_ranks": "four"}))
    assert "'num_ranks': saw 'four'" in refused(capsys, str(folder))
    (folder / "job.json").write_text("[]")
    assert "expected an object" in refused(capsys, str(folder))


def test_without_matplotlib_it_reports_without_pictures(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.util import find_spec

    monkeypatch.setattr(
        "perseus_dist.report.run_report.find_spec", lambda name: None if name == "matplotlib" else find_spec(name)
    )
    document = reported(folder, capsys)
    assert any("matplotlib is missing" in note for note in document["notes"])
    assert not (folder / "timeline.svg").exists()
    assert (folder / "trace.json").exists()
    assert "<svg" not in (folder / "report.html").read_text()


def test_no_matplotlib_is_imported_for_the_figures_alone() -> None:
    code = "import sys, perseus_dist.report.run_report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
