"""Replicas of one planner, as a page names them: each shows its own jobs, and leads to the others."""

from dataclasses import dataclass

from perseus_dist.planner.runtime.ownership import Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherReplica:
    """One that lives.

    Attributes:
        address: Where agents and commands reach it.
        page: URL of its page if that has this one's port; empty where it cannot have, on the same host.
    """

    address: str
    page: str


def other_replicas(ownership: Ownership | None, *, scheme: str, port: int) -> list[OtherReplica]:
    """The others; none where this planner serves all jobs."""
    if ownership is None:
        return []
    return [
        OtherReplica(address=address, page=page_at(address, ownership.address, scheme=scheme, port=port))
        for address in ownership.replicas
    ]


def page_at(address: str, own_address: str, *, scheme: str, port: int) -> str:
    """The page of a replica at an address, by scheme and port of this one's; empty where both are on one host."""
    host = address.rpartition(":")[0]
    return "" if host == own_address.rpartition(":")[0] else f"{scheme}://{host}:{port}/"
