"""Stragglers that the planner found, and plans for their pipelines: as long as the plan of all is of use."""

import math
from dataclasses import dataclass, field

from perseus_dist.planner.job.detector_adapter import DetectorAdapter
from perseus_dist.planner.job.facts.plans import StragglerPlanReady
from perseus_dist.planning.frontier.slow_rank import SlowRank
from perseus_dist.straggler.verdicts.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRequest:
    """A plan that is, or was, asked for one pipeline alone.

    Attributes:
        request_id: None once it was answered.
        base_revision: Of the table of all pipelines then.
        slow_ranks: Which it is for.
        asked_at_s: [s] when.
        attempts: How often it was asked for.
        again_at_s: [s] when it is asked for again, since the planning worker has died; else infinite.
    """

    request_id: int | None
    base_revision: int
    slow_ranks: tuple[SlowRank, ...]
    asked_at_s: float
    attempts: int = 1
    again_at_s: float = math.inf


@dataclass(slots=True, kw_only=True)
class Detection:
    """The straggler detector, its verdicts, and plans made because of them.

    Attributes:
        watch: Judges by what ranks report; None before there is a plan and every rank's place is known.
        verdicts: Who is held to be slow.
        keeps_switch: The switch was decided before the planner was restarted, by evidence that is lost: it stays until
            there is as much again. Or the guard is about to judge it.
        straggler_plans: By dp_rank, the newest made for a pipeline with slow ranks; of use while it has them.
        straggler_requests: By dp_rank, the newest asked for.
    """

    watch: DetectorAdapter | None = None
    verdicts: tuple[Verdict, ...] = ()
    keeps_switch: bool = False
    straggler_plans: dict[int, StragglerPlanReady] = field(default_factory=dict)
    straggler_requests: dict[int, OwnRequest] = field(default_factory=dict)
