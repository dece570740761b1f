"""A pipeline stage of transformer layers, in PyTorch."""

from dataclasses import dataclass
from typing import Any

from perseus_dist.measure.errors import MeasureError

_LARGEST = {"layers": 1024, "hidden": 131072, "heads": 1024, "sequence_length": 1 << 20, "microbatch_size": 4096}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSize:
    """A pipeline stage: transformer layers, and what one microbatch of it is.

    Attributes:
        layers: One after the other.
        hidden: Width; the feed-forward part is four times as wide.
        heads: Of attention; divides ``hidden``.
        sequence_length: Tokens of a sequence.
        microbatch_size: Sequences of a microbatch.

    Raises:
        MeasureError: Sizes beyond all GPUs, or heads that do not divide the width.
    """

    layers: int = 4
    hidden: int = 4096
    heads: int = 32
    sequence_length: int = 2048
    microbatch_size: int = 2

    def __post_init__(self) -> None:
        for name, largest in _LARGEST.items():
            value = getattr(self, name)
            if not 1 <= value <= largest:
                option = name.replace("_", "-")
                raise MeasureError(f"--{option} {value}: expected 1 to {largest}; give a stage that a GPU has room for")
        if self.hidden % self.heads:
            raise MeasureError(
                f"--heads {self.heads} does not divide --hidden {self.hidden}, expected a multiple; give --hidden "
                f"{max(1, self.hidden // self.heads) * self.heads}"
            )


class TransformerStage:
    """The real computation, in PyTorch: layers, one input, and the backward of one output as often as wanted."""

    def __init__(self, size: StageSize, *, device: str) -> None:
        torch = import_torch()
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        layers = [
            torch.nn.TransformerEncoderLayer(
                size.hidden,
                size.heads,
                dim_feedforward=4 * size.hidden,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
                device=device,
                dtype=dtype,
            )
            for _ in range(size.layers)
        ]
        self._backward = torch.autograd.backward
        self._layers = torch.nn.Sequential(*layers).train()
        shape = (size.microbatch_size, size.sequence_length, size.hidden)
        # The gradient of the input is part of a stage's backward: it goes to the stage before.
        self._input = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
        self._gradient = torch.randn(shape, device=device, dtype=dtype)
        self._output: Any = None
        self.forward()

    def forward(self) -> None:
        """A forward with all that its backward needs, in place of the last one's."""
        self._output = None  # first, so that the GPU holds the activations of one
        self._output = self._layers(self._input)

    def backward(self) -> None:
        """The backward of the last forward; gradients add up, as they do over microbatches."""
        self._backward(self._output, self._gradient, retain_graph=True)

    def forget_gradients(self) -> None:
        """So that sums stay small, whatever is repeated."""
        self._layers.zero_grad(set_to_none=True)
        self._input.grad = None


def import_torch() -> Any:
    """PyTorch.

    Raises:
        MeasureError: It is not installed.
    """
    try:
        import torch
    except ImportError:
        raise MeasureError(
            "PyTorch is not installed, which runs the layers: pip install 'perseus-dist[measure]'"
        ) from None
    return torch
