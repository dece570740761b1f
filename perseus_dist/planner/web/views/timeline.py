r"""Timeline of a job: one iteration of its first pipelines as it was measured, each beside the plan that it followed.

    Planned           0  |F0|F1|   |B0|B1|       one lane per stage; the box's upper edge tells the kind,
                      1     |F0|B0|F1|B1|        its shade the clock
    Pipeline 0        0  |F0|F1|    |B0|B1|
                      1     |F0| B0|F1|B1|

Measured are begins, ends and clocks of computations, by each rank's own clock. The plan is replayed on the profile.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from perseus_dist.errors import PerseusError
from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.measured_transfers import clocks_ahead_ns, num_computations
from perseus_dist.planner.web.views.frontier_chart import ticks
from perseus_dist.planner.web.views.heat_map import NUM_SHADES, clocks_of_row
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.units import PS_PER_NS, PS_PER_S, ps_from_s

WIDTH, LANE_HEIGHT = 10_000, 20
MAX_LANES = 48  # of all panels, but for those of one pipeline
MAX_STAGES = 64
MAX_BOXES = 256  # of a lane; of longer iterations the begin is shown
_MAX_LABELLED = 40  # boxes of a lane
_LABEL_SHARE = 0.012  # of the width, that a label wants
_BOTTOM = 18
_LEAST_S = 1e-6
_TOPS: dict[str, int] = {
    Kind.FORWARD: 2,
    Kind.FORWARD_BACKWARD: 4,
    Kind.BACKWARD: 6,
    Kind.INPUT_GRADIENT: 6,
    Kind.WEIGHT_GRADIENT: 10,
}
_COMPUTATIONS = frozenset(Kind)
_NS_PER_S = PS_PER_S // PS_PER_NS


class Box(NamedTuple):
    """A computation: when [s] it ran, and at which clock [MHz], 0 where that is not known."""

    instruction: Instruction
    begin_s: float
    end_s: float
    clock_mhz: int


Lanes = tuple[tuple[Box, ...], ...]
"""(pp_size) of one pipeline."""


class PlanFollowed(NamedTuple):
    """A row of a table; revision 0 for full clocks."""

    revision: int
    point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    title: str
    lanes: Lanes
    is_planned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSource:
    """Parts that a picture is made of, apart from the job: for a thread that makes it.

    Attributes:
        measured: By dp_rank, the ranks' times.
        tables: (pp_size) encoded, by revision, of the plans that can be replayed.
        profile_csv: Behind them; empty where there is no plan.
    """

    schedule_text: str
    measured: dict[int, tuple[RunTimes, ...]]
    tables: dict[int, tuple[bytes, ...]]
    profile_csv: bytes
    tp_size: int

    def is_of(self, other: "TimelineSource | None") -> bool:
        """Whether the same picture comes of it."""
        return other is not None and (self.measured, self.tables.keys()) == (other.measured, other.tables.keys())


def timeline_source(job: Job) -> TimelineSource | None:
    """Of a job; None before there is anything to draw."""
    text = job.schedule_text
    measured = {
        dp_rank: ranks
        for dp_rank, ranks in sorted(job.measured.timelines.whole.items())
        if all(len(one.begins_ns) == num_computations(text, pp_rank) > 0 for pp_rank, one in enumerate(ranks))
    }
    if job.spec is None or not measured:
        return None
    tables: dict[int, tuple[bytes, ...]] = {}
    if job.plan is not None:
        plans = [(job.plan.revision, job.plan.tables)]
        plans += [(own.revision, own.tables) for own in job.detection.straggler_plans.values()]
        tables = dict(plans)
    return TimelineSource(
        schedule_text=text,
        measured=measured,
        tables=tables,
        profile_csv=job.plan.profile_csv if job.plan is not None else b"",
        tp_size=job.spec.tp_size,
    )


def timeline_document(source: TimelineSource) -> dict[str, Any]:
    """The picture, for its template. Schedules are long: a thread's work."""
    schedule = parse_schedule(source.schedule_text)
    num = max(1, MAX_LANES // schedule.num_ranks - 1)
    panels = _panels(schedule, source, list(source.measured.items())[:num])
    lanes = [lane for panel in panels for lane in panel.lanes]
    end_s = max(_LEAST_S, *(box.end_s for lane in lanes for box in lane))
    shown_s = min([end_s, *(lane[MAX_BOXES].begin_s for lane in lanes if len(lane) > MAX_BOXES)])
    clocks_mhz = [box.clock_mhz for lane in lanes for box in lane if box.clock_mhz]
    shades = _Shades(min(clocks_mhz, default=0), max(clocks_mhz, default=0))
    unit, factor = ("s", 1) if shown_s >= 1 else ("ms", 1000)
    return {
        "panels": [
            {
                "title": panel.title,
                "time_s": max(box.end_s for lane in panel.lanes for box in lane),
                "lanes": [_lane(lane, shown_s, shades) for lane in panel.lanes[:MAX_STAGES]],
                "rows": [_row(lane) for lane in panel.lanes[:MAX_STAGES]],
            }
            for panel in panels
        ],
        "low": shades.low,
        "high": shades.high,
        "ticks": [(f"{100 * at / factor / shown_s:.2f}%", text) for at, text in ticks(0.0, factor * shown_s)],
        "unit": unit,
        "part": shown_s / end_s,
        "width": WIDTH,
        "height": LANE_HEIGHT,
        "pipelines_left_out": max(0, len(source.measured) - num),
        "stages_left_out": max(0, schedule.num_ranks - MAX_STAGES),
        "has_plan": any(panel.is_planned for panel in panels),
    }


def _panels(
    schedule: Schedule, source: TimelineSource, measured: Iterable[tuple[int, tuple[RunTimes, ...]]]
) -> list[_Panel]:
    """Each pipeline, and before it its plan where that is another than the one before."""
    problem = _problem(schedule, source)
    panels: list[_Panel] = []
    drawn: PlanFollowed | None = None
    for dp_rank, ranks in measured:
        followed = PlanFollowed(ranks[0].table_revision, ranks[0].point)
        if followed != drawn and problem is not None:
            planned = _planned(problem, schedule, source, followed)
            which = f"table {followed.revision}, point {followed.point}" if followed.revision else "at full clocks"
            panels += [_Panel(title=f"Planned, {which}", lanes=planned, is_planned=True)] if planned else []
        drawn = followed
        title = f"Pipeline {dp_rank}, measured in iteration {ranks[0].iteration:,}"
        panels.append(_Panel(title=title, lanes=_measured(schedule, source, ranks), is_planned=False))
    return panels


def _problem(schedule: Schedule, source: TimelineSource) -> PlanningProblem | None:
    """To replay plans on; None where there is no profile, or none that fits."""
    if not source.profile_csv:
        return None
    try:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "profile.csv"
            path.write_bytes(source.profile_csv)
            profile = read_profile(path)
        return make_problem(
            schedule, profile, blocking_uw_of_rank=[0] * schedule.num_ranks, tensor_parallel=source.tp_size
        )
    except PerseusError:  # as of another schedule, just now
        return None


def _planned(
    problem: PlanningProblem, schedule: Schedule, source: TimelineSource, followed: PlanFollowed
) -> Lanes | None:
    """The plan as the profile has it run; None where its table is gone."""
    indices = np.zeros(problem.num_instructions, dtype=np.int32)
    latency_s = 0.0
    tables = source.tables.get(followed.revision, ())
    first = pb.PlannerMessage.FromString(tables[0]).table if tables else None
    is_at_full = followed.point == NO_POINT or (first is not None and followed.point == first.num_points)
    if not is_at_full:
        if first is None:
            return None
        rows = [clocks_of_row(table, followed.point) for table in tables]
        latency_s = first.switch_latency_s
        if [len(row) for row in rows] != [len(order) for order in schedule.ranks]:
            return None
        clocks_mhz = np.zeros(problem.num_instructions, dtype=np.int64)
        clocks_mhz[: sum(map(len, rows))] = np.concatenate([np.array(row, dtype=np.int64) for row in rows])
        indices = problem.clock_indices(clocks_mhz)
    last = np.array([len(problem.curves[curve].clocks_mhz) - 1 for curve in problem.curve_of.tolist()])
    execution = replay(problem, np.minimum(indices, last), switch_latency_ps=int(ps_from_s(latency_s)))
    times = zip(execution.start_ps.tolist(), execution.end_ps.tolist(), execution.clocks_mhz.tolist(), strict=True)
    is_computation = [one.kind in _COMPUTATIONS for one in execution.dag.instructions]
    first_ps = int(execution.start_ps[is_computation].min())
    boxes = [
        Box(one, (start_ps - first_ps) / PS_PER_S, (end_ps - first_ps) / PS_PER_S, clock_mhz)
        for one, (start_ps, end_ps, clock_mhz) in zip(execution.dag.instructions, times, strict=True)
    ]
    lanes: list[tuple[Box, ...]] = []
    begin = 0
    for order in schedule.ranks:
        own = boxes[begin : begin + len(order)]
        begin += len(order)
        lanes.append(tuple(box for box in own if box.instruction.kind in _COMPUTATIONS))
    return tuple(lanes)


def _measured(schedule: Schedule, source: TimelineSource, ranks: Sequence[RunTimes]) -> Lanes:
    ahead_ns = clocks_ahead_ns(source.schedule_text, ranks)
    first_ns = min(times.begins_ns[0] - ahead for times, ahead in zip(ranks, ahead_ns, strict=True))
    lanes: list[tuple[Box, ...]] = []
    for order, times, ahead in zip(schedule.ranks, ranks, ahead_ns, strict=True):
        computations = [one for one in order if one.kind in _COMPUTATIONS]
        clocks_mhz = times.clocks_mhz or (0,) * len(computations)
        lanes.append(
            tuple(
                Box(one, (begin_ns - ahead - first_ns) / _NS_PER_S, (end_ns - ahead - first_ns) / _NS_PER_S, clock_mhz)
                for one, begin_ns, end_ns, clock_mhz in zip(
                    computations, times.begins_ns, times.ends_ns, clocks_mhz, strict=True
                )
            )
        )
    return tuple(lanes)


class _Shades(NamedTuple):
    low: int
    high: int

    def of(self, clock_mhz: int) -> int:
        """Of a box; one whose clock is not known ran at full clocks."""
        if not clock_mhz or self.high == self.low:
            return NUM_SHADES - 1
        return min(NUM_SHADES - 1, int((clock_mhz - self.low) / (self.high - self.low) * NUM_SHADES))


def _lane(boxes: Iterable[Box], shown_s: float, shades: _Shades) -> dict[str, Any]:
    """A path for the boxes of each shade, and what stands in those that are wide enough."""
    paths: defaultdict[int, list[str]] = defaultdict(list)
    labels: list[tuple[str, int]] = []
    shown = [box for box in boxes if box.begin_s < shown_s]
    for box in shown:
        left, right = (round(WIDTH * min(at_s, shown_s) / shown_s) for at_s in (box.begin_s, box.end_s))
        top = _TOPS.get(box.instruction.kind, _BOTTOM - 2)
        paths[shades.of(box.clock_mhz)].append(f"M{left} {top}H{max(right, left + 1)}V{_BOTTOM}H{left}z")
        if right - left >= _LABEL_SHARE * WIDTH and len(shown) <= _MAX_LABELLED:
            labels.append((f"{100 * (left + right) / 2 / WIDTH:.2f}%", box.instruction.microbatch))
    return {"paths": [(shade, "".join(path)) for shade, path in sorted(paths.items())], "labels": labels}


def _row(boxes: Sequence[Box]) -> dict[str, Any]:
    """A lane in figures, for those who cannot see it."""
    busy_s = sum(box.end_s - box.begin_s for box in boxes)
    clocks = [box.clock_mhz for box in boxes if box.clock_mhz]
    return {
        "num": len(boxes),
        "busy_s": busy_s,
        "waiting_s": max(0.0, boxes[-1].end_s - boxes[0].begin_s - busy_s) if boxes else 0.0,
        "end_s": boxes[-1].end_s if boxes else 0.0,
        "clock_mhz": fmean(clocks) if clocks else None,
    }
