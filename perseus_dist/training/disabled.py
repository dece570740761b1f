"""The user's last word in a process."""

import os


def is_disabled() -> bool:
    """Whether ``PERSEUS_DISABLE`` makes everything nothing."""
    return os.environ.get("PERSEUS_DISABLE", "0") not in ("", "0")
