"""A GPU overheats, overheats more and cools down: trainers, agents and the planner's decisions in virtual time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import fmean

import pytest

from perseus_dist.messages.job_status import JobStatus
from perseus_dist.messages.terms import NO_POINT, Target
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.events import StragglerCleared, StragglerReported, TargetSet
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, run_virtual, virtual_job
from perseus_dist.simulator import Throttle

PRESET = "a100"
SLOW_RANK, SLOW_PIPELINE = 3, 1  # the last stage of the second pipeline
BEFORE, CAPPED, DEEPENED, LIFTED, END = 20, 30, 55, 80, 100  # iterations at which each of them begins
MID_S = 0.3  # within an iteration
FAST_REACTION = 4  # iterations until all ranks have switched, where NVML tells
SETTLED = 8


def job(**other: object) -> SimulatedJob:
    fields = {"schedule": one_f_one_b(pp=2, microbatches=4), "num_pipelines": 2, "num_iterations": 90, "imbalance": 0.1}
    return SimulatedJob(**{**fields, **other})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("profile") / "profile.csv"
    run_virtual(job(num_pipelines=1), PRESET, profile_csv=path)
    return str(path)


@dataclass(kw_only=True)
class Seen:
    """What a run came to.

    Attributes:
        statuses: As each iteration ends.
        job: Its reports are whole.
    """

    job: VirtualJob
    statuses: list[JobStatus] = field(default_factory=list)

    def time_s(self, iteration: int) -> float:
        """The longest of the ranks'."""
        return max(reports[iteration].time_s for reports in self.job.reports)

    def energy_j(self, pipeline: int, first: int, last: int) -> float:
        """Of the mean iteration."""
        ranks = (2 * pipeline, 2 * pipeline + 1)
        return sum(fmean(self.job.reports[rank][i].energy_j or 0.0 for i in range(first, last)) for rank in ranks)

    def followed(self, rank: int, iteration: int) -> tuple[int, int]:
        """Table and point of a rank."""
        report = self.job.reports[rank][iteration]
        return report.table_revision, report.point


def train(job: VirtualJob, num_iterations: int, events: dict[int, Callable[[], object]] | None = None) -> Seen:
    seen = Seen(job=job)
    for iteration in range(num_iterations):
        then = (events or {}).get(iteration)
        job.run_iteration(*([(MID_S, then)] if then else []))
        seen.statuses.append(job.status)
    job.end()
    for rank, reports in enumerate(job.reports):
        assert [report.iteration for report in reports] == list(range(num_iterations)), rank
    return seen


def throttled(profile: str, policy: Policy) -> Iterator[Seen]:
    with virtual_job(job(profile=profile), PRESET, policy) as running:
        gpu = running.machine.gpu(SLOW_RANK)
        yield train(
            running,
            END,
            {
                CAPPED: lambda: gpu.set_thermal_cap(1110),
                DEEPENED: lambda: gpu.set_thermal_cap(900),
                LIFTED: lambda: gpu.set_thermal_cap(None),
            },
        )


@pytest.fixture(scope="module")
def acting(profile: str) -> Iterator[Seen]:
    yield from throttled(profile, Policy())


@pytest.fixture(scope="module")
def showing(profile: str) -> Iterator[Seen]:
    """The same, while stragglers are told of and nothing is done about them."""
    yield from throttled(profile, Policy(acts_on_stragglers=False))


def test_nobody_is_slow_before(acting: Seen) -> None:
    assert all(not status.verdicts for status in acting.statuses[: CAPPED + 1])
    assert acting.statuses[CAPPED].phase == "enforcing"


@pytest.mark.parametrize("begin", [CAPPED, DEEPENED])
def test_it_is_detected_and_answered(acting: Seen, begin: int) -> None:
    status = acting.statuses[begin + FAST_REACTION]
    (verdict,) = status.verdicts
    assert (verdict.rank, verdict.dp_rank, verdict.cause) == (SLOW_RANK, SLOW_PIPELINE, "thermal")
    assert verdict.is_acted_upon
    waiting, slow = status.pipelines
    assert waiting.is_waiting
    assert not slow.is_waiting
    assert waiting.planned_time_s <= status.t_prime_s
    before = acting.statuses[begin].pipelines[0]
    assert waiting.planned_time_s > before.planned_time_s
    for rank in (0, 1):
        table_revision, point = acting.followed(rank, begin + FAST_REACTION)
        assert table_revision == waiting.table_revision
        assert point > before.point


def test_a_deeper_cap_is_a_higher_degree(acting: Seen) -> None:
    (before,), (after,) = acting.statuses[DEEPENED].verdicts, acting.statuses[DEEPENED + SETTLED].verdicts
    assert after.low > before.high


def test_the_slow_pipeline_gets_a_plan_of_its_own(acting: Seen) -> None:
    for end in (DEEPENED, LIFTED):
        waiting, slow = acting.statuses[end - 1].pipelines
        assert slow.table_revision > waiting.table_revision
        for rank in (2, 3):
            assert acting.followed(rank, end - 1) == (slow.table_revision, slow.point)
    own = acting.energy_j(SLOW_PIPELINE, LIFTED - SETTLED, LIFTED)
    assert acting.statuses[LIFTED - 1].pipelines[1].planned_energy_j == pytest.approx(own, rel=0.02)


def test_nobody_is_later_than_the_straggler_forces(acting: Seen, showing: Seen) -> None:
    for iteration in (*range(BEFORE, LIFTED), *range(LIFTED + 3, END)):  # in between, the way back
        assert acting.time_s(iteration) <= 1.005 * showing.time_s(iteration), iteration
    for status in showing.statuses:
        assert status.phase != "enforcing" or {pipeline.point for pipeline in status.pipelines} == {0}


def test_what_the_frontier_promises_is_saved(acting: Seen, showing: Seen) -> None:
    plan = acting.job.planner.job.plan
    assert plan is not None
    summary = plan.summary
    for last in (DEEPENED, LIFTED):
        first = last - 12
        time_ps = round(fmean(acting.time_s(iteration) for iteration in range(first, last)) * 1e12)
        until_j = [
            (total_uj + summary.total_blocking_uw * (time_ps - plan_ps) / 1e12) / 1e6
            for total_uj, plan_ps in zip(summary.total_uj, summary.time_ps, strict=True)
        ]
        at_t_min = showing.statuses[last - 1].pipelines[0].point
        in_time = summary.point_for_deadline(time_ps)
        promised_j = until_j[at_t_min] - min(until_j[: in_time + 1])
        saved_j = showing.energy_j(0, first, last) - acting.energy_j(0, first, last)
        assert promised_j > 10
        assert saved_j >= 0.9 * promised_j


def test_full_speed_is_back_within_three_iterations(acting: Seen) -> None:
    usual = acting.followed(0, CAPPED)
    for iteration in range(LIFTED + 3, END):
        followed = {acting.followed(rank, iteration) for rank in range(4)}
        assert followed in ({usual}, {(0, NO_POINT)}), iteration
    assert acting.statuses[-1].verdicts == ()
    assert acting.time_s(LIFTED + 3) == pytest.approx(acting.time_s(CAPPED - 1), rel=0.005)


def test_it_is_all_told(acting: Seen) -> None:
    status = acting.statuses[-1]
    kinds = [event.kind for event in status.events]
    assert kinds.count("recovered") == 1
    assert [event.sequence for event in status.events] == list(range(1, len(kinds) + 1))
    first_verdict = next(event for event in status.events if event.kind == "verdict")
    assert CAPPED <= first_verdict.iteration <= CAPPED + 3
    assert status.saved_j > 0
    assert status.refused_reports == 0


def test_no_change_of_clocks_is_taken_for_a_straggler(profile: str) -> None:
    with virtual_job(job(profile=profile), PRESET) as running:

        def tell(event: TargetSet | StragglerReported | StragglerCleared) -> Callable[[], None]:
            return lambda: running.planner.tell(event)

        seen = train(
            running,
            220,
            {
                40: tell(TargetSet(target=Target(slowdown=1.1))),
                70: tell(StragglerReported(straggler_id="operator", degree=1.3, dp_rank=0)),
                100: tell(StragglerCleared(straggler_id="operator")),
                130: tell(TargetSet(target=Target())),
                160: tell(StragglerReported(straggler_id="operator", degree=1.2, dp_rank=1)),
                190: tell(StragglerCleared(straggler_id="operator")),
            },
        )
        assert all(not status.verdicts for status in seen.statuses)
        assert seen.statuses[-1].refused_reports == 0
        assert [event.kind for event in seen.statuses[-1].events if event.kind != "switch"] == [
            *("reported", "cleared", "reported", "cleared")
        ]


def test_a_slow_rank_without_a_reason_is_no_reason_to_measure_again(profile: str) -> None:
    with virtual_job(job(profile=profile), PRESET) as running:
        begin, end, slowness = 30, 75, 1.15
        seen = train(
            running,
            100,
            {
                begin - 1: lambda: running.slow_down(SLOW_RANK, slowness),
                end - 1: lambda: running.slow_down(SLOW_RANK, 1),
            },
        )
        usual_s = seen.time_s(begin - 1)
        # The guard looks, too, and what it looks at is evidence: no iteration of its probes but the first is lost.
        assert next(i for i in range(begin, end) if seen.statuses[i].pipelines[0].is_waiting) <= begin + 5
        assert {status.phase for status in seen.statuses[begin:]} == {"enforcing"}
        (verdict,) = seen.statuses[end - 1].verdicts
        assert (verdict.rank, verdict.cause) == (SLOW_RANK, "slow_compute")
        assert verdict.low < slowness < verdict.high
        assert seen.statuses[end - 1].pipelines[0].is_waiting
        assert max(seen.time_s(iteration) for iteration in range(begin, end)) <= slowness * usual_s
        assert seen.statuses[-1].verdicts == ()
        assert seen.time_s(99) == pytest.approx(usual_s, rel=0.005)


def test_a_pipeline_alone_gets_a_plan_of_its_own(profile: str) -> None:
    with virtual_job(job(profile=profile, num_pipelines=1), PRESET) as running:
        gpu = running.machine.gpu(1)
        seen = train(running, 75, {30: lambda: gpu.set_thermal_cap(1005), 55: lambda: gpu.set_thermal_cap(None)})
        (verdict,) = seen.statuses[50].verdicts
        assert (verdict.rank, verdict.cause) == (1, "thermal")
        assert seen.statuses[50].t_prime_s == 0
        usual, own = seen.followed(0, 29), seen.followed(0, 50)
        assert own[0] > usual[0]
        assert seen.energy_j(0, 45, 55) < seen.energy_j(0, 32, 34)  # waiting for it at the target's plan
        assert [seen.followed(rank, 58) for rank in range(2)] == [usual] * 2


def test_two_stragglers_in_two_pipelines(profile: str) -> None:
    with virtual_job(job(profile=profile), PRESET) as running:
        worse, bad = running.machine.gpu(0), running.machine.gpu(3)
        seen = train(
            running,
            110,
            {
                30: lambda: bad.set_thermal_cap(1110),
                50: lambda: worse.set_thermal_cap(900),
                70: lambda: worse.set_thermal_cap(None),
                90: lambda: bad.set_thermal_cap(None),
            },
        )
        assert {verdict.rank for verdict in seen.statuses[69].verdicts} == {0, 3}
        one, both, one_again = (seen.statuses[end] for end in (49, 69, 89))
        assert one.t_prime_s == pytest.approx(one_again.t_prime_s, rel=0.01)
        assert both.t_prime_s > 1.03 * one.t_prime_s
        for status in (one, one_again):
            assert [pipeline.is_waiting for pipeline in status.pipelines] == [True, False]
        for status, slowest in ((one, 1), (both, 0), (one_again, 1)):
            planned_s = [pipeline.planned_time_s for pipeline in status.pipelines]
            assert planned_s[1 - slowest] == pytest.approx(planned_s[slowest], rel=0.02)
        assert max(seen.time_s(iteration) for iteration in range(75, 90)) <= 1.005 * seen.time_s(49)
        assert seen.statuses[-1].verdicts == ()
        assert seen.time_s(109) == pytest.approx(seen.time_s(29), rel=0.005)


def test_a_script_of_throttles_is_followed(profile: str) -> None:
    begun, ended = Throttle(at=0, gpu=SLOW_RANK, cap_mhz=900), Throttle(at=8, gpu=SLOW_RANK, cap_mhz=None)
    capped, freed, free = (
        run_virtual(job(profile=profile, num_iterations=16), PRESET, throttles=throttles)
        for throttles in ([begun], [begun, ended], [])
    )
    assert capped.baseline.time_s > 1.2 * free.baseline.time_s
    assert freed.baseline.time_s == pytest.approx(free.baseline.time_s, rel=1e-3)  # what came later replaces it
