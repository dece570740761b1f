"""Messages between agents, operators and the planner, as plain values: the cores know these, never the wire.

``rpc`` turns each into its protobuf message and back, and validates. Field by field they mirror
``protos/perseus_dist/rpc/v1/planner.proto``. Times are seconds, energies joules, powers watts, clocks MHz.
Standard library only.
"""
