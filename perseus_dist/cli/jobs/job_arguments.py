"""Arguments of operators' commands about a job: its name, a pipeline, numbers that the service's messages can hold."""

import argparse
import re
import sys

from perseus_dist.cli.number_options import real, whole
from perseus_dist.rpc.limits import JOB_PATTERN, MAX_JOB_ID_LENGTH, MAX_NAME_LENGTH, MAX_SIZE

_NAME = re.compile(r"[A-Za-z0-9._-]+")

dp_rank = whole(0, MAX_SIZE - 1, f"a data-parallel rank: 0, 1, 2, ..., {MAX_SIZE - 1}")
"""An argparse type."""

finite_number = real(-sys.float_info.max, sys.float_info.max, "a number such as 1.25")
"""An argparse type: the planner judges its size."""


def add_job_argument(parser: argparse.ArgumentParser) -> None:
    """Add the job's name."""
    parser.add_argument("job", type=name, metavar="JOB")


def printable(text: str) -> str:
    """An argparse type: one line of a few words, as the service takes it."""
    if not 1 <= len(text) <= MAX_NAME_LENGTH or not text.isprintable():
        raise argparse.ArgumentTypeError(
            f"saw {text[:80]!r}, expected 1 to {MAX_NAME_LENGTH} characters, all printable"
        )
    return text


def signal_file(text: str) -> str:
    """An argparse type: the name of a file in the planner's folder of signals."""
    from perseus_dist.planner.runtime.signals.signal_files import NAME

    if NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f"saw {text[:80]!r}, expected the name of a file, such as day_ahead.csv, and no path"
        )
    return text


def name(text: str) -> str:
    """An argparse type: the name of a job, or of an operator's report."""
    if len(text) > MAX_JOB_ID_LENGTH or _NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f"saw {text[:80]!r}, expected a name of 1 to {MAX_JOB_ID_LENGTH} characters of A-Z a-z 0-9 . _ -"
        )
    return text


def pattern(text: str) -> str:
    """An argparse type: a pattern of job names."""
    if re.fullmatch(JOB_PATTERN, text) is None:
        raise argparse.ArgumentTypeError(
            f"saw {text[:80]!r}, expected a job's name of 1 to {MAX_JOB_ID_LENGTH} characters of A-Z a-z 0-9 . _ -, "
            "with * and ? as wildcards"
        )
    return text
