"""How agents and the relay of their node talk: ``Attach`` of the planner, and these additions."""

PLANNER_KEY = "perseus-planner"
"""Metadata of the agent's call: ``host:port`` of its job's planner."""

FROM_PLANNER = (("perseus-from", "planner"),)
"""Trailing metadata of a call that the planner has ended, or the way to it: the relay itself is well."""

HEARTBEAT = b""
"""The relay sends this when it has nothing else to send: no message of the planner is empty."""

HEARTBEAT_S = 1.5
SILENCE_S = 5.0
"""An agent that hears nothing for so long takes the relay for dead."""

RELAY_VARIABLE = "PERSEUS_NODE_RELAY"
"""Of the environment: the relay's socket."""
