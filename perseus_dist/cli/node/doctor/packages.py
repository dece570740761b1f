"""Packages that are needed on a node."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from perseus_dist.messages.finding import Finding, Level


def inspect_packages() -> Iterator[Finding]:
    """Find the installed versions of the packages that Perseus needs, and name those that are missing."""
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
