"""A job's status for people and for machines."""

from typing import Any

from google.protobuf.json_format import MessageToDict

from perseus_dist.cli.table import Column, format_table
from perseus_dist.rpc.v1 import planner_pb2 as pb

_JOB_COLUMNS: tuple[Column, ...] = (
    ("job", "job_id", "s"),
    ("phase", "phase", "s"),
    ("ranks", "ranks", "s"),
    ("iteration\ntime [s]", "time", "s"),
    ("baseline\n[s]", "baseline", "s"),
    ("predicted\nsaving", "saving", "s"),
    ("table", "table_revision", "d"),
    ("switch", "switch_revision", "d"),
    ("target", "target", "s"),
    ("reason", "reason", "s"),
)
_PIPELINE_COLUMNS: tuple[Column, ...] = (
    ("pipeline", "dp_rank", "d"),
    ("ranks", "attached_ranks", "d"),
    ("iteration", "iteration", "d"),
    ("time [s]", "time_s", ".4f"),
    ("energy [J]", "energy_j", ".1f"),
    ("point", "point", "d"),
    ("planned\ntime [s]", "planned_time_s", ".4f"),
    ("planned\nenergy [J]", "planned_energy_j", ".1f"),
    ("straggler", "straggler", "s"),
)


def status_document(status: pb.JobStatus) -> dict[str, Any]:
    """Every field of the service's ``JobStatus``, by its name there."""
    document: dict[str, Any] = MessageToDict(
        status, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    # 64 bits, which protobuf's JSON makes strings
    for count in ("table_revision", "switch_revision", "messages", "missed_clocks", "lost_boundaries"):
        document[count] = getattr(status, count)
    for pipeline, shown in zip(status.pipelines, document["pipelines"], strict=True):
        shown.update(iteration=pipeline.iteration, table_revision=pipeline.table_revision)
    return document


def format_jobs(statuses: list[pb.JobStatus]) -> str:
    """A line for each job."""
    return format_table(_JOB_COLUMNS, [_job_record(status) for status in statuses])


def format_pipelines(status: pb.JobStatus) -> str:
    """A line for each pipeline."""
    degrees: dict[int, str] = {}
    for straggler in status.stragglers:
        told = f"{straggler.id} x {straggler.degree:g}"
        degrees[straggler.dp_rank] = ", ".join(filter(None, (degrees.get(straggler.dp_rank), told)))
    records = [
        {column[1]: getattr(pipeline, column[1], "") for column in _PIPELINE_COLUMNS}
        | {"straggler": degrees.get(pipeline.dp_rank, "")}
        for pipeline in status.pipelines
    ]
    return format_table(_PIPELINE_COLUMNS, records)


def format_troubles(status: pb.JobStatus) -> str:
    """A line for each rank in trouble, and one for what has been lost; nothing where all is well."""
    counts = ((status.missed_clocks, "clocks missed"), (status.lost_boundaries, "boundaries lost"))
    lost = ", ".join(f"{count} {what}" for count, what in counts if count)
    return "".join(f"{line}\n" for line in (*status.troubles, lost) if line)


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
        "table_revision": status.table_revision,
        "switch_revision": status.switch_revision,
        "target": format_target(status.target),
        "reason": status.reason,
    }


def _seconds(time_s: float) -> str:
    return f"{time_s:.4f}" if time_s else "-"
