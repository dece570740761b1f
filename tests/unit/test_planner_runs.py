"""Runs of a job under one name: what is kept of the run before, what begins anew, and what each is compared with."""

from dataclasses import replace

import pytest
from test_planner_lifecycle import CLOCKS_MHZ, DRIFT, Fleet, _gpu, _rank, of_type, sample, summary

from perseus_dist.fingerprint import Workload
from perseus_dist.messages.from_agent import Drift, IterationReport, ProfileSamples, ScheduleText, Telemetry
from perseus_dist.messages.from_planner import Refused, Release, ScheduleWanted, Sweep, Switch
from perseus_dist.messages.terms import NO_ITERATION, NO_POINT, Target
from perseus_dist.planner.job.facts.runs import FingerprintKnown
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.lifecycle.baseline import record_baseline
from perseus_dist.planner.lifecycle.events import JobEvent, PaceSet, PlanFailed, StragglerReported, TargetSet, Tick
from perseus_dist.planner.lifecycle.lifecycle import Phase
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planning.schedule.schedule import Schedule, format_schedule, interleaved, one_f_one_b

WORKLOAD = Workload(framework="deepspeed", microbatch_size=4, stage_parameters=(1000,))
GPU = replace(_gpu(), memory_mib=81920, default_power_limit_w=400.0, power_limit_w=400.0)
LONGER = one_f_one_b(pp=2, microbatches=3)
BASELINE = 8  # iterations: warm-up and baseline


class Runs(Fleet):
    """A job whose trainers are started again and again."""

    num_runs = 1

    def first(self) -> "Runs":
        """Through the first run's sweep, to its plan."""
        self.attach_all(gpu=GPU, workload=WORKLOAD)
        while self.job.phase is not Phase.PLANNING:
            self.iterate()
            assert self.iteration < 100
        self.plan_ready()
        return self

    def end_trainers(self) -> None:
        for rank in list(self.stream_of):
            self.detach(rank)

    def next_run(self, *, is_planner_restarted: bool = False, **changes: object) -> "Runs":
        """The trainers are started again, from iteration 0."""
        self.end_trainers()
        if is_planner_restarted:
            self.restart()
        self.begin_next_run()
        self.attach_all(**{"gpu": GPU, "workload": WORKLOAD, **changes})
        return self

    def begin_next_run(self) -> None:
        self.num_runs += 1
        self.run_id = f"run {self.num_runs}"
        self.iteration = 0
        self.reported_steps.clear()
        self.sequences.clear()

    def attach(self, rank: int, /, *, incarnation: int | None = None, **changes: object) -> int:
        number = 1000 * self.num_runs + rank if incarnation is None else incarnation
        return super().attach(rank, incarnation=number, **changes)

    def attach_with(self, schedule: Schedule, **changes: object) -> None:
        """All ranks, with another schedule."""
        for rank in range(2):
            place = replace(_rank(rank), schedule_digest=schedule.digest())
            stream = self.attach(rank, rank=place, **{"gpu": GPU, "workload": WORKLOAD, **changes})  # type: ignore[arg-type]
            if ScheduleWanted() in self.inbox[stream]:
                self.say(stream, ScheduleText(text=format_schedule(schedule)))

    def kinds(self) -> set[str]:
        """Kinds of facts that are stored."""
        return {key.split("/")[0] for key in self.facts}

    def told(self) -> list[str]:
        """Sentences on what began anew."""
        return [event.sentence for event in self.job.history.events(self.now_s) if event.kind == "anew"]


@pytest.mark.parametrize("is_planner_restarted", [False, True])
def test_the_same_work_is_under_its_plan_at_once_and_probes_measure_its_baseline(*, is_planner_restarted: bool) -> None:
    fleet = Runs().first()
    fleet.iterate(5)
    fleet.next_run(is_planner_restarted=is_planner_restarted)
    assert fleet.told() == []
    assert fleet.job.plan is not None
    assert job_status(fleet.job).baseline.num_iterations == 0
    assert fleet.phase() is Phase.WARMING_UP
    assert not of_type(fleet.sent(0), Switch), "no plan in a trainer's first iteration"
    fleet.iterate(1, energy_j=60.0)
    assert fleet.phase() is Phase.ENFORCING
    for rank, table in enumerate((b"table 0", b"table 1")):
        sent = fleet.sent(rank)
        switch = fleet.switch(rank)
        assert switch is not None
        assert sent.index(table) < sent.index(switch)
        assert switch.switch_revision > 1, "revisions never go back"
    num_planned = 0
    while not job_status(fleet.job).baseline.num_iterations:
        is_planned = fleet.order(0) != (0, NO_POINT)
        num_planned += is_planned
        fleet.iterate(1, energy_j=50.0 if is_planned else 60.0)
        assert fleet.iteration < 30
    baseline = job_status(fleet.job).baseline
    assert (baseline.num_iterations, baseline.energy_j) == (2, 120.0), "and not the first run's"
    fleet.iterate(12)
    assert job_status(fleet.job).saved_j == pytest.approx((num_planned + 12) * 20.0, rel=0.005)


@pytest.mark.parametrize(("iteration_s", "num_ahead"), [(1.0, 1), (0.1, 3)])
def test_a_trainer_whose_first_iteration_was_over_when_agents_came_is_under_its_plan_at_once(
    iteration_s: float, num_ahead: int
) -> None:
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    while fleet.job.phase is not Phase.PLANNING:
        fleet.iterate()
    fleet.plan_ready(summary(fastest_s=iteration_s))
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.iteration = 12
    fleet.attach(0, gpu=GPU, workload=WORKLOAD)
    assert fleet.phase() is Phase.REGISTERING
    fleet.iteration = 13
    fleet.attach(1, gpu=GPU, workload=WORKLOAD)
    assert fleet.phase() is Phase.ENFORCING
    for rank in range(2):
        switch = fleet.switch(rank)
        assert switch is not None
        assert switch.effective_iteration == 13 + num_ahead, "as soon as a message is there, by the plan's own time"
    fleet.iterate(12)
    assert fleet.phase() is Phase.ENFORCING


@pytest.mark.parametrize("is_planner_restarted", [False, True])
@pytest.mark.parametrize(
    ("changes", "clause"),
    [
        ({"gpu": replace(GPU, name="A40")}, "the GPU was A100 and is A40"),
        ({"gpu": replace(GPU, power_limit_w=300.0)}, "the power limit [W] was 400 and is 300"),
        (
            {"gpu": replace(GPU, clocks_mhz=CLOCKS_MHZ[1:])},
            "was 7 clocks from 1400 to 800 MHz and is 6 clocks from 1300",
        ),
        ({"workload": replace(WORKLOAD, microbatch_size=8)}, "the microbatch size was 4 and is 8"),
        ({"workload": replace(WORKLOAD, stage_parameters=(1001,))}, "the number of parameters was 1000 and is 1001"),
    ],
)
def test_other_work_is_measured_anew_and_the_field_that_differs_is_named(
    changes: dict[str, object], clause: str, *, is_planner_restarted: bool
) -> None:
    fleet = Runs().first()
    fleet.next_run(is_planner_restarted=is_planner_restarted, **changes)
    (sentence,) = fleet.told()
    assert sentence.startswith("rank 0: ")
    assert clause in sentence
    assert sentence.endswith("profile, plan and baseline begin anew")
    assert any(clause in line for line in fleet.log)
    assert fleet.job.plan is None
    assert fleet.kinds().isdisjoint({"table", "samples", "sweep", "switch", "baseline"})
    fleet.iterate(BASELINE)
    assert fleet.phase() is Phase.PROFILING
    first_sweep, sweep = 1, fleet.sweep(0)
    assert sweep is not None
    assert sweep.sweep_id > first_sweep
    fleet.iterate(40)
    fleet.plan_ready()
    switch = fleet.switch(0)
    assert switch is not None
    assert (switch.table_revision, fleet.phase()) == (2, Phase.ENFORCING)
    fleet.next_run(**changes)  # type: ignore[arg-type]
    assert fleet.told() == [sentence], "the same work again is nothing new"


def test_one_rank_on_another_gpu_than_before_is_enough() -> None:
    fleet = Runs(dp=2).first()
    fleet.end_trainers()
    fleet.begin_next_run()
    for rank in (0, 1, 2):
        fleet.attach(rank, gpu=GPU, workload=WORKLOAD)
    assert fleet.job.plan is not None
    fleet.attach(3, gpu=replace(GPU, name="A40"), workload=WORKLOAD)
    assert fleet.job.plan is None
    assert fleet.told() == ["rank 3: the GPU was A100 and is A40: profile, plan and baseline begin anew"]
    fleet.iterate(BASELINE)
    assert fleet.phase() is Phase.OBSERVING, "its replica is on an A100"


def test_ranks_that_differ_from_each_other_are_the_same_work_in_the_next_run() -> None:
    fleet = Runs()
    for _ in range(2):
        fleet.attach(0, gpu=GPU, workload=WORKLOAD)
        fleet.attach(1, gpu=replace(GPU, name="A40"), workload=WORKLOAD)
        for stream in fleet.stream_of.values():
            if ScheduleWanted() in fleet.inbox[stream]:
                fleet.say(stream, ScheduleText(text=format_schedule(one_f_one_b(pp=2, microbatches=2))))
        fleet.iterate(40)
        if fleet.phase() is Phase.PLANNING:
            fleet.plan_ready()
        assert fleet.phase() is Phase.ENFORCING
        fleet.end_trainers()
        fleet.begin_next_run()
    assert fleet.told() == []


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (3, 0, 4, 1, 5, 2)])
@pytest.mark.parametrize("odd", range(6))
def test_replicas_on_different_gpu_models_are_left_alone_until_they_are_alike(odd: int, order: tuple[int, ...]) -> None:
    fleet = Runs(dp=3)
    for is_planner_restarted in (False, True):
        for rank in order:
            fleet.attach(rank, gpu=replace(GPU, name="A40") if rank == odd else GPU, workload=WORKLOAD)
        for stream in fleet.stream_of.values():
            if ScheduleWanted() in fleet.inbox[stream]:
                fleet.say(stream, ScheduleText(text=format_schedule(one_f_one_b(pp=2, microbatches=2))))
        assert fleet.phase() is Phase.OBSERVING, "from the start"
        assert f"pp_rank {odd % 2} is on A" in fleet.job.reason
        fleet.iterate(30)
        assert fleet.phase() is Phase.OBSERVING
        assert not any(of_type(fleet.sent(rank), Sweep) or fleet.switch(rank) for rank in order)
        assert fleet.job.measured.baseline is not None
        fleet.end_trainers()
        if is_planner_restarted:
            fleet.restart()
        fleet.begin_next_run()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    fleet.iterate(40)
    assert fleet.phase() is Phase.PLANNING


@pytest.mark.parametrize("num_iterations", [0, 3])
def test_a_plan_of_two_gpu_models_that_an_earlier_planner_has_stored_is_dropped(num_iterations: int) -> None:
    fleet = Runs(dp=2).first()
    fleet.iterate(num_iterations)
    for key in ("fingerprint/2/", "fingerprint/3/"):  # as if that one had taken them in
        known = fleet.facts[key]
        assert isinstance(known, FingerprintKnown)
        fleet.facts[key] = replace(known, fingerprint=replace(known.fingerprint, gpu_name="A40"))
    fleet.restart()
    for rank in range(4):
        fleet.attach(rank, gpu=replace(GPU, name="A40") if rank > 1 else GPU, workload=WORKLOAD)
    assert fleet.job.plan is None
    if num_iterations:
        (why,) = [line for line in fleet.log if line.startswith("switch") and "A40" in line]
        assert why.endswith("profile, plan and baseline begin anew")
    assert fleet.kinds().isdisjoint({"table", "samples", "sweep", "switch"})
    assert fleet.order(0) == (0, NO_POINT)
    fleet.iterate(30)
    assert fleet.phase() is Phase.OBSERVING
    (sentence,) = fleet.told()
    assert "pp_rank 0 is on A40 in pipeline 1 and on A100 in pipeline 0" in sentence


@pytest.mark.parametrize("is_planner_restarted", [False, True])
def test_another_number_of_microbatches_keeps_the_profile_alone(*, is_planner_restarted: bool) -> None:
    fleet = Runs().first()
    fleet.end_trainers()
    if is_planner_restarted:
        fleet.restart()
    fleet.begin_next_run()
    fleet.attach_with(LONGER)
    (sentence,) = fleet.told()
    assert "the schedule was " in sentence
    assert sentence.endswith("plan and baseline begin anew, the profile is kept")
    assert fleet.job.plan is None
    fleet.iterate(BASELINE)
    assert fleet.phase() is Phase.PLANNING, "nothing is swept"
    request = fleet.requests[-1]
    assert request.schedule_text == format_schedule(LONGER)
    assert request.contributions == fleet.requests[0].contributions
    assert request.revision == 2
    fleet.plan_ready()
    fleet.iterate(2)
    assert fleet.phase() is Phase.ENFORCING
    assert job_status(fleet.job).baseline.num_iterations == 5


@pytest.mark.parametrize(
    ("framework", "free_s", "is_overlapping"),
    [
        ("torch.distributed.pipelining", 0.98, True),
        ("torch.distributed.pipelining", 1.0, False),
        ("deepspeed", 0.98, False),
    ],
)
def test_a_plan_of_before_the_baseline_is_made_again_where_iterations_overlap(
    framework: str, free_s: float, *, is_overlapping: bool
) -> None:
    workload = replace(WORKLOAD, framework=framework)
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=workload)
    while fleet.job.phase is not Phase.PLANNING:
        fleet.iterate()
    is_torch = framework == "torch.distributed.pipelining"
    assert fleet.requests[-1].full_s == (1.0 if is_torch else 0.0), "what the baseline has measured"
    fleet.plan_ready()
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.free_s = fleet.planned_s = free_s
    fleet.attach_with(LONGER, workload=workload)
    fleet.iterate(1)
    assert fleet.phase() is Phase.PLANNING
    assert fleet.requests[-1].full_s == 0.0, "no baseline yet"
    fleet.plan_ready()
    for _ in range(30):
        fleet.iterate()
        if fleet.phase() is Phase.PLANNING:
            fleet.plan_ready(replace(summary(), gained_ps=round(1e12 * (1.0 - fleet.free_s))))
    sentences = [line for line in fleet.log if "iterations that overlap" in line]
    assert len(sentences) == is_overlapping
    assert not is_overlapping or [request.full_s for request in fleet.requests] == [1.0, 0.0, free_s], "no sweep"
    fleet.restart()
    fleet.attach_with(LONGER, workload=workload)
    fleet.iterate(30)
    assert len([line for line in fleet.log if "iterations that overlap" in line]) == is_overlapping, "planned already"


def test_a_kept_profile_that_cannot_be_planned_with_is_measured_again() -> None:
    fleet = Runs().first()
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.attach_with(LONGER)
    fleet.iterate(BASELINE)
    fleet.tell(PlanFailed(request_id=fleet.requests[-1].request_id, reason="stage 0 STEP not measured"))
    assert fleet.phase() is Phase.PROFILING
    assert not [key for key in fleet.facts if key.startswith("samples/")]
    fleet.iterate(40)
    assert fleet.phase() is Phase.PLANNING
    fleet.tell(PlanFailed(request_id=fleet.requests[-1].request_id, reason="still not"))
    assert fleet.phase() is Phase.OBSERVING, "once, and not for ever"


def test_a_profile_of_other_model_chunks_is_not_kept() -> None:
    fleet = Runs().first()
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.attach_with(interleaved(pp=2, microbatches=2, chunks=2), workload=Workload())
    assert any("other model chunks" in line for line in fleet.log)
    assert not [key for key in fleet.facts if key.startswith("samples/")]
    fleet.iterate(BASELINE)
    assert fleet.phase() is Phase.PROFILING


@pytest.mark.parametrize("is_planner_restarted", [False, True])
def test_ranks_that_change_places_between_runs_are_measured_anew(*, is_planner_restarted: bool) -> None:
    fleet = Runs(dp=2).first()
    fleet.end_trainers()
    if is_planner_restarted:
        fleet.restart()
    fleet.begin_next_run()
    places = {0: (0, 0), 1: (0, 1), 2: (1, 0), 3: (1, 1)}  # pipelines side by side instead of one after the other
    for rank, (pp_rank, dp_rank) in places.items():
        place = replace(_rank(rank), dp_size=2, pp_rank=pp_rank, dp_rank=dp_rank)
        fleet.attach(rank, rank=place, gpu=GPU, workload=WORKLOAD)
    assert fleet.job.num_attached == 4
    assert fleet.told() == ["rank 1 stands in another place: profile, plan and baseline begin anew"]
    fleet.iterate(BASELINE)
    assert fleet.phase() is Phase.PROFILING
    fleet.iterate(30)
    assert sorted(one.pp_rank for one in fleet.requests[-1].contributions) == [0, 0, 1, 1]


def test_unknown_fields_keep_everything_and_what_was_known_is_remembered() -> None:
    fleet = Runs().first()
    unknown = replace(GPU, name="", memory_mib=0, default_power_limit_w=0.0, power_limit_w=0.0)
    fleet.next_run(gpu=unknown, workload=Workload())
    fleet.iterate(BASELINE)
    assert fleet.phase() is Phase.ENFORCING
    fleet.next_run(is_planner_restarted=True, gpu=replace(GPU, name="A40"))
    assert fleet.told()[0].startswith("rank 0: the GPU was A100 and is A40")


def test_within_a_run_an_agent_that_comes_back_is_not_compared() -> None:
    """A power cap in mid-run is a straggler's, also if the agent is started again under it."""
    fleet = Runs().first()
    fleet.iterate(3)
    fleet.detach(1)
    fleet.attach(1, incarnation=77, gpu=replace(GPU, power_limit_w=250.0), workload=WORKLOAD)
    assert fleet.told() == []
    assert fleet.phase() is Phase.ENFORCING
    fleet.next_run(gpu=GPU)
    assert fleet.told() == [], "nor is it kept"


@pytest.mark.parametrize("begun", [NO_ITERATION, 0, 30])
def test_a_run_that_begins_as_the_last_rank_of_the_one_before_leaves_is_where_its_own_ranks_are(begun: int) -> None:
    fleet = Runs().first()
    fleet.iterate(2000)
    fleet.detach(0)
    lingering = fleet.stream_of.pop(1)
    fleet.begin_next_run()
    fleet.attach(0, gpu=GPU, workload=WORKLOAD, iteration=NO_ITERATION)
    if begun != NO_ITERATION:
        fleet.say(fleet.stream_of[0], Telemetry(sequence=1, iteration=begun, control="clockd"))
    fleet.stream_of[1] = lingering
    fleet.detach(1)
    assert fleet.job.spec is not None
    assert (fleet.job.spec.run_id, fleet.job.progress.iteration) == ("run 2", begun)
    fleet.attach(1, gpu=GPU, workload=WORKLOAD, iteration=begun)
    fleet.iteration = max(begun, 0)
    fleet.iterate(5)
    switch = fleet.switch(0)
    assert switch is not None
    assert fleet.phase() is Phase.ENFORCING
    assert switch.effective_iteration <= fleet.iteration


def test_a_rank_of_the_run_before_that_reconnects_beside_the_next_runs_ranks_says_nothing_of_where_they_are() -> None:
    fleet = Runs().first()
    fleet.iterate(2000)
    ahead = fleet.iteration
    fleet.restart()
    fleet.begin_next_run()
    fleet.attach(0, gpu=GPU, workload=WORKLOAD, iteration=NO_ITERATION)
    stream = fleet.attach(1, incarnation=1001, gpu=GPU, workload=WORKLOAD, iteration=ahead, run_id="run 1")
    report = IterationReport(iteration=ahead, time_s=9.0, pipeline_time_s=9.0, energy_j=50.0)
    fleet.say(stream, Telemetry(sequence=1, iteration=ahead + 1, iterations=(report,), control="clockd"))
    assert (fleet.job.progress.iteration, fleet.job.progress.pipelines[0].time_s) == (NO_ITERATION, 0.0)
    fleet.detach(1)
    fleet.attach(1, gpu=GPU, workload=WORKLOAD, iteration=NO_ITERATION)
    fleet.iterate(10)
    switch = fleet.switch(0)
    assert switch is not None
    assert (fleet.job.progress.iteration, switch.effective_iteration) == (10, 2)


def test_a_rank_of_the_run_before_that_is_behind_the_next_runs_ranks_does_not_move_them_back() -> None:
    fleet = Runs().first()
    behind = fleet.iteration
    fleet.next_run()
    fleet.iterate(400)
    before = job_status(fleet.job)
    fleet.detach(1)
    num_told = len(fleet.inbox[fleet.stream_of[0]])
    stream = fleet.attach(1, incarnation=1001, gpu=GPU, workload=WORKLOAD, iteration=behind, run_id="run 1")
    report = IterationReport(iteration=behind, time_s=9.0, pipeline_time_s=9.0, energy_j=50.0)
    fleet.say(stream, Telemetry(sequence=1, iteration=behind + 1, iterations=(report,), control="clockd"))
    assert (fleet.job.progress.iteration, fleet.job.progress.pipelines[0].time_s) == (400, 1.0)
    assert fleet.inbox[fleet.stream_of[0]][num_told:] == []
    fleet.detach(1)
    fleet.attach(1, gpu=GPU, workload=WORKLOAD)
    fleet.iterate(10)
    assert (fleet.phase(), job_status(fleet.job).baseline) == (Phase.ENFORCING, before.baseline)


@pytest.mark.parametrize("is_planner_restarted", [False, True])
def test_a_rank_of_the_run_before_that_is_alone_for_a_while_begins_no_run(*, is_planner_restarted: bool) -> None:
    fleet = Runs().first()
    behind = fleet.iteration
    fleet.next_run(target=Target(slowdown=1.1))
    fleet.iterate(400)
    before = job_status(fleet.job)
    assert before.baseline.num_iterations
    fleet.detach(1)
    if is_planner_restarted:
        fleet.restart()
    stray = {"gpu": GPU, "workload": WORKLOAD, "iteration": behind, "run_id": "run 1", "target": Target(slowdown=1.3)}
    stream = fleet.attach(1, incarnation=1001, **stray)
    if not is_planner_restarted:
        fleet.detach(0)
    report = IterationReport(iteration=behind, time_s=9.0, pipeline_time_s=9.0, energy_j=50.0)
    fleet.say(stream, Telemetry(sequence=1, iteration=behind + 1, iterations=(report,), control="clockd"))
    fleet.attach(0, gpu=GPU, workload=WORKLOAD, target=Target(slowdown=1.1))
    fleet.detach(1)
    fleet.attach(1, gpu=GPU, workload=WORKLOAD, target=Target(slowdown=1.1))
    assert fleet.job.spec is not None
    assert (fleet.job.spec.run_id, fleet.job.progress.iteration) == ("run 2", 400)
    assert (job_status(fleet.job).baseline, fleet.job.target) == (before.baseline, Target(slowdown=1.1))
    fleet.iterate(10)
    assert fleet.phase() is Phase.ENFORCING


@pytest.mark.parametrize("is_over", [False, True])
def test_a_rank_of_an_earlier_run_of_another_schedule_waits_until_the_present_run_is_over(*, is_over: bool) -> None:
    """Whose planner has just been restarted, so that none of its ranks is there."""
    fleet = Runs().first()
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.attach_with(LONGER)
    fleet.restart()
    before = (dict(fleet.facts), fleet.phase())
    if is_over:
        fleet.now_s += 1.0
        fleet.tell(Tick())
        fleet.now_s += fleet.job.policy.gone_s + 1.0
        fleet.tell(Tick())
        assert fleet.phase() is Phase.DONE
    stream = fleet.attach(1, incarnation=1001, gpu=GPU, workload=WORKLOAD, iteration=20, run_id="run 1")
    assert fleet.job.spec is not None
    if is_over:
        assert fleet.job.spec.run_id == "run 1"
        return
    (refused,) = fleet.inbox[stream]
    assert isinstance(refused, Refused)
    assert refused.retry
    assert "of an earlier run of this job" in refused.reason
    assert (fleet.facts, fleet.phase()) == before
    fleet.attach_with(LONGER)
    assert fleet.job.num_attached == 2
    assert fleet.job.spec.run_id == "run 2"


def test_a_run_whose_ranks_are_most_of_the_job_begins_although_another_one_followed_it() -> None:
    fleet = Runs(dp=2).first()
    fleet.iterate(50)
    fleet.next_run()
    fleet.iterate(400)
    fleet.restart()

    def runs() -> tuple[str, tuple[str, ...]]:
        assert fleet.job.spec is not None
        return fleet.job.spec.run_id, fleet.job.spec.earlier_runs

    for rank in range(3):
        assert runs() == ("run 2", ("run 1",))
        fleet.attach(rank, incarnation=1000 + rank, gpu=GPU, workload=WORKLOAD, iteration=72, run_id="run 1")
    assert (fleet.job.progress.iteration, runs()) == (72, ("run 1", ("run 2",)))
    fleet.detach(2)
    fleet.attach(2, gpu=GPU, workload=WORKLOAD)
    for rank in (0, 1):
        fleet.detach(rank)
    assert runs() == ("run 1", ("run 2",)), "nor does a single rank of run 2 begin that again"
    fleet.attach(3, gpu=GPU, workload=WORKLOAD, run_id="run 3")
    assert runs() == ("run 3", ("run 2", "run 1"))


def test_trainers_that_are_started_again_one_by_one_are_where_the_new_ones_are() -> None:
    fleet = Runs(dp=2).first()
    fleet.iterate(2000)
    old = fleet.stream_of
    fleet.begin_next_run()
    fleet.stream_of = {}
    for rank in range(4):
        fleet.stream_of, new = old, fleet.stream_of
        fleet.detach(rank)
        fleet.stream_of = new
        fleet.attach(rank, gpu=GPU, workload=WORKLOAD, iteration=NO_ITERATION if rank < 2 else 0)
        assert fleet.job.spec is not None
        assert fleet.job.spec.run_id == ("run 2" if rank == 3 else "run 1")
    fleet.iterate(5)
    switch = fleet.switch(0)
    assert switch is not None
    assert (fleet.job.progress.iteration, fleet.phase()) == (5, Phase.ENFORCING)
    assert switch.effective_iteration <= fleet.iteration


def test_a_run_of_which_a_rank_lingers_ends_with_it() -> None:
    fleet = Runs().first()
    fleet.iterate(3)
    baseline = job_status(fleet.job).baseline
    fleet.detach(0)
    lingering = fleet.stream_of.pop(1)
    fleet.begin_next_run()
    fleet.attach(0, gpu=GPU, workload=WORKLOAD)
    assert job_status(fleet.job).baseline == baseline
    fleet.stream_of[1] = lingering
    fleet.detach(1)
    assert job_status(fleet.job).baseline.num_iterations == 0
    switch = fleet.switch(0)
    assert switch is not None
    assert switch.point == NO_POINT, "it is released, as the other run's"
    assert "a run begins: the plan of the run before is kept" in fleet.log[-2], "and this is why"
    fleet.attach(1, gpu=GPU, workload=WORKLOAD)
    fleet.iterate(1)
    assert fleet.phase() is Phase.ENFORCING
    fleet.iterate(16)
    assert job_status(fleet.job).baseline.num_iterations == 2


def test_trainers_that_do_not_say_their_run_are_told_by_their_agents() -> None:
    fleet = Runs()
    fleet.run_id = ""
    fleet.first()
    fleet.restart()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)  # the same agents
    assert fleet.phase() is Phase.ENFORCING
    assert job_status(fleet.job).baseline.num_iterations == 5
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.run_id = ""
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    assert fleet.phase() is Phase.WARMING_UP
    assert job_status(fleet.job).baseline.num_iterations == 0


def test_a_plan_waits_no_longer_for_a_baseline_that_does_not_come() -> None:
    fleet = Runs().first()
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.attach(0, gpu=GPU, workload=WORKLOAD)  # the other rank's agent never comes
    fleet.iterate(20)
    assert fleet.phase() is Phase.REGISTERING
    fleet.iterate(12)
    assert fleet.phase() is Phase.ENFORCING
    assert b"table 0" in fleet.sent(0)
    assert fleet.switch(0) is not None
    assert job_status(fleet.job).baseline.num_iterations == 0
    fleet.attach(1, gpu=replace(GPU, name="A40"), workload=WORKLOAD)
    assert fleet.job.plan is None
    released = fleet.switch(0)
    assert released is not None
    assert released.point == NO_POINT
    fleet.iterate(BASELINE + 1)
    assert fleet.phase() is Phase.PROFILING


def test_a_sweep_that_was_under_way_goes_on_behind_the_next_runs_baseline() -> None:
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    fleet.iterate(BASELINE + 8)  # some of its clocks
    num_samples = len([key for key in fleet.facts if key.startswith("samples/")])
    assert fleet.phase() is Phase.PROFILING
    assert num_samples > 0
    fleet.next_run()
    assert fleet.sweep(0) is None
    fleet.iterate(BASELINE)
    sweep = fleet.sweep(0)
    assert fleet.phase() is Phase.PROFILING
    assert sweep is not None
    assert 0 < len(sweep.clocks_mhz) < 4
    fleet.iterate(30)
    assert fleet.phase() is Phase.PLANNING
    assert [len(one.samples) for one in fleet.requests[-1].contributions] == [8, 8]


@pytest.mark.parametrize("is_planner_restarted", [False, True])
def test_a_sweep_beside_a_plan_ends_with_the_run_that_gave_cause_to_it(*, is_planner_restarted: bool) -> None:
    fleet = Runs().first()
    _drift(fleet)
    fleet.iterate(6)
    assert fleet.phase() is Phase.REPROFILING
    assert [key for key in fleet.facts if key.startswith("samples/2/")]
    fleet.next_run(is_planner_restarted=is_planner_restarted)
    assert not [key for key in fleet.facts if key.startswith(("samples/2/", "sweep/2/"))]
    assert [key for key in fleet.facts if key.startswith("samples/1/")]
    assert fleet.job.profiling.is_unchecked, "the profile that was to be replaced may have a step"
    fleet.iterate(BASELINE)
    assert fleet.phase() is Phase.ENFORCING
    _drift(fleet)
    sweep = fleet.sweep(0)
    assert sweep is not None
    assert (fleet.phase(), sweep.sweep_id) == (Phase.REPROFILING, 3)


def test_a_saved_profile_of_this_run_replaces_that_of_an_earlier_one() -> None:
    fleet = Runs()
    for microbatches, energy_j in ((2, 7.0), (3, 9.0)):
        fleet.attach_with(one_f_one_b(pp=2, microbatches=microbatches), has_profile=True)
        rows = tuple(
            sample(kind, clock, energy_j, stage=stage) for stage in (0, 1) for kind in "FB" for clock in (1400, 800)
        )
        told = ProfileSamples(sequence=1, sweep_id=0, step=0, samples=rows, blocking_power_w=80.0, last=True)
        fleet.say(fleet.stream_of[0], told)
        fleet.iterate(BASELINE)
        assert fleet.phase() is Phase.PLANNING
        (contribution,) = fleet.requests[-1].contributions
        assert {one.energy_j for one in contribution.samples} == {energy_j}
        fleet.plan_ready()
        fleet.end_trainers()
        fleet.begin_next_run()


def test_a_saved_profile_that_is_there_before_the_other_ranks_is_not_lost_to_their_fingerprints() -> None:
    fleet = Runs().first()
    fleet.end_trainers()
    fleet.begin_next_run()
    other = replace(GPU, name="A40")
    fleet.attach(0, gpu=other, workload=WORKLOAD, has_profile=True)
    rows = tuple(sample(kind, clock, 7.0, stage=stage) for stage in (0, 1) for kind in "FB" for clock in (1400, 800))
    told = ProfileSamples(sequence=1, sweep_id=0, step=0, samples=rows, blocking_power_w=80.0, last=True)
    fleet.say(fleet.stream_of[0], told)
    fleet.restart()
    fleet.attach(0, gpu=other, workload=WORKLOAD, has_profile=True)
    fleet.attach(1, gpu=other, workload=WORKLOAD)
    fleet.iterate(BASELINE)
    assert fleet.phase() is Phase.PLANNING
    fleet.plan_ready()
    fleet.next_run(gpu=GPU)
    assert [sentence[:6] for sentence in fleet.told()] == ["rank 0"], "the next run is compared again"
    assert fleet.job.plan is None


def test_a_saved_profile_that_was_dropped_is_not_waited_for() -> None:
    """It came while a rank of the run before lingered; with the next run's first ranks all is compared again."""
    fleet = Runs().first()
    fleet.detach(0)
    lingering = fleet.stream_of.pop(1)
    fleet.begin_next_run()
    other = replace(GPU, name="A40")
    fleet.attach(0, gpu=other, workload=WORKLOAD, has_profile=True)
    rows = tuple(sample(kind, clock, 7.0, stage=stage) for stage in (0, 1) for kind in "FB" for clock in (1400, 800))
    told = ProfileSamples(sequence=1, sweep_id=0, step=0, samples=rows, blocking_power_w=80.0, last=True)
    fleet.say(fleet.stream_of[0], told)
    fleet.stream_of[1] = lingering
    fleet.detach(1)
    fleet.attach(1, gpu=other, workload=WORKLOAD)
    fleet.iterate(BASELINE + 1)
    assert fleet.phase() in (Phase.PLANNING, Phase.PROFILING)


# ---- drift -----------------------------------------------------------------------------------------------------------


def test_a_profile_that_is_far_wrong_on_agreeing_ranks_drops_the_plan_at_once() -> None:
    fleet = Runs(dp=2).first()
    fleet.iterate(2)
    fleet.say(fleet.stream_of[0], DRIFT)
    assert fleet.phase() is Phase.ENFORCING, "one alone may be one slow GPU"
    fleet.say(fleet.stream_of[2], DRIFT)
    assert fleet.phase() is Phase.REPROFILING
    for rank in range(4):
        switch = fleet.switch(rank)
        assert switch is not None
        assert switch.point == NO_POINT
    assert any("times of pp_rank 0 have left the profile by 100 % on 2 ranks" in line for line in fleet.log)
    sweeps = [fleet.sweep(rank) for rank in range(4)]
    assert [sweep.sweep_id for sweep in sweeps if sweep] == [2] * 4, "one sweep of all lasts no longer"


def test_a_replica_that_is_away_has_not_left_the_profile() -> None:
    """A lost message costs an agent its stream for a moment: the other's times, of a slow GPU, were swept alone."""
    fleet = Runs(dp=2).first()
    fleet.iterate(2)
    fleet.say(fleet.stream_of[0], DRIFT)
    fleet.detach(2)
    fleet.iterate(7)
    assert fleet.phase() is Phase.ENFORCING
    fleet.attach(2)
    fleet.iterate(2)
    assert fleet.phase() is Phase.ENFORCING
    fleet.say(fleet.stream_of[2], DRIFT)
    assert fleet.phase() is Phase.REPROFILING


def test_the_lock_out_of_one_run_does_not_reach_the_next() -> None:
    fleet = Runs().first()
    _drift(fleet)
    assert fleet.phase() is Phase.REPROFILING
    fleet.iterate(40)
    fleet.plan_ready()
    assert fleet.phase() is Phase.ENFORCING
    assert fleet.job.profiling.reprofiled_at_s is not None
    fleet.next_run()
    fleet.iterate(BASELINE + 1)
    assert fleet.phase() is Phase.ENFORCING
    _drift(fleet)
    assert fleet.phase() is Phase.REPROFILING


def test_what_a_run_takes_before_its_sweep_goes_on_is_a_reference_for_the_guard() -> None:
    fleet = Runs()
    fleet.to_profiling()
    fleet.next_run()
    while fleet.phase() is not Phase.PROFILING:
        assert fleet.job.profiling.sweep is not None
        fleet.iterate()
    assert fleet.job.enforcement.guard.guard.reference_s == 1.0


def test_a_profile_that_is_soon_wrong_again_is_released_and_measured_when_the_guard_says_so() -> None:
    fleet = Runs().first()
    _drift(fleet)
    fleet.iterate(40)
    fleet.plan_ready()
    fleet.iterate(2)
    _drift(fleet)
    assert fleet.phase() is Phase.RELEASED
    assert job_status(fleet.job).guard.falls == 2, "the plan that was swept again at once counts, too"
    fleet.iterate(8)
    assert fleet.phase() is Phase.REPROFILING


@pytest.mark.parametrize(
    "event",
    [
        PaceSet(slowdown=1.2, budget="hall", holds_probes=False, reason="budget hall gives the job 100 W"),
        TargetSet(target=Target(slowdown=1.15)),
        StragglerReported(straggler_id="s", degree=1.3, dp_rank=1),
    ],
)
def test_a_plan_that_was_dropped_stays_so_during_the_sweep_that_replaces_it(event: JobEvent) -> None:
    fleet = Runs(dp=2).first()
    fleet.iterate(3)
    _drift(fleet)
    fleet.tell(event)
    fleet.iterate(1)
    assert fleet.phase() is Phase.REPROFILING
    assert [fleet.order(rank) for rank in range(4)] == [(0, NO_POINT)] * 4
    fleet.iterate(40)
    fleet.plan_ready()
    assert fleet.phase() is Phase.ENFORCING
    assert fleet.job.point(0) > 0, "what was asked for meanwhile counts from the next plan on"


def test_a_plan_that_is_dropped_leaves_what_the_guard_has_seen_of_it() -> None:
    fleet = Runs().first()
    fleet.time_ratios = {0: 1.02, 1: 1.10}
    fleet.iterate(40)
    watch, slower = fleet.job.enforcement.guard, fleet.job.enforcement.guard.slower
    assert slower.keys() == {1}
    fleet.job.profiling.reprofiled_at_s = fleet.now_s  # too soon for another sweep
    _drift(fleet)
    assert (fleet.phase(), fleet.order(0)) == (Phase.RELEASED, (0, NO_POINT))
    assert (watch.slower_then, watch.was_as_profiled, watch.kept_share) == (slower, False, 1.0)


def test_a_plan_that_is_dropped_before_an_iteration_is_known_is_swept_anew_at_once() -> None:
    fleet = Runs().first()
    fleet.iterate(5)
    fleet.next_run()
    fleet.iterate(1)
    _restart_planner(fleet, table_revision=1)
    _drift(fleet)
    assert [fleet.order(rank) for rank in range(2)] == [(0, NO_POINT)] * 2
    sweep = fleet.sweep(0)
    assert sweep is not None
    assert (fleet.phase(), sweep.sweep_id) == (Phase.REPROFILING, 2)
    fleet.iterate(30)
    assert fleet.phase() is Phase.PLANNING


@pytest.mark.parametrize("has_plan", [True, False])
def test_a_sweep_goes_on_at_a_planner_that_restarts_before_an_iteration_of_the_run_is_known(*, has_plan: bool) -> None:
    fleet = Runs()
    if has_plan:
        fleet.first()
        fleet.iterate(5)
    else:
        fleet.attach_all(gpu=GPU, workload=WORKLOAD)
        fleet.iterate(BASELINE + 1)
        assert fleet.phase() is Phase.PROFILING
    fleet.next_run()
    fleet.iterate(1)
    if has_plan:
        _drift(fleet)
    assert fleet.job.measured.baseline is None
    _restart_planner(fleet, apart_s=4.0)
    for stream in fleet.stream_of.values():  # long iterations: none is over yet
        fleet.say(stream, Telemetry(sequence=2, iteration=fleet.iteration, control="clockd"))
    fleet.tell(Tick())
    assert fleet.phase() is (Phase.REPROFILING if has_plan else Phase.WARMING_UP)
    fleet.iterate(40)
    assert fleet.phase() is Phase.PLANNING
    assert fleet.job.profiling.sweep_id == (3 if has_plan else 2)
    baseline = fleet.job.measured.baseline
    assert baseline is not None
    assert baseline.is_probed == has_plan, "a run without a plan measures its own first"


def _restart_planner(fleet: Runs, *, apart_s: float = 0.0, **changes: object) -> None:
    """The planner starts again, and the same agents come back one by one."""
    incarnations = {rank: fleet.job.members.ranks[rank].incarnation for rank in fleet.stream_of}
    fleet.restart()
    for rank, incarnation in incarnations.items():
        fleet.attach(rank, incarnation=incarnation, **{"gpu": GPU, "workload": WORKLOAD, **changes})
        for _ in range(int(apart_s)):
            fleet.now_s += 1.0
            fleet.tell(Tick())


def _drift(fleet: Fleet, drift: Drift = DRIFT) -> None:
    for stream in list(fleet.stream_of.values()):
        fleet.say(stream, drift)


# ---- what counts -----------------------------------------------------------------------------------------------------


def _report(fleet: Fleet, *, times_s: tuple[float, ...], is_live: bool = True, energy_j: float = 50.0) -> None:
    """An iteration of each length, of all ranks."""
    for time_s in times_s:
        fleet.now_s += 1.0
        for stream in fleet.stream_of.values():
            report = IterationReport(
                iteration=fleet.iteration, time_s=time_s, pipeline_time_s=time_s, energy_j=energy_j, is_live=is_live
            )
            fleet.say(stream, Telemetry(sequence=fleet.iteration + 1, iterations=(report,), control="clockd"))
        fleet.iteration += 1
        fleet.tell(Tick())


def test_what_was_not_seen_live_is_in_no_average() -> None:
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    _report(fleet, times_s=(0.0,) * 4, energy_j=0.0)  # as of an agent that does not mark them
    _report(fleet, times_s=(30.0, 0.001, 0.001, 0.001), is_live=False, energy_j=0.0)
    assert fleet.job.progress.iteration == 8, "training is that far"
    assert fleet.job.measured.num_warm == 0
    assert not fleet.job.progress.recent_times_s
    assert job_status(fleet.job).guard.reference_s == 0
    fleet.iterate(BASELINE)
    baseline = job_status(fleet.job).baseline
    assert (baseline.num_iterations, baseline.time_s, baseline.energy_j) == (5, 1.0, 100.0)


def test_an_iteration_that_one_rank_did_not_see_live_is_in_no_average() -> None:
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    for rank, is_live in ((0, True), (1, False)):
        report = IterationReport(iteration=0, time_s=1.0, pipeline_time_s=1.0, energy_j=5.0, is_live=is_live)
        fleet.say(fleet.stream_of[rank], Telemetry(sequence=1, iterations=(report,), control="clockd"))
    assert fleet.job.measured.num_warm == 0


def test_a_wide_baseline_is_measured_again_and_taken_as_it_is_in_the_end() -> None:
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    _report(fleet, times_s=(9.0,) * 3 + (1.0, 1.3, 1.0, 1.3, 1.0))
    assert job_status(fleet.job).baseline.num_iterations == 0
    _report(fleet, times_s=(1.0,) * 4)
    baseline = job_status(fleet.job).baseline
    assert (baseline.num_iterations, baseline.time_s, baseline.time_spread_s) == (5, 1.0, 0.0)

    noisy = Runs()
    noisy.attach_all(gpu=GPU, workload=WORKLOAD)
    _report(noisy, times_s=(9.0,) * 3 + (1.0, 1.3) * 4 + (1.0,))
    assert job_status(noisy.job).baseline.num_iterations == 0
    _report(noisy, times_s=(1.3,))
    baseline = job_status(noisy.job).baseline
    assert baseline.num_iterations == 10
    assert baseline.time_spread_s > 0.05 * baseline.time_s


def test_a_baseline_that_a_slow_gpu_made_slow_is_replaced_by_that_of_probes() -> None:
    fleet = Runs().first()
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    _report(fleet, times_s=(1.5,) * BASELINE, energy_j=70.0)
    assert job_status(fleet.job).baseline.time_s == 1.5
    fleet.iterate(4, energy_j=40.0)  # the GPU is well again
    assert job_status(fleet.job).saved_j < 4 * (140 - 80) / 10, "such a baseline is not compared with"
    _report(fleet, times_s=(1.0,) * 3)  # a probe
    baseline = job_status(fleet.job).baseline
    assert (baseline.num_iterations, baseline.time_s, baseline.energy_j) == (2, 1.0, 100.0)
    fleet.iterate(8, energy_j=40.0)
    assert job_status(fleet.job).saved_j == pytest.approx(12 * (100 - 80), abs=1), (
        "counted again against the true baseline"
    )
    _report(fleet, times_s=(1.6,) * 3, energy_j=90.0)
    assert job_status(fleet.job).baseline == baseline, "none becomes slower"
    fleet.restart()
    assert job_status(fleet.job).baseline == baseline


def test_a_baseline_that_a_slow_gpu_made_slow_is_replaced_by_full_clocks_before_the_plan() -> None:
    """It recovers while the highest clock is measured; the job may end before the first probe."""
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    _report(fleet, times_s=(1.0, 1.6, 1.6) * 3)
    assert job_status(fleet.job).baseline.time_s == 1.6
    while fleet.job.phase is not Phase.PLANNING:
        fleet.iterate()
    fleet.plan_ready()
    _report(fleet, times_s=(1.0,))
    assert job_status(fleet.job).baseline.time_s == 1.0


def test_the_fastest_two_of_many_noisy_iterations_are_no_baseline() -> None:
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    _report(fleet, times_s=(0.998, 1.013, 0.983, 1.003, 1.006, 1.014, 1.0, 1.006))
    while fleet.job.phase is not Phase.PLANNING:
        fleet.iterate()
    before = job_status(fleet.job).baseline
    _report(fleet, times_s=(1.015, 0.998, 0.995, 1.001, 0.992, 0.999, 1.003, 1.012, 0.996, 0.989, 1.003, 0.996, 1.0))
    _report(fleet, times_s=(1.019, 0.997, 1.004, 0.996, 0.991, 1.0, 0.998, 0.967, 0.995, 0.986, 1.007, 0.973))
    assert job_status(fleet.job).baseline == before


def test_a_baseline_of_rough_energies_takes_that_of_more_iterations() -> None:
    fleet = Runs()
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    for energy_j in (50.0,) * 3 + (40.0, 60.0, 44.0, 56.0, 45.0):
        _report(fleet, times_s=(1.0,), energy_j=energy_j)
    rough = job_status(fleet.job).baseline
    assert (rough.num_iterations, rough.energy_j) == (5, 2 * 49.0)
    fleet.job.measured.saving.begin(FullClocks(time_s=1.001, energy_j=100.5, num_iterations=16, weight=256.0))
    assert record_baseline(fleet.job) != []
    assert record_baseline(fleet.job) == []
    baseline = job_status(fleet.job).baseline
    assert (baseline.num_iterations, baseline.energy_j, baseline.time_s) == (16, 100.5, rough.time_s)


def test_a_run_without_a_baseline_takes_that_of_its_probes() -> None:
    fleet = Runs().first()
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.attach(0, gpu=GPU, workload=WORKLOAD)
    fleet.iterate(40)
    assert fleet.phase() is Phase.ENFORCING
    fleet.attach(1, gpu=GPU, workload=WORKLOAD)
    fleet.iterate(2)
    assert job_status(fleet.job).baseline.num_iterations == 0
    _report(fleet, times_s=(1.0,) * 3)
    fleet.iterate(1)
    assert job_status(fleet.job).baseline.num_iterations == 2
    fleet.iterate(2)
    _report(fleet, times_s=(1.0,) * 3)
    fleet.iterate(1)
    assert job_status(fleet.job).baseline.num_iterations == 4, "more of the same make it better"


def test_joules_saved_outlive_the_planner_and_not_the_run() -> None:
    fleet = Runs().first()
    fleet.iterate(6, energy_j=40.0)
    saved_j = job_status(fleet.job).saved_j
    assert saved_j == pytest.approx(6 * 20.0)
    fleet.end_trainers()
    fleet.now_s += 1000
    fleet.tell(Tick())
    assert fleet.phase() is Phase.DONE
    fleet.restart()
    assert job_status(fleet.job).saved_j == saved_j
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    assert job_status(fleet.job).saved_j == saved_j
    fleet.next_run()
    assert job_status(fleet.job).saved_j == 0


def test_an_iteration_under_the_plan_before_the_last_switch_is_saved_too() -> None:
    fleet = Runs().first()
    before = fleet.switch(0)
    assert before is not None
    fleet.iterate(1, energy_j=40.0)
    _drift(fleet)  # the plan is dropped; reports of an iteration that still followed it arrive now
    for stream in fleet.stream_of.values():
        late = IterationReport(
            iteration=fleet.iteration,
            time_s=1.0,
            pipeline_time_s=0.9,
            energy_j=40.0,
            table_revision=before.table_revision,
            point=before.point,
        )
        fleet.say(stream, Telemetry(sequence=fleet.iteration + 1, iterations=(late,), control="clockd"))
    assert job_status(fleet.job).saved_j == pytest.approx(2 * 20.0)


def test_fingerprints_are_stored_once_for_each_rank_and_run() -> None:
    fleet = Runs().first()
    known = [fact for fact in fleet.facts.values() if isinstance(fact, FingerprintKnown)]
    assert [(fact.rank, fact.run_id, fact.fingerprint.gpu_name) for fact in known] == [
        (0, "run 1", "A100"),
        (1, "run 1", "A100"),
    ]
    fleet.restart()
    before = dict(fleet.facts)
    fleet.attach_all(gpu=GPU, workload=WORKLOAD)
    assert {key: fact for key, fact in fleet.facts.items() if key.startswith("fingerprint/")} == {
        key: fact for key, fact in before.items() if key.startswith("fingerprint/")
    }
    assert not of_type(fleet.sent(0), Release)
