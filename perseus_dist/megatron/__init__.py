"""Perseus in Megatron-LM, Megatron-Bridge, and programs of one's own on megatron-core.

Two lines of a script before ``pretrain()``:

    import perseus_dist.megatron
    perseus_dist.megatron.install()

``python -m perseus_dist.megatron SCRIPT`` spares them, and so does ``PerseusCallback`` in Megatron-Bridge. Inside this
package ``import megatron`` is the framework.
"""

TYPE_CHECKING = False  # typing takes longer to import than all that an enabled environment needs
if TYPE_CHECKING:
    from perseus_dist.megatron.activation import install
    from perseus_dist.megatron.bridge_callback import PerseusCallback

__all__ = ["PerseusCallback", "install"]


def __getattr__(name: str) -> object:
    """The public names, imported when asked for."""
    if name == "install":
        from perseus_dist.megatron.activation import install

        return install
    if name == "PerseusCallback":
        from perseus_dist.megatron.bridge_callback import PerseusCallback

        return PerseusCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
