"""Profiling sweeps: ranks hold a clock for some iterations, then the next lower one.

A *series* is a first sweep, of a few clocks; those after it that fetch what it left out, because ranks were away or a
measurement came to nothing; and further rounds, of clocks where the curves are still uncertain (``rounds``). Its
samples together are a profile; a later series replaces an earlier one, rank by rank.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.messages.from_planner import ProfileAck, StopSweep, Sweep
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planner.job.facts.sweeps import SAVED_PROFILE, SamplesReceived, SweepBegun, SweepEnded
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.membership import Membership, RankState
from perseus_dist.planner.job.state.profiling import ActiveSweep
from perseus_dist.planner.lifecycle.enforcement.switching import (
    effective_iteration,
    expected_time_s,
    is_of_earlier_run,
)
from perseus_dist.planner.lifecycle.events import Effect, Log, Persist, Send
from perseus_dist.planner.lifecycle.sweeping.cost import tell_estimate
from perseus_dist.planner.lifecycle.sweeping.rounds import are_partly_measured, first_round, menus_mhz, next_round
from perseus_dist.planner.lifecycle.sweeping.series_samples import clock_of_step, drop_replaced, has_risen, keep_samples
from perseus_dist.planner.lifecycle.sweeping.witnesses import of_newest_state
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule

_ROUNDS_BEHIND_A_CHANGE = 2


def iterations_per_clock(job: Job, *, is_profile: bool, is_repeated: bool = False) -> int:
    """Iterations that a clock is held for, so that the energy counter's steps are small beside the window.

    The clock is on its way during the first instructions. One that a pipeline begins with and has no other of its kind,
    as with a single microbatch, is measured in the next iteration; so are those of a GPU at its power limit, which does
    not reach the clock, so that it takes longer to be sure of it.

    Args:
        job: Whose iterations have been measured.
        is_profile: As of ``begin_series``.
        is_repeated: An earlier round of the series has held some of these clocks, and missed a computation.
    """
    policy = job.policy
    num_periods = policy.num_profile_periods if is_profile else policy.num_energy_periods
    window_s = num_periods * job.members.energy_period_s + 2 * policy.default_switch_latency_s
    time_s = expected_time_s(job)
    assert time_s is not None  # a sweep comes behind a baseline or a plan
    is_seen_next = is_repeated or (is_profile and _begins_with_a_single_one(parse_schedule(job.schedule_text)))
    least = 2 if is_seen_next else 1
    return min(max(math.ceil(window_s / max(time_s, 1e-6)), least), policy.max_iterations_per_clock)


def _begins_with_a_single_one(schedule: Schedule) -> bool:
    firsts = (order[0] for order in schedule.ranks if order and order[0].stage == 0)  # others wait for these
    return any(
        sum((one.stage, one.kind) == (first.stage, first.kind) for order in schedule.ranks for one in order) == 1
        for first in firsts
    )


def begin_series(
    job: Job,
    ranks: Collection[int],
    held_mhz: Mapping[int, int],
    now_s: float,
    *,
    is_profile: bool,
) -> list[Effect]:
    """Order the first sweep of a series.

    Args:
        job: All whose ranks are attached.
        ranks: Who measures at some of the clocks that it can be set to, its maximum first.
        held_mhz: By rank, the clock [MHz] of those who measure at one alone.
        now_s: [s] monotonic.
        is_profile: Whether a profile is wanted, or blocking power and latency alone.
    """
    job.profiling.reached_mhz.clear()
    steps = first_round(job, ranks) | {rank: (clock_mhz,) for rank, clock_mhz in held_mhz.items()}
    first_iteration = effective_iteration(job, now_s)
    series = job.profiling.sweep_id + 1
    effects = _order(job, steps, first_iteration, series=series, num_round=1, attempts=1, is_profile=is_profile)
    if is_profile and job.profiling.sweeps[series].num_steps > 1:
        num_menu = len(set().union(*menus_mhz(job, ranks).values()))
        tell_estimate(job, job.profiling.sweeps[series], num_menu, now_s)
    return effects


def resume_sweep(job: Job, rank: int, stream: int, now_s: float) -> list[Effect]:
    """Tell a rank that has just attached about the sweep that it still has a part in.

    One that has none may follow a sweep all the same, if it was away when that was stopped; others ignore the stop.
    """
    sweep = job.profiling.sweep
    if sweep is None or rank not in sweep.missing_mhz or sweep.is_paused:
        stop = StopSweep(sweep_id=job.profiling.sweep_id, first_iteration=effective_iteration(job, now_s))
        return [Send(stream=stream, message=stop)] if job.profiling.sweep_id else []
    if is_of_earlier_run(job, sweep.ordered.first_iteration):
        return []
    return _send_sweep(job.members, sweep.ordered, [rank])


def resume_series(job: Job, now_s: float) -> list[Effect]:
    """Order again what a series still lacks, of trainers that have been started anew."""
    assert job.profiling.sweep is not None
    return _order_again(job, job.profiling.sweep, now_s, "the series goes on")


def record_samples(job: Job, state: RankState, stream: int, message: ProfileSamples) -> list[Effect]:
    """Keep measurements, then acknowledge them; the same ones again are acknowledged again."""
    rank, incarnation = state.rank.rank, state.incarnation
    ack = Send(stream=stream, message=ProfileAck(sequence=message.sequence))
    if message.sweep_id == SAVED_PROFILE and job.plan is None:
        series = SAVED_PROFILE
    elif message.sweep_id in job.profiling.sweeps:
        series = job.profiling.sweeps[message.sweep_id].series
    else:
        job.profiling.sweep_id = max(job.profiling.sweep_id, message.sweep_id)
        unwanted = Log(sentence=f"rank {rank} sent samples of sweep {message.sweep_id}, which nobody waits for")
        # The acknowledgement covers earlier ones, too, and a full disk may have kept those from being durable.
        return [unwanted, Persist(), ack] if (rank, incarnation) in job.profiling.acked_samples else [unwanted, ack]
    fact = SamplesReceived(
        rank=rank,
        pp_rank=state.rank.pp_rank,
        dp_rank=state.rank.dp_rank,
        tp_rank=state.rank.tp_rank,
        incarnation=incarnation,
        series=series,
        clock_mhz=clock_of_step(job.profiling, rank, message),
        samples=message,
    )
    effects: list[Effect] = [Persist(facts=(fact,)), ack]
    if message.sequence > job.profiling.acked_samples.get((rank, incarnation), 0):
        keep_samples(job.profiling, fact)
        if series == SAVED_PROFILE and message.last:
            effects += _end(job, SAVED_PROFILE, "the saved profile is here")
    return effects


def advance_sweep(job: Job, now_s: float) -> list[Effect]:
    """End a sweep that has all it needs, stop one that has seen enough, order again what is missing."""
    sweep = job.profiling.sweep
    assert sweep is not None
    ordered = sweep.ordered
    if not sweep.missing_mhz:
        return _go_on(job, sweep, now_s, f"sweep {ordered.sweep_id} is complete")
    is_to_judge, sweep.is_to_judge = sweep.is_to_judge and ordered.is_profile and ordered.num_round == 1, False
    if is_to_judge and has_risen(job, sweep):
        why = f"sweep {ordered.sweep_id} stops: every instruction's energy rises again"
        return [*_send_stop(job, ordered, now_s), *_go_on(job, sweep, now_s, why)]
    if _is_hopeless(job, sweep, now_s):
        why = f"sweep {ordered.sweep_id} stops: no rank can set clocks any more"
        return [*_send_stop(job, ordered, now_s), *_end(job, ordered.series, why)]
    is_whole = job.num_attached == job.num_ranks  # almost always, and known at once
    away = [] if is_whole else sorted(sweep.missing_mhz.keys() - set(job.members.rank_of_stream.values()))
    if not away:
        sweep.away_since_s = None
    else:
        if sweep.away_since_s is None:
            sweep.away_since_s = now_s
        if not _may_go_on_without(job, sweep, away, now_s):
            return _pause(job, sweep, away, now_s)
        for rank in away:
            sweep.excuse(rank)
    if job.progress.iteration != NO_ITERATION and is_of_earlier_run(job, ordered.first_iteration):
        why = "training has gone back to an earlier iteration"
        return _order_again(job, sweep, now_s, why, after_iterations=job.policy.num_warmup_iterations)
    if sweep.is_paused:
        if not all(job.members.ranks[rank].has_reported for rank in sweep.missing_mhz):
            return []  # samples that they kept while they were away may be on their way
        return _order_again(job, sweep, now_s, "all that are needed are back")
    if job.progress.iteration < sweep.end_iteration:
        return []
    if sweep.over_since_s is None:
        sweep.over_since_s = now_s
    if now_s < sweep.over_since_s + job.policy.sample_grace_s:
        return []
    return _fetch_missing(job, sweep, now_s)


def _may_go_on_without(job: Job, sweep: ActiveSweep, away: list[int], now_s: float) -> bool:
    """Whether ranks have been away for a while and other pipelines measure the same; then they are not waited for."""
    assert sweep.away_since_s is not None
    if now_s < sweep.away_since_s + job.policy.sample_grace_s:
        return False
    return all(_has_replica(job, sweep, rank) for rank in away)


def _pause(job: Job, sweep: ActiveSweep, away: list[int], now_s: float) -> list[Effect]:
    """Hold full clocks until ranks are back: without their samples a sweep cannot see where to stop."""
    assert sweep.away_since_s is not None
    if sweep.is_paused or now_s < sweep.away_since_s + job.policy.absence_grace_s:
        return []
    sweep.is_paused = True
    why = f"sweep {sweep.ordered.sweep_id} waits for ranks {_shown(away)} to come back and be profiled"
    job.enter(job.phase, why)
    return [Log(sentence=why), *_send_stop(job, sweep.ordered, now_s)]


def _send_stop(job: Job, ordered: SweepBegun, now_s: float) -> list[Effect]:
    stop = StopSweep(sweep_id=ordered.sweep_id, first_iteration=effective_iteration(job, now_s))
    return [Send(stream=stream, message=stop) for stream in job.members.rank_of_stream]


def _is_hopeless(job: Job, sweep: ActiveSweep, now_s: float) -> bool:
    """Whether no rank that is to set clocks has been able to for a while; a clock daemon may just be starting again."""
    ordered = sweep.ordered
    wanted = ordered.ranks
    if wanted and not ordered.is_profile:  # each holds its stage's maximum, and the first is the highest of these
        wanted = (*wanted, *ordered.first_only)
    ranks = job.members.ranks
    if any(rank in ranks and ranks[rank].can_set_clocks for rank in wanted) or not any(
        rank in ranks for rank in wanted
    ):
        sweep.unable_since_s = None
        return False
    if sweep.unable_since_s is None:
        sweep.unable_since_s = now_s
    return now_s >= sweep.unable_since_s + job.policy.rights_grace_s


def _fetch_missing(job: Job, sweep: ActiveSweep, now_s: float) -> list[Effect]:
    """The sweep's iterations are over, and samples are missing."""
    attached = set(job.members.rank_of_stream.values())
    for rank in [rank for rank in sweep.missing_mhz if rank in attached and not job.members.ranks[rank].can_set_clocks]:
        sweep.excuse(rank)  # it has lost the right to, or never had it
    here = sweep.missing_mhz
    if not here:
        return _go_on(job, sweep, now_s, f"sweep {sweep.ordered.sweep_id} is complete but for ranks without rights")
    if sweep.attempts < job.policy.max_sweep_attempts:
        sweep.attempts += 1
        return _order_again(job, sweep, now_s, f"samples of {len(here)} ranks are missing")
    why = f"ranks {_shown(sorted(here))} sent no samples in {sweep.attempts} sweeps: planning without them"
    discarded = _discard_if_replaceable(job, sweep.ordered.series) if sweep.ordered.num_round == 1 else []
    return [*discarded, *_end(job, sweep.ordered.series, why)]


def _has_replica(job: Job, sweep: ActiveSweep, rank: int) -> bool:
    """Whether the same place of another pipeline has been measured in this series, or is here to be."""
    place = job.members.places.get(rank)
    if place is None:  # the planner was restarted, and it has not come back
        return False
    attached = set(job.members.rank_of_stream.values())
    return any(
        (there.pp_rank, there.tp_rank) == (place.pp_rank, place.tp_rank)
        for other, there in job.members.places.items()
        if other != rank
        and (
            other in attached
            if other in sweep.missing_mhz
            else other in job.profiling.samples.get(sweep.ordered.series, {})
        )
    )


def _order_again(job: Job, sweep: ActiveSweep, now_s: float, why: str, *, after_iterations: int = 0) -> list[Effect]:
    """Another sweep of the same series, for what is missing."""
    ordered = sweep.ordered
    if not sweep.missing_mhz:
        return _go_on(job, sweep, now_s, f"sweep {ordered.sweep_id} is complete: other pipelines measured the same")
    effects = _order(
        job,
        {rank: tuple(sorted(clocks, reverse=True)) for rank, clocks in sweep.missing_mhz.items()},
        effective_iteration(job, now_s) + after_iterations,
        series=ordered.series,
        num_round=ordered.num_round,
        attempts=sweep.attempts,
        is_profile=ordered.is_profile,
    )
    return [Log(sentence=f"{why}: sweep {job.profiling.sweep_id} takes what is left"), *effects]


def _go_on(job: Job, sweep: ActiveSweep, now_s: float, why: str) -> list[Effect]:
    """All that was asked for is here: order the next round of the series, or end it."""
    ordered = sweep.ordered
    if not ordered.is_profile or ordered.num_round >= _max_rounds(job, ordered.series):
        return _end(job, ordered.series, why)
    if set(job.profiling.sweeps[ordered.series].ranks) - set(job.members.rank_of_stream.values()):
        if sweep.away_since_s is None:
            sweep.away_since_s = now_s
        if now_s < sweep.away_since_s + job.policy.sample_grace_s:
            return []
    steps = next_round(job, ordered.series)
    if not steps:
        return _end(job, ordered.series, why)
    has_begun = ordered.end_iteration if not sweep.missing_mhz else NO_ITERATION  # though no rank may have said so yet
    effects = _order(
        job,
        steps,
        max(effective_iteration(job, now_s), has_begun + 1),
        series=ordered.series,
        num_round=ordered.num_round + 1,
        attempts=1,
        is_profile=True,
        is_repeated=are_partly_measured(job, ordered.series, steps),
    )
    assert job.profiling.sweep is not None
    clocks_mhz = ", ".join(map(str, job.profiling.sweep.ordered.clocks_mhz))
    return [Log(sentence=f"{why}: sweep {job.profiling.sweep_id} measures {clocks_mhz} MHz, too"), *effects]


def _max_rounds(job: Job, series: int) -> int:
    """How many rounds a series may have: more where ranks have become faster or slower, and measure all anew."""
    taken = job.profiling.samples.get(series, {})
    has_changed = any(len(kept) < len(taken[rank]) for rank, kept in of_newest_state(taken).items())
    return job.policy.max_sweep_rounds + (_ROUNDS_BEHIND_A_CHANGE if has_changed else 0)


def _order(
    job: Job,
    steps: Mapping[int, tuple[int, ...]],
    first_iteration: int,
    *,
    series: int,
    num_round: int,
    attempts: int,
    is_profile: bool,
    is_repeated: bool = False,
) -> list[Effect]:
    """Order a sweep.

    Args:
        job: Whose ranks are attached.
        steps: By rank, its clock [MHz] in each step, descending.
        first_iteration: Of the first step.
        series: That it belongs to.
        num_round: Of the series.
        attempts: How often the round has been ordered.
        is_profile: As of ``begin_series``.
        is_repeated: As of ``iterations_per_clock``.
    """
    job.profiling.sweep_id += 1
    clocks_mhz = tuple(sorted(set().union(*steps.values()), reverse=True))
    first_only = frozenset(rank for rank, clocks in steps.items() if clocks == clocks_mhz[:1])
    ranks = tuple(sorted(steps.keys() - first_only))
    is_shared = any(steps[rank] != clocks_mhz for rank in ranks)
    ordered = SweepBegun(
        sweep_id=job.profiling.sweep_id,
        series=series,
        first_iteration=first_iteration,
        iterations_per_clock=iterations_per_clock(job, is_profile=is_profile, is_repeated=is_repeated),
        clocks_mhz=clocks_mhz,
        ranks=ranks,
        first_only=tuple(sorted(first_only)),
        is_profile=is_profile,
        num_round=num_round,
        clocks_of_ranks=tuple(steps[rank] for rank in ranks) if is_shared else (),
    )
    missing_mhz = {rank: set(clocks) for rank, clocks in steps.items()}
    job.profiling.sweep = ActiveSweep(ordered=ordered, missing_mhz=missing_mhz, attempts=attempts)
    job.profiling.sweeps[ordered.sweep_id] = ordered
    job.num_changes += 1
    return [Persist(facts=(ordered,)), *_send_sweep(job.members, ordered, missing_mhz)]


def _send_sweep(members: Membership, ordered: SweepBegun, ranks: Iterable[int]) -> list[Effect]:
    effects: list[Effect] = []
    for rank in ranks:
        state = members.ranks.get(rank)
        if state is not None and state.stream is not None:
            message = Sweep(
                sweep_id=ordered.sweep_id,
                first_iteration=ordered.first_iteration,
                iterations_per_clock=ordered.iterations_per_clock,
                clocks_mhz=ordered.clocks_of(rank),
            )
            effects.append(Send(stream=state.stream, message=message))
    return effects


def _end(job: Job, series: int, why: str) -> list[Effect]:
    """No more samples of this series are awaited. What it replaces is dropped."""
    is_profile = job.profiling.end(series)
    job.num_changes += 1
    drop = drop_replaced(job.profiling, series) if is_profile else []
    return [Log(sentence=why), Persist(facts=(SweepEnded(series=series),), drop=tuple(drop))]


def _shown(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def _discard_if_replaceable(job: Job, series: int) -> list[Effect]:
    """Discard a partial sweep if a complete one exists."""
    if job.plan is None:
        return []
    job.profiling.samples.pop(series, None)
    return [Persist(drop=(f"samples/{series}/",))]
