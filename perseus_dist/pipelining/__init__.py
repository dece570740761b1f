"""Perseus in ``torch.distributed.pipelining``: ``attach(schedule)`` once the schedule is made, on every rank.

torch is imported where it is used, so that importing this package costs a trainer nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseus_dist.pipelining.adapter import attach, detach

__all__ = ["attach", "detach"]


def __getattr__(name: str) -> object:
    """The public names, imported when asked for."""
    if name in __all__:
        from perseus_dist.pipelining import adapter

        return getattr(adapter, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
