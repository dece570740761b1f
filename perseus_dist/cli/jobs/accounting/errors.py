"""Error of ``perseus-dist accounting``."""

from perseus_dist.errors import PerseusError


class AccountingError(PerseusError):
    """Records that cannot be read, or options that do not go together."""
