"""The kinds of faults that histories are drawn from."""

from collections.abc import Mapping
from enum import StrEnum


class FaultKind(StrEnum):
    """One kind of disturbance, its end included."""

    SLOW_GPU = "slow GPU"
    HEAT = "heat"
    POWER_CAP = "power cap"
    NODE = "whole node"
    SLOW_LINK = "slow link"
    OSCILLATION = "oscillation"
    AGENT_KILLED = "agent killed"
    AGENT_STOPPED = "agent stopped"
    PLANNER_KILLED = "planner killed"
    PLANNER_STOPPED = "planner stopped"
    LEASE_KILLED = "lease holder killed"
    LEASE_STOPPED = "lease holder stopped"
    TRAINER_KILLED = "trainer killed"
    PARTITION = "partition"
    LATE_MESSAGES = "late messages"
    REPEATED_MESSAGES = "repeated messages"
    LOST_MESSAGES = "lost messages"
    DISK_FULL = "disk full"
    SAME_JOB = "same job again"
    OTHER_JOB = "other job under the name"
    TARGET = "target"
    REPORT = "manual report"


GPU_FAULTS = (
    FaultKind.SLOW_GPU,
    FaultKind.HEAT,
    FaultKind.POWER_CAP,
    FaultKind.NODE,
    FaultKind.SLOW_LINK,
    FaultKind.OSCILLATION,
)
JOB_FAULTS = (FaultKind.SAME_JOB, FaultKind.OTHER_JOB)
WEIGHTS: Mapping[FaultKind, int] = {kind: 2 if kind in GPU_FAULTS else 1 for kind in FaultKind}
