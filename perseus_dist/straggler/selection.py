"""From verdicts and operators' reports to what each pipeline should do: wait, and until when.

    T' = the time of the slowest pipeline whose straggler is acted upon

A pure function of what is known now: a straggler that gets worse or better, recovers, or whose agent dies, changes the
verdicts, and with them the answer. What was reported by an operator holds for its pipeline until it is cleared,
whatever the detector says about that pipeline. A clock that a GPU cannot reach is a degree like any other: times are
measured against those at *requested* clocks, so T' is the target's time times the degree.

Waiting longer than the straggler takes would slow training, waiting less only gives energy away. So T' is made of the
lower ends of intervals, and a pipeline that is slow itself gets a plan that still ends by T' at the upper end of its
own.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perseus_dist.straggler.layout import StragglerError
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStraggler:
    """A straggler that an operator, or a program of theirs, has reported.

    Attributes:
        straggler_id: Its name.
        dp_rank: The pipeline.
        degree: Its iterations last so many times the time at all-maximum clocks; 1 says that it does not straggle.
    """

    straggler_id: str
    dp_rank: int
    degree: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineChoice:
    """The choice for one pipeline.

    Attributes:
        dp_rank: The pipeline.
        time_s: [s] how long its iterations take at least under the target's plan.
        plan_time_s: [s] the time by which its plan must end, by the profile; the target's where it need not wait.
        is_waiting: Whether that is later than the target's.
    """

    dp_rank: int
    time_s: float
    plan_time_s: float
    is_waiting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The choice for all pipelines.

    Attributes:
        pipelines: (dp_size) by dp_rank.
        t_prime_s: [s] T'; None where no pipeline waits.
        degree: T' over the time at all-maximum clocks; 1 where no pipeline waits.
        sentence: Why.
    """

    pipelines: tuple[PipelineChoice, ...]
    t_prime_s: float | None
    degree: float
    sentence: str


def select(
    verdicts: Iterable[Verdict],
    reported: Iterable[ReportedStraggler],
    *,
    dp_size: int,
    target_time_s: float,
    baseline_time_s: float,
    tail_s: float = 0.0,
    pipeline_cost: Callable[[int, float], float] = lambda _, degree: degree,
) -> Selection:
    """Choose for every pipeline.

    Args:
        verdicts: The detector's, all of them.
        reported: What was reported and not yet cleared.
        dp_size: Pipelines.
        target_time_s: [s] the iteration that the target's plan promises.
        baseline_time_s: [s] the iteration at all-maximum clocks.
        tail_s: [s] of either that follows gradient synchronisation. No straggler slows it, so that a verdict's degree
            counts for the rest alone; what operators report is of the whole iteration.
        pipeline_cost: (stage, degree of its rank) -> how many times as long its pipeline takes at least. A stage may
            have time to spare; where that is not known, it has none.

    Raises:
        StragglerError: Numbers that cannot be.
    """
    if not (0 < target_time_s < math.inf and 0 < baseline_time_s < math.inf):
        raise StragglerError(
            f"saw a target of {target_time_s} s and a baseline of {baseline_time_s} s; give finite times above 0"
        )
    tail_share = min(max(tail_s / target_time_s, 0.0), 1.0)
    slowdowns = _by_verdicts(verdicts, dp_size, tail_share, pipeline_cost)
    slowdowns.update(_by_operators(reported, dp_size, baseline_time_s / target_time_s))
    usual = _Slowdown()
    every = [slowdowns.get(dp_rank, usual) for dp_rank in range(dp_size)]
    slowest = max(range(dp_size), key=lambda dp_rank: every[dp_rank].least)
    t_prime_s = every[slowest].least * target_time_s
    choices = []
    for dp_rank, slowdown in enumerate(every):
        plan_time_s = t_prime_s / slowdown.most
        is_waiting = dp_rank != slowest and plan_time_s > target_time_s
        choices.append(
            PipelineChoice(
                dp_rank=dp_rank,
                time_s=slowdown.least * target_time_s,
                plan_time_s=plan_time_s if is_waiting else target_time_s,
                is_waiting=is_waiting,
            )
        )
    num_waiting = sum(choice.is_waiting for choice in choices)
    if num_waiting == 0:
        return Selection(
            pipelines=tuple(choices), t_prime_s=None, degree=1.0, sentence="no pipeline makes the others wait"
        )
    return Selection(
        pipelines=tuple(choices),
        t_prime_s=t_prime_s,
        degree=t_prime_s / baseline_time_s,
        sentence=f"{num_waiting} of {dp_size} pipelines wait until {t_prime_s:.6f} s: {every[slowest].why}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slowdown:
    """Of a pipeline against the target's plan: lower bound, upper bound, reason."""

    least: float = 1.0
    most: float = 1.0
    why: str = ""


def _by_verdicts(
    verdicts: Iterable[Verdict], dp_size: int, tail_share: float, pipeline_cost: Callable[[int, float], float]
) -> dict[int, _Slowdown]:
    found: dict[int, _Slowdown] = {}
    for verdict in verdicts:
        dp_rank = _checked(verdict.dp_rank, dp_size)
        low, high = (tail_share + degree * (1 - tail_share) for degree in _of_pipeline(verdict, pipeline_cost))
        known = found.get(dp_rank, _Slowdown())
        counts = verdict.is_acted_upon and low > known.least
        found[dp_rank] = _Slowdown(
            least=low if counts else known.least,
            most=max(high, known.most),
            why=verdict.sentence if counts else known.why,
        )
    return found


def _by_operators(reported: Iterable[ReportedStraggler], dp_size: int, per_degree: float) -> dict[int, _Slowdown]:
    found: dict[int, _Slowdown] = {}
    for report in reported:
        dp_rank = _checked(report.dp_rank, dp_size)
        if not 1 <= report.degree < math.inf:
            raise StragglerError(
                f"saw straggler {report.straggler_id!r} with degree {report.degree}; give a finite one of at least 1"
            )
        slowdown = max(1.0, report.degree * per_degree)
        why = f"pipeline {dp_rank} was reported to take {report.degree:g} times as long"
        if dp_rank not in found or slowdown > found[dp_rank].least:
            found[dp_rank] = _Slowdown(least=slowdown, most=slowdown, why=why)
    return found


def _checked(dp_rank: int, dp_size: int) -> int:
    if not 0 <= dp_rank < dp_size:
        raise StragglerError(f"saw pipeline {dp_rank}, expected 0 to {dp_size - 1}; name the pipeline that straggles")
    return dp_rank


def _of_pipeline(verdict: Verdict, pipeline_cost: Callable[[int, float], float]) -> tuple[float, float]:
    """The least and the most that a verdict slows its pipeline by.

    A slow rank slows its pipeline by no more than its own degree, and by less where its stage has time to spare: what
    the pipeline's own time says bounds that, as far as it is known. Where that is less, it alone counts.
    """
    degree = verdict.degree
    least = degree.low if verdict.is_whole_pipeline else pipeline_cost(verdict.pp_rank, degree.low)
    pipeline = verdict.pipeline_degree or Degree(
        value=max(least, degree.value), low=least, high=max(least, degree.high)
    )
    low = pipeline.low if least > pipeline.high else max(least, pipeline.low)
    return max(1.0, low), max(1.0, low, min(degree.high, pipeline.high))
