"""From a case to the verdict that leaves the detector: which rank of a group, which cause."""

import math

import numpy as np

from perseus_dist.straggler.evidence.gpu_evidence import GpuEvidence
from perseus_dist.straggler.evidence.time_evidence import TimeEvidence
from perseus_dist.straggler.layout import Layout
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.straggler.verdicts.causes import cause_of_late_pipeline, cause_of_slow_cell, cause_of_throttling
from perseus_dist.straggler.verdicts.open_verdict import OpenVerdict
from perseus_dist.straggler.verdicts.verdict import BELOW_CLOCK, Verdict


def verdict_of_cell(
    case: OpenVerdict, layout: Layout, time: TimeEvidence, gpu: GpuEvidence, policy: StragglerPolicy, now_s: float
) -> Verdict:
    """The verdict on one rank of a tensor-parallel group."""
    dp_rank, pp_rank = divmod(case.place, layout.pp_size)
    ranks = layout.ranks_of_cell(case.place)
    rank = ranks[0] if case.rank is None else case.rank
    requested_mhz, observed_mhz = round(float(gpu.requested_mhz[rank])), round(float(gpu.observed_mhz[rank]))
    temperature_c = float(gpu.temperature_c[rank])
    if case.reasons:
        cause = cause_of_throttling(case.reasons, temperature_c)
    else:
        cause = cause_of_slow_cell(
            is_whole_pipeline=_is_whole_pipeline(case, time),
            is_below_clock=0 < observed_mhz < BELOW_CLOCK * requested_mhz,
        )
    return Verdict(
        rank=rank,
        pp_rank=pp_rank,
        dp_rank=dp_rank,
        degree=case.degree,
        pipeline_degree=case.pipeline_degree,
        cause=cause,
        since_s=case.since_s,
        is_whole_pipeline=False,
        is_predicted=case.series is None,
        is_flapping=case.is_flapping(now_s, policy),
        is_acted_upon=case.is_acted_upon(now_s, policy),
        is_fresh=case.is_fresh(policy),
        num_held_up=len(ranks) - 1,
        at_s=now_s,
        requested_mhz=requested_mhz,
        observed_mhz=observed_mhz,
        throttled_mhz=round(float(gpu.throttled_mhz[rank])) if case.reasons else 0,
        temperature_c=temperature_c,
    )


def verdict_of_pipeline(
    case: OpenVerdict, layout: Layout, time: TimeEvidence, policy: StragglerPolicy, now_s: float
) -> Verdict:
    """The verdict on a pipeline that is late as a whole."""
    return Verdict(
        rank=layout.ranks_of_cell(case.place * layout.pp_size)[0],
        pp_rank=0,
        dp_rank=case.place,
        degree=case.degree,
        pipeline_degree=case.degree,
        cause=cause_of_late_pipeline(
            is_explained=case.series is time.pipeline_direct,
            excess=case.degree.value - 1,
            input_share=float(time.input_share[case.place]),
        ),
        since_s=case.since_s,
        is_whole_pipeline=True,
        is_predicted=False,
        is_flapping=case.is_flapping(now_s, policy),
        is_acted_upon=case.is_acted_upon(now_s, policy),
        is_fresh=case.is_fresh(policy),
        at_s=now_s,
    )


def _is_whole_pipeline(case: OpenVerdict, time: TimeEvidence) -> bool:
    """Whether the other stages of the pipeline are slow alike: work, or what they share, and no one GPU."""
    if case.series is not time.direct:
        return False
    adjusted = float(time.adjusted.estimate(case.num_rows, np.array([case.place])).median[0])
    return not math.isnan(adjusted) and adjusted < 0.5 * math.log(case.degree.value)
