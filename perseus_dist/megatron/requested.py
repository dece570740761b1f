"""Options requested in a process that may train with Megatron, and the reason of a refusal: its one state, no wiring.

Neither Megatron nor torch is imported here, and hardly anything else: this runs before the user's program does.
"""

import os

from perseus_dist.training.disabled import is_disabled
from perseus_dist.training.framework_seen import note_framework

TYPE_CHECKING = False
if TYPE_CHECKING:
    from perseus_dist.training.options import PerseusOptions

_options: "PerseusOptions | None" = None
_given: "PerseusOptions | None" = None
_refusal: str | None = None
_is_refusal_said = False


def request_options(options: "PerseusOptions", *, given: "PerseusOptions | None" = None) -> None:
    """Request Perseus, with these options in the place of earlier ones; without effect under ``PERSEUS_DISABLE``.

    Args:
        options: What is asked for.
        given: Those of them that stand on Megatron's command line, which come before those of later requests too.
    """
    global _options, _given  # noqa: PLW0603 - as there is one of each module, so there is one of this
    if is_disabled():
        return
    _given = given or _given
    _options = options if _given is None else _given.over(options)
    _say_refusal()


def requested_options() -> "PerseusOptions | None":
    """The options requested in this process; None where there are none."""
    return _options


def report_refusal(sentence: str) -> None:
    """Record that the hooks cannot work with this Megatron. Rank 0 warns of it, and only where Perseus is requested.

    Args:
        sentence: Why, and what to do; the first one stays.
    """
    global _refusal  # noqa: PLW0603 - as above
    if _refusal is None:
        _refusal = sentence
        _say_refusal()


def refusal() -> str | None:
    """Why the hooks cannot work; None where they can."""
    return _refusal


def _say_refusal() -> None:
    global _is_refusal_said  # noqa: PLW0603 - as above
    if _options is None or _refusal is None or _is_refusal_said:
        return
    _is_refusal_said = True
    note_framework()
    if os.environ.get("RANK", "0") == "0":
        import logging

        logging.getLogger(__name__).warning("perseus: clocks stay as they are: %s", _refusal)
