"""The straggler detector of one job under one table: what ranks report, in the detector's terms."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from perseus_dist.messages.from_agent import GpuSample, IterationReport
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.straggler.detector import Detector, Judgement
from perseus_dist.straggler.evidence.observation import GpuObservation, IterationObservation
from perseus_dist.straggler.layout import Layout, RankCoords
from perseus_dist.straggler.policy import StragglerPolicy

REFUSAL_PERIOD_S = 60.0
"""Between two lines in the log about refusals for the same reason."""

PROMPT_PERIOD_S = 0.05
"""Between two judgements at least; news of a thousand GPUs that are throttled together are judged together."""


class DetectorAdapter:
    """Owned by its job.

    Attributes:
        revision: Of the table whose plans are followed.
        profile: What that compares times with; for a table of another one a new detector begins.
        num_refused: Reports that it could not take.
        is_ripe: Whether it knows enough for its silence to mean something.
    """

    def __init__(
        self,
        *,
        revision: int,
        profile: Hashable,
        schedule: Schedule,
        places: Sequence[RankCoords],
        kind_shares: Mapping[str, float],
        policy: StragglerPolicy,
    ) -> None:
        """Begin.

        Args:
            revision: Of the table.
            profile: What it compares times with.
            schedule: Which pp_rank runs which kinds of computation.
            places: Where each rank stands.
            kind_shares: Of kinds in all computation; those that are not there count alike.
            policy: How much evidence a verdict takes.
        """
        self.revision, self.profile = revision, profile
        self.num_refused = 0
        self.policy = policy
        self._kinds_of_pp_rank = [
            frozenset(instruction.kind for instruction in order if not instruction.is_constant)
            for order in schedule.ranks
        ]
        kinds = [kind for kind in Kind if any(kind in of_rank for of_rank in self._kinds_of_pp_rank)]
        shares = [kind_shares.get(kind, 1 / len(kinds)) for kind in kinds]
        self._layout = Layout.of(places, kinds=kinds, kind_shares=shares)
        self._pp_rank_of = [place.pp_rank for place in places]
        self._detector = Detector(self._layout, policy)
        self._judged_at_s = float("-inf")
        self.is_ripe = False
        self._told: Counter[str] = Counter()  # refusals that are known, by reason
        self._refusals: dict[str, str] = {}  # by reason, the latest sentence that was not logged
        self._logged_at_s: dict[str, float] = {}

    def observe(self, rank: int, report: IterationReport, planned_time_s: float, now_s: float) -> None:
        """Take note of an iteration under a plan; one whose computations are not all known says nothing.

        Args:
            rank: Global.
            report: Its own.
            planned_time_s: [s] what its pipeline's iterations are to take.
            now_s: [s] monotonic.
        """
        by_kind = {one.kind: one for one in report.kind_times}
        here = self._kinds_of_pp_rank[self._pp_rank_of[rank]]
        if not here <= by_kind.keys():
            return
        # A kind that runs on other stages alone is as slow as what runs here.
        elsewhere = sum(by_kind[kind].time_ratio for kind in here) / len(here)
        kinds = self._layout.kinds
        seen = IterationObservation(
            iteration=report.iteration,
            time_ratios=tuple([by_kind[kind].time_ratio if kind in here else elsewhere for kind in kinds]),
            requested_mhz=tuple([by_kind[kind].requested_mhz if kind in here else 0 for kind in kinds]),
            pipeline_time_s=report.pipeline_time_s,
            planned_time_s=planned_time_s,
            tokens=report.tokens,
            input_wait_s=report.input_wait_s,
        )
        self._note(self._detector.observe(rank, seen, now_s))

    def observe_gpu(self, rank: int, gpu: GpuSample, iteration: int, now_s: float) -> None:
        """Take note of a reading; ``iteration`` is the newest that the rank had begun then."""
        seen = GpuObservation(
            requested_mhz=gpu.requested_mhz,
            observed_mhz=gpu.clock_mhz,
            event_reasons=gpu.event_reasons,
            temperature_c=gpu.temperature_c,
            power_w=gpu.power_w,
            iteration=iteration,
        )
        self._note(self._detector.observe_gpu(rank, seen, now_s))

    def note_alive(self, rank: int, now_s: float) -> None:
        """A rank has reported what is not to be judged: it is not silent."""
        self._note(self._detector.note_alive(rank, now_s))

    def resume(self, dp_rank: int, pp_rank: int, degree: float, now_s: float) -> None:
        """Hold ranks to be slow as an earlier detector did; arguments as of ``Detector.resume``."""
        self._detector.resume(dp_rank, pp_rank, degree, now_s)

    def has_urgent_news(self, now_s: float) -> bool:
        """Whether NVML has said something that should be judged at once."""
        return self._detector.has_gpu_news and now_s >= self._judged_at_s + PROMPT_PERIOD_S

    def change_table(self, revision: int, first_iteration: int) -> None:
        """From this iteration on plans of another table are followed, made from the same profile."""
        self.revision = revision
        for dp_rank in range(self._layout.dp_size):
            self.change_plan(dp_rank, first_iteration)

    def change_plan(self, dp_rank: int, first_iteration: int) -> None:
        """From this iteration on a pipeline follows a plan of its own, and its time says something new."""
        self._detector.change_plan(dp_rank, first_iteration)

    def judge(self, now_s: float) -> Judgement:
        """Who is slow now; ``now_s`` is [s] monotonic."""
        self._judged_at_s = now_s
        judgement = self._detector.judge(now_s)
        self.is_ripe |= judgement.num_iterations >= self.policy.min_history or bool(judgement.verdicts)
        return judgement

    def take_refusals(self, now_s: float) -> list[str]:
        """Sentences for the log, at most one a minute for each reason."""
        due = [r for r in self._refusals if now_s >= self._logged_at_s.get(r, float("-inf")) + REFUSAL_PERIOD_S]
        self._logged_at_s.update(dict.fromkeys(due, now_s))
        return [f"a report is not judged ({self._told[reason]} so far): {self._refusals.pop(reason)}" for reason in due]

    def _note(self, refusal: str) -> None:
        if not refusal:
            return
        self.num_refused += 1
        for reason, num in self._detector.refused.items():
            if num != self._told[reason]:
                self._told[reason], self._refusals[reason] = num, refusal
