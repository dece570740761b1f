"""Each invariant on records made by hand: it holds, it breaks, and where the border lies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from perseus_dist.messages.job_status import MeasuredIterations
from perseus_dist.simulation.chaos.calm import calm_of
from perseus_dist.simulation.chaos.invariants import (
    durability,
    profile_truth,
    reported_baseline,
    reported_saving,
    reported_slowdown,
    reprofiling,
    settled_energy,
    settled_plan,
    settled_time,
    total_time,
    waiting,
)
from perseus_dist.simulation.chaos.invariants.every import INVARIANT_NAMES, broken_invariants
from perseus_dist.simulation.chaos.record import JobSpan, PlayedRun
from perseus_dist.simulation.chaos.scenario.events import (
    DiskFull,
    Event,
    HeatCap,
    MessageDelay,
    NextJob,
    PowerCap,
    Process,
    ProcessAction,
    ProcessEvent,
    SlowDown,
    SlowLink,
    StragglerOrder,
    TargetOrder,
)
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.standing import History
from perseus_dist.simulation.chaos.world.world import Iteration, JobEnd, PlannerView, ProfileRow

NUM = 100
TIME_S, ENERGY_J, PLANNED_J = 1.0, 100.0, 90.0
VIEW = PlannerView(
    table_revision=1,
    switch_revision=1,
    fastest_s=TIME_S,
    has_plan=True,
    planned_energy_j=PLANNED_J,
    planned_times_s=(TIME_S, TIME_S),
    blocking_w=10.0,
)
JOB = ScenarioJob(schedule="1f1b", pp=2, dp=2, microbatches=4)
ROW = ProfileRow(
    stage=1, kind="F", clock_mhz=1410, time_s=0.1, energy_j=40.0, true_time_s=0.1, true_energy_j=40.0, num_runs=4
)
SLOW = SlowDown(iteration=20, rank=3, slowdown=1.2)
OVER = SlowDown(iteration=30, rank=3, slowdown=1.0)

Times = Mapping[int, float] | float


def played(
    *events: Event,
    job: ScenarioJob = JOB,
    time_s: Times = TIME_S,
    without_s: Times = TIME_S,
    energy_j: float = PLANNED_J,
    views: Mapping[int, PlannerView | None] | None = None,
    sweeps: Iterable[int] = (),
    phases: Mapping[int, str] | None = None,
    unfollowed: Iterable[int] = range(10),
    locked: Mapping[int, int] | None = None,
    num: int = NUM,
    end: JobEnd | None = None,
    **ended: Any,
) -> PlayedRun:
    """A run in which all is well but for what is said; iterations that are not named have the usual value."""
    sweeps, unfollowed = set(sweeps), set(unfollowed)
    iterations = [
        Iteration(
            time_s=_at(time_s, i),
            energy_j=ENERGY_J if i in unfollowed else energy_j,
            phase=(phases or {}).get(i, "enforcing"),
            is_sweep=i in sweeps,
            view=(views or {}).get(i, VIEW),
            locked_without_lease=(locked or {}).get(i, 0),
        )
        for i in range(num)
    ]
    without = [Iteration(time_s=_at(without_s, i), energy_j=ENERGY_J) for i in range(num)]
    followed = tuple(i not in unfollowed for i in range(num))
    measured = MeasuredIterations(num_iterations=5, time_s=TIME_S, energy_j=ENERGY_J)
    said: dict[str, Any] = {
        "baseline": measured,
        "enforced": replace(measured, num_iterations=64, energy_j=PLANNED_J),
        "saved_j": sum(followed) * (ENERGY_J - energy_j),
        "profile": (ROW,),
        **ended,
    }
    scenario = Scenario(job=job, iterations=num, events=events)
    firsts = [first for first, _ in scenario.jobs()]
    jobs = [
        JobSpan(
            job=of,
            first=first,
            last=until - 1,
            undisturbed_time_s=TIME_S,
            end=end or JobEnd(followed=followed[first:until], **said),
        )
        for (first, of), until in zip(scenario.jobs(), [*firsts[1:], num], strict=True)
    ]
    return PlayedRun(scenario=scenario, iterations=iterations, without=without, jobs=jobs)


@pytest.mark.parametrize("between", ["profiling", "enforcing"])
def test_rounds_of_a_sweep_are_one_sweep(between: str) -> None:
    """Between two of them short iterations pass at full clocks, until the next is ordered."""
    sweeps = (*range(10, 20), *range(24, 40))
    run = played(sweeps=sweeps, time_s=over(sweeps, 1.3 * TIME_S), phases=dict.fromkeys(range(20, 24), between))
    assert bool(sentences(total_time, run)) == (between != "profiling")


def _at(value: Times, i: int) -> float:
    return value.get(i, TIME_S) if isinstance(value, Mapping) else value


def over(iterations: Iterable[int], value: float) -> dict[int, float]:
    return dict.fromkeys(iterations, value)


def sentences(invariant: ModuleType, run: PlayedRun) -> list[str]:
    check: Callable[[PlayedRun, History], Sequence[Any]] = invariant.check
    broken = check(run, History(run.scenario))
    assert all(one.name == invariant.NAME for one in broken)
    return [one.sentence for one in broken]


@pytest.mark.parametrize(
    "run",
    [
        played(),
        played(SLOW, OVER, time_s=over(range(20, 30), 1.2), without_s=over(range(20, 30), 1.2)),
        played(NextJob(iteration=50, changes={}), saved_j=0.0, unfollowed=range(50)),
    ],
    ids=["undisturbed", "a straggler that is waited for", "no plan in the first job"],
)
def test_nothing_is_broken_where_all_is_well(run: PlayedRun) -> None:
    run = replace(run, jobs=[replace(span, end=_honest(run, span)) for span in run.jobs])
    assert broken_invariants(run) == ()
    assert len(INVARIANT_NAMES) == len(set(INVARIANT_NAMES)) == 11


def _honest(run: PlayedRun, span: JobSpan) -> JobEnd:
    return replace(span.end, saved_j=sum(10.0 for i in span.iterations if run.followed[i]))


# ---- calm ------------------------------------------------------------------------------------------------------------


def test_iterations_21_to_40_after_the_last_event_are_judged() -> None:
    run = played(SLOW, OVER)
    calm = calm_of(run, History(run.scenario))
    assert calm.settled == calm.planned == tuple(range(50, 70))


def test_sweeps_are_not_counted() -> None:
    run = played(SLOW, OVER, sweeps=range(35, 45))
    calm = calm_of(run, History(run.scenario))
    assert calm.settled == tuple(range(60, 80))


def test_a_plan_that_was_being_made_at_the_last_event_has_to_be_found_out() -> None:
    phases = {**dict.fromkeys(range(25, 35), "profiling"), **dict.fromkeys(range(35, 45), "planning")}
    run = played(SLOW, OVER, sweeps=range(25, 35), phases=phases)
    assert calm_of(run, History(run.scenario)).settled == tuple(range(65, 85))
    begun_later = played(SLOW, OVER, phases=dict.fromkeys(range(35, 45), "planning"))
    assert calm_of(begun_later, History(begun_later.scenario)).settled == tuple(range(50, 70))


def test_a_run_that_ends_early_is_not_judged() -> None:
    run = played(SLOW, OVER, num=59)
    assert calm_of(run, History(run.scenario)).settled == ()
    run = played(SLOW, OVER, num=60)
    assert calm_of(run, History(run.scenario)).settled == tuple(range(50, 60))


def test_a_plan_must_be_in_force_15_s_after_the_last_sweep() -> None:
    run = played(SLOW, OVER, time_s=0.25, sweeps=range(30, 40), num=140)
    calm = calm_of(run, History(run.scenario))
    assert (calm.settled[0], calm.settled[-1]) == (60, 79)
    assert (calm.planned[0], calm.planned[-1]) == (80, 99)


DELAYED = (MessageDelay(iteration=20, delay_s=5.0), MessageDelay(iteration=30, delay_s=None))


def test_a_delay_is_over_once_what_was_sent_under_it_has_arrived() -> None:
    run = played(*DELAYED)
    assert calm_of(run, History(run.scenario)).settled == tuple(range(55, 75))
    run = played(*reversed(DELAYED))
    assert calm_of(run, History(run.scenario)).settled == tuple(range(50, 70))


# ---- total_time ------------------------------------------------------------------------------------------------------


def test_one_per_cent_more_time_is_allowed() -> None:
    assert sentences(total_time, played(time_s=1.0099)) == []
    (sentence,) = sentences(total_time, played(time_s=1.0101))
    assert "100 iterations took 101.0 s; allowed are 101.0 s" in sentence


def test_ten_iterations_are_allowed_for_each_disturbance() -> None:
    late = over(range(20, 30), 1.2)
    assert (
        sentences(total_time, played(SLOW, OVER, time_s=over(range(20, 80), 1.2), without_s=late)) == []
    )  # 112 s of 113 s
    (sentence,) = sentences(total_time, played(SLOW, OVER, time_s=over(range(20, 90), 1.2), without_s=late))
    assert "10.0 s for 1 disturbances" in sentence


def test_a_sweep_costs_what_it_takes_but_none_without_cause() -> None:
    sweep = over(range(10, 30), 1.5)
    assert sentences(total_time, played(time_s=sweep, sweeps=range(10, 30))) == []
    again = {**sweep, **over(range(50, 70), 1.5)}
    sweeps = [*range(10, 30), *range(50, 70)]
    assert sentences(total_time, played(SLOW, OVER, time_s=again, sweeps=sweeps)) == []
    (sentence,) = sentences(total_time, played(time_s=again, sweeps=sweeps))
    assert "10.0 s for sweeps" in sentence


def test_a_target_allows_its_factor_while_it_stands() -> None:
    target = TargetOrder(iteration=0, target="slowdown=1.1")
    assert sentences(total_time, played(target, time_s=1.1)) == []
    assert sentences(total_time, played(target, TargetOrder(iteration=1, target="t_min"), time_s=1.3))


# ---- settled_time ----------------------------------------------------------------------------------------------------


def test_settled_iterations_are_at_most_half_a_per_cent_slower() -> None:
    assert sentences(settled_time, played(SLOW, OVER, time_s=1.0049)) == []
    (sentence,) = sentences(settled_time, played(SLOW, OVER, time_s=1.2))
    assert sentence == "iterations 50-69 take 1.2000 s; allowed are 1.0000 s and 0.5 % more (+20.0 %)"


def test_settled_iterations_are_as_slow_as_a_straggler_that_stays() -> None:
    assert sentences(settled_time, played(SLOW, time_s=1.2, without_s=1.2)) == []
    assert sentences(settled_time, played(SLOW, time_s=1.22, without_s=1.2))


def test_settled_iterations_are_judged_by_their_median() -> None:
    assert sentences(settled_time, played(SLOW, OVER, time_s=over(range(50, 59), 3.0))) == []
    assert sentences(settled_time, played(SLOW, OVER, time_s=over(range(50, 61), 3.0)))


def test_medians_that_noise_moves_are_no_lateness_where_iterations_take_as_long_one_by_one() -> None:
    without_s = {i: 1.0 + 0.01 * (i % 20 - 10) / 10 for i in range(NUM)}
    late = {i: time_s * (1.012 if 54 <= i < 63 else 1.0) for i, time_s in without_s.items()}
    middle = sorted(without_s[i] for i in range(50, 70))
    assert sentences(settled_time, played(SLOW, OVER, time_s=late, without_s=without_s)) == []
    assert middle[9] < 1.0 <= middle[10]
    all_late = {i: 1.008 * time_s for i, time_s in without_s.items()}
    assert sentences(settled_time, played(SLOW, OVER, time_s=all_late, without_s=without_s))


def test_a_slower_target_is_a_multiple_of_what_noise_lets_be_known() -> None:
    """Five noisy iterations at full clocks were 0.5 % longer than those that are judged by: 33164."""
    slower = TargetOrder(iteration=0, target="slowdown=1.05")
    noisy = {i: 1.0 + 0.01 * (-1) ** i for i in range(NUM)}
    quiet = dict.fromkeys(range(NUM), 1.0)
    for share, without_s, is_broken in ((0.009, noisy, False), (0.009, quiet, True), (0.02, noisy, True)):
        times_s = {i: 1.05 * (1 + share) * time_s for i, time_s in without_s.items()}
        probed = {*range(10), *range(31, 36), *range(40, 45)}
        run = played(slower, SLOW, OVER, time_s=times_s, without_s=without_s, unfollowed=probed)
        assert bool(sentences(settled_time, run)) is is_broken
    late = {i: 1.009 * time_s for i, time_s in noisy.items()}
    assert sentences(settled_time, played(SLOW, OVER, time_s=late, without_s=noisy)), "T_min needs no multiple"


# ---- settled_plan ----------------------------------------------------------------------------------------------------


def test_a_plan_is_in_force_where_one_can_be() -> None:
    assert sentences(settled_plan, played(SLOW, OVER, unfollowed=range(59))) == []
    (sentence,) = sentences(settled_plan, played(SLOW, OVER, unfollowed=range(60)))
    assert sentence.startswith("10 of iterations 50-69 ran under a plan")
    gone = ProcessEvent(iteration=30, action=ProcessAction.KILL, process=Process.AGENT, rank=0)
    assert sentences(settled_plan, played(SLOW, gone, unfollowed=range(NUM))) == []


# ---- settled_energy --------------------------------------------------------------------------------------------------


def test_a_plan_draws_what_it_promises() -> None:
    assert sentences(settled_energy, played(energy_j=91.7)) == []
    (sentence,) = sentences(settled_energy, played(energy_j=92.0))
    assert sentence.endswith("draw 92.0 J; the plans in force promise 90.0 J (+2.2 %; allowed are 2 %)")
    assert sentences(settled_energy, played(energy_j=88.0))
    assert sentences(settled_energy, played(SLOW, energy_j=92.0)) == []  # a slow GPU draws what nobody has promised


def test_waiting_is_a_part_of_the_promise() -> None:
    assert VIEW.promised_energy_j(1.5) == 90.0 + 10.0 * 2 * 0.5


# ---- waiting ---------------------------------------------------------------------------------------------------------

WAITING = replace(VIEW, waiting=(0,), slow_ranks=(3,))


def test_nothing_waits_for_what_is_over() -> None:
    until_49 = dict.fromkeys(range(22, 50), WAITING)
    assert sentences(waiting, played(SLOW, OVER, views=until_49)) == []
    (sentence,) = sentences(waiting, played(SLOW, OVER, views={**until_49, 50: WAITING}))
    assert "iterations 50 to 50" in sentence
    assert "ranks held to be slow: 3" in sentence


def test_nothing_waits_where_nothing_has_happened() -> None:
    assert sentences(waiting, played(views={15: WAITING}))
    assert sentences(waiting, played(SLOW, views={15: WAITING}))


def test_waiting_is_right_while_something_stands() -> None:
    assert sentences(waiting, played(SLOW, views=dict.fromkeys(range(22, NUM), WAITING))) == []
    report = StragglerOrder(iteration=20, pipeline=1, degree=1.1)
    assert sentences(waiting, played(report, views=dict.fromkeys(range(22, NUM), WAITING))) == []
    muted = StragglerOrder(iteration=20, pipeline=1, degree=1.0)
    assert sentences(waiting, played(muted, views=dict.fromkeys(range(40, NUM), WAITING)))


def test_nothing_is_known_to_be_over_before_late_messages_have_arrived() -> None:
    """A planner was blamed for a straggler that had been over for 20 iterations, of which it could not have heard."""
    until_54 = dict.fromkeys(range(22, 55), WAITING)
    assert sentences(waiting, played(SLOW, *DELAYED, OVER, views=until_54)) == []
    (sentence,) = sentences(waiting, played(SLOW, *DELAYED, OVER, views={**until_54, 55: WAITING}))
    assert "iterations 55 to 55" in sentence


# ---- reprofiling -----------------------------------------------------------------------------------------------------


def after_sweep(fastest_s: float) -> dict[int, PlannerView | None]:
    return dict.fromkeys(range(60, NUM), replace(VIEW, table_revision=2, fastest_s=fastest_s))


def test_no_reprofiling_makes_t_min_slower() -> None:
    assert sentences(reprofiling, played(sweeps=range(50, 60), views=after_sweep(1.004))) == []
    (sentence,) = sentences(reprofiling, played(sweeps=range(50, 60), views=after_sweep(1.08)))
    assert "the sweep of iterations 50-59 made the fastest plan 1.0800 s (table 2); it was 1.0000 s " in sentence


def test_a_profile_that_was_too_fast_may_be_mended() -> None:
    before = dict.fromkeys(range(50), replace(VIEW, fastest_s=0.9))
    assert sentences(reprofiling, played(sweeps=range(50, 60), views={**before, **after_sweep(1.0)})) == []


def test_a_straggler_may_enter_the_profile_only_where_no_replica_is_better() -> None:
    views, slow = after_sweep(1.2), over(range(20, NUM), 1.2)
    assert sentences(reprofiling, played(SLOW, sweeps=range(50, 60), views=views, without_s=slow))
    alone = replace(JOB, dp=1)
    only = replace(SLOW, rank=1)
    assert sentences(reprofiling, played(only, job=alone, sweeps=range(50, 60), views=views, without_s=slow)) == []


def test_a_link_that_is_slow_makes_t_min_as_much_slower_as_iterations_are() -> None:
    link = SlowLink(iteration=30, rank=1, node=None, transfer_s=0.05)
    slow = over(range(30, NUM), 1.1)
    for fastest_s, is_broken in ((1.1, False), (1.2, True)):
        found = sentences(reprofiling, played(link, sweeps=range(50, 60), views=after_sweep(fastest_s), without_s=slow))
        assert bool(found) == is_broken


# ---- profile_truth ---------------------------------------------------------------------------------------------------


def test_the_profile_in_force_is_the_truth() -> None:
    assert sentences(profile_truth, played(profile=(replace(ROW, time_s=0.1019),))) == []
    (sentence,) = sentences(profile_truth, played(profile=(ROW, replace(ROW, time_s=0.108))))
    assert sentence.endswith("stage 1 F at 1410 MHz 0.108000 s, truly 0.100000 s (+8.0 %)")
    assert sentences(profile_truth, played(profile=(replace(ROW, energy_j=41.0),)))
    assert sentences(profile_truth, played(profile=(replace(ROW, energy_j=41.0), replace(ROW, energy_j=39.0)))) == []


def test_what_slows_all_replicas_in_a_sweep_may_look_like_a_clock_that_nothing_runs_at() -> None:
    job = replace(JOB, pp=1)
    lower = replace(ROW, stage=0, clock_mhz=1200, time_s=0.104)
    profile = (replace(ROW, stage=0), lower)
    sweep: dict[str, Any] = {"sweeps": range(10, 20), "time_s": over(range(10, 20), 1.2), "job": job}
    both = [SlowDown(iteration=12, node=0, slowdown=1.04), SlowDown(iteration=15, node=0, slowdown=1.0)]
    assert sentences(profile_truth, played(*both, profile=profile, **sweep)) == []
    assert sentences(profile_truth, played(profile=profile, **sweep))
    highest = (replace(ROW, stage=0, time_s=0.104),)
    assert sentences(profile_truth, played(*both, profile=highest, **sweep)), "probes show it"
    one = [SlowDown(iteration=12, rank=0, slowdown=1.04), SlowDown(iteration=15, rank=0, slowdown=1.0)]
    assert sentences(profile_truth, played(*one, profile=profile, **sweep)), "the other replica was well"
    slower = TargetOrder(iteration=0, target="slowdown=1.1")
    assert sentences(profile_truth, played(slower, *both, profile=profile, **sweep)), "its clocks are followed"


def test_noise_excuses_as_much_as_it_explains() -> None:
    noisy = replace(JOB, noise_percent=1.0)
    assert sentences(profile_truth, played(job=noisy, profile=(replace(ROW, time_s=0.1039),))) == []
    assert sentences(profile_truth, played(job=noisy, profile=(replace(ROW, time_s=0.1041),)))
    assert sentences(profile_truth, played(job=noisy, profile=(replace(ROW, energy_j=41.5),))) == []
    assert sentences(profile_truth, played(job=noisy, profile=(replace(ROW, energy_j=41.7),)))


def test_noise_excuses_energies_by_what_it_makes_of_their_mean() -> None:
    """Runs that take less draw less: at 3 % noise, four runs a clock were off by 2.1 % on the mean over 29 clocks."""
    noisy = replace(JOB, noise_percent=1.0)
    for share, is_broken in ((0.0195, False), (0.0239, False), (0.0241, True)):  # one standard error is 0.1 %
        rows = tuple(
            replace(ROW, clock_mhz=mhz, num_runs=25, energy_j=40 * (1 + share)) for mhz in (1400, 1300, 1200, 1100)
        )
        assert bool(sentences(profile_truth, played(job=noisy, profile=rows))) == is_broken
    assert sentences(profile_truth, played(profile=(replace(ROW, energy_j=40 * 1.0201),))), "without noise, 2 %"


def test_the_best_replica_is_the_truth() -> None:
    slower = (replace(ROW, time_s=0.12, energy_j=48.0),)
    both = (SLOW, replace(SLOW, rank=1, slowdown=1.3))
    assert sentences(profile_truth, played(SLOW, profile=(ROW,))) == []
    assert sentences(profile_truth, played(SLOW, profile=slower))
    assert sentences(profile_truth, played(*both, profile=slower)) == []
    assert sentences(profile_truth, played(*both, profile=(ROW,)))
    hot = tuple(HeatCap(iteration=20, rank=rank, thermal_cap_mhz=900) for rank in (1, 3))
    assert sentences(profile_truth, played(*hot, profile=slower)) == []


def test_a_tensor_parallel_group_is_as_slow_as_its_slowest_gpu_for_which_the_others_wait() -> None:
    """Rank 6 is in the second pipeline's group of pp_rank 1; the first has ranks 2 and 3."""
    job = replace(JOB, tp=2)
    row = replace(ROW, blocking_w=80.0)
    # One GPU computes for 0.12 s, the other for 0.1 s and waits for 0.02 s: 48 J and 41.6 J.
    slower = replace(row, time_s=0.12, energy_j=44.8)
    first, second = SLOW, replace(SLOW, rank=6)
    assert sentences(profile_truth, played(first, job=job, profile=(row,))) == []
    assert sentences(profile_truth, played(first, job=job, profile=(slower,)))
    assert sentences(profile_truth, played(first, second, job=job, profile=(slower,))) == []
    assert sentences(profile_truth, played(first, second, job=job, profile=(replace(slower, energy_j=48.0),)))
    hot = HeatCap(iteration=20, rank=7, thermal_cap_mhz=900)
    assert sentences(profile_truth, played(first, hot, job=job, profile=(slower,))) == []


def test_a_stage_runs_where_its_schedule_puts_it() -> None:
    """Under DualPipeV the last stage is the first rank's; a power cap of that rank leaves the stage out."""
    job = ScenarioJob(schedule="dualpipev", pp=4, microbatches=16)
    capped = PowerCap(iteration=20, rank=1, power_limit_w=300.0)
    for stage, is_off in ((1, False), (2, True), (5, True), (6, False)):
        found = sentences(profile_truth, played(capped, job=job, profile=(replace(ROW, stage=stage, time_s=0.12),)))
        assert bool(found) == is_off, stage


def test_a_profile_of_other_gpus_is_found() -> None:
    (sentence,) = sentences(profile_truth, played(profile=(ROW, replace(ROW, true_time_s=0.0, true_energy_j=0.0))))
    assert sentence.startswith("1 figures of the profile in force are off")
    assert "a clock that no GPU has" in sentence


def test_a_profile_without_a_plan_is_not_in_force() -> None:
    assert sentences(profile_truth, played(profile=(replace(ROW, time_s=0.2),), unfollowed=range(NUM))) == []


# ---- durability ------------------------------------------------------------------------------------------------------


def test_what_was_acknowledged_is_there() -> None:
    known = frozenset({"target", "samples of rank 0"})
    assert sentences(durability, played(acknowledged=frozenset({"target"}), durable=known)) == []
    (sentence,) = sentences(durability, played(acknowledged=known, durable=frozenset({"target"})))
    assert "1 of 2 things" in sentence
    assert "samples of rank 0" in sentence


def test_revisions_never_go_back() -> None:
    back = {40: replace(VIEW, table_revision=3, switch_revision=4), 41: None, 42: PlannerView()}
    found = sentences(durability, played(views=back))
    assert found == [
        "the table revision went back from 3 to 1 at iteration 43",
        "the switch revision went back from 4 to 1 at iteration 43",
    ]


def test_no_gpu_stays_locked() -> None:
    assert sentences(durability, played(clocks_left_locked=2)) == ["2 GPUs are still locked after the job's end"]
    (sentence,) = sentences(durability, played(locked=dict.fromkeys(range(30, 51), 1)))
    assert sentence == "1 GPUs are locked at the end of iteration 30, and no process holds their lease"


# ---- reported_* ------------------------------------------------------------------------------------------------


def measured(**figures: float) -> MeasuredIterations:
    usual: dict[str, Any] = {"num_iterations": 64, "time_s": TIME_S, "energy_j": ENERGY_J}
    return MeasuredIterations(**{**usual, **figures})


def test_the_baseline_is_what_full_clocks_take() -> None:
    assert sentences(reported_baseline, played(baseline=measured(time_s=1.019, energy_j=101.9))) == []
    found = sentences(reported_baseline, played(baseline=measured(time_s=1.021, energy_j=97.0), enforced=measured()))
    assert [one.split(" is said")[0] for one in found] == ["the baseline's time", "the baseline's energy"]
    slow = over(range(5), 1.2)
    between = measured(time_s=1.1)
    run = played(SLOW, OVER, baseline=between, enforced=between, time_s=slow, without_s=slow)
    assert sentences(reported_baseline, run) == []


def test_a_baseline_may_be_of_a_sweep_that_held_full_clocks() -> None:
    """A power cap is over as the sweep begins, and the job ends before its plan comes."""
    capped: dict[str, Any] = {"without_s": over(range(8), 1.1), "sweeps": range(8, 12), "unfollowed": range(12)}
    at_full = played(num=12, time_s=over(range(8), 1.1), **capped)
    assert sentences(reported_baseline, at_full) == []
    lower = played(num=12, time_s={**over(range(8), 1.1), **over(range(8, 12), 1.3)}, **capped)
    assert sentences(reported_baseline, lower)


def test_the_slowdown_is_what_the_plan_costs() -> None:
    slow = over(range(10), 1.2)
    (sentence,) = sentences(reported_slowdown, played(baseline=measured(time_s=1.2), time_s=slow, without_s=slow))
    assert sentence.startswith("the slowdown is said to be -16.7 %")
    assert sentence.endswith("truly it is +0.0 %")
    standing = replace(SLOW, iteration=0)
    assert sentences(reported_slowdown, played(standing, baseline=measured(time_s=1.2), without_s=1.2)) == []


def test_the_joules_saved_are_those_of_iterations_under_a_plan() -> None:
    # 90 iterations, 10 J less of 100 J each: 900 J, 2 % of which are 18 J; meters allow 0.25 % of 9,000 J, 22.5 J.
    assert sentences(reported_saving, played(saved_j=940.0)) == []
    (sentence,) = sentences(reported_saving, played(saved_j=1000.0))
    assert "1000 J are said to be saved, give or take 0 J; truly 900 J were, in 90 iterations under a plan" in sentence


def test_doubt_excuses_as_much_as_faults_have_changed_and_little_else() -> None:
    # Counters alone: 0.5 % of 9,000 J, 45 J, beside the 40.5 J that are always allowed.
    assert sentences(reported_saving, played(saved_j=980.0, saved_doubt_j=1e6)) == []
    assert sentences(reported_saving, played(saved_j=980.0, saved_doubt_j=20.0)) != []
    assert sentences(reported_saving, played(saved_j=1000.0, saved_doubt_j=1e6)) != []
    run = played(SLOW, OVER, saved_j=1000.0, saved_doubt_j=200.0)  # ten iterations, and 20 J more of each
    slowed = [replace(one, energy_j=120.0) if 20 <= i < 30 else one for i, one in enumerate(run.without)]
    run = replace(
        run,
        without=slowed,
        iterations=[
            replace(one, energy_j=one.energy_j + 20.0) if 20 <= i < 30 else one for i, one in enumerate(run.iterations)
        ],
    )
    assert sentences(reported_saving, run) == []


def test_a_saving_of_three_iterations_may_be_in_doubt_as_a_whole() -> None:
    first: dict[str, Any] = {"unfollowed": range(3, NUM), "num": NUM}
    assert sentences(reported_saving, played(saved_j=45.0, saved_doubt_j=45.0, **first)) == []
    assert sentences(reported_saving, played(saved_j=45.0, saved_doubt_j=5.0, **first))
    assert sentences(reported_saving, played(saved_j=10.0, saved_doubt_j=1e6, **first))
    longer: dict[str, Any] = {**first, "unfollowed": range(4, NUM)}
    assert sentences(reported_saving, played(saved_j=60.0, saved_doubt_j=60.0, **longer))


@pytest.mark.parametrize(
    ("saved_j", "free_again", "num_broken"),
    [(800.0, 35, 0), (700.0, 35, 0), (650.0, 35, 1), (950.0, 35, 1), (700.0, 25, 1)],
)
def test_a_full_disk_lets_a_planner_that_dies_forget(saved_j: float, free_again: int, num_broken: int) -> None:
    """What 20 iterations saved was written nowhere; where the disk has space again before, all of it is."""
    events: tuple[Event, ...] = (
        DiskFull(iteration=10, is_full=True),
        ProcessEvent(iteration=30, action=ProcessAction.KILL, process=Process.PLANNER),
        ProcessEvent(iteration=32, action=ProcessAction.RESTART, process=Process.PLANNER),
        DiskFull(iteration=free_again, is_full=False),
    )
    run = played(*sorted(events, key=lambda event: event.iteration), saved_j=saved_j)
    assert len(sentences(reported_saving, run)) == num_broken


def test_a_planner_that_is_down_says_nothing() -> None:
    down = ProcessEvent(iteration=30, action=ProcessAction.KILL, process=Process.PLANNER)
    assert sentences(reported_saving, played(down, saved_j=-35_181.0)) == []
