"""Ranks agree on their job, join, and join again when what they run has changed."""

import json
import logging
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import wait_until

from perseus_dist import hooks
from perseus_dist.boundaries.rank_spec import SharedPlanner
from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.schedule import Schedule, one_f_one_b
from perseus_dist.rpc.node_jobs import address_file
from perseus_dist.simulator import SimulatedMachine, SimulatedWork, WorkTimes
from perseus_dist.training.options import PerseusOptions, options_from_environment
from perseus_dist.training.rank import job_identity, job_member
from perseus_dist.training.rank.device import Device, Host, SimulatedGpu
from perseus_dist.training.rank.job_identity import IdentityError, make_identity
from perseus_dist.training.rank.job_member import Framework, JobMember, RankIdentity

if TYPE_CHECKING:
    from perseus_dist.boundaries.rank_spec import RankSpec


class SharedStore:
    """What ``torch.distributed.TCPStore`` does, in one process: nothing here imports torch."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def add(self, key: str, amount: int) -> int:
        self.values[key] = str(int(self.values.get(key, "0")) + amount)
        return int(self.values[key])


class Job:
    """Two ranks in one process, whose agents are never started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = SharedStore()
        self.specs: list[RankSpec] = []
        self.num_microbatches = 4
        self.schedule_error: Exception | None = None
        self.device: Device = Host()
        monkeypatch.setattr(hooks, "start_agent", lambda spec, **_: self.specs.append(spec))

    def member(self, rank: int, options: PerseusOptions | None = None, *, first_join: int = 0) -> JobMember:
        place = RankIdentity(
            rank=rank, pp_rank=rank, dp_rank=0, tp_rank=0, pp_size=2, dp_size=1, tp_size=1, local_rank=rank
        )  # fmt: skip
        framework = Framework(
            read_schedule=self._read_schedule, open_device=lambda: self.device, open_store=lambda: self.store
        )
        return JobMember(place, options or PerseusOptions(), framework, first_join=first_join)

    def members(self, monkeypatch: pytest.MonkeyPatch) -> tuple[JobMember, JobMember]:
        """Each counts its engines in a process of its own."""
        monkeypatch.setattr(job_member, "_numbers", iter([0, 0]))
        return self.member(0), self.member(1)

    def run(self, member: JobMember) -> bool:
        """An iteration; whether the member takes part."""
        member.begin_iteration(self.num_microbatches)
        for instruction in self._read_schedule().ranks[0]:
            member.begin(instruction)
            member.end(instruction)
        member.end_iteration()
        return member.hook is not None

    def _read_schedule(self) -> Schedule:
        if self.schedule_error is not None:
            raise self.schedule_error
        return one_f_one_b(pp=2, microbatches=self.num_microbatches)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Job:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Job(monkeypatch)


def test_who_looks_too_early_joins_an_iteration_later(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = job.members(monkeypatch)
    assert not job.run(second)
    assert job.run(first)
    assert job.run(second)
    assert [spec.rank for spec in job.specs] == [0, 1]
    assert job.specs[0].job_id == job.specs[1].job_id
    assert job.specs[0].rendezvous == job.specs[1].rendezvous
    assert Path(str(job.specs[0].rendezvous)).stat().st_mode & 0o777 == 0o700
    first.close()
    second.close()
    assert first.hook is None


def test_an_iteration_that_cannot_be_seen_is_one_instruction(job: Job) -> None:
    member = job.member(0)
    assert job.run(member)
    member.begin_iteration(4, sees_instructions=False)
    assert member.hook is None  # it joins again after a while, as after any change
    member.end_iteration()
    while member.hook is None:
        member.begin_iteration(4, sees_instructions=False)
        member.end_iteration()
    assert [spec.granularity for spec in job.specs] == ["instruction", "rank"]
    assert job.specs[0].schedule == job.specs[1].schedule
    member.begin_iteration(4, sees_instructions=False)
    member.end_iteration()
    hook = member.hook
    assert hook is not None
    member.begin_iteration(4)
    assert member.hook is None  # what can be seen is again what has a clock
    member.close()


@pytest.mark.parametrize(("lasts", "num_away"), [(20, [2, 2, 2, 2]), (6, [2, 4, 6, 6])])
def test_content_that_lasts_is_followed_as_soon_by_the_next(job: Job, lasts: int, num_away: list[int]) -> None:
    """A batch that grows is planned at each of its sizes; one that changes all the time is waited for."""
    member = job.member(0)
    away = []
    for job.num_microbatches in range(4, 9):
        away.append(sum(not job.run(member) for _ in range(lasts)))
    member.close()
    assert away == [0, *num_away]


def test_two_engines_are_two_jobs(job: Job) -> None:
    members = [job.member(0), job.member(0)]
    assert [job.run(member) for member in members] == [True, True]
    assert len({spec.job_id for spec in job.specs}) == 2
    for member in members:
        member.close()


def test_words_of_an_earlier_attempt_are_not_believed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun starts all ranks again, on a store that it has kept."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    for _ in range(2):
        first, second = job.members(monkeypatch)
        assert [job.run(member) for member in (second, first, second)] == [False, True, True]
        first.close()
        second.close()
    runs = [(spec.job_id, spec.run_id) for spec in job.specs]
    assert runs[0] == runs[1] != runs[2] == runs[3]


def test_a_batch_that_keeps_changing_is_waited_for_longer_and_longer(job: Job) -> None:
    first = job.member(0)
    joined: list[int] = []
    was_in = False
    for iteration in range(40):
        if iteration % 10 == 5:
            job.num_microbatches += 1
        is_in = job.run(first)
        if is_in and not was_in:
            joined.append(iteration)
        was_in = is_in
    assert joined == [0, 5 + 2, 15 + 4, 25 + 8]
    assert len({spec.job_id for spec in job.specs}) == 1
    first.close()


@pytest.mark.parametrize(("changes_at", "joined"), [(5, 30), (29, 31), (40, 30)])
def test_a_batch_that_changes_before_all_ranks_join_brings_that_no_nearer(
    changes_at: int, joined: int, job: Job
) -> None:
    member = job.member(0, first_join=30)
    for iteration in range(joined + 1):
        job.num_microbatches = 4 + (iteration >= changes_at)
        assert job.run(member) == (iteration == joined)
    member.close()


def test_what_rank_0_refuses_nobody_tries(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    first, second = job.members(monkeypatch)
    job.schedule_error = ScheduleError("no such schedule")
    with pytest.raises(ScheduleError, match="no such schedule"):
        first.begin_iteration(4)
    job.schedule_error = None
    with caplog.at_level(logging.INFO):
        assert not job.run(second)
    assert caplog.records == []  # rank 0 has said it
    assert job.specs == []
    assert list(tmp_path.iterdir()) == []


def test_no_agent_on_rank_0_is_a_refusal(job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(hooks, "start_agent", fail)
    first, second = job.members(monkeypatch)
    with pytest.raises(IdentityError, match="rank 0"):
        first.begin_iteration(4)
    assert not job.run(second)
    assert list(tmp_path.iterdir()) == []


def test_no_agent_on_another_rank_is_tried_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = job.members(monkeypatch)
    assert job.run(first)
    num_starts = 0

    def fail(*_: object, **__: object) -> None:
        nonlocal num_starts
        num_starts += 1
        raise OSError("no memory")

    monkeypatch.setattr(hooks, "start_agent", fail)
    assert [job.run(second) for _ in range(3)] == [False] * 3
    assert num_starts == 1
    first.close()


def test_a_named_planner_needs_no_rendezvous(job: Job, tmp_path: Path) -> None:
    first = job.member(0, PerseusOptions(planner="127.0.0.1:1", job="mine", tls_ca="/ca"))
    assert job.run(first)
    (spec,) = job.specs
    assert (spec.job_id, spec.planner, spec.rendezvous, spec.options) == (
        "mine",
        "127.0.0.1:1",
        None,
        {"tls_ca": "/ca"},
    )
    assert list(tmp_path.iterdir()) == []
    first.close()


def test_a_planner_of_its_own_is_told_what_to_do_about_stragglers(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    first = job.member(0, PerseusOptions(stragglers="show"))
    assert job.run(first)
    assert job.specs[-1].options["planner_stragglers"] == "show"
    first.close()
    assert "up to the planner" not in caplog.text
    first = job.member(0, PerseusOptions(planner="127.0.0.1:1", job="mine", stragglers="show"))
    assert job.run(first)
    assert "up to the planner that was named: start that one with --stragglers" in caplog.text
    first.close()


@pytest.mark.parametrize(
    ("argument", "stem"),
    [("/home/me/train gpt.py", "train-gpt"), ("", "job"), ("-c", "c"), ("größe.py", "gr-e"), ("x" * 300, "x" * 100)],
)
def test_a_job_is_named_after_its_script(argument: str, stem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [argument])
    name = make_identity(job=None, is_planner_embedded=False).job
    assert name[:-9] == stem
    assert int(name[-8:], 16) >= 0


def test_another_host_is_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    embedded, named = (make_identity(job="j", is_planner_embedded=is_embedded) for is_embedded in (True, False))
    assert embedded.is_within_reach
    assert named.is_within_reach
    other = tmp_path / "boot_id"
    other.write_text("another")
    monkeypatch.setattr(job_identity, "_BOOT_ID", other)
    assert not embedded.is_within_reach
    assert named.is_within_reach
    monkeypatch.undo()
    embedded.discard()
    assert not embedded.is_within_reach  # another mount namespace sees no such folder


@pytest.fixture
def several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "node-0.example"}.items():
        monkeypatch.setenv(name, value)


def on_another_host(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    other = folder / "boot_id"
    other.write_text("another")
    monkeypatch.setattr(job_identity, "_BOOT_ID", other)


def listens(job: Job, **more: object) -> None:
    """The planner that rank 0 embeds has left its address."""
    spec = job.specs[0]
    path = address_file(Path(str(spec.rendezvous)), spec.job_id)
    path.write_text(json.dumps({"address": "127.0.0.1:1", "token": "t", "pid": 1, **more}))


@pytest.mark.usefixtures("several_hosts")
def test_another_host_waits_until_rank_0_says_where_its_planner_is(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = job.members(monkeypatch)
    assert job.run(first)
    assert job.specs[0].options["planner_share"] == "node-0.example"
    assert job.specs[0].shared_planner is None
    for _ in range(10):
        with monkeypatch.context() as elsewhere:
            on_another_host(elsewhere, tmp_path)
            assert not job.run(second), "training goes on"
        assert job.run(first)
    listens(job, shared={"address": "10.0.0.1:2", "certificate": "PEM"})
    assert job.run(first)
    on_another_host(monkeypatch, tmp_path)
    assert job.run(second)
    planner = SharedPlanner(address="10.0.0.1:2", token="t", certificate="PEM")
    assert (job.specs[1].shared_planner, job.specs[1].planner) == (planner, None)
    assert "planner_share" not in job.specs[1].options
    assert "several hosts" not in caplog.text
    first.close()
    second.close()


@pytest.mark.usefixtures("several_hosts")
def test_the_planner_of_an_earlier_attempt_is_not_asked(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = job.members(monkeypatch)
    assert job.run(first)
    listens(job, shared={"address": "10.0.0.1:2", "certificate": "PEM"})
    assert job.run(first)
    first.close()
    second.close()
    again, other = job.members(monkeypatch)
    assert job.run(again)
    on_another_host(monkeypatch, tmp_path)
    assert not job.run(other)
    again.close()
    other.close()


@pytest.mark.usefixtures("several_hosts")
def test_a_rank_on_rank_0s_host_finds_the_planner_as_ever(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = job.members(monkeypatch)
    assert job.run(first)
    assert job.run(second)
    assert job.specs[1].shared_planner is None
    first.close()
    second.close()


@pytest.mark.usefixtures("several_hosts")
def test_a_planner_that_other_hosts_cannot_reach_is_not_told_of(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = job.members(monkeypatch)
    assert job.run(first)
    listens(job)
    on_another_host(monkeypatch, tmp_path)
    assert [job.run(first) for _ in range(3)] == [True] * 3
    assert not job.run(second)
    seen = dict(job.store.values)
    job.store.values.clear()  # nobody asks it any more
    assert not job.run(second)
    assert any("cannot listen for other nodes" in value for value in seen.values())
    first.close()


@pytest.mark.usefixtures("several_hosts")
def test_a_planner_that_is_never_announced_is_looked_for_less_and_less_often(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = job.members(monkeypatch)
    assert job.run(first)
    on_another_host(monkeypatch, tmp_path)
    looks: list[int] = []

    def check(keys: list[str]) -> bool:
        looks.append(second._iteration)
        return keys[0] in job.store.values

    monkeypatch.setattr(job.store, "check", check)
    for _ in range(3000):
        second.begin_iteration(4)
        second.end_iteration()
    assert [looks.count(iteration) for iteration in range(32)] == [2] * 32
    assert sorted(set(looks))[32:] == [32, 34, 38, 46, 62, 94, 158, 286, 542, 1054, 2078]
    listens(job, shared={"address": "10.0.0.1:2", "certificate": "PEM"})
    assert job.run(first)
    while second.hook is None:
        assert second._iteration < 4000
        job.run(second)
    first.close()
    second.close()


def test_a_job_that_seems_to_be_on_one_host_says_what_to_set(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = job.members(monkeypatch)
    assert job.run(first)
    on_another_host(monkeypatch, tmp_path)
    assert job.run(second)
    assert "name an address of rank 0's host" in caplog.text
    assert job.specs[1].control == "observe"
    first.close()
    second.close()


def test_errors_of_the_store_come_out(job: Job) -> None:
    class Broken(SharedStore):
        def check(self, keys: list[str]) -> bool:  # noqa: ARG002
            raise ConnectionError("the store is gone")

    job.store = Broken()
    member: Any = job.member(1)
    with pytest.raises(ConnectionError):
        member.begin_iteration(4)


@pytest.mark.parametrize(
    ("options", "environment", "wanted"),
    [
        (PerseusOptions(), {}, "{home}/.cache/perseus-dist"),
        (PerseusOptions(), {"XDG_CACHE_HOME": "/scratch"}, "/scratch/perseus-dist"),
        (PerseusOptions(report="{home}/runs/7"), {}, "{home}/runs/perseus-cache"),
        (PerseusOptions(report="/dev/shm"), {}, "/dev/shm/cache"),  # a disk of its own
        (PerseusOptions(report="/tmp/7"), {}, "/tmp/7/cache"),  # everybody's
        (PerseusOptions(report="/dev/null/7"), {}, "/dev/null/7/cache"),
        (PerseusOptions(report="/run/7"), {"PERSEUS_CACHE": "/shared"}, "/shared"),
        (PerseusOptions(report="/run/7"), {"PERSEUS_CACHE": "off"}, None),
        (PerseusOptions(cache="/mine"), {"PERSEUS_CACHE": "off"}, "/mine"),
        (PerseusOptions(cache="off", report="/run/7"), {"PERSEUS_CACHE": "/shared"}, None),
        (PerseusOptions(planner="127.0.0.1:50151", cache="/mine"), {}, None),
    ],
)
def test_where_profile_and_plans_are_kept(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: PerseusOptions,
    environment: dict[str, str],
    wanted: str | None,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "PERSEUS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if options.report is not None:
        options = replace(options, report=options.report.format(home=tmp_path))
    member = job.member(0, options.over(options_from_environment()))
    assert job.run(member)
    member.close()
    assert job.specs[0].options.get("cache") == (wanted and wanted.format(home=tmp_path))


def test_the_first_rank_with_a_tracer_makes_the_spans_of_the_whole_job(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(job_member, "open_tracer", lambda: provider.get_tracer("perseus_dist"))
    first, second = job.members(monkeypatch)
    monkeypatch.setattr(job_member, "_numbers", iter([1]))
    other = job.member(0)
    for member in (first, second, other):
        assert job.run(member)
    assert [(spec.rank, spec.shows_job) for spec in job.specs] == [(0, True), (1, False), (0, True)]
    for member in (first, second, other):
        member.close()
    wait_until(lambda: all(thread.name != "perseus-spans" for thread in threading.enumerate()))
    spans = exporter.get_finished_spans()
    assert {span.name for span in spans} == {"perseus.job"}  # no agent has said anything
    assert sorted(str(dict(span.attributes or {})["perseus.job"]) for span in spans) == sorted(
        {spec.job_id for spec in job.specs}
    )
    assert {dict(span.attributes or {})["perseus.rank"] for span in spans} == {0}


def test_a_rank_takes_part_where_no_spans_can_be_made(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trace = pytest.importorskip("opentelemetry.trace")

    def fail() -> None:
        raise RuntimeError("this context is broken")

    monkeypatch.setattr(job_member, "open_tracer", trace.NoOpTracer)
    monkeypatch.setattr(trace, "get_current_span", fail)
    first = job.member(0)
    assert job.run(first)
    assert "there are no spans of this job: RuntimeError('this context is broken')" in caplog.text
    first.close()


def test_a_simulated_rank_leaves_in_the_report_whether_its_host_kept_up(job: Job, tmp_path: Path) -> None:
    with SimulatedMachine("a100", virtual=True) as machine:
        times = WorkTimes(forward_s=0.035, backward_s=0.065)
        job.device = SimulatedGpu(SimulatedWork(machine.gpu(0).stream, gpu=0, times=times, num_stages=2))
        member = job.member(0, PerseusOptions(report=str(tmp_path)))
        job.run(member)
        assert not (tmp_path / "simulated-0.json").exists()  # the agent removes those of an earlier run
        member.close()
        assert json.loads((tmp_path / "simulated-0.json").read_text()) == {"num_instructions": 8, "num_outlasting": 0}


def test_a_host_alone_leaves_nothing_of_simulated_work(job: Job, tmp_path: Path) -> None:
    member = job.member(0, PerseusOptions(report=str(tmp_path)))
    job.run(member)
    member.close()
    assert not (tmp_path / "simulated-0.json").exists()


ENDING = """
import atexit, os, sys, tempfile
from perseus_dist import hooks
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.training.options import PerseusOptions
from perseus_dist.training.rank.device import Host
from perseus_dist.training.rank.job_member import Framework, JobMember, RankIdentity


class Store(dict):
    set = dict.__setitem__

    def check(self, keys):
        return all(key in self for key in keys)


how, tempfile.tempdir = sys.argv[1:]
atexit.register(lambda: print("framework ends", member.hook is None, flush=True))  # after all that is registered later
hooks.start_agent = lambda spec, **_: 0
schedule = one_f_one_b(pp=1, microbatches=2)
place = RankIdentity(rank=0, pp_rank=0, dp_rank=0, tp_rank=0, pp_size=1, dp_size=1, tp_size=1, local_rank=0)
framework = Framework(read_schedule=lambda: schedule, open_device=Host, open_store=Store)
member = JobMember(place, PerseusOptions(), framework)
member.begin_iteration(2)
for instruction in schedule.ranks[0]:
    member.begin(instruction)
    member.end(instruction)
member.end_iteration()
assert member.hook is not None
if how == "fork" and os.fork() == 0:
    sys.exit(0)
if how == "fork":
    os.wait()
    print("parent", member.hook.enabled, flush=True)
if how == "close":
    member.close()
    member.close()
if how == "fail":
    raise ArithmeticError("the layer has failed")
sys.exit(3 if how == "exit" else 0)
"""


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("end", 0, ["framework ends True"]),
        ("exit", 3, ["framework ends True"]),
        ("close", 0, ["framework ends True"]),
        ("fail", 1, ["framework ends False"]),
        ("fork", 0, ["framework ends False", "parent True", "framework ends True"]),
    ],
)
def test_goodbye_is_said_before_the_framework_ends(how: str, code: int, said: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDING, how, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == code, run.stderr
    assert run.stdout.splitlines() == said
