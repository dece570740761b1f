"""Jobs that may come back in another shape, at the limits: what is kept of stages, used again, and planned ahead."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
from fleets import fleet_enforcing, fleet_planning
from test_lifecycle_straggler_plans_bounds import slow
from test_planner_lifecycle import Fleet, sample, summary

from perseus_dist.fingerprint import Fingerprint, Workload
from perseus_dist.planner.job.facts.runs import FingerprintKnown, JobRegistered
from perseus_dist.planner.job.facts.sweeps import CARRIED_ROUND, SAVED_PROFILE, SamplesReceived, SweepBegun, SweepEnded
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.profiling import Profiling
from perseus_dist.planner.lifecycle.events import Effect, Log, Persist, PlanFailed, StartPlanning
from perseus_dist.planner.lifecycle.shape_change.ahead import (
    handle_ahead_failure,
    keep_ahead,
    request_ahead,
    shape_of_job,
)
from perseus_dist.planner.lifecycle.shape_change.carry import (
    _of_group,
    _of_replicas,
    _sentence,
    keep_stages,
    stages_of_job,
    use_stages,
    works_of_job,
)
from perseus_dist.planner.lifecycle.sweeping.series_samples import keep_samples
from perseus_dist.planner.shapes.stage_estimates import StagesOfShape
from perseus_dist.planner.worker.plan_request import PlanResult
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE
from perseus_dist.planning.schedule.schedule_text import parse_schedule

NOW_S = 1e6


def know(job: Job, *, layers: tuple[int, ...] = (12,), but: int | None = None, gpu_name: str = "A100") -> Job:
    """All ranks say what they hold; one of them may be on another GPU."""
    for rank in job.members.places:
        fingerprint = Fingerprint(
            gpu_name="H100" if rank == but else gpu_name,
            workload=Workload(stage_layers=layers, stage_parameters=(700 + rank % 2,) * len(layers)),
        )
        job.members.fingerprints[rank] = FingerprintKnown(rank=rank, run_id="", fingerprint=fingerprint)
    return job


# ---- what was measured of stages -------------------------------------------------------------------------------------


def test_a_stages_work_is_what_all_its_ranks_say_alike() -> None:
    job = know(fleet_planning(dp=2).job)
    schedule = parse_schedule(job.schedule_text)
    works = works_of_job(job, schedule)
    assert {key: (work.index, work.num_stages, work.parameters, work.layers) for key, work in works.items()} == {
        (0, 0): (0, 2, 700, 12),
        (1, 0): (1, 2, 701, 12),
    }
    assert works_of_job(know(job, but=3), schedule).keys() == {(0, 0)}
    assert shape_of_job(job) is None
    known = know(job, layers=(6, 6))
    assert {work.layers for work in works_of_job(known, schedule).values()} == {0}, "layers of as many stages alone"
    assert {work.parameters for work in works_of_job(known, schedule).values()} == {0}
    shape = shape_of_job(known)
    assert shape is not None
    assert [work.index for work in shape.works] == [0, 1]
    del job.members.fingerprints[0], job.members.fingerprints[2]
    assert works_of_job(job, schedule).keys() == {(1, 0)}
    job.members.places[3] = job.members.places[3]._replace(pp_rank=2)
    assert works_of_job(job, schedule).keys() == {(1, 0)}, "the schedule has no third stage"
    job.schedule_text = ""
    assert shape_of_job(job) is None


@pytest.mark.parametrize(
    ("lacks", "num_stages"),
    [("", 2), ("a job", 0), ("a schedule", 0), ("a profile", 0), ("a sweep of its own", 0), ("a sweep", 0)],
)
def test_stages_are_known_of_a_sweep_of_the_present_shape_that_has_ended(lacks: str, num_stages: int) -> None:
    job = know(fleet_planning(dp=2).job)
    for rank in (1, 3):
        of_rank = job.profiling.samples[1][rank]
        of_rank[:] = [replace(one, samples=replace(one.samples, blocking_power_w=90.0)) for one in of_rank]
    if lacks == "a job":
        job.spec = None
    elif lacks == "a schedule":
        job.schedule_text = ""
    elif lacks == "a profile":
        job.profiling.ended_series.clear()
    elif lacks == "a sweep of its own":
        job.profiling.sweeps[1] = replace(job.profiling.sweeps[1], num_round=CARRIED_ROUND)
    elif lacks == "a sweep":
        job.profiling.samples, job.profiling.ended_series = {SAVED_PROFILE: job.profiling.samples[1]}, {SAVED_PROFILE}
    stages = stages_of_job(job)
    assert len(stages) == num_stages
    for index, stage in enumerate(stages):
        assert stage.work.index == index
        assert stage.blocking_power_w == 80.0 + 10.0 * index
        assert [(one.kind, one.clock_mhz) for one in stage.samples[:3]] == [("B", 1400), ("F", 1400), ("B", 1200)]


def test_an_estimate_of_blocking_power_and_rows_of_saved_profiles_are_not_kept_of_a_stage() -> None:
    job = know(fleet_planning().job)
    for of_rank in job.profiling.samples[1].values():
        of_rank[:] = [replace(one, samples=replace(one.samples, blocking_power_w=0.0)) for one in of_rank]
    assert {stage.blocking_power_w for stage in stages_of_job(job)} == {0.0}
    one = job.profiling.samples[1][0][1]
    rows = tuple(replace(row, stage=0) for row in one.samples.samples)
    job.profiling.samples[1][0][1] = replace(one, samples=replace(one.samples, samples=rows))
    assert [len(stage.samples) for stage in stages_of_job(job)] == [6, 8]


def test_stages_that_were_kept_are_known_of_a_job_that_is_restored() -> None:
    job = know(fleet_planning().job)
    stages = stages_of_job(job)
    facts = [fact for fact in facts_of(keep_stages(job, stages)) if isinstance(fact, SamplesReceived)]
    restored = Profiling()
    for fact in (*facts, replace(facts[0], work=None)):
        keep_samples(restored, fact)
    assert restored.stages == stages
    assert restored.samples == {}


def test_a_group_takes_as_long_as_its_slowest_gpu_and_draws_on_average() -> None:
    own = [replace(sample("F", 1400, 10.0), time_s=1.0), replace(sample("F", 1000, 8.0), time_s=1.4, chunk=1)]
    other = [replace(sample("F", 1400, 14.0), time_s=1.1), sample("B", 1400, 9.0)]
    found = _of_group([own, other])
    assert [(one.kind, one.clock_mhz) for one in found] == [("B", 1400), ("F", 1400), ("F", 1000)]
    assert (found[1].time_s, found[1].energy_j, found[2].chunk) == (1.1, 12.0, 0)


@pytest.mark.parametrize(
    ("kind", "other_s", "time_s", "energy_j", "num_runs", "p90_s"),
    [
        ("F", 102.0, 101.0, 15.0, 8, 3.0),
        ("F", 102.1, 100.0, 10.0, 4, 2.0),
        (CLOCK_CHANGE, 150.0, 125.0, 15.0, 8, 3.0),
        ("LOAD", 101.0, 100.0, 10.0, 4, 2.0),
    ],
)
def test_replicas_count_with_their_mean_where_they_were_not_disturbed_and_constants_with_the_least(
    kind: str, other_s: float, time_s: float, energy_j: float, num_runs: int, p90_s: float
) -> None:
    least = replace(sample(kind, 1400, 10.0), time_s=100.0, time_p90_s=2.0)
    other = replace(sample(kind, 1400, 20.0), time_s=other_s, time_p90_s=3.0)
    found = _of_replicas([other, least])
    assert (found.time_s, found.energy_j, found.num_runs, found.time_p90_s) == (time_s, energy_j, num_runs, p90_s)


# ---- used in another shape -------------------------------------------------------------------------------------------


@cache
def _come_back() -> Fleet:
    measured = know(fleet_planning().job)
    fleet = Fleet(dp=2)
    fleet.attach_all()
    know(fleet.job).profiling.stages = stages_of_job(measured)
    return fleet


def come_back() -> Job:
    """In another shape, with what was measured of its stages."""
    return deepcopy(_come_back().job)


def facts_of(effects: list[Effect]) -> list[object]:
    return [fact for one in effects if isinstance(one, Persist) for fact in one.facts]


def test_what_was_measured_of_stages_stands_for_a_sweep_of_the_first_pipeline() -> None:
    job = come_back()
    job.profiling.sweep_id, before = 6, job.num_changes
    ordered, *facts, ended, spent = facts_of(use_stages(job))
    assert isinstance(ordered, SweepBegun)
    assert isinstance(spent, JobRegistered)
    assert spent.keeps_profile
    assert (ordered.sweep_id, ordered.series, ordered.first_iteration, ordered.iterations_per_clock) == (7, 7, 0, 1)
    assert (ordered.clocks_mhz, ordered.ranks, ordered.first_only) == ((1400, 1200, 1000, 800), (0, 1), ())
    assert (ordered.is_profile, ordered.num_round, ordered.num_steps) == (True, CARRIED_ROUND, 4)
    assert ended == SweepEnded(series=7)
    assert 7 in job.profiling.ended_series
    assert job.num_changes == before + 1
    told = [one for one in facts if isinstance(one, SamplesReceived)]
    assert [(one.rank, one.samples.sequence, one.samples.step, one.clock_mhz) for one in told] == [
        (rank, step + 1, step, clock_mhz) for rank in (0, 1) for step, clock_mhz in enumerate((1400, 1200, 1000, 800))
    ]
    for one in told:
        assert (one.pp_rank, one.dp_rank, one.tp_rank, one.incarnation) == (one.rank, 0, 0, 0)
        assert (one.samples.last, one.samples.blocking_power_w, len(one.samples.samples)) == (True, 80.0, 2)
        assert {row.chunk for row in one.samples.samples} == {0}
    assert use_stages(job) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda job: setattr(job.profiling, "stages", ()),
        lambda job: setattr(job.profiling, "has_tried_stages", True),
        lambda job: setattr(job, "plan", fleet_enforcing().job.plan),
        lambda job: setattr(job.profiling, "sweep", fleet_planning().job.profiling),
        lambda job: job.profiling.samples.setdefault(0, {}),
        lambda job: job.members.rank_of_stream.popitem(),
        lambda job: setattr(job.members.ranks[0], "has_profile", True),
    ],
)
def test_stages_are_looked_at_once_all_ranks_are_there_and_nothing_else_is_known(
    change: Callable[[Job], object],
) -> None:
    job = come_back()
    change(job)
    had_tried = job.profiling.has_tried_stages
    assert use_stages(job) == []
    assert job.profiling.has_tried_stages == had_tried


def test_stages_that_do_not_follow_are_profiled_anew() -> None:
    job = come_back()
    del job.members.fingerprints[1], job.members.fingerprints[3]
    (said,) = use_stages(job)
    assert isinstance(said, Log)
    assert said.sentence.endswith(
        "(ranks of stage 1 do not compute alike, or do not say what they compute): profiling anew"
    )
    assert use_stages(job) == [], "it is said once"
    keep_stages(job, job.profiling.stages)
    assert len(use_stages(job)) == 1, "in another shape they may follow"


@pytest.mark.parametrize(
    ("num_estimated", "sentence"),
    [
        (0, "the profile of all 2 stages is used as it was measured in another shape: no sweep"),
        (2, "the profile of all 2 stages follows from others by their layers, to within 8.0 %: no sweep"),
        (
            1,
            "the profile of 1 of 2 stages is used as it was measured in another shape, and that of 1 follows from "
            "others by their layers, to within 8.0 %: no sweep",
        ),
    ],
)
def test_what_stands_for_a_sweep_is_said(num_estimated: int, sentence: str) -> None:
    stages = stages_of_job(know(fleet_planning().job))
    assert _sentence(StagesOfShape(stages=stages, num_estimated=num_estimated, doubt=0.08)) == sentence


# ---- planned ahead ---------------------------------------------------------------------------------------------------


def idle() -> Job:
    """Two pipelines under a plan for long; with one of them less, the other has all microbatches, or as many as now."""
    job = know(fleet_enforcing(dp=2).job)
    job.policy = replace(job.policy, plans_ahead=True)
    job.planning.transfers_at_s = NOW_S - 10.0
    return job


def test_plans_are_made_ahead_for_each_likely_shape_one_after_the_other_and_none_twice() -> None:
    job = idle()
    before = job.planning.request_id
    digests = []
    for number in (1, 2):
        (asked,) = request_ahead(job, NOW_S)
        assert isinstance(asked, StartPlanning)
        request = asked.request
        assert (request.request_id, request.revision, request.is_ahead) == (before + number, 1, True)
        assert job.planning.ahead.pending == (request.request_id, request.digest)
        assert request_ahead(job, NOW_S) == [], "one at a time"
        digests.append(request.digest)
        result = PlanResult(
            request_id=before + number, revision=1, summary=summary(), tables=(), frontier_npz=b"", profile_csv=b""
        )
        keep_ahead(job, result)
    assert request_ahead(job, NOW_S) == []
    assert list(job.planning.ahead.made) == digests
    job.planning.ahead.looked_at = None
    assert request_ahead(job, NOW_S) == [], "both are made"
    job.planning.ahead.looked_at = None
    del job.planning.ahead.made[digests[0]]
    assert len(request_ahead(job, NOW_S)) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda job: setattr(job, "policy", replace(job.policy, plans_ahead=False)),
        lambda job: setattr(job, "phase", Phase.RELEASED),
        lambda job: setattr(job, "plan", replace(job.plan, is_first=True)),
        lambda job: setattr(job, "plan", None),
        lambda job: setattr(job.planning, "pending", 5),
        lambda job: setattr(job.planning.ahead, "pending", (5, "")),
        lambda job: setattr(job.profiling, "sweep", job.profiling),
        lambda job: setattr(job.detection, "verdicts", (slow(),)),
        lambda job: job.members.rank_of_stream.popitem(),
        lambda job: setattr(job.planning, "transfers_at_s", NOW_S - 9.9),
    ],
)
def test_no_plan_is_made_ahead_where_the_job_itself_may_need_one(change: Callable[[Job], object]) -> None:
    job = idle()
    change(job)
    assert request_ahead(job, NOW_S) == []
    assert job.planning.ahead.looked_at is None


def test_a_rank_of_another_shape_is_what_a_rank_of_its_stage_is_now() -> None:
    job = idle()
    for rank in (1, 3):
        job.members.ranks[rank].gpu = replace(job.members.ranks[rank].gpu, clocks_mhz=(1300, 1200))
    (asked,) = request_ahead(job, NOW_S)
    assert isinstance(asked, StartPlanning)
    assert asked.request.menu_mhz == (1300, 1200)


@pytest.mark.parametrize("transient", [False, True])
def test_a_shape_that_cannot_be_planned_is_not_tried_again_unless_the_worker_died(*, transient: bool) -> None:
    job = idle()
    (asked,) = request_ahead(job, NOW_S)
    assert isinstance(asked, StartPlanning)
    handle_ahead_failure(job, PlanFailed(request_id=asked.request.request_id, reason="no", transient=transient))
    job.planning.ahead.looked_at = None
    (again,) = request_ahead(job, NOW_S)
    assert isinstance(again, StartPlanning)
    assert (again.request.digest == asked.request.digest) == transient
