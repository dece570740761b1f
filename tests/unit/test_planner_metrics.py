"""The planner's metrics: values of a job, how many series that takes at most, and jobs that come and go."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
from metrics_text import page_samples
from test_planner_budgets import HALL, demand
from test_planner_lifecycle import Fleet

from perseus_dist.messages.from_agent import GpuSample
from perseus_dist.messages.terms import Target
from perseus_dist.planner.budget.price_follower import PricedJob
from perseus_dist.planner.budget.price_policies import PriceState
from perseus_dist.planner.budget.sharing import BudgetState, share_budget
from perseus_dist.planner.job.facts.decisions import StragglerKnown, SwitchDecided, TargetChosen
from perseus_dist.planner.job.facts.policies import PricePolicySet
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.durations import DurationHistogram
from perseus_dist.planner.job.state.progress import Pipeline
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.metrics import catalogue, collector
from perseus_dist.planner.metrics.catalogue import ALL, JOB, Kind
from perseus_dist.planner.metrics.job_series import add_job
from perseus_dist.planner.metrics.page import Page
from perseus_dist.planner.metrics.straggler_series import MAX_PIPELINES
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.web.views.fleet import fleet_row
from perseus_dist.straggler.verdicts.causes import Cause
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict

MAX_SERIES = 300  # of a job


def verdict(rank: int, degree: float, *, is_acted_upon: bool) -> Verdict:
    return Verdict(
        rank=rank,
        pp_rank=0,
        dp_rank=rank,
        degree=Degree(value=degree, low=degree, high=degree),
        pipeline_degree=None,
        cause=Cause.THERMAL,
        since_s=1.0,
        is_whole_pipeline=False,
        is_predicted=False,
        is_flapping=not is_acted_upon,
        is_acted_upon=is_acted_upon,
        at_s=2.0,
    )


def shown(page: Page) -> dict[tuple[str, ...], float]:
    return {(one.name, *one.labels.values()): one.value for one in page_samples(page)}


def samples(*jobs: Job) -> dict[tuple[str, ...], float]:
    page = Page()
    for job in jobs:
        add_job(page, job)
    return shown(page)


def collected(
    *jobs: Job, budgets: Sequence[BudgetState] = (), prices: Sequence[PriceState] = ()
) -> dict[tuple[str, ...], float]:
    planner = SimpleNamespace(
        counters=Counters(),
        num_streams=0,
        all=lambda: [SimpleNamespace(job=job) for job in jobs],
        budgets=SimpleNamespace(states=budgets, prices=SimpleNamespace(states=prices)),
        shared_planning=None,
        ownership=SimpleNamespace(num_owned=3, num_takeovers=2, num_losses=1),
    )
    return shown(asyncio.run(collector.collect_page(planner, SimpleNamespace(trouble=""))))  # type: ignore[arg-type]


def registered(job_id: str, *, pp: int, dp: int) -> Job:
    job = Job(job_id=job_id, policy=Policy())
    job.spec = JobRegistered(schedule_digest="ab" * 32, pp_size=pp, dp_size=dp, tp_size=1, token_sha256="")
    job.progress.pipelines = [Pipeline() for _ in range(dp)]
    return job


def test_budgets() -> None:
    demands = [demand("a", measured_w=81.0), demand("b", measured_w=102.0)]
    met = share_budget(HALL, (180.0, "peak"), demands)
    free = share_budget(replace(HALL, name="free", watts=0.0), (None, ""), [*demands, demand("c")], ["new"])
    broken = share_budget(replace(HALL, name="low"), (10.0, ""), demands)
    found = collected(budgets=[met, free, broken])
    values = {key: value for key, value in found.items() if key[0].startswith("perseus_budget")}
    assert values == {
        ("perseus_budget_watts", "hall"): 180.0,
        ("perseus_budget_planned_watts", "hall"): 180.0,
        ("perseus_budget_measured_watts", "hall"): 183.0,
        ("perseus_budget_jobs", "hall"): 2,
        ("perseus_budget_met", "hall"): 1,
        ("perseus_budget_planned_watts", "free"): 300.0,
        ("perseus_budget_jobs", "free"): 4,
        ("perseus_budget_met", "free"): 1,
        ("perseus_budget_watts", "low"): 10.0,
        ("perseus_budget_planned_watts", "low"): 80.0,
        ("perseus_budget_measured_watts", "low"): 183.0,
        ("perseus_budget_jobs", "low"): 2,
        ("perseus_budget_met", "low"): 0,
    }


def test_a_job_with_stragglers() -> None:
    job = Job(job_id="a", policy=Policy())
    job.progress.pipelines = [Pipeline() for _ in range(2)]
    job.detection.verdicts = (verdict(0, 1.2, is_acted_upon=True), verdict(1, 1.5, is_acted_upon=False))
    job.enforcement.switch = SwitchDecided(
        table_revision=1, switch_revision=1, effective_iteration=1, points=(0, 3), reason="", t_prime_s=1.25
    )
    job.measured.saving.counted_j, job.num_refused_reports = -700.0, 3
    job.history.num_verdicts[Cause.THERMAL] = 2
    found = samples(job)
    assert found["perseus_job_stragglers", "a"] == 1
    assert found["perseus_job_straggler_degree_ratio", "a"] == 1.2
    assert found["perseus_job_t_prime_seconds", "a"] == 1.25
    assert found["perseus_job_saved_joules", "a"] == -700
    assert found["perseus_job_straggler_verdicts_total", "a", "thermal"] == 2
    assert found["perseus_job_straggler_verdicts_total", "a", "unknown"] == 0
    assert found["perseus_job_refused_reports", "a"] == 3


def test_an_operators_report_counts_as_a_straggler_and_mutes_the_detector() -> None:
    job = Job(job_id="a", policy=Policy())
    job.progress.pipelines = [Pipeline() for _ in range(2)]
    job.detection.verdicts = (verdict(0, 1.2, is_acted_upon=True),)

    def counted(degree: float) -> tuple[float, float, object]:
        job.stragglers["rack7"] = StragglerKnown(straggler_id="rack7", degree=degree, dp_rank=0)
        found = samples(job)
        on_page = fleet_row(job, job_status(job))["num_stragglers"]
        return found["perseus_job_stragglers", "a"], found["perseus_job_straggler_degree_ratio", "a"], on_page

    assert counted(1.0) == (0, 1.0, 0)
    assert counted(1.4) == (1, 1.4, 1)


def test_a_job_under_a_plan() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(30)
    job = fleet.job
    job.chosen_target = TargetChosen(target=Target(deadline_s=2.5), by_operator=True)
    for state in job.members.ranks.values():
        state.gpu_sample = GpuSample(power_w=250.0)
        state.gpu_reading = GpuSample(clock_mhz=1200, event_reasons=0x20 if state.rank.rank == 0 else 0)
    assert job.switch is not None
    job.history.confirm_switch(job.switch.switch_revision, job.now_s)
    job.history.confirm_switch(job.switch.switch_revision - 1, job.now_s)  # late, and counted for none
    found, name = samples(job), job.job_id
    assert found["perseus_job_phase", name, "enforcing"] == 1
    assert found["perseus_job_target_deadline_seconds", name] == 2.5
    assert ("perseus_job_target_slowdown_ratio", name) not in found
    assert found["perseus_job_iteration_seconds_count", name] >= 30
    assert found["perseus_job_iteration_seconds_bucket", name, "+Inf"] >= 30
    assert found["perseus_job_switch_confirmation_seconds_count", name] == 1
    assert found["perseus_job_stage_clock_hertz", name, "0"] == 1.2e9
    assert found["perseus_job_stage_power_watts", name, "0"] == 250
    assert found["perseus_job_throttled_gpus", name] == 1
    assert found["perseus_job_predicted_saving_ratio", name] > 0
    saving = 1 - (
        found["perseus_job_median_iteration_joules", name, "plan"]
        / found["perseus_job_median_iteration_joules", name, "full"]
    )
    assert found["perseus_job_measured_saving_ratio", name] == pytest.approx(saving)
    assert sum(value for key, value in found.items() if key[0] == "perseus_job_controlled_ranks") == job.num_ranks


def test_a_job_can_be_shown_at_any_time_of_its_life() -> None:
    def is_shown(job: Job) -> bool:
        return ("perseus_job_phase", job.job_id, job.phase) in samples(job)

    fleet = Fleet()
    assert is_shown(fleet.job)
    for advance in (fleet.to_profiling, fleet.to_planning, fleet.plan_ready, fleet.restart):
        advance()
        assert is_shown(fleet.job)
    fleet.attach(0, table_revision=1)
    assert is_shown(fleet.job)


def test_a_job_that_cannot_be_shown_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    broken, well = registered("broken", pp=2, dp=1), registered("well", pp=2, dp=1)
    del broken.progress
    assert ("perseus_job_ranks", "well") in collected(broken, well)
    assert "job broken: its metrics failed" in caplog.text


def test_series_are_bounded_however_large_a_job_is() -> None:
    job = registered("large", pp=1000, dp=MAX_PIPELINES + 1)
    assert len(samples(job)) < 100
    fleet = Fleet().to_enforcing()
    fleet.iterate(20)
    assert len(samples(fleet.job)) < MAX_SERIES


def test_series_end_with_the_job_and_beyond_a_number_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MAX_JOBS", 2)
    monkeypatch.setattr(collector, "SLICE_S", 0.0)  # the loop's turn after each job
    jobs = [registered(name, pp=2, dp=1) for name in "abcd"]
    jobs[0].phase = Phase.DONE
    found = collected(*jobs)
    assert {key[1] for key in found if key[0] == "perseus_job_info"} == {"b", "c"}
    assert found["perseus_jobs_left_out",] == 1
    assert found["perseus_jobs", "done"] == 1
    jobs[0].phase = Phase.ENFORCING  # it is back
    assert ("perseus_job_ranks", "a") in collected(*jobs)


def test_the_catalogue_is_sound() -> None:
    assert len({family.name for family in ALL}) == len(ALL)
    for family in ALL:
        assert family.help.endswith(".")
        assert "job" not in family.labels, "Prometheus has a label of that name"
        assert (JOB in family.labels) == family.name.startswith("perseus_job_") or family is catalogue.INFO
        assert family.kind is not Kind.COUNTER or not family.name.endswith("_total")


def test_a_histogram() -> None:
    histogram = DurationHistogram((1.0, 2.0))
    for duration_s in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(duration_s)
    assert histogram.cumulative() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert (histogram.num, histogram.sum_s) == (4, 12.0)


def test_series_of_a_price_policy_end_with_the_job() -> None:
    policy = PricePolicySet(name="cheap", jobs=("a", "b", "c"), signal="s", deadline_s=2e9, iterations=100)
    following = PricedJob(job_id="a", done=40, left=60, pace=1.1, price_kwh=0.25)
    over = PricedJob(job_id="b", done=100, left=0, is_over=True)
    unknown = PricedJob(job_id="c", done=0, left=100, is_known=False)
    found = collected(prices=[PriceState(policy=policy, trouble="", jobs=(following, over, unknown))])
    series = {key: value for key, value in found.items() if key[0].startswith("perseus_job_price_")}
    assert {key[0]: value for key, value in series.items()} == {
        "perseus_job_price_iterations_left": 60.0,
        "perseus_job_price_per_kwh": 0.25,
        "perseus_job_price_slowed": 1.0,
        "perseus_job_price_on_time": 1.0,
    }
    assert all("a" in key for key in series)
