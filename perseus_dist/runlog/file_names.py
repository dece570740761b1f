"""Names in the folder that a run leaves behind: of the whole job, and of each rank."""

JOB_FILE = "job.json"
PROFILE_FILE = "profile.csv"
FRONTIER_FILE = "frontier.csv"
EVENTS_FILE = "events.jsonl"
INJECTED_FILE = "injected.jsonl"
REPORT_FILE = "report.json"

_OF_RANKS = ("rank-", "totals-", "timeline-", "simulated-")


def is_read(name: str) -> bool:
    """Whether the readers of a run read a file of this name whole."""
    return name in (JOB_FILE, FRONTIER_FILE, EVENTS_FILE, INJECTED_FILE) or name.startswith(_OF_RANKS)


def iterations_file(rank: int, segment: str = "") -> str:
    """Of the run's begin; or a segment's, as ``0a`` for the first of every iteration since (see ``iteration_log``)."""
    return f"rank-{rank}.{segment}.jsonl" if segment else f"rank-{rank}.jsonl"


def totals_file(rank: int) -> str:
    """Sums over all iterations."""
    return f"totals-{rank}.json"


def host_pace_file(rank: int) -> str:
    """Whether the host kept up with a simulated GPU; written by the trainer, on simulated GPUs alone."""
    return f"simulated-{rank}.json"


def timeline_file(rank: int) -> str:
    """A few iterations instruction by instruction."""
    return f"timeline-{rank}.jsonl"
