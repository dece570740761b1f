"""The environment's word on whether a process is under Perseus."""

import os


def is_disabled() -> bool:
    """Whether ``PERSEUS_DISABLE`` makes everything nothing."""
    return os.environ.get("PERSEUS_DISABLE", "0") not in ("", "0")


def is_enabled() -> bool:
    """Whether ``PERSEUS_ENABLE`` asks for Perseus, as in ``PERSEUS_ENABLE=1``, and nothing disables it."""
    return os.environ.get("PERSEUS_ENABLE", "0") not in ("", "0") and not is_disabled()
