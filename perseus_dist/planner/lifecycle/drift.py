"""Drift: what a job does once times have left the profile that its plan was made of."""

import math
from collections import Counter
from collections.abc import Collection

from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.enforcement.switching import release_all
from perseus_dist.planner.lifecycle.events import Effect
from perseus_dist.planner.lifecycle.profile_check import may_be_misstated
from perseus_dist.planner.lifecycle.sweeping.again import measure_again

_SAME_DRIFT = 0.03  # of a time, between the shares by which two plans were dropped for the same
_SAME_REFERENCE = 0.01  # of a time, between iterations at full clocks when two plans were dropped


def answer_drift(job: Job, now_s: float) -> list[Effect]:
    """Measure again what all replicas say is wrong with the profile; where it is far wrong, drop the plan at once.

    One rank that is far off may be one slow GPU, so that it is given time to be found to straggle; two agree.
    """
    if not job.enforcement.drifts:
        return []
    policy, is_settled = job.policy, now_s >= job.enforcement.drift_since_s + job.policy.drift_settle_s
    straggling = _stragglers(job)  # such a rank has left the profile of its stage, which is as true as ever
    for rank in straggling & job.enforcement.drifts.keys():
        del job.enforcement.drifts[rank]
    far = {rank for rank, share in job.enforcement.drifts.items() if abs(share) > policy.far_drift}
    wrong = _agreed(job, far)
    num_witnesses = sum(job.members.ranks[rank].rank.pp_rank in wrong for rank in far)
    is_far = bool(wrong) and (is_settled or num_witnesses > 1)
    if not is_settled and not is_far:
        return []
    has_just_measured = job.profiling.reprofiled_at_s is not None and (
        now_s < job.profiling.reprofiled_at_s + policy.min_reprofile_interval_s
    )
    if is_far:
        is_held = has_just_measured or (job.enforcement.guard.is_passing and not _lasting(job, wrong))
        # GPUs may be slow for a while; those that are faster than their profile were slow when that was measured.
        if is_held and may_be_misstated(job) and all(job.enforcement.drifts[rank] < 0 for rank in far):
            job.profiling.num_misstated_sweeps += 1
            is_held = False
        return _drop_plan(job, wrong, straggling, now_s, is_held=is_held)
    drifted = _agreed(job, job.enforcement.drifts)
    if has_just_measured or not drifted:
        return []
    return measure_again(
        job, drifted, now_s, f"times of pp_rank {listed(drifted)} have left the profile: sweeping it again"
    )


def _agreed(job: Job, drifted: Collection[int]) -> set[int]:
    """The pp_ranks whose profile is wrong: all replicas there have left it. One alone is slow, or fast.

    A replica that is away counts as one that keeps to the profile: any lost message costs its agent the stream.
    """
    assert job.spec is not None
    ranks = job.members.ranks
    num_drifted = Counter(ranks[rank].rank.pp_rank for rank in drifted if rank in ranks)
    return {pp_rank for pp_rank, num in num_drifted.items() if num == job.num_ranks // job.spec.pp_size}


def _lasting(job: Job, pp_ranks: Collection[int]) -> bool:
    """Whether the times of some of these pp_ranks have left the profile for long, or all is as at the last drop.

    As far as then, or for another stage's times while the job takes as long at full clocks: what slows a whole node
    shows at one stage first, and each time at another.
    """
    if any(job.members.ranks[rank].rank.pp_rank in pp_ranks for rank in job.enforcement.lasting_drifts):
        return True
    enforcement, shares = job.enforcement, _largest_drifts(job, pp_ranks)
    now_s, then_s = enforcement.guard.guard.reference_s, enforcement.dropped_reference_s
    is_other = not shares.keys() & enforcement.dropped.keys()
    is_as_slow = now_s is not None and then_s is not None and abs(now_s / then_s - 1) < _SAME_REFERENCE
    is_as_far = any(
        abs(share - enforcement.dropped.get(pp_rank, math.inf)) < _SAME_DRIFT for pp_rank, share in shares.items()
    )
    return enforcement.guard.was_steady and (is_as_far or (is_other and is_as_slow))


def _largest_drifts(job: Job, pp_ranks: Collection[int]) -> dict[int, float]:
    """By pp_rank, the share by which times of the rank that is farthest off have left the profile."""
    shares: dict[int, float] = {}
    for rank, share in job.enforcement.drifts.items():
        pp_rank = job.members.ranks[rank].rank.pp_rank
        if pp_rank in pp_ranks:
            shares[pp_rank] = max(shares.get(pp_rank, 0.0), share, key=abs)
    return shares


def _drop_plan(
    job: Job, pp_ranks: Collection[int], straggling: Collection[int], now_s: float, *, is_held: bool
) -> list[Effect]:
    """The profile is far wrong: no plan is followed until it has been measured again.

    All stages are, because what is wrong with one is mostly wrong with others, and a sweep of all lasts no longer; but
    not those of stragglers, which must not become part of it.

    Args:
        job: Under a plan.
        pp_ranks: Where the profile is wrong.
        straggling: Ranks that straggle.
        now_s: [s] monotonic.
        is_held: It is not measured again yet: the guard says when the next sweep is due.
    """
    ranks = [rank for rank in job.enforcement.drifts if job.members.ranks[rank].rank.pp_rank in pp_ranks]
    most = max(map(abs, _largest_drifts(job, pp_ranks).values()))
    why = (
        f"times of pp_rank {listed(pp_ranks)} have left the profile by {100 * most:.0f} % on {len(ranks)} ranks: the "
        "plan is dropped"
    )
    job.history.add("fall", why, now_s=now_s, iteration=job.progress.iteration)
    is_profile_wrong = _lasting(job, pp_ranks)
    job.enforcement.dropped |= _largest_drifts(job, pp_ranks)
    job.enforcement.dropped_reference_s = job.enforcement.guard.guard.reference_s
    job.enter(Phase.RELEASED, why)
    swept: list[Effect] = []
    if not is_held:
        healthy = {state.rank.pp_rank for state in job.members.ranks.values()} - {
            job.members.ranks[rank].rank.pp_rank for rank in straggling
        }
        swept = measure_again(job, healthy | {*pp_ranks}, now_s, f"{why}, and the profile swept again")
    if job.phase is Phase.RELEASED:
        job.enforcement.forget_drifts()
        job.enforcement.guard.fall_from_plan(job.progress.iteration, is_profile_wrong=is_profile_wrong)
    else:
        job.enforcement.guard.num_falls += 1
    return [*release_all(job, now_s, why), *swept]  # last: the guard must not forget what it has seen before the fall


def _stragglers(job: Job) -> set[int]:
    """Ranks that verdicts are about, acted upon or not: with those of its tensor-parallel group, or of its pipeline."""
    places = {(verdict.dp_rank, verdict.pp_rank) for verdict in job.detection.verdicts if not verdict.is_whole_pipeline}
    pipelines = {verdict.dp_rank for verdict in job.detection.verdicts if verdict.is_whole_pipeline}
    return {
        rank
        for rank, state in job.members.ranks.items()
        if (state.rank.dp_rank, state.rank.pp_rank) in places or state.rank.dp_rank in pipelines
    }


def listed(pp_ranks: Collection[int]) -> str:
    """As in "0, 2, 3"."""
    return ", ".join(map(str, sorted(pp_ranks)))
