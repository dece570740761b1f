"""``--enable-perseus`` and its options in the parser of the real ``megatron.training``, which the runner started."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from python_path import python_path

from perseus_dist.training.options import PerseusOptions

WORKER = Path(__file__).parent / "launcher_standins" / "forked_arguments.py"
MEGATRON = Path(os.environ.get("PERSEUS_TEST_MEGATRON", Path(__file__).parents[2] / "build" / "megatron"))
ON_CPU = ("-m", "perseus_dist.simulation.megatron_on_cpu", "-m", "perseus_dist.megatron")


@dataclass(frozen=True)
class Parsed:
    exit_code: int
    output: str

    @property
    def found(self) -> dict[str, Any]:
        assert self.exit_code == 0, self.output
        document: dict[str, Any] = json.loads(self.output.splitlines()[-1])
        return document

    @property
    def options(self) -> PerseusOptions | None:
        text = self.found["options"]
        return None if text is None else PerseusOptions.from_text(text)


@dataclass(frozen=True)
class Parser:
    worker: "subprocess.Popen[str]"
    output: Path

    def parse(
        self,
        *argv: str,
        environment: dict[str, str] | None = None,
        installs: PerseusOptions | None = None,
        ignores_unknown: bool = False,
    ) -> Parsed:
        case = {
            "argv": argv,
            "environment": environment or {},
            "installs": installs and installs.to_text(),
            "ignores_unknown": ignores_unknown,
            "output": str(self.output),
        }
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        self.worker.stdin.write(json.dumps(case) + "\n")
        self.worker.stdin.flush()
        assert select.select([self.worker.stdout], [], [], 240)[0], "no answer"
        return Parsed(int(self.worker.stdout.readline()), self.output.read_text())


@pytest.fixture(scope="module", params=[pytest.param("0.17.1", marks=pytest.mark.stress), "0.19.2"])
def parser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parser]:
    folder = MEGATRON / request.param
    if not folder.is_dir():
        pytest.skip(f"no Megatron at {folder}; PERSEUS_TEST_MEGATRON names the folder of its versions")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERSEUS", "PYTEST", "RANK"))}
    with subprocess.Popen(
        [sys.executable, *ON_CPU, str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**kept, "PYTHONPATH": python_path(folder)},
    ) as process:
        yield Parser(process, tmp_path_factory.mktemp("parser") / "output")
        process.kill()


def test_help_tells_of_the_options_beside_a_users_own(parser: Parser) -> None:
    usage = parser.parse("--enable-perseus", "--not-an-option")
    assert usage.exit_code == 2
    shown = parser.parse("--help")
    if "unsupported format character" in shown.output:  # 0.19.2's, without us too: a percent sign in another help
        shown = usage
    else:
        assert shown.exit_code == 0
        assert "implies --enable-perseus" in shown.output
    for text in ("[--enable-perseus]", "--perseus-planner HOST:PORT", "--own-option"):
        assert text in shown.output


def test_what_is_asked_for_is_known_at_once_and_stands_in_no_namespace(parser: Parser, tmp_path: Path) -> None:
    """Megatron saves its namespace in checkpoints."""
    given = parser.parse(
        *("--own-option", "3", "--perseus_target=slowdown=1.1", "--perseus-job", "x"),
        *("--perseus-report", str(tmp_path / "report")),
    )
    assert given.options == PerseusOptions(target="slowdown=1.1", job="x", report=str(tmp_path / "report"))
    assert given.found["own_option"] == 3
    assert given.found["ours"] == []


@pytest.mark.parametrize("flag", ["--enable-perseus", "--enable_perseus"])
def test_the_flag_alone_asks_for_nothing_in_particular(parser: Parser, flag: str) -> None:
    assert parser.parse(flag).options == PerseusOptions()
    assert parser.parse(flag, "--not-an-option", ignores_unknown=True).options == PerseusOptions()


def test_without_an_option_nothing_is_asked_for(parser: Parser) -> None:
    assert parser.parse("--own-option", "3").options is None


def test_options_come_before_those_of_the_script(parser: Parser) -> None:
    installs = PerseusOptions(job="script", planner="script:1")
    assert parser.parse(installs=installs).options == installs
    given = parser.parse("--perseus-job", "flag", installs=installs)
    assert given.options == PerseusOptions(job="flag", planner="script:1")


def test_a_configuration_in_place_of_the_namespace(parser: Parser, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "megatron.yaml").write_text("enable_msc: false\ndisable_msc_deprecated: false\n")
    given = parser.parse("--perseus-job", "x", "--yaml-cfg", str(tmp_path / "megatron.yaml"))
    assert given.options == PerseusOptions(job="x")
    assert given.found["own_option"] is None


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--perseus-target", "slow"], "--perseus-target is 'slow': expected t_min, slowdown=1.05"),
        (["--perseus_planner=here"], "--perseus-planner is 'here': expected HOST:PORT"),
        (["--perseus-profile", "/nowhere.csv"], "--perseus-profile /nowhere.csv: no file that can be read is there"),
        (["--perseus-profile", __file__], "expected a header with the columns stage,instruction,frequency,time,energy"),
        (["--perseus-report", "/dev/null"], "--perseus-report /dev/null: no folder can be made there (File exists)"),
    ],
)
def test_what_cannot_be_served_ends_with_one_line(parser: Parser, argv: list[str], message: str) -> None:
    refused = parser.parse(*argv)
    assert refused.exit_code == 2
    (line,) = refused.output.splitlines()
    assert line.startswith("pretrain.py: ")
    assert message in line
    disabled = parser.parse(*argv, environment={"PERSEUS_DISABLE": "1"})
    assert disabled.options is None


def test_the_report_is_rank_0s(parser: Parser) -> None:
    given = parser.parse("--perseus-report", "/dev/null/report", environment={"RANK": "1"})
    assert given.options == PerseusOptions(report="/dev/null/report")
