"""Errors that a user can mend. Each message says what was seen, what was expected and what to do."""


class PerseusError(Exception):
    """Base of every error that this package raises on purpose; the command line prints it in one line and exits 2."""


class TransientError(PerseusError):
    """An error that may be over when the same command is run again: exit code 1, and systemd starts a service anew."""


class ArgumentError(PerseusError, ValueError):
    """An argument of the library's face that is of another type, or lies outside of what makes sense."""


class ScheduleError(PerseusError, ValueError):
    """A schedule that cannot run: unknown tokens, repeated, missing or deadlocked instructions, impossible sizes."""


class ProfileError(PerseusError, ValueError):
    """A profile that cannot be planned with: missing columns, bad numbers, missing instructions, too few clocks."""


class PlanningError(PerseusError, ValueError):
    """A request that the frontier cannot serve, for example a deadline faster than the fastest iteration."""


class FrontierFileError(PerseusError, ValueError):
    """A saved frontier that cannot be read: truncated, not a frontier, or of a newer schema."""


class OutputError(PerseusError):
    """A place that results cannot be written to."""


class NoRoomError(OutputError):
    """A place that results could be written to, were its disk or quota not used up."""
