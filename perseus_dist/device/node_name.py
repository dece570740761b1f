"""The name that operators know a node by."""

import socket
from collections.abc import Mapping

_VARIABLE = "PERSEUS_NODE"  # for containers, whose own name says nothing to operators


def node_name(environ: Mapping[str, str]) -> str:
    """Its host name, unless the environment names another."""
    return environ.get(_VARIABLE) or socket.gethostname()
