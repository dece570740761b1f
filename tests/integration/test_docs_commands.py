"""Every command in README.md and the documentation: run where that is cheap, otherwise read by the parser it is for.

A fenced block of commands says ``sh``. ``NOT_RUN`` names the commands that are only checked, each with its reason; one
that matches none of its patterns is run, page by page and in the page's order, in a folder with the project's examples.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import run_command

from perseus_dist.cli.parser import build_parser
from perseus_dist.training.options import add_options

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/profiles/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
NOT_RUN = {
    r"\./launch/quickstart$|\./launch/test$|\./launch/docs$|\./launch/share$|\./\.ci/wheel$": "the gate runs it",
    r"bash -c '\. launch/setup dev'$|\. \.venv/bin/activate$": "the gate sources the first; the second is Python's",
    r"(ruff|clang-format|mypy|lint-imports|pre-commit|git) ?": "the gate or the contributor runs it",
    r"(\./launch|python docs/tools|python benchmarks|python tests/stress)/": "changes the checkout, or takes minutes",
    r"pip install '": "needs a network; .ci/readme-installs runs the README's, and launch/setup installs these extras",
    r"perseus-dist (enable|disable) ": "changes the environment; launch/quickstart runs it",
    r"perseus-dist (clockd|release|doctor)": "is about this machine's own GPUs",
    r"perseus-dist (planner|planning-worker|node-relay) ?": "serves until it is stopped",
    r"apt-get |python3 -m venv|/opt/perseus-dist/|ln -s": "changes the machine; test_cluster_page.py has its own root",
    r"openssl |htpasswd|groupadd|export PERSEUS_": "sets up a cluster; test_cluster_page.py runs the page",
    r"perseus-dist config --check /etc/": "reads what the step before has written",
    r"umask ": "a line of a block for kubectl",
    r"MEGATRON_PATH=\S+ sbatch": "needs a cluster; test_slurm.py makes one and submits the example",
    r"install -[dm]|systemd-": "changes the machine; test_systemd_units.py tries units, users and folders",
    r"dpkg -i ": "changes the machine; .ci/use-deb runs it in a root of its own",
    r"perseus-dist simulate --planner": "needs a planner that runs; test_rehearsal.py has one",
    r"(systemctl|perseus-dist state) ": "needs a planner's state; test_state_commands.py runs them in order",
    r"perseus-dist measure": "measures this machine's own GPUs; its tests run it on a simulated one",
    r"docker build ": "needs a container engine; .ci/wheel runs the instructions of two of the three targets",
    r"kubectl ": "needs a cluster; the stress tier renders and validates what is applied",
    r"perseus-dist health ": "needs a planner that runs; test_cli_health.py has one",
    r"perseus-dist jobs --planner": "needs a planner with TLS; test_planner_connection_errors.py has one",
    r"perseus-dist (jobs|target|straggler|fetch)": "needs a job that runs; test_cli_finds_jobs.py has two",
    r"perseus-dist watch": "ends with a job; test_cli_watch.py has one",
    r"perseus-dist policy (set|load-target|price|show|clear)": "needs a planner; test_cli_budgets.py has one",
    r"perseus-dist (token|audit)": "needs a planner; tests/integration/test_token_commands.py runs them",
    r"perseus-dist completion": "writes into the user's home folder; its tests run it",
    r"sbatch ?": "needs a cluster; test_slurm.py makes one and runs it",
    r"perseus-dist accounting": "needs the records of jobs; test_accounting.py runs these commands on some",
    r"perseus-dist report perseus-report$": "needs the report of a job; test_cli_report.py has some",
    r"([A-Z_]+=\S+ )*ray ": "starts a cluster of Ray, which is not installed here",
    r"perseus-dist simulate --schedule": "takes minutes of wall time; the same in virtual time is run",
    r"perseus-dist simulate .*--chaos": "takes minutes; the gate runs it",
    r"([A-Z_]+=\S+ )*(perseus-dist sim .*)?(perseus-)?(deepspeed |torchrun )": (
        "trains, for minutes or on GPUs; those of the README are run by test_deepspeed_launcher_command.py and "
        "test_megatron_launch.py"
    ),
}
OPTION = re.compile(r"--[a-z][a-z-]+")
PLAIN = re.compile(r"perseus-dist (?!sim )[\w ./,=-]+( > [\w.]+)?")
"""A command that no shell reads more into, and that is no process of its own."""


def fences(page: Path) -> list[tuple[str, str]]:
    """Language and text of a page's fenced blocks."""
    return re.findall(r"^```(\S*)[^\n]*\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """The commands of a page, each in one line but for what it is fed."""
    found: list[str] = []
    for language, text in fences(page):
        if language == "sh":
            lines = iter(text.replace("\\\n", " ").splitlines())
            for line in lines:
                command = line
                if here := re.search(r"<<'(\w+)'", line):
                    for more in lines:
                        command += f"\n{more}"
                        if more == here[1]:
                            break
                if command.strip() and not command.startswith("#"):
                    found.append(re.sub(r" +", " ", command) if "\n" not in command else command)
    return found


def is_run(command: str) -> bool:
    return not any(re.match(pattern, command) for pattern in NOT_RUN)


RUN_PAGES = [page for page in PAGES if any(map(is_run, commands(page)))]
PYTHON = [text for page in PAGES for language, text in fences(page) if language == "python"]
CASES = [pytest.param(command, id=f"{page.name}: {command[:60]}") for page in PAGES for command in commands(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_fence_says_what_it_is(page: Path) -> None:
    """So that no command hides in a block that is taken for something else."""
    for language, text in fences(page):
        assert re.fullmatch(r"sh|python|text|json|toml|yaml|\{[a-z-]+\}", language)
        if language == "text" and page.name != "cli.md":  # whose examples test_cli_surface.py parses
            assert not re.search(r"^(\$ |perseus-dist |pip |\./|python )", text, flags=re.MULTILINE)
    assert not re.search(r"^    (perseus-dist|python|pip|\./) ?", page.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("command", CASES)
def test_what_a_command_names_exists(command: str) -> None:
    words = shlex.split(command.partition("\n")[0], comments=True)
    for word in words:
        if re.match(r"(examples|launch|benchmarks|docs|tests|\.ci|\./launch|\./\.ci)/", word):
            assert (ROOT / word).exists()
    if re.search(r"--(enable-)?perseus", command):
        check_training_options(words)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words.pop(0)
    if words[0] == "pip":
        check_extras(words)
    while words and words[0] == "perseus-dist":
        words = words[: words.index(">")] if ">" in words else words
        args = build_parser().parse_args(words[1:])
        assert callable(args.run)
        words = words[words.index("--") + 1 :] if "--" in words else []


def check_training_options(words: list[str]) -> None:
    """Those that adapters add to a framework's own parser, which is not here."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_options(parser, flag="--enable-perseus" if "--enable-perseus" in words else "--perseus")
    _, others = parser.parse_known_args(words[words.index("--") + 1 :] if "--" in words else words)
    assert [word for word in others if "perseus" in word and word.startswith("--")] == []


def check_extras(words: list[str]) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        for extras in re.findall(r"\.\[([^]]*)\]", word):
            assert set(extras.split(",")) <= set(known)


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.name)
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of README.md by a shell, as a reader does; a page of plain ``perseus-dist`` lines within this process."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = [command for command in commands(page) if is_run(command)]
    if page.name != "README.md" and all(map(PLAIN.fullmatch, lines)):
        monkeypatch.chdir(tmp_path)
        for line in lines:
            _, *words = shlex.split(line.partition(" > ")[0])
            ran = run_command(*words)
            assert ran.returncode == 0, ran.stderr
            if file := line.partition(" > ")[2]:
                Path(file).write_text(ran.stdout)
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = "\n".join(["set -euo pipefail", *lines])
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_no_reason_is_without_a_command() -> None:
    shown = [command for page in PAGES for command in commands(page)]
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, command) for command in shown)] == []


def test_the_tests_that_reasons_name_are_there() -> None:
    named = {name for reason in NOT_RUN.values() for name in re.findall(r"test_\w+\.py", reason)}
    assert [name for name in sorted(named) if not list((ROOT / "tests").glob(f"*/{name}"))] == []


def subcommands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command by its words, those that only group others too."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield f"{path} {name}".strip(), command
                yield from subcommands(command, f"{path} {name}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_sentences_have_the_options_they_name(page: Path) -> None:
    known = dict(subcommands(build_parser()))
    for code in re.findall(r"`perseus-dist ([a-z][^`]*)`", page.read_text()):
        words = code.split()
        name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
        assert name in known
        theirs = {option for action in known[name]._actions for option in action.option_strings}
        assert set(OPTION.findall(code.split(" -- ")[0])) <= theirs
    training = argparse.ArgumentParser()
    add_options(training)
    training.add_argument("--enable-perseus")
    named = re.findall(r"`(--(?:enable-)?perseus[a-z-]*)", page.read_text())
    assert set(named) <= {option for action in training._actions for option in action.option_strings}


@pytest.mark.parametrize("text", PYTHON)
def test_python_blocks_run(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook does nothing here, but what describes the rank is checked; a loop of the user's own runs twice."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERSEUS_DISABLE", "1")
    names: dict[str, Any] = {}
    exec(compile(text, "documentation", "exec"), names)
    if "train" in names:
        calls: list[str] = []
        names["train"](2, "0F0 0B0", "run", lambda: calls.append("forward"), lambda: calls.append("step"))
        assert calls == ["forward", "step"] * 2


def test_the_checkout_holds_no_results() -> None:
    written = (
        "plan.json",
        "frontier.svg",
        "frontier.csv",
        "frontier.npz",
        "timeline.svg",
        "report.json",
        "report.html",
    )
    assert [name for name in written if (ROOT / name).exists()] == []


def test_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len(text.encode()) <= 10_000
