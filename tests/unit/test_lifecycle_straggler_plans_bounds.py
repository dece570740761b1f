"""Plans of pipelines with slow ranks, at their limits: for whom, when they are asked for anew, and taken."""

from collections import deque
from dataclasses import replace

import pytest
from fleets import fleet_enforcing
from test_lifecycle_baseline_bounds import iteration
from test_planner_lifecycle import summary
from test_sweeping_rounds_bounds import job_of

from perseus_dist.planner.job.facts.plans import StragglerPlanReady
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.detection import OwnRequest
from perseus_dist.planner.lifecycle.events import CancelPlanning, Log, Persist, StartPlanning
from perseus_dist.planner.lifecycle.stragglers.straggler_plans import (
    _has_moved,
    _has_recovered_partly,
    _slow_ranks,
    apply_straggler_plan,
    is_own_request,
    request_straggler_plans,
)
from perseus_dist.planner.worker.plan_request import PlanResult
from perseus_dist.planning.frontier.slow_rank import SlowRank
from perseus_dist.straggler.verdicts.causes import Cause
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict

NOW_S = 1000.0


def slow(
    rank: int = 3,
    degree: float = 1.2,
    *,
    cause: Cause = Cause.SLOW_COMPUTE,
    throttled_mhz: int = 0,
    is_predicted: bool = False,
    is_acted_upon: bool = True,
    is_whole_pipeline: bool = False,
) -> Verdict:
    """Of two stages, each of one GPU."""
    return Verdict(
        rank=rank,
        pp_rank=rank % 2,
        dp_rank=rank // 2,
        degree=Degree(value=degree, low=degree, high=degree),
        pipeline_degree=None,
        cause=cause,
        since_s=1.0,
        is_whole_pipeline=is_whole_pipeline,
        is_predicted=is_predicted,
        is_flapping=False,
        is_acted_upon=is_acted_upon,
        at_s=2.0,
        throttled_mhz=throttled_mhz,
    )


def asked_for(*slow_ranks: SlowRank, request_id: int | None = None, base: int = 1, at_s: float = NOW_S) -> OwnRequest:
    return OwnRequest(request_id=request_id, base_revision=base, slow_ranks=slow_ranks, asked_at_s=at_s)


def judged(*verdicts: Verdict, ratios: dict[int, float] | None = None, asked: OwnRequest | None = None) -> Job:
    """Two pipelines of two stages; what ranks take over the profile is the same in each of the newest iterations."""
    job = job_of(2, pp=2)
    job.progress.iteration = 100
    job.detection.verdicts = verdicts
    for rank, ratio in (ratios or {}).items():
        job.enforcement.guard.ratios[rank] = deque([ratio] * 5, maxlen=5)
    if asked is not None:
        job.detection.straggler_requests[1] = asked
    return job


# ---- who is planned for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (slow(), (SlowRank(pp_rank=1, factor=1.2),)),
        (slow(1), ()),  # of the other pipeline
        (slow(is_acted_upon=False), ()),
        (slow(is_whole_pipeline=True), ()),
        (slow(1, is_acted_upon=False), ()),
        (slow(1, is_whole_pipeline=True), ()),
        (slow(cause=Cause.THERMAL, throttled_mhz=1200), (SlowRank(pp_rank=1, cap_mhz=1200),)),
        (slow(cause=Cause.POWER_BRAKE, throttled_mhz=1200), (SlowRank(pp_rank=1, cap_mhz=1200),)),
        (slow(cause=Cause.POWER_CAP, throttled_mhz=1200), (SlowRank(pp_rank=1, cap_mhz=1200, factor=1.2),)),
        (slow(cause=Cause.POWER_CAP, throttled_mhz=1200, is_predicted=True), (SlowRank(pp_rank=1, cap_mhz=1200),)),
        (slow(cause=Cause.THERMAL), (SlowRank(pp_rank=1, factor=1.2),)),
        (slow(throttled_mhz=1200), (SlowRank(pp_rank=1, factor=1.2),)),
    ],
)
def test_a_slow_rank_is_planned_for_by_the_clock_that_holds_it_or_by_its_times(
    verdict: Verdict, expected: tuple[SlowRank, ...]
) -> None:
    assert _slow_ranks(judged(verdict), 1) == expected


@pytest.mark.parametrize(
    ("degree", "is_predicted", "has_clocks", "expected"),
    [
        (1.47, False, True, SlowRank(pp_rank=1, cap_mhz=1000)),
        (1.4701, False, True, SlowRank(pp_rank=1, factor=1.4701)),
        (1.6, True, True, SlowRank(pp_rank=1, cap_mhz=1000)),
        (1.6, False, False, SlowRank(pp_rank=1, cap_mhz=1000)),
    ],
)
def test_a_rank_slower_than_its_cap_can_make_it_is_planned_for_by_its_times(
    degree: float, expected: SlowRank, *, is_predicted: bool, has_clocks: bool
) -> None:
    """The clock of 1400 MHz that it has lost takes 1.4 times as long, and noise 5 % more."""
    job = judged(slow(degree=degree, cause=Cause.THERMAL, throttled_mhz=1000, is_predicted=is_predicted))
    if not has_clocks:
        job.members.ranks[3].gpu = replace(job.members.ranks[3].gpu, clocks_mhz=())
    assert _slow_ranks(job, 1) == (expected,)


@pytest.mark.parametrize(
    ("asked", "num_enforced", "is_capped"),
    [
        (SlowRank(pp_rank=1, cap_mhz=1200), 15, True),
        (SlowRank(pp_rank=1, cap_mhz=1200), 16, False),
        (SlowRank(pp_rank=1, factor=1.2), 0, False),
        (SlowRank(pp_rank=0, cap_mhz=1200), 0, False),
    ],
)
def test_beside_a_plan_for_another_clock_times_may_be_those_of_the_clock_before(
    asked: SlowRank, num_enforced: int, *, is_capped: bool
) -> None:
    job = judged(slow(degree=1.6, cause=Cause.THERMAL, throttled_mhz=1000), asked=asked_for(asked))
    job.measured.enforced.extend(iteration(number) for number in range(num_enforced))
    assert bool(_slow_ranks(job, 1)[0].cap_mhz) == is_capped


@pytest.mark.parametrize(
    ("ratio", "known", "is_slow"),
    [(1.02, (), False), (1.0201, (), True), (1.01, (0,), False), (1.0101, (0,), True), (1.02, (1,), False)],
)
def test_ranks_beside_a_straggler_are_planned_for_where_they_clearly_take_longer_and_longer_than_when_they_began(
    ratio: float, known: tuple[int, ...], *, is_slow: bool
) -> None:
    asked = asked_for(*(SlowRank(pp_rank=pp_rank, factor=1.2) for pp_rank in known))
    job = judged(slow(), ratios={0: 1.5, 2: ratio}, asked=asked)
    beside = (SlowRank(pp_rank=0, factor=ratio),) if is_slow else ()
    assert _slow_ranks(job, 1) == (*beside, SlowRank(pp_rank=1, factor=1.2))
    capped = judged(slow(cause=Cause.THERMAL, throttled_mhz=1200), ratios={2: ratio}, asked=asked)
    assert [one.pp_rank for one in _slow_ranks(capped, 1)] == [1], "the same cap may hold them"


def test_a_group_is_as_slow_as_the_rank_that_usually_is_the_slowest() -> None:
    job = job_of(1, tp=2)
    for rank, ratios in ((0, (1.0, 1.0, 1.10, 1.5, 1.5)), (1, (1.12, 1.12, 1.12, 1.12, 1.13))):
        job.enforcement.guard.ratios[rank] = deque(ratios, maxlen=5)
    assert _slow_ranks(job, 0) == (SlowRank(pp_rank=0, factor=1.12),)


# ---- what has moved --------------------------------------------------------------------------------------------------


def cap(mhz: int, factor: float = 0.0, pp_rank: int = 0) -> SlowRank:
    return SlowRank(pp_rank=pp_rank, cap_mhz=mhz, factor=factor)


def times(factor: float, pp_rank: int = 0) -> SlowRank:
    return SlowRank(pp_rank=pp_rank, factor=factor)


@pytest.mark.parametrize(
    ("before", "now", "has_moved"),
    [
        ((cap(1000),), (cap(1020),), False),
        ((cap(1000),), (cap(1021),), True),
        ((cap(1000),), (cap(980),), False),
        ((cap(1000),), (cap(979),), True),
        ((times(1.5),), (times(1.74),), False),
        ((times(1.5),), (times(1.75),), True),
        ((times(1.5),), (times(1.25),), True),
        ((times(0.2),), (cap(1),), True),
        ((cap(1, 0.2),), (times(0.2),), True),
        ((cap(1000, 1.5),), (cap(1000, 1.75),), True),
        ((times(1.5),), (times(1.5, pp_rank=1),), True),
        ((times(1.5), times(1.5, pp_rank=1)), (times(1.5), times(1.75, pp_rank=1)), True),
        ((times(1.5),), (times(1.5), times(1.5, pp_rank=1)), True),
        ((), (), False),
    ],
)
def test_a_plan_is_made_anew_where_a_clock_has_moved_by_2_percent_or_a_factor_by_a_step(
    before: tuple[SlowRank, ...], now: tuple[SlowRank, ...], *, has_moved: bool
) -> None:
    job = judged()
    job.policy = replace(job.policy, own_plan_factor_step=0.25)
    assert _has_moved(job, before, now) == has_moved


@pytest.mark.parametrize(
    ("before", "now", "has_recovered"),
    [
        ((cap(1000),), (cap(1020),), False),
        ((cap(1000),), (cap(1021),), True),
        ((cap(1000),), (cap(900),), False),
        ((times(1.5),), (cap(1000, 1.5),), False),
        ((times(1.5),), (times(1.0),), False),
        ((times(1.5),), (times(0.99),), True),
        ((times(1.5),), (times(2.5),), False),
        ((times(2.0),), (times(1.0, pp_rank=1),), False),
        ((times(1.5), times(2.0, pp_rank=1)), (times(1.5), times(1.0, pp_rank=1)), True),
    ],
)
def test_a_plan_is_late_for_nothing_where_a_rank_is_clearly_faster_than_it_was(
    before: tuple[SlowRank, ...], now: tuple[SlowRank, ...], *, has_recovered: bool
) -> None:
    job = judged()
    job.policy = replace(job.policy, own_plan_factor_step=0.25)
    assert _has_recovered_partly(job, before, now) == has_recovered


# ---- requests and answers --------------------------------------------------------------------------------------------


def straggling(asked: OwnRequest | None = None, own: tuple[SlowRank, ...] = (), own_base: int = 1) -> Job:
    """The second stage of the second pipeline is slow by 1.2."""
    job = fleet_enforcing(dp=2).job
    assert job.plan is not None
    assert job.plan.revision == 1
    job.detection.verdicts = (slow(),)
    if asked is not None:
        job.detection.straggler_requests[1] = asked
    if own:
        job.detection.straggler_plans[1] = StragglerPlanReady(
            dp_rank=1, revision=5, base_revision=own_base, slow_ranks=own, summary=summary(), tables=(b"", b"")
        )
    return job


SLOW, OTHER = times(1.2, pp_rank=1), times(1.3, pp_rank=1)


@pytest.mark.parametrize(
    ("asked", "own", "own_base", "is_asked", "given_up"),
    [
        (None, (), 1, True, []),
        (asked_for(SLOW, request_id=7), (), 1, False, []),
        (asked_for(OTHER, request_id=7), (), 1, False, []),
        (asked_for(OTHER, request_id=7, at_s=NOW_S - 4.9), (), 1, False, []),
        (asked_for(OTHER, request_id=7, at_s=NOW_S - 5.0), (), 1, True, [7]),
        (asked_for(OTHER, at_s=NOW_S - 5.0), (), 1, True, []),
        (asked_for(SLOW, request_id=7, base=2), (), 1, True, [7]),
        (None, (SLOW,), 1, False, []),
        (None, (SLOW,), 2, True, []),
        (None, (OTHER,), 1, True, []),
        (asked_for(OTHER, request_id=7), (SLOW,), 1, False, [7]),
    ],
)
def test_a_pipelines_plan_is_asked_for_where_none_fits_and_not_too_often(
    asked: OwnRequest | None, own: tuple[SlowRank, ...], own_base: int, *, is_asked: bool, given_up: list[int]
) -> None:
    job = straggling(asked, own, own_base)
    before = job.planning.request_id
    effects = request_straggler_plans(job, NOW_S)
    assert [one.request_id for one in effects if isinstance(one, CancelPlanning)] == given_up
    requests = [one.request for one in effects if isinstance(one, StartPlanning)]
    assert [(one.request_id, one.slow_ranks) for one in requests] == ([(before + 1, (SLOW,))] if is_asked else [])
    kept = job.detection.straggler_requests[1]
    if is_asked:
        assert kept == asked_for(SLOW, request_id=before + 1)
        assert (requests[0].base_revision, requests[0].deadlines_s) == (1, (1.0,))
        assert job.revisions.given_table == requests[0].revision > 1
        assert is_own_request(job.detection, before + 1)
        assert not is_own_request(job.detection, before)
    elif own:
        assert kept == asked_for(SLOW), "the plan that is there answers it"


def test_beside_a_first_plan_no_pipeline_has_one_of_its_own() -> None:
    job = straggling()
    assert job.plan is not None
    job.plan = replace(job.plan, is_first=True)
    assert request_straggler_plans(job, NOW_S) == []


@pytest.mark.parametrize(("base", "factor", "is_taken"), [(1, 1.2, True), (2, 1.2, False), (1, 1.4, False)])
def test_a_plan_is_taken_that_is_beside_the_table_in_force_and_for_ranks_as_slow_as_they_are(
    base: int, factor: float, *, is_taken: bool
) -> None:
    job = straggling(asked_for(times(factor, pp_rank=1), request_id=7, base=base))
    job.detection.straggler_requests[0] = asked_for(request_id=8)
    before = job.num_changes
    result = PlanResult(
        request_id=7, revision=9, summary=summary(), tables=(b"", b""), frontier_npz=b"", profile_csv=b""
    )
    effects = apply_straggler_plan(job, result, NOW_S)
    assert (1 in job.detection.straggler_plans) == is_taken
    if is_taken:
        made = job.detection.straggler_plans[1]
        assert (made.revision, made.base_revision, made.slow_ranks) == (9, 1, (SLOW,))
        assert effects[0] == Persist(facts=(made,))
        assert job.switch is not None
        assert job.switch.own_revisions == (0, 9)
        assert job.num_changes > before
        assert job.detection.straggler_requests[1].request_id is None
        assert "takes 1.000000 s at all-maximum clocks with pp_rank 1 1.200 times as slow" in job.switch.reason
    elif base == 1:
        assert effects == [Log(sentence="pipeline 1 is faster than when its plan was asked for")]
        assert 1 not in job.detection.straggler_requests
    else:
        assert effects == []
