"""The detector in a job's life, at its limits: what it is told, whose verdicts stand, what follows from them."""

from collections import deque
from dataclasses import replace

import pytest
from fleets import fleet_enforcing
from test_lifecycle_baseline_bounds import iteration
from test_lifecycle_straggler_plans_bounds import slow, straggling, times
from test_planner_lifecycle import summary

from perseus_dist.messages.from_agent import GpuSample, IterationReport, KindTime, Telemetry
from perseus_dist.messages.terms import NO_POINT, Target
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.guard import Breach
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.events import StartPlanning
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.lifecycle.stragglers.stragglers import (
    _as_measured,
    _held_slow,
    _planned_time_s,
    _tell,
    judge,
    judge_at_once,
    observe,
)
from perseus_dist.straggler.verdicts.causes import Cause
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict

NOW_S = 1000.0
IMPOSSIBLE = tuple(KindTime(kind=kind, time_ratio=900.0, requested_mhz=1400) for kind in "FB")


def report(
    point: int = 1, *, revision: int = 1, number: int = 100, kinds: tuple[KindTime, ...] = ()
) -> IterationReport:
    return IterationReport(
        iteration=number,
        time_s=1.0,
        pipeline_time_s=1.0,
        energy_j=None,
        table_revision=revision,
        point=point,
        kind_times=kinds,
    )


def tell(
    job: Job, *reports: IterationReport, gpu: GpuSample | None = None, number: int = 100, after_s: float = 0.0
) -> int:
    """Rank 2 says so; how many reports the detector has refused by now."""
    told = Telemetry(sequence=1, iteration=number, iterations=reports, gpu=gpu or GpuSample())
    observe(job, job.members.ranks[2], told, NOW_S + after_s)
    return job.detection.watch.num_refused if job.detection.watch is not None else 0


# ---- what the detector is told ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "num_refused"),
    [
        ("of a plan", 1),
        ("not live", 0),
        ("without kinds", 0),
        ("of an unknown table", 0),
        ("first behind a sweep", 1),
        ("last of a sweep", 0),
        ("measured again", 0),
        ("no plan", 0),
        ("no switch", 0),
    ],
)
def test_the_detector_is_told_of_live_iterations_under_a_plan_from_the_first_report_on(
    case: str, num_refused: int
) -> None:
    """It refuses what it is told here, because no time is 900 times as long."""
    job = fleet_enforcing(dp=2).job
    told = report(kinds=() if case == "without kinds" else IMPOSSIBLE, revision=case != "of an unknown table")
    if case == "no switch":
        tell(job)
        job.enforcement.switch = None
    elif case == "no plan":
        tell(job)
        job.plan = None
    elif case == "measured again":
        job.phase = Phase.REPROFILING
    job.enforcement.guard.swept_until = 101 if case == "last of a sweep" else 100
    job.num_refused_reports = 2
    assert tell(job, replace(told, is_live=case != "not live")) == num_refused
    assert job_status(job).refused_reports == 2 + num_refused


def test_a_detector_begins_where_all_places_are_known_and_stays_for_tables_of_the_same_profile() -> None:
    job = fleet_enforcing(dp=2).job
    place = job.members.places.pop(3)
    tell(job)
    assert job.detection.watch is None
    job.members.places[3] = place
    assert job.plan is not None
    job.plan = replace(job.plan, summary=replace(job.plan.summary, kind_shares=(0.25, 0.75, 0.0, 0.0, 0.0)))
    tell(job)
    watch = job.detection.watch
    assert watch is not None
    assert watch._layout.kind_shares.tolist() == [0.25, 0.75]
    job.plan = replace(job.plan, revision=2)
    tell(job)
    assert job.detection.watch is watch
    assert watch.revision == 2
    job.plan = replace(job.plan, revision=3, profile_csv=b"stage,instruction,frequency,time\n0,forward,1400,0.1\n")
    tell(job)
    assert job.detection.watch is not watch


@pytest.mark.parametrize(
    ("keeps_switch", "revision", "is_held"), [(True, 5, True), (False, 5, False), (True, 6, False)]
)
def test_a_new_planner_holds_slow_whom_the_plans_in_force_are_made_for(
    revision: int, *, keeps_switch: bool, is_held: bool
) -> None:
    job = straggling(own=(times(1.03), times(1.0301, pp_rank=1)))
    assert job.switch is not None
    job.detection.keeps_switch = keeps_switch
    switch = replace(job.switch, own_revisions=(0, revision))
    assert _held_slow(job, switch) == ({(1, 1): 1.0301} if is_held else {})


@pytest.mark.parametrize(
    ("told", "usual_s", "slow_s"),
    [
        (report(0), 1.0, 1.0),
        (report(3), 1.4, 1.4),
        (report(4), 1.0, 1.2),  # at full clocks until there is a plan of its own
        (report(5), None, None),
        (report(0, revision=0), None, None),
        (report(NO_POINT), None, None),
        (report(NO_POINT, number=50), 1.0, 1.0),
        (report(NO_POINT, revision=0, number=52), 1.0, 1.0),
        (report(3, number=50), 1.4, 1.4),
        (report(1, revision=5), 1.65, 1.2 * 1.65 / 1.5),
        (report(3, revision=5), 2.1, 1.2 * 2.1 / 1.5),
        (report(4, revision=5), None, 1.2),
        (report(1, revision=6), None, 1.2),
    ],
)
def test_a_straggling_pipeline_is_held_against_the_targets_plan_and_another_against_its_own(
    told: IterationReport, usual_s: float | None, slow_s: float | None
) -> None:
    """The target takes 1.2 s, and a plan of the pipeline's own 1.5 s at least."""
    job = straggling(own=(times(1.2, pp_rank=1),))
    job.chosen_target = TargetChosen(target=Target(slowdown=1.2), by_operator=True)
    job.detection.straggler_plans[1] = replace(job.detection.straggler_plans[1], summary=summary(fastest_s=1.5))
    job.enforcement.guard.guard._probed = range(50, 53)
    assert _planned_time_s(job, 1, told) == (slow_s and pytest.approx(slow_s))
    job.detection.verdicts = (slow(0),)
    assert _planned_time_s(job, 1, told) == (usual_s and pytest.approx(usual_s))


# ---- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("least", "is_measured"), [(1.0099, False), (1.01, True)])
def test_what_a_cap_costs_is_measured_where_each_newest_iteration_met_it(least: float, *, is_measured: bool) -> None:
    predicted = slow(cause=Cause.POWER_CAP, is_predicted=True)
    for before in (None, predicted):
        job = fleet_enforcing(dp=2).job
        job.enforcement.guard.ratios[3] = deque([1.1, 1.1, least, 1.1, 1.1], maxlen=5)
        job.detection.verdicts = () if before is None else (before,)
        (found,) = _as_measured(job, (predicted,))
        assert found.is_predicted != is_measured
        assert found.degree.value == (1.1 if is_measured else 1.2)


def moved(degree: float) -> Verdict:
    return replace(slow(), degree=Degree(value=degree, low=degree, high=degree))


@pytest.mark.parametrize(
    ("now", "kinds", "num_new"),
    [
        (slow(), [], 0),
        (moved(1.21), [], 0),
        (moved(1.19), [], 0),
        (moved(1.2201), ["verdict"], 0),
        (moved(1.1799), ["verdict"], 0),
        (slow(cause=Cause.UNKNOWN), ["verdict"], 0),
        (slow(is_acted_upon=False), ["verdict"], 0),
        (slow(2), ["recovered", "verdict"], 1),
        (slow(is_whole_pipeline=True), ["recovered", "verdict"], 1),
        (None, ["recovered"], 0),
    ],
)
def test_verdicts_that_are_new_over_or_clearly_different_are_events(
    now: Verdict | None, kinds: list[str], num_new: int
) -> None:
    job = fleet_enforcing(dp=2).job
    job.detection.verdicts = () if now is None else (now,)
    num_before, num_changes = len(job.history.events(NOW_S)), job.num_changes
    why = _tell(job, (slow(),), NOW_S)
    events = job.history.events(NOW_S)[num_before:]
    assert [one.kind for one in events] == kinds
    assert job.history.num_verdicts.total() == num_new
    assert job.num_changes == num_changes + 1
    if kinds and kinds[0] == "recovered":
        assert events[0].sentence == "rank 3 is no straggler any more"
    is_acted_upon = now is not None and now.is_acted_upon
    assert why == (now.sentence if now and is_acted_upon else "nobody straggles that others should wait for")


def test_at_most_two_stragglers_are_named_and_pipelines_by_their_number() -> None:
    job = fleet_enforcing(dp=2).job
    job.detection.verdicts = (slow(0, is_acted_upon=False), slow(1), slow(2), slow(3))
    assert _tell(job, (), NOW_S) == f"{slow(1).sentence}; {slow(2).sentence}"
    job.detection.verdicts = ()
    _tell(job, (slow(3, is_whole_pipeline=True),), NOW_S)
    assert job.history.events(NOW_S)[-1].sentence == "pipeline 1 is no straggler any more"


def watched(*, num_enforced: int = 32, is_ripe: bool = False, verdicts: tuple[Verdict, ...] = ()) -> Job:
    """A detector that finds nobody slow, beside plans slower than the target asks for."""
    job = fleet_enforcing(dp=2).job
    tell(job)
    assert job.detection.watch is not None
    assert job.switch is not None
    job.detection.watch.is_ripe, job.detection.verdicts = is_ripe, verdicts
    job.measured.enforced.clear()
    job.measured.enforced.extend(iteration(number) for number in range(num_enforced))
    job.enforcement.switch = replace(job.switch, points=(3, 3))
    return job


def why_switched(job: Job) -> str:
    """Why, by a judgement, there is another switch; empty where there is none."""
    before = job.switch
    judge(job, NOW_S)
    assert job.switch is not None
    return "" if job.switch is before else job.switch.reason.partition(":")[0]


NOBODY, KNOWN_AGAIN = "nobody straggles that others should wait for", "it is known again who is slow"


@pytest.mark.parametrize(
    ("num_enforced", "is_ripe", "is_judged"), [(31, False, False), (32, False, True), (0, True, True)]
)
def test_earlier_verdicts_stand_until_a_new_detector_knows_as_much(
    num_enforced: int, *, is_ripe: bool, is_judged: bool
) -> None:
    job = watched(num_enforced=num_enforced, is_ripe=is_ripe, verdicts=(slow(),))
    assert why_switched(job) == (NOBODY if is_judged else "")
    assert job.detection.verdicts == (() if is_judged else (slow(),))
    assert (1 in job.detection.straggler_requests) != is_judged
    assert not any(isinstance(one, StartPlanning) for one in judge(job, NOW_S))


@pytest.mark.parametrize("case", ["no detector", "no plan", "another table"])
def test_nobody_is_judged_without_a_detector_for_the_table_in_force(case: str) -> None:
    job = watched(verdicts=(slow(),))
    assert job.plan is not None
    if case == "no detector":
        job.detection.watch = None
    else:
        job.plan = None if case == "no plan" else replace(job.plan, revision=2)
    assert judge(job, NOW_S) == []
    assert judge_at_once(job, NOW_S) == []
    assert job.detection.verdicts == (slow(),)


@pytest.mark.parametrize("was_kept", [False, True])
def test_a_switch_that_was_kept_is_decided_anew_once_it_is_known_who_is_slow(*, was_kept: bool) -> None:
    job = watched(is_ripe=True)
    job.detection.keeps_switch = was_kept
    assert why_switched(job) == (KNOWN_AGAIN if was_kept else "")
    assert not job.detection.keeps_switch
    job.detection.keeps_switch = was_kept
    assert job.switch is not None
    job.enforcement.switch = replace(job.switch, points=(0, 0))
    assert judge(job, NOW_S) == [], "not worth a word where nothing changes"


@pytest.mark.parametrize(
    ("case", "is_kept"),
    [("judged", True), ("never late", False), ("not probed", False), ("has fallen", False), ("waits", False)],
)
def test_plans_that_took_the_place_of_waiting_stay_while_the_guard_judges_them(case: str, *, is_kept: bool) -> None:
    for verdicts in ((), (slow(),)):
        job = watched(verdicts=verdicts)
        guard = job.enforcement.guard
        guard.num_wait_falls = 0 if case == "never late" else 1
        guard.guard._is_probing = case != "not probed"
        if case == "has fallen":
            guard.guard.breach = Breach(reference_s=1.0, allowed_s=1.0, observed_s=2.0, lost_s=1.0)
        elif case == "waits":
            assert job.switch is not None
            job.enforcement.switch = replace(job.switch, t_prime_s=1.5)
        assert why_switched(job) == ("" if is_kept or not verdicts else NOBODY)
        assert job.detection.keeps_switch == (is_kept and bool(verdicts))
