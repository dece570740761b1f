"""Perseus in DeepSpeed. For scripts that start without the launcher: ``attach(engine)`` after ``deepspeed.initialize``.

Inside this package ``import deepspeed`` is the framework.
"""

TYPE_CHECKING = False  # typing takes longer to import than all that the launcher's hook needs
if TYPE_CHECKING:
    from perseus_dist.deepspeed.adapter import attach, detach

__all__ = ["attach", "detach"]


def __getattr__(name: str) -> object:
    """The public names, imported when asked for: the launcher's hook runs before every program and needs none."""
    if name in __all__:
        from perseus_dist.deepspeed import adapter

        return getattr(adapter, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
