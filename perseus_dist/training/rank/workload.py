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
    """Parameters of each torch module; empty where one has some that cannot be counted. Shapes are read, not values."""
    return _counts(modules, lambda module: sum(parameter.numel() for parameter in module.parameters()))


def num_layers(modules: Iterable[Any]) -> tuple[int, ...]:
    """Layers of each torch module: of the longest container in it named ``layers``; empty where one has none.

    A module of that name that is no container itself has the layers of the longest container among its children.
    """
    counts = _counts(modules, _layers_of)
    return counts if all(counts) else ()


def _layers_of(module: Any) -> int:
    named = [part for name, part in module.named_modules() if name.rpartition(".")[2] == "layers"]
    containers = [held for part in named for held in ([part] if hasattr(part, "__len__") else part.children())]
    return max((len(container) for container in containers if hasattr(container, "__len__")), default=0)


def _counts(modules: Iterable[Any], count: Callable[[Any], int]) -> tuple[int, ...]:
    """A count of each module; empty where one fails, so that the other fields of a workload stay known."""
    try:
        return tuple(count(module) for module in modules)
    except Exception as error:
        _log.debug("perseus: what this rank's modules hold could not be counted: %s", error)
        return ()


def known_size(value: object) -> int:
    """A size as a framework says it; 0 where that is no number above 0."""
    return value if isinstance(value, int) and 0 < value <= _MAX_SIZE else 0
