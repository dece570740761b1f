"""``--perseus`` through DeepSpeed's real launcher, and stand-ins for what reaches other hosts."""

import argparse
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perseus_dist.deepspeed.launcher.runner_patch import LauncherError, patch_runner
from perseus_dist.simulation.frameworks.training_run import free_port
from perseus_dist.training.options import PerseusOptions

PORT = str(free_port())
pytestmark = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")

STANDINS = Path(__file__).parent / "launcher_standins"
AWKWARD = ["--text", "two words", '"quoted"', "it's", "$HOME", "`id`", "a;b|c&d", "*", "", "--", "-x=%s"]
PLAIN = {"PERSEUS_DISABLE": "1"}


@dataclass(frozen=True)
class Launched:
    exit_code: int
    output: str
    ranks: dict[str, dict[str, Any]]  # what each probe found, by host and rank


@dataclass(frozen=True)
class Launcher:
    """Runs ``deepspeed ARGV`` in ``folder``, where the probe stands as a script, a module and an executable."""

    folder: Path
    bin: Path
    worker: "subprocess.Popen[str]"

    def environment(self, extra: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERSEUS", "PYTEST"))}
        return {**kept, "DS_ACCELERATOR": "cpu", "PATH": f"{self.bin}:{os.environ['PATH']}", **extra}

    def run(self, argv: Sequence[str], **options: Any) -> Launched:
        return self.run_together([argv], **options)[0]

    def run_together(
        self,
        argvs: Sequence[Sequence[str]],
        *,
        environment: dict[str, str] | None = None,
        command: str = "deepspeed",
    ) -> list[Launched]:
        for found in (self.folder / "out").glob("*.json"):
            found.unlink()
        outputs = [self.folder / f"output-{number}" for number in range(len(argvs))]
        launches = [
            {
                "argv": [command, *argv],
                "environment": self.environment(environment or {}),
                "cwd": str(self.folder),
                "output": str(output),
                "is_always_on": command == "perseus-deepspeed",
            }
            for argv, output in zip(argvs, outputs, strict=True)
        ]
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        self.worker.stdin.write(json.dumps(launches) + "\n")
        self.worker.stdin.flush()
        assert select.select([self.worker.stdout], [], [], 240)[0], "no launcher has ended"
        codes = json.loads(self.worker.stdout.readline())
        ranks = {path.stem: json.loads(path.read_bytes()) for path in (self.folder / "out").glob("*.json")}
        return [Launched(code, output.read_text(), ranks) for code, output in zip(codes, outputs, strict=True)]


@pytest.fixture(scope="module")
def worker() -> Iterator["subprocess.Popen[str]"]:
    with _running_worker() as process:
        yield process


@pytest.fixture
def oldest_worker() -> Iterator["subprocess.Popen[str]"]:
    folder = os.environ.get("PERSEUS_TEST_DEEPSPEED_OLD")
    if folder is None:
        pytest.skip("PERSEUS_TEST_DEEPSPEED_OLD names no folder with DeepSpeed 0.14.5")
    with _running_worker(PYTHONPATH=folder) as process:
        yield process


@contextmanager
def _running_worker(**environment: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, str(STANDINS / "forked_launcher.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "DS_ACCELERATOR": "cpu", **environment},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def launcher(worker: "subprocess.Popen[str]", tmp_path: Path) -> Launcher:
    return _launcher(worker, tmp_path)


def _launcher(worker: "subprocess.Popen[str]", tmp_path: Path) -> Launcher:
    folder, bin_ = tmp_path / "the project", tmp_path / "bin"
    (folder / "package").mkdir(parents=True)
    bin_.mkdir()
    probe = (STANDINS / "probe.py").read_text()
    (folder / "probe.py").write_text(probe)
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "module.py").write_text(probe)
    _write_executable(folder / "wrapper", f'{shlex.quote(sys.executable)} -u probe.py "$@"')
    (folder / "hosts").write_text("nodeA slots=1\nnodeB slots=1\n")
    for name in ("pdsh", "srun", "mpirun"):
        _write_executable(bin_ / name, f'exec {shlex.quote(sys.executable)} -I {STANDINS / name}.py "$@"')
    for name in ("sinfo", "ompi_info"):
        _write_executable(bin_ / name, "exit 0")
    return Launcher(folder, bin_, worker)


def multi_node(backend: str) -> list[str]:
    return ["--hostfile", "hosts", "--no_ssh_check", "--master_addr", "127.0.0.1", "--launcher", backend]


@pytest.mark.parametrize("backend", ["openmpi", "impi", "slurm"])
def test_ranks_see_what_they_see_without(launcher: Launcher, backend: str) -> None:
    argv = ["--perseus", "--perseus-target", "slowdown=1.1", *multi_node(backend), "probe.py", "--out", "out", *AWKWARD]
    plain = launcher.run(argv, environment=PLAIN)
    ours = launcher.run(argv)
    assert plain.exit_code == ours.exit_code == 0
    assert set(plain.ranks) == set(ours.ranks) == {"0", "1"}
    for name, rank in ours.ranks.items():
        _assert_as_plain(rank, plain.ranks[name])
        assert rank["argv"] == ["probe.py", "--out", "out", *AWKWARD]
        assert rank["options"] == PerseusOptions(target="slowdown=1.1").to_text()
        assert not rank["imported_torch"]
        assert not plain.ranks[name]["is_active"]


@pytest.mark.parametrize("target", ["application", "application.zip"])
def test_a_folder_or_a_zip_file(launcher: Launcher, target: str) -> None:
    (launcher.folder / "application").mkdir()
    (launcher.folder / "application" / "__main__.py").write_text((STANDINS / "probe.py").read_text())
    shutil.make_archive(str(launcher.folder / "application"), "zip", launcher.folder / "application")
    argv = ["--perseus", *multi_node("slurm"), target, "--out", "out", *AWKWARD]
    plain = launcher.run(argv, environment=PLAIN)
    ours = launcher.run(argv)
    assert set(ours.ranks) == {"0", "1"}
    for name, rank in ours.ranks.items():
        _assert_as_plain(rank, plain.ranks[name])
        assert rank["is_active"]


@pytest.mark.parametrize("backend", ["openmpi", "impi"])
def test_module(launcher: Launcher, backend: str) -> None:
    argv = ["--perseus", *multi_node(backend), "--module", "package.module", "--out", "out", *AWKWARD]
    plain = launcher.run(argv, environment=PLAIN)
    ours = launcher.run(argv)
    assert set(ours.ranks) == {"0", "1"}
    for name, rank in ours.ranks.items():
        _assert_as_plain(rank, plain.ranks[name])
        assert rank["is_active"]


@pytest.mark.parametrize("backend", ["slurm", pytest.param("mpich", marks=pytest.mark.stress)])
def test_module_where_deepspeed_alone_cannot(launcher: Launcher, backend: str) -> None:
    """DeepSpeed drops ``-m`` for srun and gives it to its helper for mpirun; the bootstrap is a file."""
    ours = launcher.run(["--perseus", *multi_node(backend), "--module", "package.module", "--out", "out", *AWKWARD])
    assert set(ours.ranks) == {"0", "1"}
    for rank in ours.ranks.values():
        assert rank["argv"] == [str(launcher.folder / "package" / "module.py"), "--out", "out", *AWKWARD]
        assert rank["is_active"]


def test_no_python(launcher: Launcher) -> None:
    argv = ["--perseus", *multi_node("openmpi"), "--no_python", "./wrapper", "--out", "out", *AWKWARD]
    own_path = {"PYTHONPATH": str(launcher.folder)}
    plain = launcher.run(argv, environment={**PLAIN, **own_path})
    ours = launcher.run(argv, environment=own_path)
    assert set(ours.ranks) == {"0", "1"}
    for name, rank in ours.ranks.items():
        python_path = rank["environment"].pop("PYTHONPATH").split(os.pathsep, 1)[1]
        assert rank["environment"].pop("PERSEUS_DEEPSPEED_OPTIONS") == PerseusOptions().to_text()
        assert python_path == plain.ranks[name]["environment"].pop("PYTHONPATH")
        _assert_as_plain(rank, plain.ranks[name])


def test_pdsh_gives_each_host_the_options(launcher: Launcher) -> None:
    simple = [
        "--text",
        "two words",
        "a=b",
        'say "hi" twice',
    ]  # the others are taken apart by its shells with or without us
    argv = ["--perseus-job", "job-1", *multi_node("pdsh"), "--no_local_rank", "probe.py", "--out", "out", *simple]
    ours = launcher.run(argv)
    assert ours.exit_code == 0, ours.output
    assert set(ours.ranks) == {"nodeA0", "nodeB1"}
    for rank in ours.ranks.values():
        assert rank["argv"] == ["probe.py", "--out", "out", *simple]
        assert rank["options"] == PerseusOptions(job="job-1").to_text()
        assert rank["cwd"] == str(launcher.folder)
        assert "DS_ACCELERATOR" not in rank["environment"]  # the environment does not travel


def test_two_launchers_without_ssh(launcher: Launcher) -> None:
    """Each is told its node; only the first makes the report."""
    argvs = [
        [
            "--perseus-report",
            "report",
            *multi_node("pdsh"),
            "--no_ssh",
            f"--node_rank={node}",
            "probe.py",
            "--out",
            "out",
        ]
        for node in (0, 1)
    ]
    first, second = launcher.run_together(argvs)
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert set(first.ranks) == {"0", "1"}
    assert {rank["options"] for rank in first.ranks.values()} == {
        PerseusOptions(report=str(launcher.folder / "report")).to_text()
    }
    assert [rank["argv"] for rank in first.ranks.values()] == [["probe.py", "--local_rank=0", "--out", "out"]] * 2
    assert "no report: no job wrote" in first.output
    assert "no report" not in second.output


def test_local_ranks_and_their_exit_code(launcher: Launcher) -> None:
    argv = ["--perseus-control", "observe", *local(), "probe.py", "--out", "out", "--exit-code", "7", *AWKWARD]
    plain = launcher.run(argv, environment=PLAIN)
    ours = launcher.run(argv)
    assert plain.exit_code == ours.exit_code == 7
    for name, rank in ours.ranks.items():
        _assert_as_plain(rank, plain.ranks[name])
        assert rank["argv"] == ["probe.py", f"--local_rank={name}", "--out", "out", "--exit-code", "7", *AWKWARD]
        assert rank["options"] == PerseusOptions(control="observe").to_text()


def test_perseus_deepspeed_needs_no_flag(launcher: Launcher) -> None:
    argv = [*multi_node("slurm"), "probe.py", "--out", "out"]
    assert all(rank["is_active"] for rank in launcher.run(argv, command="perseus-deepspeed").ranks.values())
    assert not any(rank["is_active"] for rank in launcher.run(argv).ranks.values())


def test_a_variable_asks_as_the_flag_does(launcher: Launcher) -> None:
    argv = [*multi_node("slurm"), "probe.py", "--out", "out"]
    for variables, is_active in (({}, True), ({"PERSEUS_JOB": "gpt"}, True), (PLAIN, False)):
        ranks = launcher.run(argv, environment={"PERSEUS_ENABLE": "1", **variables}).ranks.values()
        assert len(ranks) == 2
        assert all(rank["is_active"] is is_active for rank in ranks)
        if is_active:
            assert {rank["options"] for rank in ranks} == {PerseusOptions(job=variables.get("PERSEUS_JOB")).to_text()}
    assert not any(rank["is_active"] for rank in launcher.run(argv, environment={"PERSEUS_ENABLE": "0"}).ranks.values())


def test_help_tells_of_the_options(launcher: Launcher) -> None:
    shown = launcher.run(["--help"])
    assert shown.exit_code == 0
    assert "--perseus-planner HOST:PORT" in shown.output
    assert "--perseus-report DIR" in shown.output
    assert "--num_gpus" in shown.output


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--perseus-target", "slow"], "--perseus-target is 'slow': expected t_min, slowdown=1.05"),
        (["--perseus_planner=here"], "--perseus-planner is 'here': expected HOST:PORT"),
        (["--perseus-profile", "nowhere.csv"], "nowhere.csv: no file that can be read is there"),
        (
            ["--perseus-profile", "hosts"],
            "hosts:1: saw 'nodeA slots=1', expected a header with the columns stage,instr",
        ),
        (["--perseus-report", "hosts"], "hosts: no folder can be made there (File exists)"),
        (["--perseus", "--autotuning", "run"], "PERSEUS_ENABLE=1, and --autotuning exclude each other"),
        (["--perseus", "--module", "--no_python"], "--no_python and --module exclude each other"),
    ],
)
def test_what_cannot_be_served_ends_before_anything_starts(launcher: Launcher, argv: list[str], message: str) -> None:
    refused = launcher.run([*argv, *multi_node("slurm"), "probe.py", "--out", "out"])
    assert refused.exit_code == 2
    assert not refused.ranks
    (line,) = refused.output.splitlines()
    assert line.startswith("deepspeed: ")
    assert message in line


def test_a_profile_of_no_use_that_a_variable_names_does_not_keep_the_job_from_starting(launcher: Launcher) -> None:
    argv = ["--perseus", *multi_node("slurm"), "probe.py", "--out", "out"]
    for profile in (launcher.folder / "nowhere.csv", launcher.folder / "hosts"):
        launched = launcher.run(argv, environment={"PERSEUS_PROFILE": str(profile)})
        assert launched.exit_code == 0, launched.output
        assert launched.ranks["0"]["options"] == PerseusOptions(profile=str(profile)).to_text()


def test_options_after_the_script_are_the_scripts(launcher: Launcher) -> None:
    ours = launcher.run([*multi_node("slurm"), "probe.py", "--out", "out", "--perseus_job=x"])
    assert "--perseus_job=x stands after probe.py and goes to the script" in ours.output
    assert ours.ranks["0"]["argv"] == ["probe.py", "--out", "out", "--perseus_job=x"]
    assert not ours.ranks["0"]["is_active"]


def test_the_scripts_options_are_no_abbreviations_of_ours(launcher: Launcher) -> None:
    argv = [*multi_node("slurm"), "probe.py", "--out", "out", "--p", "2", "--perse=x"]
    assert launcher.run(argv).ranks["0"]["argv"] == argv[-6:]
    ours = launcher.run(["--perseus", *argv])
    assert ours.ranks["0"]["argv"] == argv[-6:]
    assert ours.ranks["0"]["is_active"]


def test_an_earlier_runs_report_is_not_taken_for_this_ones(launcher: Launcher) -> None:
    (launcher.folder / "report").mkdir()
    (launcher.folder / "report" / "job.json").write_text('{"phase": "done"}')
    ours = launcher.run(["--perseus-report", "report", *multi_node("slurm"), "probe.py", "--out", "out"])
    assert ours.exit_code == 0
    assert "no report: no job wrote" in ours.output


def test_the_reports_trouble_is_not_the_jobs(launcher: Launcher) -> None:
    (launcher.folder / "job.py").write_text(
        "import pathlib\npathlib.Path('report/job.json').write_text('{\"phase\": \"done\"}')\nraise SystemExit(3)\n"
    )
    ours = launcher.run(["--perseus-report", "report", *multi_node("slurm"), "job.py"])
    assert ours.exit_code == 3
    assert "perseus-dist" in ours.output  # the report's own word about such a job.json


@pytest.mark.stress
def test_the_oldest_version(oldest_worker: "subprocess.Popen[str]", tmp_path: Path) -> None:
    launcher = _launcher(oldest_worker, tmp_path)
    shown = launcher.run(["--help"])
    assert "--elastic_training" in shown.output  # which the newest has not
    assert "--perseus-planner HOST:PORT" in shown.output
    for how in (["probe.py"], ["--module", "package.module"], ["--no_python", "./wrapper"]):
        ours = launcher.run(["--perseus-job", "old", *multi_node("openmpi"), *how, "--out", "out", *AWKWARD])
        assert ours.exit_code == 0, ours.output
        assert [rank["argv"][1:] for rank in ours.ranks.values()] == [["--out", "out", *AWKWARD]] * 2
    assert launcher.run(["--perseus-target", "slow", *multi_node("slurm"), "probe.py"]).exit_code == 2


def test_a_launcher_of_another_kind_is_refused() -> None:
    other = ModuleType("runner")
    other.__file__ = "/somewhere/runner.py"
    with pytest.raises(
        LauncherError, match=r"/somewhere/runner\.py is not the launcher that it was in DeepSpeed 0\.14\.5"
    ):
        patch_runner(other)


def local() -> list[str]:
    return ["--num_gpus", "2", "--master_port", PORT]


def _assert_as_plain(ours: dict[str, Any], plain: dict[str, Any]) -> None:
    differing = {
        name: (value, plain["environment"].get(name))
        for name, value in ours["environment"].items()
        if value != plain["environment"].get(name)
    }
    assert differing == {}
    assert plain["environment"].keys() - ours["environment"].keys() == {"PERSEUS_DISABLE"}
    for name in ("argv", "path", "cwd", "file", "name"):
        assert ours[name] == plain[name]


def _write_executable(path: Path, command: str) -> None:
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)


def test_an_interrupted_launcher_of_other_hosts_waits_for_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """DeepSpeed handles SIGINT there itself, and ends the launcher as a job that failed does."""

    def sigkill_handler() -> None:
        (tmp_path / "job.json").touch()
        raise SystemExit(1)

    def main(args: Sequence[str]) -> None:
        runner.parse_args(args)
        sigkill_handler()

    def parse_args(args: Sequence[str]) -> Any:
        parser = runner.argparse.ArgumentParser()
        for name in ("--autotuning", "--no_python", "--module", "--no_ssh", "--node_rank"):
            parser.add_argument(name)
        parser.add_argument("user_script")
        return parser.parse_args(args, argparse.Namespace(user_args=[]))

    runner = ModuleType("runner")
    vars(runner).update(argparse=argparse, parse_args=parse_args, main=main)
    patch_runner(runner)
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(SystemExit):
        runner.main(["--perseus-report", str(tmp_path), "train.py"])
    assert [record.getMessage() for record in caplog.records] == [
        f"no report was made; to make it: perseus-dist report {tmp_path}"
    ]
