"""The node relay: one process per node that carries the streams of its ranks to the planner as one."""
