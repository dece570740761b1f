"""Packages that are needed on a node."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from perseus_dist.messages.finding import Finding, Level


def inspect_packages() -> Iterator[Finding]:
    """Look for them."""
    needed_for = {"nvidia-ml-py": "reading and setting GPUs", "grpcio": "reaching a planner", "protobuf": "the same"}
    found = [f"perseus-dist {version('perseus-dist')}"]
    for name, purpose in needed_for.items():
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding(
                level=Level.FAIL,
                subject="packages",
                what=f"{name} is not installed, which is needed for {purpose}",
                remedy="pip install 'perseus-dist[agent]'",
            )
    yield Finding(level=Level.OK, subject="packages", what=", ".join(found))
