"""GitHub's workflows call scripts that exist, with options that they take."""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN_PATH = re.compile(r"(\./)?(launch|\.ci|benchmarks|tests|docs|examples)/[\w./-]+")


def jobs(workflow: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(workflow.read_text())["jobs"]
    return found


def commands(workflow: Path) -> Iterator[list[str]]:
    """The words of each command that a step runs, comments left out."""
    for job in jobs(workflow).values():
        for step in job["steps"]:
            for line in step.get("run", "").replace("\\\n", " ").splitlines():
                if words := shlex.split(re.sub(r"\$\{\{.*?\}\}", "VALUE", line), comments=True):
                    yield words


def wrong_words(words: list[str]) -> list[str]:
    """A sentence for each path of the project that is not there, and each option that its script does not take."""
    wrong = []
    own = [index for index, word in enumerate(words) if OWN_PATH.fullmatch(word)]
    for index in own:
        path = ROOT / words[index]
        if not path.is_file():
            wrong.append(f"{words[index]} is not there")
        elif words[index].startswith("./") and not path.stat().st_mode & 0o100:
            wrong.append(f"{words[index]} cannot be executed")
        elif words[index].removeprefix("./") == "launch/setup":
            wrong += [
                f"no extra {extra}" for extra in words[index + 1 :] if extra not in PROJECT["optional-dependencies"]
            ]
        else:
            options = {word.partition("=")[0] for word in words[index + 1 :] if word.startswith("-")}
            taken = options_taken(path) if options else set()
            wrong += [f"{words[index]} takes no {option}" for option in sorted(options - taken)]
    return wrong


def options_taken(script: Path) -> set[str]:
    """Of a Python script by its help, of another by its text."""
    if script.suffix != ".py":
        return set(re.findall(r"(?<!\w)--[a-z][\w-]*", script.read_text()))
    asked = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, timeout=120, check=True)
    return set(re.findall(r"(?<!\w)--?[a-z][\w-]*", asked.stdout))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_and_their_options_exist(workflow: Path) -> None:
    called = list(commands(workflow))
    assert any(OWN_PATH.fullmatch(word) for words in called for word in words)
    assert [sentence for words in called for sentence in wrong_words(words)] == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("./launch/documentation", "./launch/documentation is not there"),
        ("./docs/tools/tables.py --check", "./docs/tools/tables.py cannot be executed"),
        (". launch/setup development", "no extra development"),
        ("timeout 5h python benchmarks/chaos_campaign.py --seed 1", "benchmarks/chaos_campaign.py takes no --seed"),
        ("./launch/constraints --dry-run", "./launch/constraints takes no --dry-run"),
    ],
)
def test_a_command_that_would_fail_is_found(line: str, sentence: str) -> None:
    assert wrong_words(shlex.split(line)) == [sentence]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_steps_are_valid(workflow: Path) -> None:
    """Each uses an action at a version or runs a script that bash can read; each job has an end and a known Python."""
    oldest = int(PROJECT["requires-python"].removeprefix(">=3."))
    for job in jobs(workflow).values():
        assert 0 < job["timeout-minutes"] < 6 * 60  # GitHub ends a job there
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            assert re.fullmatch(r"[\w-]+/[\w-]+@v[\d.]+", step.get("uses", "a/b@v1"))
            checked = subprocess.run(
                ["bash", "-n"], input=step.get("run", ""), capture_output=True, text=True, check=False
            )
            assert (checked.returncode, checked.stderr) == (0, "")
            python = str(step.get("with", {}).get("python-version", "3.12"))
            pythons = job["strategy"]["matrix"]["python"] if "matrix" in python else [python]
            assert all(int(version.removeprefix("3.")) >= oldest for version in pythons)


@pytest.mark.parametrize("script", ["launch/test", "launch/flakes", ".ci/run"])
def test_scripts_that_run_all_tests_let_python_keep_what_it_compiles(script: str) -> None:
    """Where an image forbids it, each of a thousand processes compiles the package anew."""
    before, _, after = (ROOT / script).read_text().partition("unset PYTHONDONTWRITEBYTECODE")
    assert "python -m pytest" in after or "python tests" in after or "./launch/test" in after
    assert "python" not in re.sub(r"^#.*$", "", before, flags=re.MULTILINE)


@pytest.mark.parametrize("target", ["planner", "clockd"])
def test_the_images_instructions_install_the_wheel_where_the_checkout_has_spaces(target: str, tmp_path: Path) -> None:
    """The line of ``.ci/wheel`` that makes the script is taken from it, and a stub stands for Python."""
    lines = map(str.strip, (ROOT / ".ci/wheel").read_text().splitlines())
    line = next(line for line in lines if line.startswith("script="))
    folder = tmp_path / "a b"
    (folder / "elsewhere").mkdir(parents=True)
    for name in ("perseus_dist-0.1.0-py3-none-any.whl", "constraints.txt"):
        (folder / name).touch()
    python = folder / "python"
    python.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    python.chmod(0o755)
    given = 'folder=$1 constraints=$1/constraints.txt target=$2 stage=("$3" "$4")'
    script = f'{given}; {line}; PATH=$1:$PATH sh -euc "$script"'
    arguments = [str(folder), target, sys.executable, str(ROOT / ".ci/dockerfile-stage")]
    ran = subprocess.run(
        ["bash", "-euc", script, "bash", *arguments],
        cwd=folder / "elsewhere",
        capture_output=True,
        text=True,
        check=True,
    )
    *_, constraint, wheel = ran.stdout.splitlines()
    assert (folder / "elsewhere" / constraint).is_file()
    assert (folder / "elsewhere" / wheel.partition("[")[0]).is_file()
