"""Workload of a rank, read by the adapters of all frameworks; fields that cannot be read stay unknown."""

import logging
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from perseus_dist.fingerprint import UNKNOWN_WORKLOAD, Workload

_log = logging.getLogger(__name__)

_MAX_SIZE = (1 << 31) - 1
_BENEATH = ("torch", "triton", "transformer-engine", "flash-attn", "apex")
"""Distributions that compute beneath every framework."""


def read_workload(read: Callable[[], Workload]) -> Workload:
    """The workload that ``read`` returns; unknown where it fails, because a fingerprint is not worth a job."""
    try:
        return read()
    except Exception as error:
        _log.debug("perseus: what this rank runs could not be read: %s", error)
        return UNKNOWN_WORKLOAD


def installed_versions(*distributions: str) -> tuple[str, ...]:
    """``name version`` of those of these distributions, and of what computes beneath, that are installed; sorted."""
    found = []
    for name in (*distributions, *_BENEATH):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return tuple(sorted(found))


def num_parameters(modules: Iterable[Any]) -> tuple[int, ...]:
    """Parameters of each torch module. Shapes are read, never values."""
    return tuple(sum(parameter.numel() for parameter in module.parameters()) for module in modules)


def num_layers(modules: Iterable[Any]) -> tuple[int, ...]:
    """Layers of each torch module: of the longest container in it named ``layers``; empty where one has none."""
    counts = tuple(
        max((len(part) for name, part in module.named_modules() if name.rpartition(".")[2] == "layers"), default=0)
        for module in modules
    )
    return counts if all(counts) else ()


def known_size(value: object) -> int:
    """A size as a framework says it; 0 where that is no number above 0."""
    return value if isinstance(value, int) and 0 < value <= _MAX_SIZE else 0
