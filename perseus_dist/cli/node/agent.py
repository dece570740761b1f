"""``perseus-dist agent``: what the trainer's hook starts for every rank."""

import argparse
import sys

_EPILOG = """\
The hook starts it by itself, with open descriptors and a JSON document on standard input; nobody types it.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "agent",
        help="run one rank's agent; the trainer's hook does it",
        description="Run one rank's agent, by the JSON document and the descriptors that its trainer's hook passes on.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:  # noqa: ARG001 - every command takes them
    """Run it until the trainer ends."""
    from perseus_dist.agent.process.process import run_agent

    return run_agent(sys.stdin.buffer.read())
