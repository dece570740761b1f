"""Completion by real shells, and manual pages by those that read them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perseus_dist.cli.parser import HIDDEN, build_parser
from perseus_dist.cli.tools.completion import completion_script

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60

CASES = {
    "perseus-dist pl": ["plan", "planner", "planning-worker"],
    "perseus-dist planner --sta": ["--state-dir"],
    "perseus-dist planner --stragglers ": ["act", "show"],
    "perseus-dist straggler ": ["clear", "report"],
    "perseus-dist straggler report --deg": ["--degree"],
    "perseus-dist completion ": ["bash", "fish", "zsh"],
    "perseus-dist agen": [],
}

BASH = """\
source "$1"
while IFS= read -r line; do
  read -ra COMP_WORDS <<<"$line"
  [[ $line == *' ' ]] && COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
  _shtab_perseus_dist
  echo "${COMPREPLY[*]}"
done
"""
ZSH = """\
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1=; fpath=($1 \\$fpath); autoload -Uz compinit; compinit -u -D; echo RE''ADY"
zpty -r z line '*READY*'
zpty -w -n z $'perseus-dist pl\\t\\t'
zpty -r z line '*planner*'
print -r -- $line
"""


def shell(*words: str, given: str = "") -> str:
    environ = {**os.environ, "TERM": "dumb", "HOME": "/nonexistent"}
    return subprocess.run(
        words, input=given, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    ).stdout


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All manual pages, made anew."""
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, ROOT / "docs/tools/man_pages.py", folder], check=True, timeout=TIMEOUT_S)
    return sorted(folder.glob("man*/*"))


def test_bash_completes(tmp_path: Path) -> None:
    script = tmp_path / "perseus-dist"
    script.write_text(completion_script("bash"))
    lines = shell("bash", "--norc", "-c", BASH, "-", str(script), given="".join(f"{line}\n" for line in CASES))
    assert [sorted(line.split()) for line in lines.splitlines()] == list(CASES.values())


def test_bash_completes_files(tmp_path: Path) -> None:
    script = tmp_path / "perseus-dist"
    script.write_text(completion_script("bash"))
    (tmp_path / "certificates").mkdir()
    (tmp_path / "certificate.pem").touch()
    given = f"perseus-dist jobs --tls-ca {tmp_path}/cert\nperseus-dist planner --state-dir {tmp_path}/cert\n"
    files, folders = shell("bash", "--norc", "-c", BASH, "-", str(script), given=given).splitlines()
    assert sorted(files.split()) == [f"{tmp_path}/certificate.pem", f"{tmp_path}/certificates"]
    assert folders.split() == [f"{tmp_path}/certificates"]


@pytest.mark.stress
@needs("fish")
def test_fish_completes(tmp_path: Path) -> None:
    script = tmp_path / "perseus-dist.fish"
    script.write_text(completion_script("fish"))
    for line, expected in CASES.items():
        out = shell("fish", "--no-config", "-c", f"source {script}; complete -C '{line}'")
        found = sorted(row.split("\t")[0] for row in out.splitlines())
        assert found == expected or not expected


@pytest.mark.stress
@needs("zsh")
def test_zsh_completes(tmp_path: Path) -> None:
    script = tmp_path / "_perseus-dist"
    script.write_text(completion_script("zsh"))
    shell("zsh", "-f", "-n", str(script))
    assert "planner" in shell("zsh", "-f", "-c", ZSH, "-", str(tmp_path))


def test_every_command_has_a_page(pages: list[Path]) -> None:
    names = {path.name for path in pages}
    (commands,) = (action.choices for action in build_parser()._actions if action.dest == "command" or action.choices)
    assert commands is not None
    for name in set(commands) - set(HIDDEN) - {"straggler", "profile", "token", "state", "policy"}:
        assert f"perseus-dist-{name}.1" in names
    assert names >= {
        "perseus-dist.1",
        "perseus.toml.5",
        "perseus-dist-straggler-report.1",
        "perseus-dist-policy-share.1",
        "perseus-dist-policy-pace.1",
        "perseus-dist-policy-simulate.1",
        "perseus-dist-policy-set.1",
        "perseus-dist-policy-load-target.1",
        "perseus-dist-policy-show.1",
        "perseus-dist-policy-clear.1",
        "perseus-dist-policy-price.1",
        "perseus-dist-profile-show.1",
    }
    for path in pages:
        lines = path.read_text().splitlines()
        macros = {line.split()[0] for line in lines if line.startswith(".")}
        assert macros <= {
            ".TH",
            ".SH",
            ".SS",
            ".TP",
            ".PP",
            ".B",
            ".BR",
            ".I",
            ".br",
            ".nf",
            ".fi",
            ".nh",
            ".ad",
            '.\\"',
        }
        assert sum(line.startswith((".nf", ".fi")) for line in lines) % 2 == 0
        assert "%(default)s" not in path.read_text()


@pytest.mark.stress
@needs("mandoc")
def test_mandoc_has_no_warning(pages: list[Path]) -> None:
    found = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", *pages],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    ).stdout
    assert [line for line in found.splitlines() if "missing date" not in line] == []


@pytest.mark.stress
@needs("man")
def test_man_shows_options_and_examples(pages: list[Path]) -> None:
    (page,) = (path for path in pages if path.name == "perseus-dist-planner.1")
    shown = shell("man", "--local-file", str(page))
    assert "--metrics-port PORT" in shown
    assert "perseus-dist planner --bind 0.0.0.0:50151" in shown
