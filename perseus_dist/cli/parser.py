"""The parser of ``perseus-dist``: one command per module, and one line where it refuses."""

import argparse
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

COMMANDS = {
    "schedule": "perseus_dist.cli.planning.schedule",
    "profile": "perseus_dist.cli.planning.profile",
    "plan": "perseus_dist.cli.planning.plan",
    "lookup": "perseus_dist.cli.planning.lookup",
    "compare": "perseus_dist.cli.planning.compare",
    "emulate": "perseus_dist.cli.planning.emulate",
    "policy": "perseus_dist.cli.planning.policy",
    "planner": "perseus_dist.cli.node.planner",
    "planning-worker": "perseus_dist.cli.node.planning_worker",
    "state": "perseus_dist.cli.node.state",
    "jobs": "perseus_dist.cli.jobs.jobs",
    "watch": "perseus_dist.cli.jobs.watch",
    "target": "perseus_dist.cli.jobs.target",
    "straggler": "perseus_dist.cli.jobs.straggler",
    "fetch": "perseus_dist.cli.jobs.fetch",
    "token": "perseus_dist.cli.node.token",
    "audit": "perseus_dist.cli.node.audit",
    "clockd": "perseus_dist.cli.node.clockd",
    "node-relay": "perseus_dist.cli.node.node_relay",
    "release": "perseus_dist.cli.node.release",
    "doctor": "perseus_dist.cli.node.doctor.command",
    "health": "perseus_dist.cli.node.health",
    "agent": "perseus_dist.cli.node.agent",
    "enable": "perseus_dist.cli.node.enable",
    "report": "perseus_dist.cli.jobs.report",
    "accounting": "perseus_dist.cli.jobs.accounting.command",
    "quickstart": "perseus_dist.cli.simulated.quickstart",
    "measure": "perseus_dist.cli.node.measure",
    "sim": "perseus_dist.cli.simulated.sim",
    "simulate": "perseus_dist.cli.simulated.simulate",
    "config": "perseus_dist.cli.tools.config",
    "completion": "perseus_dist.cli.tools.completion",
}
"""The module of each command. ``enable`` has a second command."""

HIDDEN = ("agent",)
"""Commands that other processes start, and no person."""

GROUPS = {
    "people who train": ("quickstart", "enable", "disable", "jobs", "watch", "target", "fetch", "report"),
    "people who plan and do research": (
        *("schedule", "profile", "plan", "lookup", "compare", "emulate", "policy", "measure", "sim", "simulate"),
    ),
    "operators of a node or cluster": (
        *(
            "planner",
            "planning-worker",
            "state",
            "token",
            "audit",
            "clockd",
            "node-relay",
            "release",
            "doctor",
            "health",
            "straggler",
            "accounting",
            "config",
        ),
    ),
    "shells and other programs": ("completion", "agent"),
}
"""Commands by who needs them, in the order of the help."""

_EPILOG = """\
example:
  perseus-dist quickstart
  perseus-dist plan --help

'perseus-dist COMMAND --help' says more of each, with examples.
"""


class _Parser(argparse.ArgumentParser):
    """argparse that fails in one line and takes no abbreviations, which a new option could make ambiguous."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """As argparse does, which makes an empty list of ``--option=--`` (3.11, 3.12), and a folder of ``--out ""``."""
        takes_words = action.nargs == argparse.PARSER or action.dest == "command"  # of the program that `sim` runs
        if "" in arg_strings and action.type in (None, Path) and not takes_words:
            raise argparse.ArgumentError(action, "saw an empty text, expected a value")
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "saw '--', expected a value")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {one_line(message)}. Try '{self.prog} --help'.\n")


class _GroupedHelp(argparse.RawDescriptionHelpFormatter):
    """Help that lists commands below the people who need them."""

    def add_argument(self, action: argparse.Action) -> None:
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no other door
            super().add_argument(action)
            return
        lines = {line.dest: line for line in action._get_subactions()}  # noqa: SLF001
        named = {command for commands in GROUPS.values() for command in commands}
        rest = tuple(command for command in lines if command not in named)
        for group, commands in {**GROUPS, "more": rest}.items():
            if shown := [lines[command] for command in commands if command in lines]:
                self.start_section(f"for {group}" if group in GROUPS else group)
                self._indent()
                self.add_arguments(shown)
                self._dedent()
                self.end_section()


class _Version(argparse.Action):
    """Says the version and ends; only then is it looked up, which takes longer than most of a command's imports."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from perseus_dist import __version__

        print(f"perseus-dist {__version__}")
        parser.exit()


def build_parser(commands: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The whole command line; a test freezes its surface.

    Args:
        commands: Those that may be given; their modules are imported.
    """
    parser = _Parser(
        prog="perseus-dist",
        description="Plan the energy-optimal GPU clock of every computation of a pipeline-parallel training iteration.",
        epilog=_EPILOG,
        formatter_class=_GroupedHelp,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    parser._positionals.title = "commands"  # noqa: SLF001
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        import_module(COMMANDS[command]).add_parser(subparsers)
    return parser


def one_line(message: str) -> str:
    """A message without its line breaks."""
    return " ".join(message.splitlines())
