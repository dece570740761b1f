"""Checks of the fields that several messages share."""

import re
from collections.abc import Sequence
from itertools import pairwise

from perseus_dist.messages.finding import Finding, Level
from perseus_dist.messages.terms import Target
from perseus_dist.rpc import limits
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

CONTROLS = ("clockd", "zeusd", "direct", "observe")
GRANULARITIES = ("instruction", "rank")

_TROUBLES = (Level.WARN, Level.FAIL)

_JOB_ID = re.compile(rf"(?!\.{{1,2}}\Z)[A-Za-z0-9._-]{{1,{limits.MAX_JOB_ID_LENGTH}}}")  # browsers resolve . and ..
_JOB_PATTERN = re.compile(limits.JOB_PATTERN)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_KIND = re.compile(r"[A-Z][A-Z_]{0,15}")


def check_count(check: Checker, field: str, value: int, low: int = 0) -> int:
    """A counter, a sequence or a revision."""
    return check.integer(field, value, low, limits.MAX_COUNT)


def check_job_id(check: Checker, field: str, value: str) -> str:
    """Check that a field is the name of a job."""
    if _JOB_ID.fullmatch(value) is None:
        check.violated(field, value, f"1 to {limits.MAX_JOB_ID_LENGTH} characters of A-Z a-z 0-9 . _ -, not . or ..")
    return value


def check_job_pattern(check: Checker, field: str, value: str) -> str:
    """Check that a field is a pattern of job names."""
    if _JOB_PATTERN.fullmatch(value) is None:
        check.violated(field, value, "a job's name, with * and ? as wildcards")
    return value


def check_kind(check: Checker, field: str, value: str) -> str:
    """Check that a field is the kind of an instruction."""
    if _KIND.fullmatch(value) is None:
        check.violated(field, value, "F, B, I, W or a constant's name in at most 16 capitals")
    return value


def check_digest(check: Checker, field: str, value: str) -> str:
    """Check that a field is the digest of a schedule."""
    if _DIGEST.fullmatch(value) is None:
        check.violated(field, value, "a SHA-256 in 64 lower-case hexadecimal digits")
    return value


def check_clocks(check: Checker, field: str, clocks_mhz: tuple[int, ...]) -> tuple[int, ...]:
    """Clocks from the highest down; there may be none."""
    if len(clocks_mhz) > limits.MAX_CLOCKS:
        check.violated(field, f"{len(clocks_mhz)} clocks", f"at most {limits.MAX_CLOCKS}")
    elif clocks_mhz and not (
        clocks_mhz[-1] >= 1
        and clocks_mhz[0] <= limits.MAX_CLOCK_MHZ
        and all(higher > lower for higher, lower in pairwise(clocks_mhz))
    ):
        check.violated(field, clocks_mhz, f"clocks from 1 to {limits.MAX_CLOCK_MHZ} MHz, each below the one before")
    return clocks_mhz


def sentence(text: str, max_length: int = limits.MAX_SENTENCE_LENGTH) -> str:
    """Free text as the other side accepts it: one printable line, cut where it is too long."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return text[:max_length]


def target_to_wire(target: Target) -> pb.Target:
    """A target as protobuf."""
    if target.slowdown is not None:
        return pb.Target(slowdown=target.slowdown)
    if target.deadline_s is not None:
        return pb.Target(deadline_s=target.deadline_s)
    return pb.Target(t_min=True)


def target_from_wire(check: Checker, field: str, wire: pb.Target) -> Target:
    """A target from the wire; what is out of its range is reported to the check under the field's name."""
    match wire.WhichOneof("target"):
        case "slowdown":
            return Target(slowdown=check.number(f"{field}.slowdown", wire.slowdown, limits.MAX_SLOWDOWN, low=1.0))
        case "deadline_s":
            return Target(deadline_s=check.positive(f"{field}.deadline_s", wire.deadline_s, limits.MAX_SECONDS))
        case "t_min" if wire.t_min:
            return Target()
        case seen:
            check.violated(field, seen, "one of t_min (true), slowdown and deadline_s")
            return Target()


def findings_to_wire(findings: Sequence[Finding]) -> list[pb.Finding]:
    """Protobuf of as many troubles as the planner takes."""
    return [
        pb.Finding(
            level=finding.level,
            subject=sentence(finding.subject, limits.MAX_NAME_LENGTH),
            what=sentence(finding.what),
            remedy=sentence(finding.remedy),
        )
        for finding in findings[: limits.MAX_FINDINGS]
    ]


def findings_from_wire(check: Checker, field: str, wire: Sequence[pb.Finding]) -> tuple[Finding, ...]:
    """The inverse of ``findings_to_wire``.

    Raises:
        InvalidMessageError: There are too many.
    """
    if len(wire) > limits.MAX_FINDINGS:
        check.violated(field, f"{len(wire)} findings", f"at most {limits.MAX_FINDINGS}")
        check.finish()
    return tuple(_finding_from_wire(check, f"{field}[{index}].", finding) for index, finding in enumerate(wire))


def _finding_from_wire(check: Checker, at: str, wire: pb.Finding) -> Finding:
    level = check.choice(at + "level", wire.level, _TROUBLES)
    return Finding(
        level=Level(level) if level in _TROUBLES else Level.WARN,
        subject=check.text(at + "subject", wire.subject, limits.MAX_NAME_LENGTH),
        what=check.text(at + "what", wire.what, limits.MAX_SENTENCE_LENGTH),
        remedy=check.text(at + "remedy", wire.remedy, limits.MAX_SENTENCE_LENGTH),
    )
