r"""The straggler detector of one job: told what ranks report, asked about once a second who is slow.

    observe, observe_gpu --> Intake --> TimeEvidence --+
                        \-->  GpuEvidence -------------+--> cases --> verdicts

It knows no clock and does no I/O: every instant is an argument. All its state is arrays over ranks. A new detector
learns the same within some iterations. Present plans may hide a verdict: the caller resumes it.
"""

import math
from dataclasses import dataclass

from perseus_dist.straggler.evidence.gpu_evidence import GpuEvidence
from perseus_dist.straggler.evidence.intake import Intake
from perseus_dist.straggler.evidence.observation import GpuObservation, IterationObservation, refusal_of_gpu
from perseus_dist.straggler.evidence.time_evidence import TimeEvidence
from perseus_dist.straggler.layout import Layout
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.straggler.verdicts.verdict import Verdict
from perseus_dist.straggler.verdicts.verdict_tracker import VerdictTracker


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The detector's judgement at an instant.

    Attributes:
        verdicts: Of all stragglers, those that are not acted upon included: single ranks, then whole pipelines.
        news: Sentences about verdicts that are new or over, for the log.
        num_iterations: Iterations judged since the detector was made.
    """

    verdicts: tuple[Verdict, ...]
    news: tuple[str, ...]
    num_iterations: int


class Detector:
    """Stragglers of one job; mutable, owned by the owner of the job.

    Attributes:
        layout: Whose ranks report.
        num_iterations: Iterations judged.
    """

    def __init__(self, layout: Layout, policy: StragglerPolicy | None = None) -> None:
        """Args: whose ranks report, and how much evidence a verdict takes."""
        self.layout = layout
        self.num_iterations = 0
        self._policy = policy or StragglerPolicy()
        self._intake = Intake(layout, self._policy)
        self._time = TimeEvidence(layout, self._policy)
        self._gpu = GpuEvidence(layout, self._policy)
        self._cases = VerdictTracker(layout, self._time, self._gpu, self._policy)
        self._now_s = -math.inf
        self._iteration = -1  # judged last
        self._judgement = Judgement(verdicts=(), news=(), num_iterations=0)

    @property
    def refused(self) -> dict[str, int]:
        """How many reports and instants were refused, by reason."""
        return dict(self._intake.refused)

    @property
    def has_gpu_news(self) -> bool:
        """Whether NVML has said something since the last judgement that may change it."""
        return self._gpu.has_news

    @property
    def num_jumps(self) -> int:
        """How often training went on at quite another iteration, as after a restart from a checkpoint."""
        return self._intake.num_jumps

    def observe(self, rank: int, seen: IterationObservation, now_s: float) -> str:
        """Take note of one iteration of one rank.

        Args:
            rank: Of the layout.
            seen: What it says.
            now_s: [s] monotonic.

        Returns:
            Empty, or why it was refused; a refused report is not judged, but many may show that training jumped.
        """
        refusal = self._refusal(rank, now_s) or self._intake.take(rank, seen, now_s)
        if not refusal:
            self._now_s = now_s
        return refusal

    def observe_gpu(self, rank: int, seen: GpuObservation, now_s: float) -> str:
        """Take note of a reading of one rank's GPU; arguments and answer as in ``observe``."""
        if refusal := self._refusal(rank, now_s):
            return refusal
        if refusal := refusal_of_gpu(seen):
            self._intake.refused["impossible"] += 1
            return f"rank {rank}: {refusal}"
        self._now_s = now_s
        self._gpu.take(rank, seen, now_s)
        self._intake.last_seen_s[rank] = now_s
        return ""

    def note_alive(self, rank: int, now_s: float) -> str:
        """A rank is not silent, whatever it does; arguments and answer as in ``observe``."""
        if refusal := self._refusal(rank, now_s):
            return refusal
        self._now_s = now_s
        self._intake.last_seen_s[rank] = now_s
        return ""

    def resume(self, dp_rank: int, pp_rank: int, degree: float, now_s: float) -> None:
        """Hold a tensor-parallel group to be slow, as an earlier detector did whose evidence is lost.

        Under plans that wait for it no other rank runs at its clocks, so that a new detector would find nothing.

        Args:
            dp_rank: Its pipeline.
            pp_rank: Its place there.
            degree: Time over the time expected, above 1.
            now_s: [s] monotonic.
        """
        cell = dp_rank * self.layout.pp_size + pp_rank
        self._cases.resume(cell, degree, now_s)
        self._intake.last_seen_s[self.layout.ranks_of_cell(cell)] = now_s

    def change_plan(self, dp_rank: int, first_iteration: int) -> None:
        """A pipeline with a straggler follows a plan made for that: what it costs the pipeline is another thing now.

        Args:
            dp_rank: The pipeline.
            first_iteration: Under the other plan.
        """
        self._cases.change_plan(dp_rank, first_iteration)

    def judge(self, now_s: float) -> Judgement:
        """Who is slow now; wanted about once a second.

        Args:
            now_s: [s] monotonic; where it runs backwards, the judgement is the last one.
        """
        if self._refusal_of_instant(now_s):
            return self._judgement
        self._now_s = now_s
        cases = self._cases
        self._gpu.has_news = False
        while (whole := self._intake.next_complete_iteration(now_s)) is not None:
            if whole.iteration < self._iteration:
                self._gpu.go_back()
            self._iteration = whole.iteration
            self._time.take(whole, cases.flagged_cells(), cases.late_pipelines(), cases.throttled_cells(now_s))
            self.num_iterations += 1
            cases.judge_times(now_s)
        cases.judge_gpus(now_s)
        cases.end_silent(now_s - self._intake.last_seen_s <= self._policy.stale_s)
        verdicts, news = cases.verdicts(now_s), tuple(cases.news)
        cases.news.clear()
        self._judgement = Judgement(verdicts=verdicts, news=news, num_iterations=self.num_iterations)
        return self._judgement

    def _refusal(self, rank: int, now_s: float) -> str:
        if not 0 <= rank < self.layout.num_ranks:
            self._intake.refused["unknown rank"] += 1
            return f"saw rank {rank}, expected 0 to {self.layout.num_ranks - 1}"
        return self._refusal_of_instant(now_s)

    def _refusal_of_instant(self, now_s: float) -> str:
        if not self._now_s <= now_s < math.inf:  # NaN compares false
            self._intake.refused["clock ran backwards"] += 1
            return f"saw the instant {now_s} s after {self._now_s} s; give a clock that never runs backwards"
        return ""
