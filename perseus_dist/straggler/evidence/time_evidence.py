"""The evidence of time: four series, two of cells and two of pipelines.

    cells       direct     above the peers
                adjusted   the same, without what the pipeline's work explains
    pipelines   direct     time until gradient synchronisation, above the other pipelines
                adjusted   the same, without what the pipeline's instructions explain

The direct series find what slows all of a pipeline where the job is quiet; the adjusted ones find one slow machine
where sequence lengths make every iteration different. What raises the last one is not computation.
"""

import numpy as np

from perseus_dist.straggler.evidence.baseline_offset import BaselineOffset
from perseus_dist.straggler.evidence.intake import WholeIteration
from perseus_dist.straggler.evidence.peer_baseline import PeerBaseline
from perseus_dist.straggler.evidence.peers import median_of_others
from perseus_dist.straggler.evidence.series import BoolArray, EvidenceSeries
from perseus_dist.straggler.evidence.work import WorkModel
from perseus_dist.straggler.layout import Layout
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.units import FloatArray

_WAIT_MEMORY = 0.5


class TimeEvidence:
    """All that times have said.

    Attributes:
        direct, adjusted: (num_cells) series.
        pipeline_direct, pipeline_adjusted: (dp_size) series.
        at_s: [s] when each of the latest iterations was first reported, ascending.
        iterations: Their numbers.
        input_share: (dp_size) excess of waiting for input over that of the other pipelines, as a share of the
            iteration; NaN where it is not known.
    """

    def __init__(self, layout: Layout, policy: StragglerPolicy) -> None:
        self._layout, self._policy = layout, policy
        stages = layout.stage_of_cell
        self._pipeline_of_cell = np.arange(layout.num_cells) // layout.pp_size
        all_alike = np.zeros(layout.dp_size, dtype=np.intp)
        self._cells = PeerBaseline(stages, layout.kind_shares, policy)
        self._pipelines = PeerBaseline(all_alike, np.ones(1), policy)
        self._tokens, self._neighbours, self._instructions = WorkModel(stages), WorkModel(stages), WorkModel(all_alike)
        self._cell_level = BaselineOffset(layout.num_cells, policy)
        self._pipeline_level = BaselineOffset(layout.dp_size, policy)
        self.direct, self.adjusted = EvidenceSeries(stages, policy), EvidenceSeries(stages, policy)
        self.pipeline_direct = EvidenceSeries(all_alike, policy)
        self.pipeline_adjusted = EvidenceSeries(all_alike, policy)
        self._iteration = -1
        # Iterations up to these are of what is over, or of another plan.
        self._cell_until = np.full(layout.num_cells, -1, dtype=np.int64)
        self._pipeline_until = np.full(layout.dp_size, -1, dtype=np.int64)
        self.at_s: list[float] = []
        self.iterations: list[int] = []
        self.input_share = np.full(layout.dp_size, np.nan)

    def take(self, whole: WholeIteration, is_flagged: BoolArray, is_late: BoolArray, is_throttled: BoolArray) -> None:
        """Take note of one iteration.

        Args:
            whole: What all ranks reported.
            is_flagged: (num_cells) cells that are stragglers; nothing usual is learned from them.
            is_late: (dp_size) pipelines that are, or hold one.
            is_throttled: (num_cells) cells that NVML says to be below the clock requested.
        """
        if whole.iteration < self._iteration:  # training goes on from earlier
            self._cell_until.fill(-1)
            self._pipeline_until.fill(-1)
        self._iteration = whole.iteration
        whole.log_ratios[whole.iteration <= self._cell_until] = np.nan
        whole.pipeline_s[whole.iteration <= self._pipeline_until] = np.nan
        num_kept = self._policy.windows[-1]
        self.at_s = [*self.at_s, whole.at_s][-num_kept:]
        self.iterations = [*self.iterations, whole.iteration][-num_kept:]
        explained = self._update_cells(whole, is_flagged, is_late[self._pipeline_of_cell], is_throttled)
        self._update_pipelines(whole, explained, is_late)
        if not np.isnan(whole.input_wait_s).all():
            self._update_input_wait(whole.input_wait_s / whole.pipeline_s)

    def _update_input_wait(self, wait: FloatArray) -> None:
        others, _ = median_of_others(wait, np.zeros(len(wait), dtype=np.intp))
        excess = wait - np.where(np.isnan(others), 0.0, others)
        known = np.where(np.isnan(self.input_share), excess, self.input_share)
        self.input_share = np.where(np.isnan(excess), known, known + _WAIT_MEMORY * (excess - known))

    def _update_cells(
        self, whole: WholeIteration, is_flagged: BoolArray, is_late: BoolArray, is_throttled: BoolArray
    ) -> FloatArray:
        """The two series of cells; returns (dp_size) how much slower a pipeline's instructions were."""
        layout, doubt = self._layout, self._policy.work_doubt
        is_frozen = is_flagged | is_throttled | self.direct.is_suspect | self.adjusted.is_suspect
        agreed, above = self._cells.deviations(
            whole.log_ratios, whole.requested_mhz, is_flagged, is_frozen, self.direct.unusual, is_throttled
        )
        self.direct.take(agreed, is_flagged, self._cells.doubts, self._cells.num_compared)

        usual = ~(is_late | is_frozen)
        tokens = whole.log_tokens - median_of_others(whole.log_tokens, layout.stage_of_cell)[0]
        by_tokens = self._tokens.correction(tokens)
        self._tokens.learn(tokens, above, usual)
        knows_tokens = ~np.isnan(by_tokens)
        left = above - np.where(knows_tokens, by_tokens, 0.0)
        neighbours = _not_too_fast(median_of_others(left, self._pipeline_of_cell)[0], self.direct)
        by_neighbours = self._neighbours.correction(neighbours)
        self._neighbours.learn(neighbours, left, usual)
        knows = ~np.isnan(by_neighbours)
        left = left - np.where(knows, by_neighbours, 0.0) - self._cell_level.offset
        left[~(knows | knows_tokens)] = np.nan
        self._cell_level.learn(left, ~is_frozen)
        doubts = doubt * (_size(by_tokens) + _size(by_neighbours))
        self.adjusted.take(left, is_flagged, doubts)

        by_pipeline = above.reshape(layout.dp_size, layout.pp_size)
        num = np.count_nonzero(~np.isnan(by_pipeline), axis=1)
        mean: FloatArray = np.where(num > 0, np.nansum(by_pipeline, axis=1) / np.maximum(num, 1), np.nan)
        return mean

    def _update_pipelines(self, whole: WholeIteration, explained: FloatArray, is_late: BoolArray) -> None:
        is_frozen = is_late | self.pipeline_direct.is_suspect | self.pipeline_adjusted.is_suspect
        planned_s = np.where(np.isnan(whole.planned_s), 1.0, whole.planned_s)
        times = (np.log(whole.pipeline_s) - np.log(planned_s))[:, None]  # a ratio could overflow
        agreed, above = self._pipelines.deviations(
            times, planned_s[:, None], is_late, is_frozen, self.pipeline_direct.unusual
        )
        self.pipeline_direct.take(agreed, is_late)
        explained = _not_too_fast(explained, self.pipeline_direct)
        by_instructions = self._instructions.correction(explained)
        self._instructions.learn(explained, above, ~is_frozen)
        doubts = self._policy.work_doubt * _size(by_instructions)
        left = above - by_instructions - self._pipeline_level.offset
        self._pipeline_level.learn(left, ~is_frozen)
        self.pipeline_adjusted.take(left, is_late, doubts)

    def resume_cell(self, cell: int) -> None:
        """A cell is known to be slow, by evidence that is lost: the profile stands for it until there is other."""
        self._cells.resume(cell)

    def forget_cell(self, cell: int, until_iteration: int = -1) -> None:
        """Forget a cell whose cause of slowness is over; iterations up to one that may not be reported yet count in."""
        self.direct.forget(cell)
        self.adjusted.forget(cell)
        self._cell_until[cell] = max(self._cell_until[cell], until_iteration)
        self.forget_pipeline(cell // self._layout.pp_size, until_iteration)

    def forget_pipeline(self, dp_rank: int, until_iteration: int = -1) -> None:
        """Forget a pipeline whose cause of slowness is over, or is another from now on."""
        self.pipeline_direct.forget(dp_rank)
        self.pipeline_adjusted.forget(dp_rank)
        self._pipeline_until[dp_rank] = max(self._pipeline_until[dp_rank], until_iteration)

    def contradicts(self, since_s: FloatArray, since_iteration: FloatArray) -> BoolArray:
        """(num_cells) where iterations that all began after an instant show that a cell is as fast as its peers.

        Args:
            since_s: (num_cells) [s] instants. Reports may be late: what comes after it may have begun long before.
            since_iteration: (num_cells) the newest that had begun then; -1 where it is not known.
        """
        window = self._policy.latest_window
        if len(self.at_s) < window:
            return np.zeros(len(since_s), dtype=bool)
        need = np.log(self._policy.min_degree)
        is_fast = np.zeros(len(since_s), dtype=bool)
        for series in (self.direct, self.adjusted):
            is_fast |= series.estimate(window).upper(self._policy.excused_z) < need  # NaN compares false
        is_later = (self.at_s[-window] >= since_s) & (self.iterations[-window] > since_iteration)
        contradicted: BoolArray = is_fast & is_later
        return contradicted


def _size(correction: FloatArray) -> FloatArray:
    size: FloatArray = np.where(np.isnan(correction), 0.0, np.abs(correction))
    return size


def _not_too_fast(explaining: FloatArray, series: EvidenceSeries) -> FloatArray:
    """Bound how much less work a speed-up may explain, so that it makes no other rank a straggler."""
    bounded: FloatArray = np.maximum(explaining, -3 * series.noise.sigma)
    return bounded
