"""Moments and durations as a page writes them."""

from datetime import datetime


def _moment(at: str) -> datetime | None:
    try:
        return datetime.fromisoformat(at)
    except ValueError:
        return None


def seconds_between(begin: str, end: str) -> float | None:
    """From one ISO 8601 moment to another; None where one cannot be understood."""
    first, last = _moment(begin), _moment(end)
    if first is None or last is None or (first.tzinfo is None) != (last.tzinfo is None):
        return None
    return max(0.0, (last - first).total_seconds())


def clock_time(at: str, *, with_date: bool = False) -> str:
    """An ISO 8601 moment, or the text itself where it is none."""
    moment = _moment(at)
    if moment is None:
        return at
    return f"{moment:%Y-%m-%d %H:%M} UTC" if with_date else f"{moment:%H:%M:%S}"


def duration(seconds: float) -> str:
    """In the two units that matter."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
