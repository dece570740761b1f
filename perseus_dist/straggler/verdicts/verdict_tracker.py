"""All verdicts that stand: times or NVML raise them; recovery, NVML or a silent rank ends them."""

import math

import numpy as np

from perseus_dist.straggler.evidence.gpu_evidence import GpuEvidence
from perseus_dist.straggler.evidence.series import BoolArray, EvidenceSeries
from perseus_dist.straggler.evidence.time_evidence import TimeEvidence
from perseus_dist.straggler.layout import Layout
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.straggler.verdicts.causes import Cause, cause_of_throttling
from perseus_dist.straggler.verdicts.describe import verdict_of_cell, verdict_of_pipeline
from perseus_dist.straggler.verdicts.open_verdict import FlapLimit, OpenVerdict
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict
from perseus_dist.units import FloatArray


class VerdictTracker:
    """Cells and pipelines that are held to be stragglers.

    Attributes:
        news: Sentences about what is new or over since they were last taken.
    """

    def __init__(self, layout: Layout, time: TimeEvidence, gpu: GpuEvidence, policy: StragglerPolicy) -> None:
        self._layout, self._time, self._gpu, self._policy = layout, time, gpu, policy
        self._flaps = FlapLimit(policy)
        self._cells: dict[int, OpenVerdict] = {}
        self._pipelines: dict[int, OpenVerdict] = {}
        self.news: list[str] = []

    def flagged_cells(self) -> BoolArray:
        """(num_cells) where a verdict stands."""
        flags = np.zeros(self._layout.num_cells, dtype=bool)
        flags[list(self._cells)] = True
        return flags

    def late_pipelines(self) -> BoolArray:
        """(dp_size) where a verdict stands on the pipeline or on one of its cells."""
        flags = self._by_pipeline(self.flagged_cells())
        flags[list(self._pipelines)] = True
        return flags

    def throttled_cells(self, now_s: float) -> BoolArray:
        """(num_cells) where NVML makes slow times credible."""
        return _any_rank(self._layout, self._gpu.supports(self._gpu.loss(now_s)))

    def resume(self, cell: int, degree: float, now_s: float) -> None:
        """A verdict of an earlier tracker stands: times are to end it, and it counts as raised now."""
        step = self._policy.degree_step
        self._cells[cell] = OpenVerdict(
            place=cell,
            raised_at_s=now_s,
            since_s=now_s,
            series=self._time.direct,
            degree=Degree(value=degree, low=degree - step, high=degree + step),
            came_too_often=self._flaps.raised("cell", cell, now_s),
            was_acted_upon=True,
            num_rows=self._policy.latest_window,
        )
        self._time.resume_cell(cell)
        self.news.append(f"{self._name('cell', cell)} is held to be slower than its likes, as before")

    def change_plan(self, dp_rank: int, first_iteration: int) -> None:
        """A pipeline's time says something else from this iteration on."""
        self._time.forget_pipeline(dp_rank, first_iteration - 1)
        for cell, case in self._cells.items():
            if cell // self._layout.pp_size == dp_rank:
                case.pipeline_degree = None

    def judge_times(self, now_s: float) -> None:
        """After one more iteration: follow what stands, end what is over, raise what is new."""
        for what, cases, plain in (
            ("cell", self._cells, self._time.direct),
            ("pipeline", self._pipelines, self._time.pipeline_direct),
        ):
            for place, case in list(cases.items()):
                case.follow(self._policy, plain)
                if case.is_over(now_s, self._policy):
                    self._end(what, place, "is as fast as its likes again")
        time = self._time
        excused = self.throttled_cells(now_s)
        for series in (time.adjusted, time.direct):
            for cell in np.flatnonzero(series.is_raised(excused)).tolist():
                standing = self._cells.get(cell)
                if standing is None:
                    self._raise("cell", cell, series, now_s)
                elif standing.series is None:
                    standing.use(series, self._policy)
        for cell, case in self._cells.items():
            case.follow_pipeline(time.pipeline_direct, cell // self._layout.pp_size, self._policy)
        is_blamed = self._by_pipeline(self.flagged_cells())  # one of its ranks is, not the whole
        for place in [place for place in self._pipelines if is_blamed[place]]:
            self._flaps.ended("pipeline", self._pipelines.pop(place))
            self.news.append(f"{self._name('pipeline', place)} is slower because of one of its ranks")
        is_suspect = self._by_pipeline(time.direct.is_suspect | time.adjusted.is_suspect)
        for series in (time.pipeline_adjusted, time.pipeline_direct):
            is_raised = series.is_raised(np.zeros(self._layout.dp_size, dtype=bool)) & ~is_blamed & ~is_suspect
            for place in np.flatnonzero(is_raised).tolist():
                if place not in self._pipelines:
                    self._raise("pipeline", place, series, now_s)

    def judge_gpus(self, now_s: float) -> None:
        """Open verdicts that NVML alone predicts, as long as times do not contradict."""
        loss = self._gpu.loss(now_s)
        predicts = self._gpu.predicts(loss)
        self._predict(loss, predicts, now_s)
        supports = self._gpu.supports(loss)
        for cell, case in self._cells.items():
            rank = max(self._layout.ranks_of_cell(cell), key=loss.__getitem__)
            if supports[rank]:
                case.rank, case.reasons = rank, case.reasons | int(self._gpu.reasons[rank])
                case.is_explained |= bool(predicts[rank])
        self._end_freed(now_s)

    def _end_freed(self, now_s: float) -> None:
        """End verdicts that NVML explained when NVML ends them; times of iterations that began before are ignored.

        A power cap is not: whether a GPU is at it depends on what it computes at the instant of a reading.
        """
        for cell, case in list(self._cells.items()):
            ranks, gpu = self._layout.ranks_of_cell(cell), self._gpu
            if not case.is_explained or case.rank is None or now_s - case.raised_at_s < self._policy.gpu_hold_s:
                continue
            if cause_of_throttling(case.reasons, float(gpu.temperature_c[case.rank])) is Cause.POWER_CAP:
                continue
            if gpu.is_freed(case.rank) and not any(gpu.is_throttled(rank) for rank in ranks):
                self._end("cell", cell, "runs free again")
                self._time.forget_cell(cell, int(max(gpu.free_iteration[rank] for rank in ranks)))

    def _predict(self, loss: FloatArray, predicts: BoolArray, now_s: float) -> None:
        if not predicts.any() and all(case.series is not None for case in self._cells.values()):
            return
        layout, policy = self._layout, self._policy
        since_s = _most_of_ranks(layout, np.where(predicts, self._gpu.since_s, -np.inf))
        since_iteration = _most_of_ranks(layout, np.where(predicts, self._gpu.since_iteration, -1.0))
        is_predicted = _any_rank(layout, predicts) & ~self._time.contradicts(since_s, since_iteration)
        losses = _most_of_ranks(layout, np.where(predicts, loss, 0.0))
        for cell, case in list(self._cells.items()):
            is_held = now_s - case.raised_at_s < policy.min_hold_s
            if case.series is None and not is_predicted[cell] and not is_held:
                self._end("cell", cell, self._why_unpredicted(cell, now_s, is_contradicted=losses[cell] > 0))
        for cell in np.flatnonzero(is_predicted).tolist():
            low, high = math.exp(policy.gpu_gain_share * losses[cell]), math.exp(losses[cell])
            degree = Degree(value=math.sqrt(low * high), low=low, high=high)
            standing = self._cells.get(cell)
            if standing is None:
                self._cells[cell] = OpenVerdict(
                    place=cell,
                    raised_at_s=now_s,
                    since_s=float(since_s[cell]),
                    series=None,
                    degree=degree,
                    came_too_often=self._flaps.raised("cell", cell, now_s),
                )
                self.news.append(f"{self._name('cell', cell)} will be slower than its likes by {degree}, by NVML")
            elif standing.series is None and not standing.degree.low <= degree.value <= standing.degree.high:
                standing.degree = degree

    def _why_unpredicted(self, cell: int, now_s: float, *, is_contradicted: bool) -> str:
        if is_contradicted:
            return "is throttled, but as fast as its likes"
        throttled = [rank for rank in self._layout.ranks_of_cell(cell) if self._gpu.is_throttled(rank)]
        if not throttled:
            return "runs free again"
        if not self._gpu.is_recent(now_s)[throttled].any():
            return f"has had no useful reading of its GPU for {self._policy.stale_s:g} s"
        return "is throttled, but NVML no longer predicts it to be slower"

    def end_silent(self, is_live: BoolArray) -> None:
        """Nothing is known about a rank whose agent is gone; the others must not wait for what may be over.

        Args:
            is_live: (num_ranks) whether each has said anything lately.
        """
        silent = f"has reported nothing for {self._policy.stale_s:g} s"
        cells = _any_rank(self._layout, is_live) if self._cells or self._pipelines else is_live
        for cell in [cell for cell in self._cells if not cells[cell]]:
            self._end("cell", cell, silent)
        for place in list(self._pipelines):
            first = place * self._layout.pp_size
            if not cells[first : first + self._layout.pp_size].any():
                self._end("pipeline", place, silent)

    def verdicts(self, now_s: float) -> tuple[Verdict, ...]:
        """The verdicts that stand, cells before pipelines, each in order."""
        layout, time, gpu, policy = self._layout, self._time, self._gpu, self._policy
        cells = (verdict_of_cell(case, layout, time, gpu, policy, now_s) for _, case in sorted(self._cells.items()))
        pipelines = (
            verdict_of_pipeline(case, layout, time, policy, now_s) for _, case in sorted(self._pipelines.items())
        )
        return (*cells, *pipelines)

    def _by_pipeline(self, of_cells: BoolArray) -> BoolArray:
        any_cell: BoolArray = np.logical_or.reduce(of_cells.reshape(self._layout.dp_size, -1), axis=1)
        return any_cell

    def _raise(self, what: str, place: int, series: EvidenceSeries, now_s: float) -> None:
        case = OpenVerdict(
            place=place,
            raised_at_s=now_s,
            since_s=now_s,
            series=series,
            degree=Degree(value=1.0, low=1.0, high=1.0),
            came_too_often=self._flaps.raised(what, place, now_s),
        )
        case.use(series, self._policy)
        case.since_s = self._time.at_s[-min(case.num_rows, len(self._time.at_s))]
        (self._cells if what == "cell" else self._pipelines)[place] = case
        self.news.append(f"{self._name(what, place)} is slower than its likes by {case.degree}")

    def _end(self, what: str, place: int, why: str) -> None:
        case = (self._cells if what == "cell" else self._pipelines).pop(place)
        self._flaps.ended(what, case)
        if what == "pipeline":
            self._time.forget_pipeline(place)
        elif case.series is not None:
            self._time.forget_cell(place)
        self.news.append(f"{self._name(what, place)} {why}")

    def _name(self, what: str, place: int) -> str:
        if what == "pipeline":
            return f"pipeline {place}"
        dp_rank, pp_rank = divmod(place, self._layout.pp_size)
        ranks = self._layout.ranks_of_cell(place)
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"one of the ranks {', '.join(map(str, ranks))}"
        return f"{who} (stage {pp_rank}, pipeline {dp_rank})"


def _most_of_ranks(layout: Layout, of_ranks: FloatArray) -> FloatArray:
    """(num_cells) the largest of each cell's ranks."""
    most: FloatArray = np.maximum.reduce(of_ranks[layout.rank_of], axis=2).reshape(-1)
    return most


def _any_rank(layout: Layout, of_ranks: BoolArray) -> BoolArray:
    """(num_cells) whether any of each cell's ranks."""
    any_rank: BoolArray = np.logical_or.reduce(of_ranks[layout.rank_of], axis=2).reshape(-1)
    return any_rank
