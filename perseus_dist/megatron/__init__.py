"""Perseus in Megatron-LM, and in programs of one's own on megatron-core. Two lines of a script before ``pretrain()``.

    import perseus_dist.megatron
    perseus_dist.megatron.install()

``python -m perseus_dist.megatron SCRIPT`` spares them. Inside this package ``import megatron`` is the framework.
"""

TYPE_CHECKING = False  # typing takes longer to import than all that an enabled environment needs
if TYPE_CHECKING:
    from perseus_dist.megatron.activation import install

__all__ = ["install"]


def __getattr__(name: str) -> object:
    """The public names, imported when asked for."""
    if name in __all__:
        from perseus_dist.megatron import activation

        return getattr(activation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
