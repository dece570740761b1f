"""Runs of a job at their limits: who belongs to the present one, and what begins anew with the next."""

from dataclasses import replace

import pytest
from fleets import fleet_enforcing, fleet_profiling
from test_planner_lifecycle import Fleet, _gpu, _rank, sample
from test_planner_runs import GPU, WORKLOAD, Runs

from perseus_dist.messages.from_agent import Attach, ProfileSamples
from perseus_dist.messages.terms import T_MIN, Gpu, Target
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.facts.runs import FingerprintKnown
from perseus_dist.planner.job.facts.sweeps import SAVED_PROFILE, SweepBegun
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.profiling import ActiveSweep
from perseus_dist.planner.lifecycle.events import Effect, Log, Persist, TargetSet
from perseus_dist.planner.lifecycle.run import (
    begin_anew,
    begin_run,
    enter_run,
    know_fingerprint,
    know_replicas,
    leave_run,
)
from perseus_dist.straggler.layout import RankCoords

MODELS = "pp_rank 0 is on H200 in pipeline 1 and on A100 in pipeline 0"


def said(effects: list[Effect]) -> list[str]:
    return [effect.sentence for effect in effects if isinstance(effect, Log)]


def dropped(effects: list[Effect]) -> set[str]:
    return {prefix for effect in effects if isinstance(effect, Persist) for prefix in effect.drop}


def attach(rank: int, /, **changes: object) -> Attach:
    values: dict[str, object] = {"rank": _rank(rank), "gpu": _gpu(), "incarnation": 1000 + rank, "run_id": "run 1"}
    return Attach(**{**values, **changes})  # type: ignore[arg-type]


def job_with(*, plan: bool, baseline: bool, samples: bool, sweeps: bool) -> Job:
    job = fleet_enforcing().job
    job.plan = job.plan if plan else None
    job.measured.baseline = job.measured.baseline if baseline else None
    if not samples:
        job.profiling.samples.clear()
    if not sweeps:
        job.profiling.sweeps.clear()
    return job


# ---- beginning anew --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "baseline", "samples", "sweeps", "keeps_profile", "sentence"),
    [
        (1, 1, 1, 1, True, "it differs: plan and baseline begin anew, the profile is kept"),
        (1, 1, 1, 1, False, "it differs: profile, plan and baseline begin anew"),
        (1, 0, 1, 1, True, "it differs: plan and baseline begin anew, the profile is kept"),
        (0, 1, 1, 1, True, "it differs: plan and baseline begin anew, the profile is kept"),
        (0, 1, 1, 0, True, "it differs: plan and baseline begin anew, the profile is kept"),
        (0, 1, 0, 1, True, "it differs: plan and baseline begin anew, the profile is kept"),
        (0, 1, 0, 0, True, "it differs: plan and baseline begin anew"),
        (0, 0, 1, 0, False, "it differs: profile, plan and baseline begin anew"),
        (0, 0, 0, 1, False, "it differs: profile, plan and baseline begin anew"),
        (0, 0, 1, 1, True, ""),
        (0, 0, 0, 0, True, ""),
        (0, 0, 0, 0, False, ""),
    ],
)
def test_what_begins_anew_is_said_where_there_was_anything(
    plan: int, baseline: int, samples: int, sweeps: int, sentence: str, *, keeps_profile: bool
) -> None:
    job = job_with(plan=bool(plan), baseline=bool(baseline), samples=bool(samples), sweeps=bool(sweeps))
    effects = begin_anew(job, "it differs", 1.0, keeps_profile=keeps_profile)
    assert said(effects)[:1] == ([sentence] if sentence else [])
    assert [event.sentence for event in job.history.events(1.0) if event.kind == "anew"] == said(effects)[:1]
    assert job.spec is not None
    assert bool(effects) == (bool(sentence) or not keeps_profile)
    if effects:
        assert isinstance(effects[-1], Persist)
        assert effects[-1].facts == (job.spec,)
        assert job.spec.is_anew == (not keeps_profile)
    if sentence:
        assert (job.phase, job.reason) == (Phase.REGISTERING, sentence)
        assert job.spec.keeps_profile == (keeps_profile and bool(samples or sweeps))
        assert {"table", "baseline"} < dropped(effects)
        assert ("samples/" in dropped(effects)) == (not keeps_profile)
        assert bool(job.profiling.samples) == (bool(samples) and keeps_profile)


def test_stages_whose_measurements_are_kept_are_counted() -> None:
    job = job_with(plan=True, baseline=True, samples=True, sweeps=True)
    effects = begin_anew(job, "it differs", 1.0, keeps_profile=False, num_stages=2)
    assert said(effects)[0] == "it differs: plan and baseline begin anew, what was measured of 2 stages is kept"
    assert not job.profiling.samples


@pytest.mark.parametrize(
    ("plan", "samples", "kept"),
    [(True, True, "the plan"), (False, True, "the profile"), (False, False, "nothing")],
)
def test_another_run_says_what_is_kept_of_the_one_before(kept: str, *, plan: bool, samples: bool) -> None:
    job = job_with(plan=plan, baseline=True, samples=samples, sweeps=True)
    assert job.spec is not None
    job.spec = replace(job.spec, is_anew=True)
    *_, stored = begin_run(job, "run 2", 1.0)
    assert job.reason == f"a run begins: {kept} of the run before is kept"
    assert isinstance(stored, Persist)
    assert stored.facts == (job.spec,)
    assert (job.spec.run_id, job.spec.is_anew) == ("run 2", False)


@pytest.mark.parametrize("is_profile", [True, False])
def test_a_sweep_beside_a_plan_is_given_up_with_its_series_alone(*, is_profile: bool) -> None:
    job = fleet_enforcing().job
    (first,) = job.profiling.sweeps.values()
    job.profiling.is_unchecked = False
    for sweep_id in (5, 6):
        begun = replace(first, sweep_id=sweep_id, series=5, is_profile=is_profile)
        job.profiling.sweeps[sweep_id] = begun
    job.profiling.samples[5] = {}
    job.profiling.sweep = ActiveSweep(ordered=begun, missing_mhz={}, attempts=1)
    effects = begin_run(job, "run 2", 1.0)
    assert {"samples/5/", "sweep/5/", "sweep/6/"} < dropped(effects)
    assert f"sweep/{first.sweep_id}/" not in dropped(effects)
    assert job.profiling.sweeps == {first.sweep_id: first}
    assert job.profiling.samples.keys() == {first.series}
    assert job.profiling.sweep is None
    assert job.profiling.is_unchecked == is_profile, "it was to be replaced, and stays"


def test_a_sweep_before_a_plan_goes_on_in_the_next_run() -> None:
    job = fleet_profiling().job
    effects = begin_run(job, "run 2", 1.0)
    assert isinstance(next(iter(job.profiling.sweeps.values())), SweepBegun)
    assert job.profiling.sweep is not None
    assert not any(prefix.startswith("sweep/") for prefix in dropped(effects))


# ---- who belongs to a run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run_id", "changes", "begins"),
    [
        ("run 1", {}, False),
        ("run 2", {}, True),
        ("", {}, True),
        ("", {"table_revision": 1}, False),
        ("", {"incarnation": 1000}, False),
        ("", {"incarnation": 7}, True),
    ],
)
def test_a_rank_that_does_not_say_its_run_is_of_the_present_one_where_its_agent_is_known_or_holds_a_plan(
    run_id: str, changes: dict[str, object], *, begins: bool
) -> None:
    fleet = Fleet()
    fleet.attach(0)
    fleet.detach(0)
    told = attach(0, **{"incarnation": 7, "run_id": run_id, **changes})
    assert bool(enter_run(fleet.job, told, 1.0)) == begins


def test_a_rank_that_does_not_say_its_run_is_of_that_of_the_attached_ones_or_of_its_samples() -> None:
    fleet = Fleet()
    fleet.attach(0)
    assert enter_run(fleet.job, attach(1, run_id="", incarnation=9), 1.0) == []
    fleet.detach(0)
    assert enter_run(fleet.job, attach(1, run_id="", incarnation=9), 1.0) != []
    fleet.job.profiling.acked_samples[1, 9] = 3
    assert enter_run(fleet.job, attach(1, run_id="", incarnation=9), 1.0) == []
    assert enter_run(fleet.job, attach(0, run_id="", incarnation=9), 1.0) != []


def test_a_run_lasts_until_its_last_rank_has_left_and_then_that_of_the_newest_attached_one_begins() -> None:
    fleet = Fleet(dp=2)
    for rank, run_id in ((0, "run 1"), (1, "run 2"), (2, "run 3")):
        fleet.run_id = run_id
        fleet.attach(rank)
    job = fleet.job
    assert job.spec is not None
    assert job.spec.run_id == "run 1"
    assert enter_run(job, attach(3, run_id="run 3"), 1.0) == [], "some ranks of it have not been seen to end"
    assert leave_run(job, 1.0) == []
    job.members.rank_of_stream.pop(fleet.stream_of[0])
    assert leave_run(job, 1.0) != []
    assert job.spec.run_id == "run 3"
    assert leave_run(job, 1.0) == []
    job.members.rank_of_stream.clear()
    assert leave_run(job, 1.0) == [], "nobody is left that a run could be of"


# ---- fingerprints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("run_id", "is_compared"), [("run 1", False), ("run 2", True), ("", True)])
def test_a_rank_is_compared_with_what_it_ran_once_in_each_run(run_id: str, *, is_compared: bool) -> None:
    job = Runs().first().job
    told = attach(0, gpu=replace(GPU, power_limit_w=300.0), workload=WORKLOAD, run_id=run_id)
    effects = know_fingerprint(job, told, 1.0)
    assert bool(effects) == is_compared
    assert (job.plan is None) == is_compared
    if is_compared:
        assert said(effects)[0] == (
            "rank 0: the power limit [W] was 400 and is 300: profile, plan and baseline begin anew"
        )
        assert job.members.fingerprints[0].run_id == run_id


def test_where_everything_is_anew_already_a_difference_is_noted_in_silence() -> None:
    job = Runs().first().job
    assert job.spec is not None
    job.spec = replace(job.spec, is_anew=True)
    told = attach(0, gpu=replace(GPU, power_limit_w=300.0), workload=WORKLOAD, run_id="run 2")
    effects = know_fingerprint(job, told, 1.0)
    assert said(effects) == []
    assert job.plan is not None
    assert job.members.fingerprints[0].fingerprint.power_limit_w == 300


def test_a_fingerprint_is_stored_where_it_says_something_new() -> None:
    job = Runs().first().job
    told = attach(0, gpu=GPU, workload=WORKLOAD, run_id="run 2")
    (stored,) = know_fingerprint(job, told, 1.0)
    assert isinstance(stored, Persist)
    (fact,) = stored.facts
    assert isinstance(fact, FingerprintKnown)
    assert fact == job.members.fingerprints[0]
    assert know_fingerprint(job, replace(told, run_id=""), 1.0) != []
    assert know_fingerprint(job, replace(told, run_id=""), 1.0) == []
    del job.members.fingerprints[0]
    assert len(know_fingerprint(job, told, 1.0)) == 1


@pytest.mark.parametrize(("rank", "pp_rank", "is_moved"), [(0, 0, False), (0, 1, True), (9, 0, True), (9, 1, True)])
def test_a_rank_that_stands_where_it_or_another_one_did_not_is_measured_anew(
    rank: int, pp_rank: int, *, is_moved: bool
) -> None:
    job = Runs().first().job
    gone = RankCoords(5, 0)  # known by stored samples alone
    job.members.places[7], job.members.rank_at[gone] = gone, 7
    told = attach(0, rank=replace(_rank(0), rank=rank, pp_rank=pp_rank), gpu=GPU, workload=WORKLOAD, run_id="run 2")
    effects = know_fingerprint(job, told, 1.0)
    expected = f"rank {rank} stands in another place: profile, plan and baseline begin anew"
    assert said(effects)[:1] == ([expected] if is_moved else [])
    assert (job.plan is None) == is_moved
    assert job.members.places.keys() == set(job.members.rank_at.values()) == ({0, 1} if is_moved else {0, 1, 7})


def test_a_rank_whose_old_place_is_taken_from_it_is_measured_anew() -> None:
    job = Runs().first().job
    del job.members.rank_at[job.members.places[0]]
    job.members.places[0] = job.members.places[1]
    assert said(know_fingerprint(job, attach(0, gpu=GPU, workload=WORKLOAD, run_id="run 2"), 1.0)) != []


@pytest.mark.parametrize(
    ("gpu", "plan", "samples", "sweeps", "is_dropped"),
    [
        ("H200", True, False, False, True),
        ("H200", False, True, False, True),
        ("H200", False, False, True, True),
        ("H200", False, False, False, False),
        ("A100", True, True, True, False),
        ("", True, True, True, False),
    ],
)
def test_what_two_models_gpus_measured_together_is_dropped(
    gpu: str, *, plan: bool, samples: bool, sweeps: bool, is_dropped: bool
) -> None:
    job = fleet_enforcing(dp=2).job
    job.plan = job.plan if plan else None
    if not samples:
        job.profiling.samples.clear()
    if not sweeps:
        job.profiling.sweeps.clear()
    other = Gpu(uuid="GPU-2", name=gpu, driver_version="550", clocks_mhz=(), control="clockd")
    told = attach(2, rank=replace(_rank(2), dp_size=2), gpu=other)
    effects = know_replicas(job, told, 1.0)
    assert bool(job.members.unlike) == (gpu == "H200")
    assert bool(effects) == is_dropped
    if is_dropped:
        assert said(effects)[0].startswith(MODELS)
        assert not job.profiling.samples
        assert "samples/" in dropped(effects)
    assert know_replicas(job, told, 1.0) == [], "it is said once"


@pytest.mark.parametrize(
    ("has_profile", "plan", "is_saved", "is_replaced"),
    [(True, False, True, True), (False, False, True, False), (True, True, True, False), (True, False, False, False)],
)
def test_a_saved_profile_of_an_earlier_run_gives_way_to_the_one_that_a_rank_brings_along(
    *, has_profile: bool, plan: bool, is_saved: bool, is_replaced: bool
) -> None:
    job = Runs().first().job
    job.plan = job.plan if plan else None
    if is_saved:
        job.profiling.samples[SAVED_PROFILE] = {}
        job.profiling.ended_series.add(SAVED_PROFILE)
    told = attach(0, gpu=GPU, workload=WORKLOAD, run_id="run 2", has_profile=has_profile)
    effects = know_fingerprint(job, told, 1.0)
    assert (dropped(effects) == {"samples/0/", "ended/0/"}) == is_replaced
    assert (SAVED_PROFILE in job.profiling.samples) == (is_saved and not is_replaced)
    assert (SAVED_PROFILE in job.profiling.ended_series) == (is_saved and not is_replaced)


def test_a_saved_profile_stays_where_the_agent_that_has_sent_it_comes_back_and_names_no_run() -> None:
    """It has been acknowledged, so that this agent does not send it again; another one does."""
    fleet = Fleet()
    fleet.run_id = ""
    first = fleet.attach(0, has_profile=True)
    rows = tuple(sample(kind, 1400, 5.0, stage=stage) for stage in (0, 1) for kind in "FB")
    fleet.say(first, ProfileSamples(sequence=1, sweep_id=SAVED_PROFILE, step=0, samples=rows, last=True))
    for incarnation, is_kept in ((1000, True), (7, False)):
        fleet.detach(0)
        fleet.attach(0, incarnation=incarnation, has_profile=True)
        assert (SAVED_PROFILE in fleet.job.profiling.samples) == is_kept
        assert any(key.startswith(f"samples/{SAVED_PROFILE}/") for key in fleet.facts) == is_kept


# ---- the target ------------------------------------------------------------------------------------------------------


def test_a_run_that_says_no_target_is_as_fast_as_without_whatever_the_run_before_wanted() -> None:
    fleet = Fleet()
    for rank in (0, 1):
        fleet.attach(rank, target=Target(slowdown=1.2))
    assert fleet.facts["target"] == TargetChosen(target=Target(slowdown=1.2), by_operator=False)
    for rank in (0, 1):
        fleet.detach(rank)
    fleet.attach(1, target=Target(slowdown=1.2))
    assert fleet.job.target == Target(slowdown=1.2), "the run is the same"
    fleet.detach(1)
    fleet.run_id = "run 2"
    fleet.attach(0, incarnation=7)
    assert fleet.job.target == T_MIN
    assert "target" not in fleet.facts, "nor after a restart of the planner"
    fleet.tell(TargetSet(target=Target(slowdown=1.3)))
    fleet.detach(0)
    fleet.run_id = "run 3"
    fleet.attach(0, incarnation=8)
    assert fleet.job.target == Target(slowdown=1.3), "an operator's holds for all runs"


@pytest.mark.parametrize("wanted", [Target(slowdown=1.4), None])
def test_ranks_of_a_run_that_came_before_the_one_before_had_left_have_said_its_target(wanted: Target | None) -> None:
    fleet = Fleet()
    fleet.attach(0, target=Target(slowdown=1.2))
    fleet.run_id = "run 2"
    fleet.attach(1, target=wanted)
    assert fleet.job.target == Target(slowdown=1.2)
    fleet.detach(0)
    assert fleet.job.target == (wanted or T_MIN)
    assert fleet.facts.get("target") == (None if wanted is None else TargetChosen(target=wanted, by_operator=False))
