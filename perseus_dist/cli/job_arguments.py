"""What operators' commands say of a job: its name, a pipeline, and numbers that the service's messages can hold."""

import argparse
import math
import re

from perseus_dist.rpc.limits import MAX_JOB_ID_LENGTH, MAX_SIZE

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def add_job_argument(parser: argparse.ArgumentParser) -> None:
    """Add the job's name."""
    parser.add_argument("job", type=name, metavar="JOB")


def dp_rank(text: str) -> int:
    """An argparse type: a data-parallel rank."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) < MAX_SIZE):
        raise argparse.ArgumentTypeError(f"saw {text!r}, expected a data-parallel rank: 0, 1, 2, ...")
    return int(text)


def finite_number(text: str) -> float:
    """An argparse type: the planner judges its size."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"saw {text!r}, expected a number such as 1.25")
    return value


def name(text: str) -> str:
    """An argparse type: the name of a job, or of an operator's report."""
    if len(text) > MAX_JOB_ID_LENGTH or _NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f"saw {text[:80]!r}, expected a name of 1 to {MAX_JOB_ID_LENGTH} characters of A-Z a-z 0-9 . _ -"
        )
    return text
