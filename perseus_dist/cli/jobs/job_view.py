"""A job's status for people and for machines."""

from typing import Any

from google.protobuf.json_format import MessageToDict

from perseus_dist.cli.annotated_table import format_annotated
from perseus_dist.cli.jobs.straggler_view import format_saved
from perseus_dist.interval_text import interval_text
from perseus_dist.library.tables import Column
from perseus_dist.rpc.v1 import planner_pb2 as pb

_JOB_COLUMNS: tuple[Column, ...] = (
    ("job", "job_id", "s"),
    ("phase", "phase", "s"),
    ("ranks", "ranks", "s"),
    ("time\n[s]", "time", "s"),
    ("baseline\n[s]", "baseline", "s"),
    ("plan\nsaves", "saving", "s"),
    ("saved\nso far", "saved", "s"),
    ("target", "target", "s"),
)
_PIPELINE_COLUMNS: tuple[Column, ...] = (
    ("pipeline", "dp_rank", "d"),
    ("ranks", "attached_ranks", "d"),
    ("iteration", "iteration", "d"),
    ("time [s]", "time_s", ".4f"),
    ("own\ntime [s]", "pipeline_time_s", ".4f"),
    ("planned\ntime [s]", "planned_time_s", ".4f"),
    ("energy [J]", "energy_j", ".1f"),
    ("planned\nenergy [J]", "planned_energy_j", ".1f"),
    ("table", "table_revision", "d"),
    ("point", "point", "d"),
)
_WAITS = "waits"


def status_document(status: pb.JobStatus) -> dict[str, Any]:
    """Every field of the service's ``JobStatus``, by its name there."""
    document: dict[str, Any] = MessageToDict(
        status, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    # 64 bits, which protobuf's JSON makes strings
    counts = ("table_revision", "switch_revision", "messages", "missed_clocks", "lost_boundaries", "refused_reports")
    for count in counts:
        document[count] = getattr(status, count)
    document.setdefault("guard", {})
    document["guard"] |= {count: getattr(status.guard, count) for count in ("probes", "falls")}
    for pipeline, shown in zip(status.pipelines, document["pipelines"], strict=True):
        shown.update(iteration=pipeline.iteration, table_revision=pipeline.table_revision)
    for event, shown in zip(status.events, document["events"], strict=True):
        for count in ("sequence", "iteration", "effective_iteration", "switch_revision"):
            shown[count] = getattr(event, count)
    return document


def format_jobs(statuses: list[pb.JobStatus]) -> str:
    """A line for each job, and below it the reason of its phase."""
    return format_annotated(_JOB_COLUMNS, [_job_record(status) for status in statuses], "reason")


def format_pipelines(status: pb.JobStatus) -> str:
    """A line for each pipeline, and below it what is particular about it."""
    told = _told_of_pipelines(status)
    records = [
        {column[1]: getattr(pipeline, column[1], "") for column in _PIPELINE_COLUMNS}
        | {"state": "; ".join(([_WAITS] if pipeline.is_waiting else []) + told.get(pipeline.dp_rank, []))}
        for pipeline in status.pipelines
    ]
    return format_annotated(_PIPELINE_COLUMNS, records, "state")


def _told_of_pipelines(status: pb.JobStatus) -> dict[int, list[str]]:
    """By dp_rank, what is held of it: reports, then verdicts, a few words each."""
    told: dict[int, list[str]] = {}
    for straggler in status.stragglers:
        told.setdefault(straggler.dp_rank, []).append(f"{straggler.id} x {straggler.degree:g}")
    for verdict in status.verdicts:
        who = "whole" if verdict.is_whole_pipeline else f"rank {verdict.rank}"
        aside = " (muted)" if verdict.is_muted else "" if verdict.is_acted_upon else " (not acted upon)"
        words = f"{who}: {verdict.cause.replace('_', ' ')} x {verdict.degree:.3f}{aside}"
        told.setdefault(verdict.dp_rank, []).append(words)
    return told


def format_troubles(status: pb.JobStatus) -> str:
    """A line for each trouble with its ranks, and for what has been lost; nothing where all is well."""
    counts = ((status.missed_clocks, "clocks missed"), (status.lost_boundaries, "boundaries lost"))
    lost = ", ".join(f"{count} {what}" for count, what in counts if count)
    return "".join(f"{line}\n" for line in (*status.troubles, lost, _format_guard(status.guard)) if line)


def _format_guard(guard: pb.GuardFigures) -> str:
    """Time lost under plans, in a line; empty before the first probe."""
    if not guard.probes:
        return ""
    given_up = f"; {guard.falls} plans given up" if guard.falls else ""
    free = f"{guard.reference_s:.4f} s at full clocks by probe {guard.probes}"
    return f"{guard.lost_s:.2f} s lost under plans, {free}{given_up}"


def format_target(target: pb.Target) -> str:
    """A target in a few words."""
    match target.WhichOneof("target"):
        case "slowdown":
            return f"{target.slowdown:g} x T_min"
        case "deadline_s":
            return f"{target.deadline_s:g} s"
        case _:
            return "T_min"


def _job_record(status: pb.JobStatus) -> dict[str, Any]:
    attached = sum(pipeline.attached_ranks for pipeline in status.pipelines)
    time_s = max((pipeline.time_s for pipeline in status.pipelines), default=0.0)
    return {
        "job_id": status.job_id,
        "phase": status.phase,
        "ranks": f"{attached}/{status.num_ranks}",
        "time": _seconds(status.enforced.time_s or time_s),
        "baseline": _seconds(status.baseline.time_s),
        "saving": f"{status.predicted_saving:.1%}" if status.table_revision else "-",
        "saved": format_saved(status.saved_j, status.saved_doubt_j) if status.saved_j else "-",
        "target": format_target(status.target),
        "reason": _notes(status),
    }


def _notes(status: pb.JobStatus) -> str:
    """Reason of the phase, what pipelines wait for, and the interval of the predicted saving where it is known."""
    notes = [status.reason]
    if status.t_prime_s:
        notes.append(f"pipelines wait for T' = {status.t_prime_s:.4f} s")
    low, high = status.predicted_saving_low, status.predicted_saving_high
    if low or high:
        notes.append(f"the plan is likely to save {interval_text(100 * low, 100 * high)} %")
    return "; ".join(notes)


def _seconds(time_s: float) -> str:
    return f"{time_s:.4f}" if time_s else "-"
