"""What plans save by the profile, of pipelines whose waiting is counted, with numbers that are worked out by hand."""

from dataclasses import replace

import pytest
from test_waiting_slack import SUMMARY

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.facts.decisions import StragglerKnown, SwitchDecided
from perseus_dist.planner.job.facts.plans import StragglerPlanReady
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.predicted_saving import energies_uj, predicted_saving, saving_interval, saving_shown
from perseus_dist.planner.job.self_check import Comparison, SelfCheck
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.units import PS_PER_S

TABLE = replace(
    SUMMARY,
    time_ps=(PS_PER_S, 2 * PS_PER_S),
    total_uj=(80, 60),
    lower_bound_uj=(80, 60),
    baseline_time_ps=PS_PER_S,
    baseline_uj=100,
    total_blocking_uw=10,
    saving_low=(0.1, 0.2),
    saving_high=(0.4, 0.6),
)
"""Plans of 1 s and 80 uJ, and of 2 s and 60 uJ, beside 1 s and 100 uJ at all-maximum clocks; whoever waits, 10 uW."""
FULL = TABLE.full_point
OWN = replace(TABLE, time_ps=(2 * PS_PER_S,), total_uj=(130,), baseline_time_ps=2 * PS_PER_S, baseline_uj=150)


def job(*points: int, t_prime_s: float = 0.0, degree: float = 1.0, own: int = -1) -> Job:
    """With a switch to these points, of which one may be of a plan of its pipeline's own."""
    made = Job(job_id="job", policy=Policy())
    made.plan = JobPlan(revision=1, summary=TABLE, tables=(), profile_csv=b"")
    if degree > 1:
        made.stragglers["gpu"] = StragglerKnown(straggler_id="gpu", degree=degree, dp_rank=0)
    if own >= 0:
        made.detection.straggler_plans[own] = StragglerPlanReady(
            dp_rank=own, revision=2, base_revision=1, slow_ranks=(), summary=OWN, tables=()
        )
    made.enforcement.switch = SwitchDecided(
        table_revision=1,
        switch_revision=1,
        effective_iteration=0,
        points=points,
        reason="",
        own_revisions=tuple(2 * (dp_rank == own) for dp_rank in range(len(points))) if own >= 0 else (),
        t_prime_s=t_prime_s,
    )
    return made


@pytest.mark.parametrize(
    ("points", "t_prime_s", "degree", "planned_uj", "baseline_uj"),
    [
        ((0, 0), 0.0, 1.0, 160, 200),
        ((FULL, FULL), 0.0, 1.0, 200, 200),
        ((0, FULL), 0.0, 1.0, 180, 200),
        ((0, 1), 0.0, 1.0, 80 + 60 + 10, 200),  # the first waits for 1 s
        ((1, 1), 0.0, 1.0, 120, 200),
        ((0, 0), 3.0, 1.0, 160 + 2 * 20, 200 + 2 * 20),  # both would wait for 2 s, whatever the plans
        ((0, 1), 3.0, 1.0, 140 + 20 + 10, 200 + 2 * 20),
        ((0, 0), 0.0, 3.0, 160 + 2 * 20, 200 + 2 * 20),
        ((0, 0), 2.0, 3.0, 160 + 2 * 20, 200 + 2 * 20),
        ((1, 1), 0.0, 1.5, 120, 200 + 2 * 5),
    ],
)
def test_all_pipelines_are_counted_until_the_slowest_is_through(
    points: tuple[int, ...], t_prime_s: float, degree: float, planned_uj: int, baseline_uj: int
) -> None:
    made = job(*points, t_prime_s=t_prime_s, degree=degree)
    assert energies_uj(made) == (planned_uj, baseline_uj)
    assert predicted_saving(made) == 1 - planned_uj / baseline_uj


def test_a_pipeline_on_a_plan_of_its_own_is_known_in_full() -> None:
    made = job(1, 0, own=1)
    assert energies_uj(made) == (60 + 130, 100 + 150 + 10), "the other one waits for 1 s at full clocks"
    assert energies_uj(job(0, 1, own=1)) == (80 + 150 + 10, 100 + 150 + 10)


def test_a_plan_that_its_pipeline_does_not_follow_yet_counts_for_nothing() -> None:
    made = job(0, 0, own=1)
    assert made.switch is not None
    made.enforcement.switch = replace(made.switch, own_revisions=())
    assert energies_uj(made) == (160, 200)
    made.enforcement.switch = replace(made.switch, own_revisions=(0, 3))
    assert energies_uj(made) == (160, 200)


@pytest.mark.parametrize("points", [(NO_POINT, NO_POINT), (0, NO_POINT)])
def test_where_a_pipeline_has_no_plan_nothing_is_predicted(points: tuple[int, ...]) -> None:
    made = job(*points)
    assert energies_uj(made) == (0, 0)
    assert predicted_saving(made) == 0.0
    assert saving_interval(made) is None


def test_before_there_is_a_plan_or_a_switch_nothing_is_predicted() -> None:
    for missing in ("plan", "switch"):
        made = job(0, 0)
        if missing == "plan":
            made.plan = None
        else:
            made.enforcement.switch = None
        assert energies_uj(made) == (0, 0), missing
        assert saving_interval(made) is None, missing


def test_the_interval_is_that_of_each_pipelines_plan_by_its_share_of_the_energy() -> None:
    """A plan of 20 % saves 10 to 40 %, one of 40 % saves 20 to 60 %."""
    assert saving_interval(job(0, 0)) == pytest.approx((0.1, 0.4))
    assert saving_interval(job(1, 1)) == pytest.approx((0.2, 0.6))
    saving = 1 - 150 / 200
    assert saving_interval(job(0, 1)) == pytest.approx((saving - (0.1 + 0.2) / 2, saving + (0.2 + 0.2) / 2))
    saving = 1 - 200 / 240
    shares = (100 / 240, 100 / 240)
    waiting = (saving - sum(0.1 * one for one in shares), saving + sum(0.2 * one for one in shares))
    assert saving_interval(job(0, 0, t_prime_s=3.0)) == pytest.approx(waiting)


def test_all_maximum_clocks_save_nothing_without_a_doubt() -> None:
    assert saving_interval(job(FULL, FULL)) == (0.0, 0.0)
    assert saving_interval(job(FULL, 0)) == pytest.approx((0.1 - 0.05, 0.1 + 0.1))


def test_an_interval_is_known_only_where_that_of_every_plan_is() -> None:
    made = job(0, 0)
    assert made.plan is not None
    made.plan = replace(made.plan, summary=replace(TABLE, saving_low=(), saving_high=()))
    assert saving_interval(made) is None


def test_an_interval_reaches_to_what_is_shown() -> None:
    made = job(0, 0)
    for degree, expected in ((0.5, (0.1, 0.6)), (1.5, (-0.2, 0.4))):
        plan = Comparison(predicted_s=1.0, measured_s=degree)
        made.measured.self_check.latest = SelfCheck(full=Comparison(predicted_s=1.0, measured_s=1.0), plan=plan)
        assert saving_interval(made) == pytest.approx(expected)


def known(time: float, energy: float) -> Comparison:
    """Measured over predicted; 0 for unknown."""
    return Comparison(predicted_s=2.0, measured_s=2.0 * time, predicted_j=4.0, measured_j=4.0 * energy)


@pytest.mark.parametrize(
    ("full", "plan", "shown"),
    [
        (known(1.0, 2.0), known(1.0, 1.0), 1 - 0.5 * 0.5),  # of energies, where both are known
        (known(2.0, 0.0), known(1.0, 1.0), 1 - 0.5 * 0.5),  # of times otherwise
        (known(2.0, 1.0), known(1.0, 0.0), 1 - 0.5 * 0.5),
        (known(0.0, 0.0), known(1.5, 1.0), 0.5),
        (known(1.5, 1.0), known(0.0, 0.0), 0.5),
        (None, known(1.5, 1.5), 0.5),
        (known(1.5, 1.5), None, 0.5),
    ],
)
def test_a_saving_is_shown_as_far_as_iterations_tell(
    full: Comparison | None, plan: Comparison | None, shown: float
) -> None:
    assert saving_shown(0.5, SelfCheck(full=full, plan=plan)) == shown
