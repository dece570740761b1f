"""Processes that tests look at, by their ids."""

from pathlib import Path


def agents_of(trainer_pid: int) -> list[int]:
    """The processes that a trainer has started."""
    tasks = Path(f"/proc/{trainer_pid}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def has_ended(pid: int) -> bool:
    """Gone, or a zombie that its parent has not looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
