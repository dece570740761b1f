"""``perseus-dist``: one parser, one command per module, one way to fail."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from perseus_dist.errors import PerseusError

COMMANDS = (
    "schedule",
    "profile",
    "plan",
    "lookup",
    "compare",
    "emulate",
    "planner",
    "jobs",
    "watch",
    "target",
    "straggler",
    "fetch",
    "clockd",
    "release",
    "doctor",
    "agent",
    "enable",
    "report",
    "quickstart",
    "sim",
    "simulate",
)
"""Modules of this package, in the order of the help. ``enable`` has a second command."""


_EXTRAS = {
    **dict.fromkeys(("google", "grpc", "grpc_health", "grpc_reflection", "grpc_status"), "planner"),
    "prometheus_client": "planner",
    "pynvml": "agent",
    "matplotlib": "report",
}
"""By package that a command imports when it runs, which extra of ours installs it."""


class _Parser(argparse.ArgumentParser):
    """argparse that fails in one line and takes no abbreviations, which a new option could make ambiguous."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """As argparse does, which makes an empty list of ``--option=--`` (3.11, 3.12)."""
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "saw '--', expected a value")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {_one_line(message)}. Try '{self.prog} --help'.\n")


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The whole command line; a test freezes its surface.

    Args:
        commands: Those that may be given; their modules are imported.
    """
    from perseus_dist import __version__

    parser = _Parser(
        prog="perseus-dist",
        description="Plan the energy-optimal GPU clock of every computation of a pipeline-parallel training iteration.",
    )
    parser.add_argument("--version", action="version", version=f"perseus-dist {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        import_module(f"perseus_dist.cli.{command}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit code: 0; 2 for bad input, after one line on standard error; 128 and the signal's number after Ctrl-C,
        or after a signal that a command takes as its end.
    """
    words = sys.argv[1:] if argv is None else argv
    # Clocks stay locked while a clockd that was killed starts again: it must not import what others need.
    commands = tuple(words[:1]) if words[:1] and words[0] in COMMANDS else COMMANDS
    args = build_parser(commands).parse_args(words)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except PerseusError as error:
        print(f"perseus-dist: {_one_line(str(error))}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        print(
            f"perseus-dist: {package} is not installed, which this command needs: pip install "
            f"'perseus-dist[{_EXTRAS[package]}]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt as stop:
        with suppress(OSError):  # the terminal may be gone
            print("perseus-dist: interrupted", file=sys.stderr, flush=True)
        return 128 + getattr(stop, "number", signal.SIGINT)
    except BrokenPipeError:  # the reader of our output left, as in `perseus-dist ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        return 0
    return code


def _one_line(message: str) -> str:
    return " ".join(message.splitlines())
