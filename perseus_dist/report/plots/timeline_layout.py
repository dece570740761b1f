"""Where things stand on a timeline: rows, boxes, waiting gaps, the critical path and the windows shown. Numbers only.

One row per pp_rank, one sub-row per model chunk on it. y grows downwards and a sub-row is one unit high; the upper edge
of a box tells its kind, and the gap below BOTTOM carries the underline of the critical path:

    pp_rank 0   chunk 0   |F0|F1|      |B0|
                chunk 1         |F0|B0|
    pp_rank 1   chunk 0    ...
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_dist.planning.frontier.replay import Execution
from perseus_dist.planning.schedule.dag import Dag
from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.units import FloatArray, IntArray, s_from_ps

MAX_BOXES_PER_ROW = 60
"""Above this many boxes on one pp_rank the picture shows windows instead of the whole iteration."""

TOP: dict[str, float] = {
    Kind.FORWARD: 0.06,
    Kind.BACKWARD: 0.26,
    Kind.INPUT_GRADIENT: 0.26,
    Kind.WEIGHT_GRADIENT: 0.44,
    Kind.FORWARD_BACKWARD: 0.16,
}
CONSTANT_TOP = 0.35
WAITING_TOP = 0.06
BOTTOM = 0.84
UNDERLINE = 0.93

_RANK_GAP = 0.3  # between ranks that have sub-rows, so that the sub-rows of one rank read as a group
_MAX_WINDOW_SHARE = 0.25  # of the iteration
_MIN_WINDOW_BOXES = 12  # on the busiest rank


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Vertical places, in sub-rows.

    Attributes:
        chunk: (num_instructions) model chunk of each instruction on its pp_rank.
        top: (num_instructions) upper edge of each instruction's sub-row.
        box_top: (num_instructions) upper edge of each instruction's box.
        rank_top: (num_ranks) upper edge of each rank's row.
        rank_bottom: (num_ranks) lower edge of each rank's row.
        height: of the whole panel.
    """

    chunk: IntArray
    top: FloatArray
    box_top: FloatArray
    rank_top: FloatArray
    rank_bottom: FloatArray
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of the iteration, the same for all executions of one picture.

    Attributes:
        name: ``warm-up``, ``steady`` or ``cool-down``; empty for the whole iteration.
        start_s: [s] left edge.
        end_s: [s] right edge.
        share: of the longest iteration, 0 to 1.
    """

    name: str
    start_s: float
    end_s: float
    share: float

    def shows(self, start_s: FloatArray, end_s: FloatArray) -> NDArray[np.bool_]:
        """Which stretches of time can be seen in it."""
        return (start_s < self.end_s) & (end_s > self.start_s)


def chunks_of(dag: Dag) -> tuple[IntArray, IntArray]:
    """Model chunk of each instruction (num_instructions) and number of chunks on each rank (num_ranks)."""
    stage = np.array([instruction.stage for instruction in dag.instructions], dtype=np.int64)
    chunk = np.zeros_like(stage)
    num_chunks = np.ones(dag.schedule.num_ranks, dtype=np.int64)
    for rank in range(dag.schedule.num_ranks):
        here = dag.pp_rank == rank
        stages, chunk[here] = np.unique(stage[here], return_inverse=True)
        num_chunks[rank] = len(stages)
    return chunk, num_chunks


def rows(dag: Dag) -> Rows:
    """The row of each rank, the sub-row of each instruction and the height of its box."""
    chunk, num_chunks = chunks_of(dag)
    gap = _RANK_GAP if num_chunks.max() > 1 else 0.0
    rank_bottom = np.cumsum(num_chunks + gap) - gap
    rank_top = rank_bottom - num_chunks
    top = rank_top[dag.pp_rank] + chunk
    return Rows(
        chunk=chunk,
        top=top,
        box_top=top + [TOP.get(instruction.kind, CONSTANT_TOP) for instruction in dag.instructions],
        rank_top=rank_top,
        rank_bottom=rank_bottom,
        height=float(rank_bottom[-1]),
    )


def rectangles(left: FloatArray, right: FloatArray, top: FloatArray, bottom: FloatArray) -> FloatArray:
    """(num_boxes, 4, 2) corners, clockwise from the upper left one."""
    x = np.stack([left, right, right, left], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    return np.stack([x, y], axis=2)


def waits(execution: Execution) -> tuple[IntArray, IntArray, IntArray]:
    """The stretches in which a rank waits: pp_rank, start [ps] and end [ps], each (num_waits)."""
    dag = execution.dag
    num_ranks = dag.schedule.num_ranks
    on_rank = dag.on_rank
    ready_ps = np.where(dag.previous_on_rank < 0, 0, execution.end_ps[dag.previous_on_rank])[on_rank]
    done_ps = np.zeros(num_ranks, dtype=np.int64)
    np.maximum.at(done_ps, dag.pp_rank[on_rank], execution.end_ps[on_rank])
    rank = np.concatenate([dag.pp_rank[on_rank], np.arange(num_ranks)])
    start_ps = np.concatenate([ready_ps, done_ps])
    end_ps = np.concatenate([execution.start_ps[on_rank], np.full(num_ranks, execution.time_ps)])
    waiting = end_ps > start_ps
    return rank[waiting], start_ps[waiting], end_ps[waiting]


def critical_path(execution: Execution) -> IntArray:
    """One longest path, as indices in time order: each instruction starts when the one before it ends.

    Walks back from the instruction that ends last, each time to the predecessor that ended last; among equals to the
    one on the same rank, then to the one with the lowest index.
    """
    dag = execution.dag
    source, target = dag.edges.T.astype(np.int64)
    same_rank = dag.pp_rank[source] == dag.pp_rank[target]
    order = np.lexsort((-source, same_rank, execution.end_ps[source], target))
    latest = np.full(len(dag.instructions), -1, dtype=np.int64)
    latest[target[order]] = source[order]  # the last one written for a target is the one that ended last
    path = [int(np.argmax(execution.end_ps))]
    while latest[path[-1]] >= 0:
        path.append(int(latest[path[-1]]))
    return np.array(path[::-1], dtype=np.int64)


def underlines(execution: Execution, layout: Rows) -> FloatArray:
    """(num_lines, 2, 2) end points of the lines under the critical path; what touches on one sub-row is one line."""
    path = critical_path(execution)
    start_s, end_s, y = s_from_ps(execution.start_ps[path]), s_from_ps(execution.end_ps[path]), layout.top[path]
    begins = np.append(True, (y[1:] != y[:-1]) | (start_s[1:] > end_s[:-1]))
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(path)) - 1
    x = np.stack([start_s[first], end_s[last]], axis=1)
    return np.stack([x, np.repeat(y[first, None] + UNDERLINE, 2, axis=1)], axis=2)


def windows(executions: Sequence[Execution]) -> tuple[Window, ...]:
    """The whole iteration, or warm-up, steady state and cool-down where a row has too many boxes to be read.

    Warm-up lasts until every rank has ended a backward, cool-down begins where a rank begins its last forward, both
    within what can be read; the steady window is half as wide as the wider of them and stands in the middle.
    """
    total_ps = max(execution.time_ps for execution in executions)
    boxes = max(int(np.bincount(one.dag.pp_rank[one.dag.on_rank]).max()) for one in executions)
    if boxes <= MAX_BOXES_PER_ROW:
        return (Window(name="", start_s=0.0, end_s=float(s_from_ps(total_ps)), share=1.0),)
    limits = total_ps * _MIN_WINDOW_BOXES / boxes, total_ps * min(_MAX_WINDOW_SHARE, MAX_BOXES_PER_ROW / boxes)
    fill_ps = np.clip(max(_filled_ps(execution) for execution in executions), *limits)
    drain_ps = np.clip(total_ps - min(_draining_ps(execution) for execution in executions), *limits)
    steady_ps = max(fill_ps, drain_ps) / 2
    places = (
        ("warm-up", 0, fill_ps),
        ("steady", (total_ps - steady_ps) / 2, (total_ps + steady_ps) / 2),
        ("cool-down", total_ps - drain_ps, total_ps),
    )
    return tuple(
        Window(name=name, start_s=float(s_from_ps(start)), end_s=float(s_from_ps(end)), share=(end - start) / total_ps)
        for name, start, end in places
    )


def _filled_ps(execution: Execution) -> int:
    """[ps] when the last rank ends its first backward."""
    first_ps = np.full(execution.dag.schedule.num_ranks, execution.time_ps)
    chosen = _of_kinds(execution.dag.instructions, Kind.BACKWARD, Kind.INPUT_GRADIENT, Kind.FORWARD_BACKWARD)
    np.minimum.at(first_ps, execution.dag.pp_rank[chosen], execution.end_ps[chosen])
    return int(first_ps.max())


def _draining_ps(execution: Execution) -> int:
    """[ps] when the first rank starts its last forward."""
    last_ps = np.zeros(execution.dag.schedule.num_ranks, dtype=np.int64)
    chosen = _of_kinds(execution.dag.instructions, Kind.FORWARD, Kind.FORWARD_BACKWARD)
    np.maximum.at(last_ps, execution.dag.pp_rank[chosen], execution.start_ps[chosen])
    return int(last_ps.min())


def _of_kinds(instructions: Sequence[Instruction], *kinds: str) -> IntArray:
    return np.flatnonzero([instruction.kind in kinds for instruction in instructions])
