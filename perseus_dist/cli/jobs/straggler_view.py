"""Stragglers of a job for people: what the detector holds, what operators have reported, what has happened."""

from collections.abc import Iterable

from perseus_dist.rpc.v1 import planner_pb2 as pb

NUM_EVENTS = 10
"""Shown below a status; the newest."""

_UNITS = (("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3))


def format_stragglers(status: pb.JobStatus) -> str:
    """A line for each report and each verdict; nothing where there is no straggler."""
    lines = [_report(straggler) for straggler in status.stragglers]
    lines += [f"{_what_follows(verdict)}: {verdict.sentence}" for verdict in status.verdicts]
    if status.refused_reports:
        lines.append(f"{status.refused_reports} reports of ranks were not judged, because they cannot be right")
    return _block("stragglers", lines)


def format_events(status: pb.JobStatus) -> str:
    """A line for each of the newest events, the newest first, with its age; nothing without any."""
    newest = list(status.events)[-NUM_EVENTS:]
    ages = [format_age(event.age_s) for event in newest]
    wide = max(map(len, ages), default=0)
    lines = [f"{age.rjust(wide)} ago  {format_event(event)}" for age, event in zip(ages, newest, strict=True)]
    return _block("events", reversed(lines))


def format_event(event: pb.JobEvent) -> str:
    """An event in a line, without its age."""
    if event.kind == "switch":
        when = f"from iteration {event.effective_iteration} on"
        return f"switch {event.switch_revision}, {when}: {event.sentence}"
    when = f"at iteration {event.iteration}, " if event.iteration >= 0 else ""
    return f"{when}{event.kind}: {event.sentence}"


def format_saved(saved_j: float, doubt_j: float = 0.0) -> str:
    """An energy of a whole job, and by how much it may be more or less."""
    unit, size_j = next((one for one in _UNITS if abs(saved_j) >= one[1]), ("J", 1.0))
    digits = 1 if size_j == 1 else 2
    doubt = f" ± {doubt_j / size_j:,.{digits}f}" if doubt_j else ""
    return f"{saved_j / size_j:,.{digits}f}{doubt} {unit}"


def format_age(age_s: float) -> str:
    """In the unit that matters."""
    for unit, size_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if age_s >= size_s:
            return f"{age_s / size_s:.0f} {unit}"
    return f"{age_s:.0f} s"


def _report(straggler: pb.StragglerReport) -> str:
    if straggler.degree <= 1:
        return f"pipeline {straggler.dp_rank} does not straggle, as {straggler.id} reports, whatever is detected there"
    return f"pipeline {straggler.dp_rank} takes {straggler.degree:g} times as long, as {straggler.id} reports"


def _what_follows(verdict: pb.StragglerVerdict) -> str:
    if verdict.is_muted:
        return "muted by an operator's report"
    return "acted upon" if verdict.is_acted_upon else "not acted upon"


def _block(title: str, lines: Iterable[str]) -> str:
    text = "".join(f"  {line}\n" for line in lines)
    return f"\n{title}:\n{text}" if text else ""
