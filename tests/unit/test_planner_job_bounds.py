"""What is kept of a job at its bounds: events, timelines, iterations that are summed up, and where it stands."""

import math
from dataclasses import replace

import pytest
from fleets import short_sweep
from test_planner_predicted_saving_bounds import job as planned_job
from test_web_timeline import times

from perseus_dist.messages.terms import NO_POINT, T_MIN, Target
from perseus_dist.planner.job.facts.decisions import PaceChosen, TargetChosen
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_history import MAX_EVENTS, JobHistory
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.measured_iterations import MeasuredIterations, measured_iterations
from perseus_dist.planner.job.state.progress import Iteration
from perseus_dist.planner.job.timelines import MAX_PIPELINES, Timelines

SPEC = JobRegistered(schedule_digest="", pp_size=3, dp_size=5, tp_size=2, token_sha256="")


def switched(history: JobHistory, switch_revision: int, now_s: float) -> None:
    history.add("switch", "a switch", now_s=now_s, iteration=0, switch_revision=switch_revision)


def confirmed(history: JobHistory) -> tuple[int, float]:
    """How many switches were, and how long all of them took [s]."""
    return history.switch_confirmations.num, history.switch_confirmations.sum_s


def test_events_are_numbered_from_one_and_the_newest_are_kept_with_their_age() -> None:
    history = JobHistory()
    for number in range(MAX_EVENTS + 2):
        history.add("verdict", f"number {number}", now_s=float(number), iteration=number)
    kept = history.events(100.0)
    assert len(kept) == MAX_EVENTS
    assert [one.sequence for one in kept] == list(range(3, MAX_EVENTS + 3))
    assert [one.age_s for one in kept[:2]] == [98.0, 97.0]
    assert history.events(2.5)[0].age_s == 0.5
    assert history.events(2.5)[1].age_s == 0.0, "none is younger than now"


def test_an_event_says_of_nobody_and_nothing_what_it_is_not_about() -> None:
    history = JobHistory()
    history.add("fall", "a plan was given up", now_s=0.0, iteration=7)
    [event] = history.events(0.0)
    assert (event.rank, event.dp_rank, event.effective_iteration, event.switch_revision) == (-1, -1, -1, 0)
    assert (event.degree, event.low, event.high, event.t_prime_s, event.points) == (0.0, 0.0, 0.0, 0.0, ())


def test_a_rank_confirms_the_newest_switch_alone() -> None:
    history = JobHistory()
    history.confirm_switch(1, 5.0)
    assert confirmed(history) == (0, 0.0)
    switched(history, 1, 10.0)
    history.add("verdict", "a straggler", now_s=11.0, iteration=0, switch_revision=1)
    history.confirm_switch(1, 12.5)
    assert confirmed(history) == (1, 2.5)
    switched(history, 2, 20.0)
    history.confirm_switch(1, 21.0)
    assert confirmed(history) == (1, 2.5), "late, and of the switch before"
    history.confirm_switch(2, 21.0)
    assert confirmed(history) == (2, 3.5)


def test_energy_is_added_up_of_iterations_where_it_is_known() -> None:
    history = JobHistory()
    for energy_j in (3.0, None, 4.0):
        history.count_iteration(2.0, energy_j)
    assert history.energy_j == 7.0
    assert (history.iterations.num, history.iterations.sum_s) == (3, 6.0)


def iteration(time_s: float, energy_j: float | None = None) -> Iteration:
    return Iteration(
        number=0,
        num_parts=1,
        time_s=time_s,
        pipeline_time_s=time_s,
        energy_j=energy_j,
        is_released=True,
        is_planned=False,
        followed={},
        is_live=True,
    )


def test_iterations_are_summed_up_by_median_and_quartiles() -> None:
    assert measured_iterations([]) == MeasuredIterations(
        num_iterations=0, time_s=0.0, time_spread_s=0.0, energy_j=0.0, energy_spread_j=0.0
    )
    one = measured_iterations([iteration(2.0, 8.0)])
    assert (one.num_iterations, one.time_s, one.time_spread_s) == (1, 2.0, 0.0)
    assert (one.energy_j, one.energy_spread_j) == (8.0, 0.0)
    two = measured_iterations([iteration(1.0), iteration(3.0, 8.0)])
    assert (two.num_iterations, two.time_s, two.time_spread_s) == (2, 2.0, 1.0)
    assert (two.energy_j, two.energy_spread_j) == (8.0, 0.0)
    many = measured_iterations([iteration(time_s, 10 * time_s) for time_s in (1.0, 2.0, 4.0, 8.0, 99.0)])
    assert (many.time_s, many.time_spread_s) == (4.0, 6.0)
    assert (many.energy_j, many.energy_spread_j) == (40.0, 60.0)


def test_as_many_pipelines_as_are_drawn_are_kept() -> None:
    timelines = Timelines()
    assert [timelines.take(dp_rank, 0, 1, times(0)) for dp_rank in range(MAX_PIPELINES + 2)] == [
        *[True] * MAX_PIPELINES,
        False,
        False,
    ]
    assert list(timelines.whole) == list(range(MAX_PIPELINES))


@pytest.mark.parametrize(
    "other", [times(17), times(16, point=3), replace(times(16), table_revision=5)], ids=["iteration", "point", "table"]
)
def test_ranks_of_one_pipeline_are_joined_once_all_have_told_of_the_same(other: object) -> None:
    timelines = Timelines()
    assert not timelines.take(0, 0, 2, times(16))
    assert not timelines.take(1, 1, 2, times(16)), "of another pipeline"
    assert not timelines.take(0, 1, 2, other)  # type: ignore[arg-type]
    assert not timelines.take(0, 1, 2, times(16)), "the first has to tell again"
    assert timelines.take(0, 0, 2, times(16))
    assert not timelines.take(0, 0, 2, times(16)), "for the next one all have to"
    assert list(timelines.whole) == [0]


def job(phase: Phase = Phase.ENFORCING) -> Job:
    return Job(job_id="job", policy=Policy(), phase=phase, spec=SPEC)


def test_a_job_has_as_many_ranks_as_its_sizes_say() -> None:
    assert (job().ranks_per_pipeline, job().num_ranks) == (6, 30)
    unknown = Job(job_id="job", policy=Policy())
    assert (unknown.ranks_per_pipeline, unknown.num_ranks, unknown.num_attached) == (0, 0, 0)
    assert unknown.point(0) == NO_POINT
    assert unknown.straggler_plan_in_force(0) is None


def test_a_job_is_swept_where_a_sweep_can_set_clocks() -> None:
    for phase in Phase:
        made = job(phase)
        assert not made.is_swept
        made.profiling.sweep = short_sweep()
        assert made.is_swept == (phase not in (Phase.REGISTERING, Phase.WARMING_UP)), phase
        made.spec = replace(SPEC, granularity="iteration")
        assert not made.sees_instructions
        assert not made.is_swept, phase
    assert Job(job_id="job", policy=Policy()).sees_instructions


def test_a_plan_is_released_once_it_was_given_up_until_there_is_another() -> None:
    for phase in Phase:
        kept, given_up = planned_job(0, 0), planned_job(0, NO_POINT)
        kept.phase = given_up.phase = phase
        assert kept.is_released == (phase is Phase.RELEASED), phase
        is_replaced = phase in (Phase.REPROFILING, Phase.PLANNING)
        assert given_up.is_released == (phase is Phase.RELEASED or is_replaced), phase
        assert not replace(job(phase), phase=Phase.PLANNING).is_released, "nothing was in force"


def test_the_target_and_the_pace_are_those_that_were_chosen() -> None:
    made = job()
    assert made.target == T_MIN
    assert made.pace == 0.0
    made.chosen_target = TargetChosen(target=Target(slowdown=1.5), by_operator=True)
    made.chosen_pace = PaceChosen(slowdown=1.25, budget="hall")
    assert made.target == Target(slowdown=1.5)
    assert made.pace == 1.25


def test_a_frontier_is_awaited_behind_a_first_plan_that_can_be_refined() -> None:
    made = planned_job(0)
    assert made.plan is not None
    assert not made.awaits_frontier
    made.plan = replace(made.plan, is_first=True)
    made.phase = Phase.ENFORCING
    assert made.awaits_frontier
    assert not made.is_refining
    made.planning.pending = 7
    assert made.is_refining
    made.phase = Phase.PLANNING
    assert not made.is_refining, "no plan is in force"
    made.phase, made.planning.refine_at_s = Phase.ENFORCING, math.inf
    assert not made.awaits_frontier
    assert not made.is_refining
    assert not job().awaits_frontier


def test_watchers_hear_of_another_phase_or_reason_and_of_nothing_twice() -> None:
    made = job()
    made.enter(Phase.ENFORCING, "a plan")
    assert (made.phase, made.reason, made.num_changes) == (Phase.ENFORCING, "a plan", 1)
    made.enter(Phase.ENFORCING, "a plan")
    assert made.num_changes == 1
    made.enter(Phase.ENFORCING, "another plan")
    made.enter(Phase.RELEASED, "another plan")
    assert (made.phase, made.num_changes) == (Phase.RELEASED, 3)


def test_the_point_and_plan_of_a_pipeline_are_those_of_the_switch_in_force() -> None:
    made = planned_job(0, 1, own=0)
    assert [made.point(dp_rank) for dp_rank in (0, 1)] == [0, 1]
    assert made.straggler_plan_in_force(0) is made.detection.straggler_plans[0]
    assert made.straggler_plan_in_force(1) is None
    assert made.switch is not None
    made.enforcement.switch = replace(made.switch, own_revisions=())
    assert made.straggler_plan_in_force(0) is None
