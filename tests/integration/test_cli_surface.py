"""The command line as users and scripts know it: commands, options, exit codes. A change here is a change for them."""

import argparse
import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from perseus_dist.cli import main
from perseus_dist.cli.parser import GROUPS, build_parser

SCHEDULE = "--schedule --schedule-file --pp --microbatches --chunks --microbatch-group-size --no-overlap-p2p"
PROBLEM = f"profile {SCHEDULE} --blocking-power-w --tensor-parallel --switch-latency-ms"
DEADLINE = "--slowdown --deadline-s"
SERVER_TLS = "--tls-cert --tls-key --tls-client-ca"
PLANNER = "--planner --token-file --tls --tls-ca --tls-cert --tls-key"

SURFACE = {
    "schedule": f"{SCHEDULE} --json --grid",
    "profile show": "profile --blocking-power-w --stage --out --json",
    "plan": f"{PROBLEM} {DEADLINE} --fastest --granularity --out --json",
    "lookup": f"frontier {DEADLINE} --fastest --straggler-s --out --json",
    "compare": f"{PROBLEM} {DEADLINE} --json",
    "emulate": f"{PROBLEM} --pipelines --straggler --json",
    "policy share": "jobs --watts --objective --guard-band --json",
    "policy pace": "job --signal --iterations --hours --start --forecast --json",
    "policy simulate": (
        "jobs --iterations --hours --signal --forecast --watts --load-targets --guard-band --start --json"
    ),
    "policy set": f"name --watts --job --objective --guard-band --weight --max-slowdown --json {PLANNER}",
    "policy load-target": f"budget --file --name --watts --start --end --best-effort --json {PLANNER}",
    "policy show": f"--json {PLANNER}",
    "policy clear": f"name --load-target --price --json {PLANNER}",
    "policy price": f"name --job --signal --deadline --iterations --json {PLANNER}",
    "planner": f"--bind --state-dir --store --store-password-file --advertise {SERVER_TLS} --insecure --metrics "
    "--metrics-port --metrics-tls-cert --metrics-tls-key --metrics-password-file --web --stragglers --signals "
    "--log-format --json --address-file --embedded --parent --cache --job --share",
    "planning-worker": "--store --store-password-file --workers --alive-file --log-format --json",
    "state backup": "file --state-dir --json",
    "state restore": "file --state-dir --json",
    "state check": "file --state-dir --json",
    "jobs": f"--json {PLANNER}",
    "watch": f"job --json {PLANNER}",
    "target": f"job --t-min --slowdown --deadline-s --json {PLANNER}",
    "straggler report": f"job --id --pipeline --degree --json {PLANNER}",
    "straggler clear": f"job --id --json {PLANNER}",
    "fetch": f"job --profile --frontier --json {PLANNER}",
    "token create": f"name --role --job --expires --certificate --out --json {PLANNER}",
    "token list": f"--json {PLANNER}",
    "token revoke": f"name --json {PLANNER}",
    "audit": f"--since --job --json {PLANNER}",
    "clockd": "--socket --group --lease-s --min-mhz --max-mhz --log-format --json --lease-dir",
    "node-relay": "--planner --socket --group --tls --tls-ca --tls-cert --tls-key --log-format --json",
    "release": "gpus --all --if-unleased --lease-dir --json",
    "doctor": f"--json --metrics {PLANNER}",
    "health": "--planner --clockd --planning-worker --timeout-s --json --tls --tls-ca --tls-cert --tls-key "
    "--tls-server-name",
    "agent": "",
    "enable": "framework --shim --json",
    "disable": "framework --shim --json",
    "report": "folder --losses --reference-losses --clocks-left-locked --json",
    "accounting": "--since --until --by --records --csv --json --finish --ended --line --collect",
    "quickstart": "--stages --pipelines --steps --gpu --examples --out --json",
    "measure": "--observe --control --seconds --layers --hidden --heads --sequence-length --microbatch-size --pp "
    "--microbatches --out --json",
    "sim": "--gpu --count --cuda --forward-ms --backward-ms --imbalance --transfer-ms --step-ms --throttle "
    "--unprivileged --json command",
    "simulate": f"{SCHEDULE} --scenario --chaos --dp --iterations --gpu --imbalance --target --granularity "
    f"--profile {PLANNER} --jobs --nodes --job --virtual-time --log-dir --processes --known-failures --json",
    "config": "--check --json",
    "completion": "shell",
}


def commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command that does something, by the words that one types."""
    choices = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not choices:
        yield path.strip(), parser
    for names in choices:
        for name, subparser in names.items():
            yield from commands(subparser, f"{path} {name}")


COMMANDS = dict(commands(build_parser()))


def test_commands_and_options() -> None:
    surface = {
        name: [(action.option_strings or [action.dest])[-1] for action in parser._actions if action.dest != "help"]
        for name, parser in COMMANDS.items()
    }
    assert surface == {name: options.split() for name, options in SURFACE.items()}


# The agent speaks to its trainer's hook alone, and a completion is a shell's text.
WITHOUT_JSON = ["agent", "completion"]


def test_every_command_prints_json_on_request() -> None:
    without = [name for name, parser in COMMANDS.items() if "--json" not in parser._option_string_actions]
    assert without == WITHOUT_JSON


WITH_EXAMPLES = ["straggler", "token", *(name for name in COMMANDS if name != "agent")]  # which only the hook can start


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_help_has_examples_that_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*name.split(), "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out.replace("\\\n", " ")
    examples = re.findall(r"^  perseus-dist (.*)$", text.partition("example:\n")[2], flags=re.MULTILINE)
    assert examples
    for example in examples:
        assert f"{example} ".startswith(f"{name} ")
        args = build_parser().parse_args(shlex.split(re.split(r" [>|] ", example)[0]))
        assert callable(args.run)


def test_help_names_every_command_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for name in {name.split()[0] for name in SURFACE}:
        assert re.search(rf"^    {name}\s+\w+", out, flags=re.MULTILINE)


def test_every_option_is_explained() -> None:
    unexplained = [
        f"{name} {action.option_strings[-1]}"
        for name, command in commands(build_parser())
        for action in command._actions
        if action.option_strings and not action.help
    ]
    assert unexplained == []


def test_help_groups_commands_by_who_needs_them(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [command for group in GROUPS.values() for command in group]
    assert sorted(listed) == sorted({name.split()[0] for name in SURFACE})
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert [line.strip() for line in out.splitlines() if line.startswith("  for ")] == [f"for {g}:" for g in GROUPS]
    assert re.findall(r"^    ([a-z-]+) ", out, flags=re.MULTILINE) == listed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"perseus-dist {version('perseus-dist')}\n"
