"""Energy records: written once and whole, found below a folder, summed up with their intervals, and never trusted."""

import csv
import io
import json
import os
import re
import shlex
import threading
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.cli import main
from perseus_dist.errors import OutputError
from perseus_dist.runlog.accounting import finish, record_files
from perseus_dist.runlog.accounting.finish import finish_ended, finish_if_possible, finish_record
from perseus_dist.runlog.accounting.record import MAX_GPUS, EnergyRecord, GpuEnergy, record_from
from perseus_dist.runlog.accounting.record_files import MAX_BYTES, read_record, records_in, run_folders, write_record
from perseus_dist.runlog.accounting.sums import Group, is_within, sum_up
from perseus_dist.runlog.file_content import MAX_FILE_BYTES
from perseus_dist.runlog.files import read_run
from perseus_dist.runlog.iteration_log import IterationTotals
from perseus_dist.runlog.submission import MAX_TEXT, Submission, submission_of

BEGAN, ENDED = "2026-11-20T08:00:00.000+00:00", "2026-11-20T09:00:00.000+00:00"
RECORD = EnergyRecord(
    job_id="gpt",
    began_at=BEGAN,
    ended_at=ENDED,
    is_complete=True,
    submission=Submission(user="ada", project="nlp", slurm_job_id="17"),
    num_gpus=4,
    num_iterations=100,
    energy_j=9000.0,
    saved_j=1000.0,
    saved_low_j=800.0,
    saved_high_j=1200.0,
    lost_s=0.5,
    gpus=tuple(GpuEnergy(rank=rank, uuid=f"GPU-{rank}", energy_j=2250.0, clock_mhz=1200.5) for rank in range(4)),
)
KILLED = replace(RECORD, job_id="killed", is_complete=False, reason="killed", energy_j=500.0)


def job_document(**changes: object) -> str:
    document = {"job_id": "gpt", "phase": "done", "num_ranks": 2, "started_at": BEGAN, "updated_at": ENDED}
    submission = {"user": "ada", "project": "nlp", "slurm_job_id": "17"}
    figures = {"saved_j": 100.0, "saved_doubt_j": 20.0, "guard": {"lost_s": 0.25}}
    return json.dumps({**document, "ended_at": ENDED, "submission": submission, **figures, **changes})


def leave_run(folder: Path, *, totals: int = 2, **changes: Any) -> None:
    """Two ranks, each of 3 iterations of 10 J without a plan and 2 of 8 J under it, one of unknown energy."""
    folder.mkdir(exist_ok=True)
    (folder / "job.json").write_text(job_document(**changes))
    for rank in range(2):
        lines = [
            {"iteration": n, "time_s": 1.0, "energy_j": None if n == 0 else 10.0 if n < 3 else 8.0, "point": p}
            for n, p in enumerate((-1, -1, -1, 4, 4))
        ]
        (folder / f"rank-{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if rank < totals:
            sums = IterationTotals()
            sums.restore(folder, rank)
            (folder / f"totals-{rank}.json").write_text(json.dumps(sums.document()))


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = write_record(tmp_path, RECORD)
    assert read_record(path) == RECORD
    assert records_in(tmp_path) == [RECORD]
    assert RECORD.saved_percent == pytest.approx(10.0)


def test_a_record_is_written_once(tmp_path: Path) -> None:
    first = write_record(tmp_path, RECORD)
    assert write_record(tmp_path, replace(RECORD, energy_j=1.0)) == first
    assert records_in(tmp_path) == [RECORD]
    assert [path.name for path in tmp_path.iterdir()] == [first.name]  # nothing temporary is left


def test_a_record_is_written_through_no_link(tmp_path: Path) -> None:
    """As root collects it, in a folder that another user has put in the place of the records."""
    other = tmp_path / "passwd"
    other.write_text("root")
    first = write_record(tmp_path, RECORD)
    first.rename(tmp_path / "known")
    temporary = tmp_path / f".{first.stem}.{os.getpid()}.tmp"
    temporary.symlink_to(other)
    assert write_record(tmp_path, RECORD) == first
    assert other.read_text() == "root"
    assert not first.is_symlink()
    assert read_record(first) == RECORD
    assert not temporary.is_symlink()


def test_a_record_of_very_many_gpus_is_small(tmp_path: Path) -> None:
    gpu = GpuEnergy(rank=MAX_GPUS, uuid="GPU-" + "0" * 36, energy_j=1 / 3, clock_mhz=1 / 3)
    gpus = (gpu,) * MAX_GPUS
    path = write_record(tmp_path, replace(RECORD, gpus=gpus))
    assert path.stat().st_size < MAX_BYTES
    assert read_record(path) is not None


@pytest.mark.parametrize("began", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:00", "yesterday"])
def test_a_run_of_no_time_at_all_has_a_record(tmp_path: Path, began: str) -> None:
    """Its folder is its user's, and whoever collects records goes on with those of others."""
    path = write_record(tmp_path, replace(RECORD, began_at=began))
    assert path.name == "energy-unknown.json"
    assert records_in(tmp_path) == [replace(RECORD, began_at=began)]


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        write_record(tmp_path / "missing", RECORD)


def test_a_run_that_ended_gets_its_record_with_what_each_gpu_drew(tmp_path: Path) -> None:
    leave_run(tmp_path)
    record = finish_record(tmp_path, is_final=False)
    assert record is not None
    assert record.is_complete
    assert [gpu.energy_j for gpu in record.gpus] == [46.0, 46.0]  # the unknown one counts as the mean of the others
    assert (record.energy_j, record.without_plan_j, record.under_plan_j) == (92.0, 60.0, 32.0)
    assert record.num_unmeasured == 1
    assert (record.saved_low_j, record.saved_j, record.saved_high_j) == (80.0, 100.0, 120.0)
    assert record.lost_s == 0.25
    assert record.submission == Submission(user="ada", project="nlp", slurm_job_id="17")
    assert finish_record(tmp_path, is_final=True) == record
    assert records_in(tmp_path) == [record]


def test_a_report_that_nobody_straggles_is_no_straggler_of_the_record(tmp_path: Path) -> None:
    leave_run(tmp_path)
    told = [("verdict", 1.2), ("recovered", 1.2), ("reported", 1.5), ("reported", 1.0), ("switch", 0.0)]
    lines = [{"sequence": n, "kind": kind, "degree": degree} for n, (kind, degree) in enumerate(told, 1)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = finish_record(tmp_path, is_final=True)
    assert record is not None
    assert record.num_stragglers == 2


def test_the_record_waits_for_every_rank(tmp_path: Path) -> None:
    leave_run(tmp_path, totals=1)
    assert finish_record(tmp_path, is_final=False) is None
    record = finish_record(tmp_path, is_final=True)
    assert record is not None
    assert record.energy_j == 92.0  # from the lines that the rank had written


@pytest.mark.parametrize("changes", [{"ended_at": None}, {"ended_in_iteration": True}, {"phase": "enforcing"}])
def test_a_run_that_was_killed_is_incomplete(tmp_path: Path, changes: dict[str, Any]) -> None:
    leave_run(tmp_path, **changes)
    record = finish_record(tmp_path, is_final=True)
    assert record is not None
    assert not record.is_complete
    assert record.reason
    assert record.baseline_j is None


def let_age(folder: Path) -> None:
    """Its agents have written nothing for a minute."""
    for path in folder.iterdir():
        os.utime(path, (time.time() - 60,) * 2)


def test_a_run_that_still_trains_gets_no_record_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave_run(tmp_path, ended_at=None, phase="enforcing")
    assert main(["accounting", "--finish", str(tmp_path)]) == 2
    assert "its job still trains, its agents wrote" in capsys.readouterr().err
    assert records_in(tmp_path) == []
    let_age(tmp_path)
    assert main(["accounting", "--finish", str(tmp_path)]) == 0
    assert [record.is_complete for record in records_in(tmp_path)] == [False]
    assert main(["accounting", "--ended"]) == 2


def test_the_true_end_replaces_a_record_that_was_written_too_early(tmp_path: Path) -> None:
    leave_run(tmp_path, ended_at=None, phase="enforcing")
    early = finish_record(tmp_path, is_final=True)
    assert early is not None
    assert not early.is_complete
    leave_run(tmp_path)
    finish_if_possible(tmp_path, is_final=False)
    (record,) = records_in(tmp_path)
    assert record.is_complete
    assert record.saved_j == 100.0
    leave_run(tmp_path, ended_at=None, phase="enforcing")
    finish_record(tmp_path, is_final=True)
    assert records_in(tmp_path) == [record], "the last word stays"


def test_a_collected_record_is_replaced_by_a_complete_one_of_its_run_alone(tmp_path: Path) -> None:
    write_record(tmp_path, replace(RECORD, is_complete=False), name="17")
    write_record(tmp_path, replace(RECORD, job_id="another"), name="17")
    assert [record.is_complete for record in records_in(tmp_path)] == [False]
    write_record(tmp_path, RECORD, name="17")
    write_record(tmp_path, replace(RECORD, is_complete=False, num_iterations=10**6), name="17")
    assert records_in(tmp_path) == [RECORD]


def test_the_epilog_waits_for_the_last_words_of_other_nodes(tmp_path: Path) -> None:
    leave_run(tmp_path, totals=1)
    lines = (tmp_path / "rank-1.jsonl").read_text().splitlines()
    (tmp_path / "rank-1.jsonl").write_text(f"{lines[0]}\n")

    def say_last_word() -> None:
        time.sleep(0.3)
        (tmp_path / "rank-1.jsonl").write_text("".join(f"{line}\n" for line in lines))
        sums = IterationTotals()
        sums.restore(tmp_path, 1)
        (tmp_path / "totals-1.json").write_text(json.dumps(sums.document()))

    thread = threading.Thread(target=say_last_word)
    thread.start()
    record = finish_ended(tmp_path)
    thread.join()
    assert record is not None
    assert record.energy_j == 92.0


def test_the_epilog_waits_for_agents_that_write_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0's agent was killed: no end will be written, and the others' files say when they are done."""
    monkeypatch.setattr(finish, "_QUIET_S", 0.5)
    leave_run(tmp_path, ended_at=None, phase="enforcing")
    lines = (tmp_path / "rank-1.jsonl").read_text().splitlines()
    (tmp_path / "totals-1.json").unlink()
    (tmp_path / "rank-1.jsonl").write_text(f"{lines[0]}\n")

    def go_on() -> None:
        for line in lines[1:]:
            time.sleep(0.2)
            with (tmp_path / "rank-1.jsonl").open("a") as file:
                file.write(f"{line}\n")

    thread = threading.Thread(target=go_on)
    thread.start()
    record = finish_ended(tmp_path)
    thread.join()
    assert record is not None
    assert (record.is_complete, record.energy_j) == (False, 92.0)


@pytest.mark.parametrize("cut", [0, 1, 40, 200, -2])
def test_half_a_record_is_none(tmp_path: Path, cut: int) -> None:
    path = write_record(tmp_path, RECORD)
    path.write_bytes(path.read_bytes()[:cut])
    assert read_record(path) is None


def test_no_device_link_or_giant_is_read(tmp_path: Path) -> None:
    """An operator's command reads folders of users."""
    os.mkfifo(tmp_path / "energy-pipe.json")
    (tmp_path / "energy-link.json").symlink_to("/etc/passwd")
    (tmp_path / "energy-giant.json").write_bytes(b" " * (MAX_BYTES + 1))
    (tmp_path / "energy-folder.json").mkdir()
    (tmp_path / "energy-deep.json").write_text("[" * 100_000)
    assert records_in(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        "job.json",
        "rank-0.jsonl",
        "timeline-1.jsonl",
        "simulated-0.json",
        "frontier.csv",
        "events.jsonl",
        "injected.jsonl",
    ],
)
@pytest.mark.parametrize("how", ["pipe", "link", "giant"])
def test_a_run_that_would_hold_up_its_reader_is_passed_over(tmp_path: Path, name: str, how: str) -> None:
    leave_run(tmp_path)
    path = tmp_path / name
    path.unlink(missing_ok=True)
    if how == "pipe":
        os.mkfifo(path)
    elif how == "link":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
    assert finish_record(tmp_path, is_final=True) is None
    assert main(["accounting", "--records", str(tmp_path)]) == 0
    assert main(["accounting", "--finish", str(tmp_path)]) == 2


def test_a_report_leaves_out_giants_and_pipes_that_came_after_the_folder_was_looked_at(tmp_path: Path) -> None:
    leave_run(tmp_path, simulated=True)
    for name in ("frontier.csv", "injected.jsonl", "simulated-0.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
    os.mkfifo(tmp_path / "events.jsonl")
    run = read_run(tmp_path)
    assert run.job.is_simulated
    assert (run.frontier, run.injections, run.host_paces, run.events) == (None, (), {}, ())
    assert [note for note in run.notes if not note.startswith("timeline")] == [
        "simulated-0.json is left out: larger than 64 MiB",
        "frontier.csv is left out: larger than 64 MiB",
        "events.jsonl cannot be read: no regular file",
        "injected.jsonl cannot be read: larger than 64 MiB",
    ]


def test_records_that_cannot_be_read_are_said_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However a record is damaged: one sentence with how many and why, and the others are counted."""
    content = write_record(tmp_path, RECORD).read_bytes()
    begin = json.loads(content)
    damaged = {
        "empty": b"",
        "half": content[: len(content) // 2],
        "bytes": b"\xff\xfe" + content,
        "list": b"[]",
        "other": b'{"job_id": 1}',
        "negative": json.dumps({**begin, "num_gpus": -1}).encode(),
        "giant": b" " * (MAX_BYTES + 1),
        "deep": b"[" * 100_000,
    }
    for number, (name, data) in enumerate(damaged.items(), 1):
        (tmp_path / f"energy-{name}.json").write_bytes(data)
        assert main(["accounting", "--records", str(tmp_path), "--csv"]) == 0
        said = capsys.readouterr()
        assert said.out.splitlines()[1].startswith("ada,1,")
        assert said.err.startswith(f"perseus-dist: {number} not read and not counted: {tmp_path}/energy-")
        assert said.err.count("\n") == 1
    assert main(["accounting", "--records", str(tmp_path), "--json"]) == 0
    said = capsys.readouterr()
    skipped = json.loads(said.out)["skipped"]
    assert len(skipped) == len(damaged)
    assert all(one.endswith(")") for one in skipped)
    assert said.err.endswith("; and 3 more\n")
    assert main(["accounting", "--line", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert (said.out.count("\n"), said.err.count("\n")) == (1, 1)


@pytest.mark.parametrize("what", ["job.json", "pipe", "folder\x1b[2J"])
def test_runs_that_cannot_be_read_are_said_to(tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    leave_run(tmp_path)
    if what == "job.json":
        (tmp_path / what).write_text("{")
    elif what == "pipe":
        os.mkfifo(tmp_path / "rank-9.jsonl")
    else:
        (tmp_path / what).mkdir()
        (tmp_path / what / "energy-x.json").touch()
    assert main(["accounting", "--records", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert said.startswith("perseus-dist: 1 not read and not counted: ")
    assert str(tmp_path) in said
    assert said.removesuffix("\n").isprintable()


def test_texts_of_users_do_nothing_to_a_terminal_or_a_spreadsheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submission = {"user": "=cmd()", "project": "\x1b[2Jx\n" + "y" * 999}
    record = record_from(json.loads(json.dumps({**asdict(RECORD), "submission": submission, "reason": "\x07"})))
    assert record.submission.project.isprintable()
    assert len(record.submission.project) == MAX_TEXT
    write_record(tmp_path, record)
    assert main(["accounting", "--records", str(tmp_path), "--csv"]) == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out)))[1][0] == "'=cmd()"


def test_sums_add_intervals_and_leave_out_what_killed_runs_saved() -> None:
    other = replace(RECORD, job_id="other", submission=replace(RECORD.submission, project="vision"))
    (one,) = sum_up([RECORD, KILLED, other], Group.USER)
    assert (one.name, one.num_runs, one.num_incomplete) == ("ada", 3, 1)
    assert one.energy_j == 18_500.0
    assert (one.saved_low_j, one.saved_j, one.saved_high_j) == (1600.0, 2000.0, 2400.0)
    assert one.saved_percent == pytest.approx(10.0)
    assert one.gpu_s == 3 * 4 * 3600.0
    assert [sums.name for sums in sum_up([RECORD, other], Group.PROJECT)] == ["nlp", "vision"]


def test_an_unknown_energy_is_counted_as_unknown_and_not_as_none() -> None:
    (one,) = sum_up([replace(RECORD, energy_j=None), RECORD], Group.USER)
    assert (one.num_unknown, one.energy_j) == (1, 9000.0)
    assert one.saved_percent == pytest.approx(10.0)


def test_bounds_take_the_end_of_a_run() -> None:
    ended = datetime(2026, 11, 20, 9, tzinfo=UTC)
    assert is_within(RECORD, ended, None)
    assert not is_within(RECORD, None, ended)
    assert not is_within(replace(RECORD, ended_at=""), ended, None)


def test_folders_behind_a_bound_are_said_to_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        folder = tmp_path.joinpath(name, *"1234567")
        (folder / "8" / "9").mkdir(parents=True)
        leave_run(folder)
        leave_run(folder / "8")
    skipped: list[str] = []
    assert len(list(run_folders(tmp_path, skipped))) == 2
    assert skipped == [f"{tmp_path}/a/1/2/3/4/5/6/7/8 (more than 8 folders below: this and others are left)"]
    monkeypatch.setattr(record_files, "MAX_FOLDERS", 2)
    skipped.clear()
    assert list(run_folders(tmp_path, skipped)) == []
    assert skipped == [f"{tmp_path}/a/1 (behind 2 other folders: this and later ones are left)"]
    skipped.clear()
    assert list(run_folders(tmp_path / "b/1/2/3/4/5/6/7/8/9", skipped)) == []
    assert skipped == []


def test_the_command_says_how_far_down_it_searches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["accounting", "--help"])
    assert f"up to {record_files.MAX_DEPTH} folders below" in " ".join(capsys.readouterr().out.split())


def test_a_run_in_two_places_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_record(tmp_path / name, RECORD)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert len(list(run_folders(tmp_path))) == 2
    assert main(["accounting", "--records", str(tmp_path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["records"]) == 1


def test_a_run_without_a_record_is_shown_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_run(tmp_path, ended_at=None)
    before = sorted(tmp_path.iterdir())
    assert main(["accounting", "--records", str(tmp_path)]) == 0
    assert "incomplete: 17 of ada: it still runs, or was killed a few seconds ago" in capsys.readouterr().out
    let_age(tmp_path)
    assert main(["accounting", "--records", str(tmp_path)]) == 0
    assert "incomplete: 17 of ada: its agents were ended" in capsys.readouterr().out
    assert sorted(tmp_path.iterdir()) == before


def test_what_slurm_says_of_a_job_wins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_run(tmp_path / "run")
    write_record(tmp_path / "run", replace(RECORD, began_at="2026-11-19T08:00:00.000+00:00"))  # of an earlier start
    (tmp_path / "records").mkdir()
    assert main(["accounting", "--finish", str(tmp_path / "run")]) == 0
    text = capsys.readouterr().out.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    for name, value in {"SLURM_JOB_USER": "eve", "SLURM_JOB_ACCOUNT": "ops", "SLURM_JOB_ID": "../../18"}.items():
        monkeypatch.setenv(name, value)
    assert main(["accounting", "--collect", "--records", str(tmp_path / "records")]) == 0
    records = records_in(tmp_path / "records")
    assert [(record.submission.user, record.submission.project) for record in records] == [("eve", "ops")] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a link of another user")
def test_root_collects_into_no_folder_that_another_user_has_put_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of records may lie below that of the planner, which is another user's."""
    (tmp_path / "elsewhere").mkdir()
    records = tmp_path / "records"
    records.symlink_to("elsewhere")
    text = json.dumps(asdict(RECORD)).encode()
    for owner, status in ((65_534, 2), (0, 0)):
        os.chown(records, owner, owner, follow_symlinks=False)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert main(["accounting", "--collect", "--records", str(records)]) == status
        assert len(records_in(tmp_path / "elsewhere")) == (status == 0)
    assert "is a link of user 65534" in capsys.readouterr().err


@pytest.mark.parametrize("page", ["operations", "slurm"])
def test_commands_of_the_documentation(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text()
    commands = re.findall(r"^perseus-dist (accounting .+)$", text, flags=re.MULTILINE)
    assert commands
    monkeypatch.chdir(tmp_path)
    leave_run(tmp_path / "perseus-report")
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat(timespec="milliseconds")
    (tmp_path / "records").mkdir()
    write_record(tmp_path / "records", RECORD)
    write_record(tmp_path / "records", replace(RECORD, ended_at=yesterday, began_at=yesterday, job_id="bert"))
    monkeypatch.setenv("PERSEUS_RECORDS", str(tmp_path / "records"))
    for command in commands:
        assert main(shlex.split(command, comments=True)) == 0
        assert re.search(r"nlp|ada|\b17\b", capsys.readouterr().out), command


@pytest.mark.parametrize(
    "words", [["--records", "missing"], ["--finish", "missing"], ["--since", "1d", "--until", "2d"]], ids=str
)
def test_bad_input_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accounting", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_submission_is_read_from_the_environment() -> None:
    found = submission_of({"SLURM_JOB_ID": "17", "SLURM_JOB_ACCOUNT": "nlp", "SLURM_JOB_NAME": "a\x1bb"})
    assert (found.slurm_job_id, found.project, found.job_name) == ("17", "nlp", "a?b")
    assert submission_of({"PERSEUS_PROJECT": "x", "SLURM_JOB_ACCOUNT": "nlp"}).project == "x"
    assert found.user


def test_a_line_for_a_jobs_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perseus_dist.cli.jobs.accounting.records._LAST_WORD_S", 0.1)
    write_record(tmp_path, replace(RECORD, energy_j=9 * 3.6e6, saved_j=3.6e6, saved_low_j=2.88e6, saved_high_j=4.32e6))
    assert main(["accounting", "--line", str(tmp_path)]) == 0
    line = "perseus: drew 9 kWh, saved 1 kWh (10.0 %, between 0.8 and 1.2 kWh), lost 0.5 s"
    assert capsys.readouterr().out == f"{line}\n"
    write_record(tmp_path, replace(KILLED, began_at=ENDED, energy_j=3.6e6))
    assert main(["accounting", "--line", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("perseus: drew 10 kWh, saved 1 kWh (10.0 %")
    assert main(["accounting", "--line", str(tmp_path / "none")]) == 2
    assert "name a report's folder" in capsys.readouterr().err
    unknown = tmp_path / "unknown"
    unknown.mkdir()
    assert main(["accounting", "--line", str(unknown)]) == 2
    assert "no run has left anything here" in capsys.readouterr().err
    write_record(unknown, replace(KILLED, energy_j=None))
    assert main(["accounting", "--line", str(unknown)]) == 0
    assert capsys.readouterr().out == "perseus: energy not known\n"
