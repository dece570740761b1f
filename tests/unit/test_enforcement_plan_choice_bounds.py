"""The plan that each pipeline follows, at the limits of targets, paces, verdicts and plans of pipelines' own."""

import math
from dataclasses import replace
from typing import Any

import pytest
from test_lifecycle_transfers_bounds import snapshot
from test_planner_lifecycle import SCHEDULE, S, summary
from test_planner_metrics import verdict

from perseus_dist.messages.terms import T_MIN, Target
from perseus_dist.planner.job.facts.decisions import PaceChosen, StragglerKnown, SwitchDecided, TargetChosen
from perseus_dist.planner.job.facts.plans import StragglerPlanReady
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.guard import Mode
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.detection import OwnRequest
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.job.state.progress import Pipeline, Progress
from perseus_dist.planner.lifecycle.enforcement.plan_choice import (
    choose,
    judged_slow,
    own_target_point,
    own_wish_point,
    unmet_deadline,
)
from perseus_dist.planning.frontier.slow_rank import SlowRank
from perseus_dist.planning.schedule.schedule import format_schedule
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict

TABLE = summary()
"""Of 1.0, 1.1, 1.2 and 1.4 s, of which the third draws least; full clocks take 1.0 s."""
FULL = TABLE.full_point


def job(*, dp: int = 2, table: FrontierSummary = TABLE, target: Target = T_MIN, pace: float = 0.0) -> Job:
    """Under the fastest plan of a table, with no rank attached."""
    made = Job(job_id="job", policy=Policy(), schedule_text=format_schedule(SCHEDULE), phase=Phase.ENFORCING)
    made.spec = JobRegistered(schedule_digest="", pp_size=2, dp_size=dp, tp_size=1, token_sha256="")
    made.plan = JobPlan(revision=1, summary=table, tables=(b"", b""), profile_csv=b"")
    made.chosen_target = TargetChosen(target=target, by_operator=False) if target != T_MIN else None
    made.chosen_pace = PaceChosen(slowdown=pace, budget="hall") if pace else None
    made.progress = Progress(iteration=100, pipelines=[Pipeline() for _ in range(dp)])
    made.enforcement.switch = SwitchDecided(
        table_revision=1, switch_revision=1, effective_iteration=0, points=(0,) * dp, reason=""
    )
    return made


def switch_to(made: Job, **changes: Any) -> None:
    """Another switch is in force."""
    assert made.switch is not None
    made.enforcement.switch = replace(made.switch, **changes)


def slow(dp_rank: int = 1, degree: float = 2.0, pipeline: Degree | None = None, **changes: Any) -> Verdict:
    """The first rank of a pipeline is so many times as slow."""
    found = verdict(dp_rank, degree, is_acted_upon=True)
    return replace(found, rank=2 * dp_rank, pipeline_degree=pipeline, **changes)


def exactly(value: float) -> Degree:
    return Degree(value=value, low=value, high=value)


def report_slow(made: Job, degree: float, dp_rank: int = 1) -> None:
    """By an operator."""
    made.stragglers["gpu"] = StragglerKnown(straggler_id="gpu", degree=degree, dp_rank=dp_rank)


def give_own_plan(
    made: Job, dp_rank: int = 1, *, table: FrontierSummary, is_asked: bool = True, is_followed: bool = False
) -> StragglerPlanReady:
    """A plan of a pipeline's own, as it was asked for or as it is followed already."""
    own = StragglerPlanReady(
        dp_rank=dp_rank,
        revision=10 + dp_rank,
        base_revision=1,
        slow_ranks=(SlowRank(pp_rank=0, factor=1.3),),
        summary=table,
        tables=(b"own 0", b"own 1"),
    )
    made.detection.straggler_plans[dp_rank] = own
    if is_asked:
        made.detection.straggler_requests[dp_rank] = OwnRequest(
            request_id=None, base_revision=1, slow_ranks=own.slow_ranks, asked_at_s=0.0
        )
    if is_followed:
        owns = tuple(own.revision if one == dp_rank else 0 for one in range(len(made.progress.pipelines)))
        switch_to(made, own_revisions=owns)
    return own


def vary(made: Job, noise: float, num: int = 5) -> None:
    """So many iterations under the plan, whose times have this standard deviation as a share."""
    step = noise * math.sqrt(2) / 1.4826  # as for normal values, by the median of differences
    for number in range(num):
        made.enforcement.guard.guard.take(number, math.exp(step * (number % 2)), Mode.PLANNED, float)
    assert made.enforcement.guard.guard.noise == pytest.approx(noise)


# ---- targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("late_ps", "is_met"), [(499, True), (500, True), (501, False), (10**9, False)])
def test_a_deadline_is_met_by_what_rounds_to_its_nanosecond(late_ps: int, *, is_met: bool) -> None:
    table = replace(TABLE, time_ps=(S + late_ps, 2 * S, 3 * S, 4 * S))
    why = f"a deadline of 1 s cannot be met: the fastest plan takes {1 + late_ps / S:.9f} s"
    assert unmet_deadline(Target(deadline_s=1.0), table) == ("" if is_met else why)
    assert unmet_deadline(T_MIN, table) == "", "no deadline is set"


@pytest.mark.parametrize(
    ("target", "overrun", "expected"),
    [
        (Target(slowdown=1.2), 0.0, 2),
        (Target(slowdown=1.2), 0.01, 1),
        (Target(deadline_s=1.2), 0.01, 1),
        (Target(slowdown=1.2), 0.08, 1),
        (Target(slowdown=1.2), 0.1, 0),
        (Target(slowdown=1.4), 0.0, 2),
        (T_MIN, 0.0, 0),
    ],
)
def test_the_plan_of_least_energy_is_as_much_faster_than_the_target_as_plans_were_late(
    target: Target, overrun: float, expected: int
) -> None:
    made = job(target=target)
    made.enforcement.overrun = overrun
    assert own_wish_point(made, TABLE) == expected


@pytest.mark.parametrize(
    ("noise", "reference_s", "is_less"),
    [
        (None, 0.971, False),
        (None, 0.97, False),
        (None, 0.969, True),
        (1e-4, 0.991, False),
        (1e-4, 0.989, True),
        (1e-4, 1.1, False),
        (1e-4, None, False),
    ],
)
def test_a_slowdown_is_of_what_full_clocks_take_now_where_that_is_less_by_more_than_noise(
    noise: float | None, reference_s: float | None, *, is_less: bool
) -> None:
    """Noise that is not known yet is taken for 1 %."""
    for target, point in ((Target(slowdown=1.1), 0 if is_less else 1), (Target(deadline_s=1.1), 1)):
        made = job(target=target)
        if noise:
            vary(made, noise)
        made.enforcement.guard.guard.reference_s = reference_s
        assert own_wish_point(made, TABLE) == point, "a deadline is one whatever full clocks take"


@pytest.mark.parametrize(
    ("target", "reference_s", "pace", "expected"),
    [
        (T_MIN, None, 0.0, 0),
        (Target(slowdown=1.42), None, 0.0, 0),
        (Target(slowdown=1.44), None, 0.0, 1),
        (Target(slowdown=1.6), None, 0.0, 2),
        (Target(slowdown=1.6), 0.9, 0.0, 1),
        (T_MIN, None, 1.42, 0),
        (T_MIN, None, 1.44, 1),
    ],
)
def test_a_pipeline_with_slow_ranks_is_as_fast_as_it_can_be_or_as_target_and_policy_allow(
    target: Target, reference_s: float | None, pace: float, expected: int
) -> None:
    made = job(target=target, pace=pace)
    made.enforcement.guard.guard.reference_s = reference_s
    own = give_own_plan(made, table=summary(fastest_s=1.3))
    assert own_target_point(made, own) == expected


# ---- who is slow -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "acts", "is_followed"), [(-1, True, True), (0, True, True), (1, True, False), (0, False, False)]
)
def test_verdicts_are_followed_where_plans_may_and_from_the_end_of_a_hold_on(
    ahead: int, *, acts: bool, is_followed: bool
) -> None:
    made = job()
    made.policy = replace(made.policy, acts_on_stragglers=acts)
    made.detection.verdicts = (slow(),)
    made.enforcement.guard.held_until = made.progress.iteration + ahead
    assert bool(judged_slow(made)) == is_followed


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("", (3, FULL)),
        ("no power for full clocks", (3, 0)),
        ("paced", (3, 1)),
        ("reported", (3, 0)),
        ("not acted upon", (0, 0)),
        ("whole", (3, 0)),
        ("whole, planning", (3, 0)),
        ("whole, planning for new transfers", (3, FULL)),
        ("whole, planning for new transfers, not acted upon", (0, 0)),
        ("whole, planning for new transfers, reported", (3, 0)),
        ("planning for new transfers", (3, FULL)),
    ],
)
def test_a_slow_pipeline_runs_at_full_clocks_until_there_is_a_plan_for_what_slows_it(
    case: str, expected: tuple[int, int]
) -> None:
    made = job(pace=1.1 if "paced" in case else 0.0)
    is_acted_upon = "not acted upon" not in case
    made.detection.verdicts = (slow(is_whole_pipeline="whole" in case, is_acted_upon=is_acted_upon),)
    made.holds_probes = "power" in case
    if "planning" in case:
        made.phase = Phase.PLANNING
    if "new transfers" in case:
        made.planning.snapshots = (snapshot(20.0),)
    if "reported" in case:
        report_slow(made, 2.0)
    assert choose(made).points == expected


@pytest.mark.parametrize(
    ("case", "is_usable"),
    [
        ("", True),
        ("held", False),
        ("held until now", True),
        ("of another table", False),
        ("asked for others", False),
        ("asked for others, followed", True),
        ("not asked for", False),
        ("not asked for, followed", True),
        ("none", False),
    ],
)
def test_a_plan_of_a_pipelines_own_is_followed_if_it_is_of_this_table_and_wanted_or_in_force(
    case: str, *, is_usable: bool
) -> None:
    made = job()
    made.detection.verdicts = (slow(),)
    own = give_own_plan(made, table=summary(fastest_s=1.3), is_followed="followed" in case)
    watch, at = made.enforcement.guard, made.progress.iteration
    watch.own_plans_held_until = {"held": at + 1, "held until now": at}.get(case, 0)
    if case == "of another table":
        made.detection.straggler_plans[1] = replace(own, base_revision=2)
    if "asked for others" in case:
        request = made.detection.straggler_requests[1]
        made.detection.straggler_requests[1] = replace(request, slow_ranks=(SlowRank(pp_rank=1, factor=1.3),))
    if "not asked" in case:
        made.detection.straggler_requests.clear()
    if case == "none":
        made.detection.straggler_plans.clear()
    assert choose(made).own_revisions == ((0, own.revision) if is_usable else ())


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("", "the time at all-maximum clocks is point 0 at 1.000000 s"),
        ("1.0", "the time at all-maximum clocks is point 0 at 1.000000 s"),
        ("1.2", "budget hall asks for point 2, 1.200000 s"),
        ("deadline", "1.000000 s; a deadline of 0.5 s cannot be met: the fastest plan takes 1.000000000 s"),
        ("reported", "1.000000 s, no pipeline makes the others wait"),
        ("slow", "1.000000 s, 1 of 2 pipelines wait until 2.000000 s: rank 2 (stage 0, pipeline 1) is slower than its"),
        ("slow", "; pipeline 1 runs at full clocks until there is a plan for it"),
        ("own", "; pipeline 1 follows a plan of its own"),
    ],
)
def test_the_sentence_tells_the_wish_its_point_and_who_waits_for_what(case: str, expected: str) -> None:
    target = Target(deadline_s=0.5) if case == "deadline" else T_MIN
    made = job(target=target, pace=float(case) if case.startswith("1.") else 0.0)
    if case == "reported":
        report_slow(made, 1.0)
    made.detection.verdicts = (slow(),) if case in ("slow", "own") else ()
    if case == "own":
        give_own_plan(made, table=summary(fastest_s=1.3))
    sentence = choose(made).sentence
    assert expected in sentence
    assert case in ("slow", "own") or sentence.endswith(expected)
