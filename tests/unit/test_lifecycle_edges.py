"""Decisions of a job's life cycle at their edges: what begins anew, what is waited for, what is numbered."""

import math
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytest
from test_malformed_facts import good_facts
from test_planner_lifecycle import SCHEDULE, Fleet, of_type, summary

from perseus_dist.messages.from_agent import GpuSample, ProfileSamples, ScheduleText
from perseus_dist.messages.from_planner import Refused, StopSweep
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.facts.decisions import StragglerKnown
from perseus_dist.planner.job.facts.runs import FingerprintKnown
from perseus_dist.planner.job.facts.sweeps import OF_STAGES, SamplesReceived
from perseus_dist.planner.job.measured_iterations import measured_iterations
from perseus_dist.planner.job.predicted_saving import energies_uj
from perseus_dist.planner.job.state.planning import Planning
from perseus_dist.planner.job.state.profiling import Profiling
from perseus_dist.planner.lifecycle.baseline import measured_baseline
from perseus_dist.planner.lifecycle.blocking_power import why_measured_again
from perseus_dist.planner.lifecycle.enforcement.followed_plan import followed_plan
from perseus_dist.planner.lifecycle.enforcement.prediction_check import _at_full_clocks, learn
from perseus_dist.planner.lifecycle.enforcement.slightly_slow import newly_slow
from perseus_dist.planner.lifecycle.enforcement.switching import _barely_differs
from perseus_dist.planner.lifecycle.events import Persist, StragglerReported
from perseus_dist.planner.lifecycle.reset import drop_kept_profile, drop_profile
from perseus_dist.planner.lifecycle.schedule import _fits_kept_profile
from perseus_dist.planner.lifecycle.shape_change.ahead import is_ahead_request
from perseus_dist.planner.lifecycle.shape_change.carry import keep_stages
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.lifecycle.sweeping.rounds import note_reading
from perseus_dist.planner.lifecycle.sweeping.sweep import iterations_per_clock
from perseus_dist.planner.shapes.stage import MeasuredStage, StageWork
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b
from perseus_dist.straggler.evidence.gpu_evidence import REASON_SW_THERMAL

OTHER: dict[type, Any] = {bool: True, int: 7, float: 7.5, tuple: (1,), type(None): 3, dict: {(0, 1): 1}, set: {1}}


def used(state: Any) -> Any:
    """The state with another value in every field that is a plain one."""
    for one in fields(state):
        value = getattr(state, one.name)
        if type(value) in OTHER and one.init:
            setattr(state, one.name, OTHER[type(value)])
    return state


def test_planning_that_begins_anew_keeps_its_numbers_and_nothing_else() -> None:
    planning = used(Planning())
    planning.begin_anew()
    assert planning == Planning(request_id=7, pending=3, ahead=planning.ahead)


def test_the_profile_of_other_work_keeps_numbers_that_are_used_up_and_nothing_else() -> None:
    profiling = used(Profiling())
    assert profiling.of_other_work() == Profiling(sweep_id=7, acked_samples={(0, 1): 1})


def test_events_of_a_job_are_numbered_one_by_one() -> None:
    fleet = Fleet().to_enforcing()
    numbers = [event.sequence for event in job_status(fleet.job).events]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 2
    assert fleet.job.history.num_events == numbers[-1]


def test_a_schedule_that_does_not_fit_is_not_to_be_sent_again() -> None:
    fleet = Fleet()
    stream = fleet.attach(0)
    fleet.say(stream, ScheduleText(text="0F0 nonsense\n"))
    (refused,) = of_type(fleet.inbox[stream], Refused)
    assert isinstance(refused, Refused)
    assert not refused.retry


def test_a_profile_is_dropped_with_the_sweep_that_is_under_way_and_without_one_in_silence() -> None:
    fleet = Fleet().to_profiling()
    sweep = fleet.sweep(0)
    assert sweep is not None
    stops = drop_profile(fleet.job, fleet.now_s)
    assert [effect.message.sweep_id for effect in stops] == [sweep.sweep_id] * 2  # type: ignore[union-attr]
    assert drop_profile(fleet.job, fleet.now_s) == []
    assert fleet.job.profiling.sweep_id == sweep.sweep_id, "no later sweep has its number"
    assert not any(isinstance(getattr(one, "message", None), StopSweep) for one in drop_kept_profile(fleet.job, 1.0))


def test_no_plan_is_followed_before_a_switch_without_a_plan_or_where_a_pipeline_has_none() -> None:
    fleet = Fleet().to_enforcing()
    job, switch = fleet.job, fleet.job.switch
    assert switch is not None
    job.enforcement.switch = replace(switch, points=(1,) * len(switch.points))
    assert followed_plan(job) is not None
    job.enforcement.switch = None
    assert followed_plan(job) is None
    job.enforcement.switch = replace(switch, points=(NO_POINT,))
    assert followed_plan(job) is None
    job.enforcement.switch, job.plan = switch, None
    assert followed_plan(job) is None


def test_blocking_power_is_measured_again_where_iterations_have_become_clearly_faster() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(12)
    job = fleet.job
    for held_back_s, time_s, is_again in ((2.0, 2.0, False), (2.0, 1.99, False), (2.0, 1.0, True), (0.0, 1.0, False)):
        job.profiling.held_back_s = held_back_s
        job.measured.probed.append(replace(job.measured.enforced[-1], time_s=time_s))
        assert bool(why_measured_again(job)) == is_again, (held_back_s, time_s)


def test_between_lessons_about_longer_iterations_lies_a_time_that_doubles() -> None:
    fleet = Fleet().to_enforcing()
    fleet.job.planning.num_lessons, fleet.job.planning.learnt_at_s = 12, fleet.now_s  # nothing is learnt meanwhile
    fleet.free_s = fleet.planned_s = 1.03
    fleet.iterate(66)
    for num_lessons, interval_s in ((1, 30.0), (2, 60.0), (3, 120.0), (4, 240.0), (5, 480.0)):
        fleet.job.planning.num_lessons = num_lessons
        fleet.job.planning.learnt_at_s = fleet.now_s
        assert not learn(deepcopy(fleet.job), fleet.now_s + interval_s - 0.1)
        assert learn(deepcopy(fleet.job), fleet.now_s + interval_s + 0.1)


@pytest.mark.parametrize(
    "why",
    [
        "nothing",
        "T'",
        "a slow rank",
        "heat",
        "a plan to come",
        "another state",
        "no switch",
        "no probe since a straggler",
        "few iterations since a straggler",
    ],
)
def test_longer_iterations_teach_nothing_where_something_else_explains_them(why: str) -> None:
    fleet = Fleet().to_enforcing()
    fleet.job.planning.num_lessons, fleet.job.planning.learnt_at_s = 12, fleet.now_s
    fleet.free_s = fleet.planned_s = 1.03
    fleet.iterate(66)
    job = fleet.job
    assert job.switch is not None
    if why == "T'":
        job.enforcement.switch = replace(job.switch, t_prime_s=1.5)
    elif why == "a slow rank":
        job.enforcement.guard.misstated[0] = 0.05
    elif why == "heat":
        job.profiling.held_back_s = 1.0
    elif why == "a plan to come":
        job.planning.pending = 1
    elif why == "another state":
        job.enforcement.guard.guard.reference_s = 1.2
    elif why == "no switch":
        job.enforcement.switch = None
    elif why == "no probe since a straggler":
        job.measured.slow_at = job.measured.probed[-1].number
    elif why == "few iterations since a straggler":
        job.measured.slow_at = job.measured.enforced[-12].number
        job.measured.probed.append(job.measured.enforced[-1])
    assert bool(learn(job, 1e6)) == (why == "nothing")


@pytest.mark.parametrize("degree", [1.0, 100.0])
def test_a_straggler_may_be_reported_at_the_bounds_of_its_degree(degree: float) -> None:
    fleet = Fleet(dp=2).to_enforcing()
    for reported, is_accepted in ((degree, True), (0.99, False), (100.5, False), (math.nan, False)):
        fleet.tell(StragglerReported(straggler_id="cooling", degree=reported, dp_rank=1))
        assert fleet.answers[-1].accepted == is_accepted, fleet.answers[-1].reason


def test_a_job_without_a_plan_shows_no_figure_of_one() -> None:
    status = job_status(Fleet().to_profiling().job)
    degrees = (status.full_time_degree, status.full_energy_degree, status.plan_time_degree, status.plan_energy_degree)
    assert degrees == (0.0,) * 4
    assert (status.t_prime_s, status.progress_share >= 0) == (0.0, True)


def test_a_rank_at_full_clocks_is_as_fast_as_heat_lets_it_be_in_the_sweep_alone() -> None:
    profiling = Fleet().to_profiling().job.profiling
    hot = GpuSample(requested_mhz=1400, clock_mhz=1390, event_reasons=REASON_SW_THERMAL)
    for reading, reached_mhz in (
        (hot, 1390),
        (replace(hot, requested_mhz=1000, clock_mhz=900), 1390),  # a lower clock of the sweep
        (replace(hot, requested_mhz=0, clock_mhz=1300), 1300),
        (replace(hot, clock_mhz=1400), None),
        (hot, 1390),
        (replace(hot, event_reasons=0), None),
    ):
        note_reading(profiling, 1, reading)
        assert profiling.reached_mhz.get(1) == reached_mhz
    profiling.sweep = None
    note_reading(profiling, 1, hot)
    assert not profiling.reached_mhz


def test_a_kept_profile_fits_a_schedule_of_as_many_chunks_alone() -> None:
    job = Fleet().to_planning().job
    assert _fits_kept_profile(job, SCHEDULE)
    (of_series,) = job.profiling.samples.values()
    one = of_series[1][0]
    for chunk, is_fitting in ((0, True), (1, False), (2, False)):
        samples = tuple(replace(sample, chunk=chunk) for sample in one.samples.samples)
        of_series[1][0] = replace(one, samples=replace(one.samples, samples=samples))
        assert _fits_kept_profile(job, SCHEDULE) == is_fitting


@pytest.mark.parametrize(("share", "is_barely"), [(1.001, True), (1.0045, True), (1.006, False)])
def test_plans_that_differ_by_less_than_a_switch_is_worth_stay_in_force(share: float, *, is_barely: bool) -> None:
    fleet = Fleet().to_planning()
    made = summary()
    fleet.plan_ready(replace(made, time_ps=(*made.time_ps[:2], round(share * made.time_ps[1]), made.time_ps[3])))
    job = fleet.job
    assert job.switch is not None
    for before, after in ((1, 2), (2, 1)):
        job.enforcement.switch = switch = replace(job.switch, points=(before,), t_prime_s=2.0)
        assert _barely_differs(job, replace(switch, points=(after,))) == is_barely
        assert _barely_differs(job, switch)
        assert not _barely_differs(job, replace(switch, t_prime_s=0.0)), "pipelines wait no more"
        assert not _barely_differs(job, replace(switch, points=(3,)))
        assert not _barely_differs(job, replace(switch, table_revision=switch.table_revision + 1))
    job.enforcement.switch = replace(switch, points=(NO_POINT,))
    assert not _barely_differs(job, switch)
    job.enforcement.switch = None
    assert not _barely_differs(job, switch)


@pytest.mark.parametrize(("behind", "is_from_earlier"), [(3, True), (2, True), (1, False), (0, False), (-2, False)])
def test_agents_more_than_one_iteration_behind_mean_that_training_goes_on_from_earlier(
    behind: int, *, is_from_earlier: bool
) -> None:
    fleet = Fleet().to_enforcing()
    fleet.detach(0)
    fleet.detach(1)
    before = fleet.job.measured.timelines
    fleet.iteration = fleet.job.progress.iteration - behind
    fleet.attach(0, incarnation=77)
    assert fleet.job.progress.iteration == fleet.iteration
    assert (fleet.job.measured.timelines is not before) == is_from_earlier


def test_stages_that_are_kept_are_facts_of_no_rank() -> None:
    fleet = Fleet().to_planning()
    known = next(fact for fact in good_facts() if isinstance(fact, FingerprintKnown))
    work = StageWork(index=1, num_stages=2, parameters=10, layers=0, fingerprint=known.fingerprint)
    stages = (MeasuredStage(work=work, samples=(), blocking_power_w=0.0, switch_latency_s=0.0),) * 2
    (persisted,) = keep_stages(fleet.job, stages)
    assert isinstance(persisted, Persist)
    assert [fact.rank for fact in persisted.facts if isinstance(fact, SamplesReceived)] == [0, 1]
    told = ProfileSamples(sequence=1, sweep_id=0, step=0, samples=(), blocking_power_w=0.0, switch_latency_s=0.0)
    for number, fact in enumerate(persisted.facts):
        assert fact == SamplesReceived(
            rank=number,
            pp_rank=0,
            dp_rank=0,
            tp_rank=0,
            incarnation=0,
            series=OF_STAGES,
            clock_mhz=0,
            samples=replace(told, last=True),
            work=work,
        )
    assert keep_stages(fleet.job, ()) == []


def test_an_answer_is_of_another_shape_where_it_was_asked_for_so() -> None:
    job = Fleet().to_enforcing().job
    assert not is_ahead_request(job, 5)
    job.planning.ahead.pending = (5, "digest")
    assert is_ahead_request(job, 5)
    assert not is_ahead_request(job, 4)


@pytest.mark.parametrize(("microbatches", "is_repeated", "least"), [(2, False, 1), (1, False, 2), (2, True, 2)])
def test_where_the_first_run_of_an_iteration_is_the_only_one_two_are_measured(
    microbatches: int, least: int, *, is_repeated: bool
) -> None:
    fleet = Fleet()
    fleet.free_s = 100.0  # one iteration is long enough for the meter
    job = fleet.to_profiling().job
    job.schedule_text = format_schedule(one_f_one_b(pp=2, microbatches=microbatches))
    assert iterations_per_clock(job, is_profile=True, is_repeated=is_repeated) == least
    assert iterations_per_clock(job, is_profile=False, is_repeated=is_repeated) == (2 if is_repeated else 1)


def test_energies_until_all_pipelines_end_are_those_of_the_slowest() -> None:
    job = Fleet(dp=2).to_enforcing().job
    assert job.switch is not None
    job.enforcement.switch = replace(job.switch, points=(2, 1), own_revisions=(), t_prime_s=0.0)
    assert energies_uj(job) == (650 + 700 + 10, 2 * 1000), "the second waits for 0.1 s at 100 uW"
    job.stragglers["cooling"] = StragglerKnown(straggler_id="cooling", degree=1.5, dp_rank=1)
    assert energies_uj(job) == (650 + 700 + 30 + 40, 2 * (1000 + 50))
    job.stragglers.clear()
    job.enforcement.switch = replace(job.switch, t_prime_s=1.6)
    assert energies_uj(job) == (650 + 700 + 40 + 50, 2 * (1000 + 60))
    job.enforcement.switch = replace(job.switch, points=(2, NO_POINT))
    assert energies_uj(job) == (0, 0)


@pytest.mark.parametrize("usual_s", [0.1, 1.0, 30.0])
def test_a_baseline_of_times_that_lie_far_apart_is_waited_for(usual_s: float) -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(12)
    job = fleet.job
    num = job.policy.num_baseline_iterations
    times_s = [usual_s * (1 + 0.01 * (number % 3)) for number in range(num)]
    seen = [replace(job.measured.enforced[-1], time_s=time_s, energy_j=None) for time_s in times_s]
    job.measured.baseline_iterations[:] = seen
    spread = measured_iterations(seen).time_spread_s / measured_iterations(seen).time_s
    assert spread > 0
    job.policy = replace(job.policy, max_baseline_spread=1.01 * spread)
    assert measured_baseline(job) is not None
    job.policy = replace(job.policy, max_baseline_spread=0.99 * spread)
    assert measured_baseline(job) is None
    job.measured.baseline_iterations[:] = seen * job.policy.max_baseline_attempts
    found = measured_baseline(job)
    assert found is not None
    assert found.num_iterations == num * job.policy.max_baseline_attempts
    job.measured.baseline_iterations[:] = seen[1:]
    assert measured_baseline(job) is None


def test_what_a_switch_puts_in_force_is_counted_over_all_pipelines() -> None:
    job = Fleet(dp=2).to_enforcing().job
    assert job.switch is not None
    job.enforcement.switch = switch = replace(job.switch, points=(2, 1), own_revisions=(), t_prime_s=0.0)
    found = followed_plan(job)
    assert found is not None
    assert (found.time_s, found.stretch) == pytest.approx((1.2, 1.2))
    assert found.energy_j == pytest.approx(1360e-6)
    assert found.rate_j == pytest.approx(640e-6)
    assert found.waiting_w == pytest.approx(2 * 100e-6)
    assert (found.is_waiting, found.is_around_slow) == (False, False)
    job.enforcement.switch = replace(switch, t_prime_s=1.6)
    waiting = followed_plan(job)
    assert waiting is not None
    assert (waiting.time_s, waiting.stretch, waiting.is_waiting) == pytest.approx((1.6, 1.0, True))
    assert waiting.key == found.key, "T' is measured, and never quite the same"
    job.stragglers["cooling"] = StragglerKnown(straggler_id="cooling", degree=1.6, dp_rank=1)
    reported = followed_plan(job)
    assert reported is not None
    assert (reported.stretch, reported.is_waiting) == (0.0, False), "an operator sets how long iterations last"
    assert reported.key != found.key
    full = job.plan.summary.full_point if job.plan else 0
    job.enforcement.switch = replace(switch, points=(full, full))
    assert followed_plan(job) is None, "all-maximum clocks for every pipeline"
    job.enforcement.switch = replace(switch, points=(full, 1))
    around = followed_plan(job)
    assert around is not None
    assert around.is_around_slow


def test_ranks_slower_in_all_pipelines_are_the_profiles_fault_and_others_are_planned_for() -> None:
    job = Fleet(dp=2).to_enforcing().job
    assert newly_slow(job, {}) == ()
    one = newly_slow(job, {1: 0.02}, beside_replicas=True)
    assert [slow.pp_rank for slow in one] == [1]
    assert newly_slow(job, {1: 0.02, 3: 0.02}, beside_replicas=True) == (), "both of the stage"
    assert [slow.pp_rank for slow in newly_slow(job, {1: 0.02, 3: 0.02})] == [1]
    assert newly_slow(job, {9: 0.02}) == (), "no rank of the job"
    job.planning.slightly_slow = one
    assert newly_slow(job, {1: 0.02}) == ()
    assert newly_slow(job, {1: 0.03})[0].factor > one[0].factor


def test_what_is_measured_at_full_clocks_is_compared_with_what_the_profile_says_of_all_pipelines() -> None:
    job = Fleet(dp=2).to_enforcing().job
    compared = _at_full_clocks(job)
    assert compared is not None
    assert (compared.predicted_s, compared.measured_s) == (1.0, 1.0)
    assert compared.predicted_j == pytest.approx(2 * 1000e-6)
    assert compared.measured_j == pytest.approx(4 * 50.0)
