"""Whether a job has ranks on several hosts, by what launchers put into the environment; nothing is looked up."""

import os
from collections.abc import Mapping
from ipaddress import ip_address

_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")


def meeting_host(environment: Mapping[str, str] = os.environ) -> str | None:
    """The host where the ranks of a job that spans several hosts have met; None for a job on one host.

    Where no launcher tells the number of ranks on this host, a job that meets at a loopback address is on one.

    Args:
        environment: ``WORLD_SIZE``, the number of ranks on this host, and ``MASTER_ADDR``.
    """
    num_ranks = _number(environment, "WORLD_SIZE")
    num_here = next((number for name in _LOCAL_SIZES if (number := _number(environment, name))), 0)
    host = environment.get("MASTER_ADDR", "").strip("[]")
    if not host or not num_ranks or (num_here and num_here >= num_ranks):
        return None
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return None if is_loopback else host


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0
