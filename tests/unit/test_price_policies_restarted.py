"""Price policies of a planner that restarts or takes them over."""

from datetime import UTC, datetime, timedelta

import pytest

from perseus_dist.planner.budget import price_policies
from perseus_dist.planner.budget.demand import Demand
from perseus_dist.planner.budget.price_follower import Signal
from perseus_dist.planner.budget.price_policies import PricePolicies
from perseus_dist.planner.job.facts.decisions import PaceChosen
from perseus_dist.planner.job.facts.policies import PricePolicySet
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.lifecycle import new_job
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.signal_text import Piece

NOW = datetime(2026, 11, 24, tzinfo=UTC)
JOBS = ("a", "b", "c")
CHEAP = PricePolicySet(
    name="cheap", jobs=JOBS, signal="day", deadline_s=(NOW + timedelta(hours=20)).timestamp(), iterations=50_000
)
TIMES_S = (1.0, 1.1, 1.2, 1.3)
POINTS = OperatingPoints(times_s=TIMES_S, powers_w=(100.0, 80.0, 65.0, 55.0), full_time_s=1.0, full_power_w=110.0)
DAY = Signal(
    content=tuple(
        Piece(start=NOW + timedelta(hours=hour), duration_s=3600.0, value=1.0, forecast=None) for hour in range(24)
    ),
    version=1,
)


def paced_job(job_id: str) -> Job:
    job = new_job(job_id, Policy())
    job.chosen_pace = PaceChosen(slowdown=1.2, budget="", price="cheap")
    return job


@pytest.mark.parametrize("missing", ["signal", "choice", "time to plan"])
def test_jobs_stay_at_their_paces_while_a_planner_that_has_restarted_plans_none(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its signals are not read yet, its jobs not back under their plans, or ways of two others are planned first."""

    def demand_of(job: Job) -> Demand:
        paces = () if missing == "choice" else TIMES_S
        return Demand(
            job_id=job.job_id, points=POINTS, paces=paces, reason="", pace=1.2, measured_w=None, is_settled=True
        )

    monkeypatch.setattr(price_policies, "demand_of", demand_of)
    policies = PricePolicies([CHEAP])
    signals = {} if missing == "signal" else {"day": DAY}
    found = policies.evaluate({job_id: paced_job(job_id) for job_id in JOBS}, NOW, signals, 0.0)
    stay = ("c",) if missing == "time to plan" else JOBS
    assert {job_id: found.paces[job_id] for job_id in stay} == dict.fromkeys(stay, ("cheap", 1.2))
    assert policies.states[0].trouble == ""
