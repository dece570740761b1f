"""Plans: what they are worth, and ``plan.json``."""

import json
import math
from pathlib import Path

import pytest

from perseus_dist.errors import PlanningError
from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.plan import plan_document, plan_figures, plan_for_deadline, plan_for_straggler
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.units import PS_PER_MS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
ORDERS = """\
0LOAD0 0F0 0F1 0B0 0B1 0STEP
1F0 1F1 1B0 1B1
2F0 2F1 2B0 2B1
3F0 3B0 3F1 3B1
"""
BLOCKING_W = (80, 81, 82, 83)


@pytest.fixture(scope="module")
def frontier(tmp_path_factory: pytest.TempPathFactory) -> Frontier:
    path = tmp_path_factory.mktemp("profile") / "profile.csv"
    path.write_text(EXAMPLE.read_text() + "0,load,1410,0.004,0.4\n0,step,1410,0.01,2\n")
    problem = make_problem(
        parse_schedule(ORDERS),
        read_profile(path),
        blocking_uw_of_rank=[10**6 * power for power in BLOCKING_W],
        tensor_parallel=2,
    )
    return plan_frontier(problem, switch_latency_ps=3 * PS_PER_MS)


def test_a_plan_for_a_deadline_is_worth_what_its_execution_takes(frontier: Frontier) -> None:
    deadline_ps = round(1.05 * frontier.baseline.time_ps)
    plan = plan_for_deadline(frontier, deadline_ps)
    assert plan.execution.time_ps <= deadline_ps
    figures = plan_figures(plan)
    assert figures["deadline_s"] == pytest.approx(deadline_ps / 1e12)
    assert figures["time_s"] == figures["until_s"] == pytest.approx(plan.execution.time_ps / 1e12)
    assert figures["energy_j"] == pytest.approx(plan.execution.total_uj / 1e6)
    assert figures["slowdown_percent"] == pytest.approx(100 * (plan.execution.time_ps / frontier.baseline.time_ps - 1))
    assert figures["saving_percent"] == pytest.approx(100 * (1 - plan.execution.total_uj / frontier.baseline.total_uj))
    assert figures["gap_percent"] == pytest.approx(100 * (figures["energy_j"] / figures["lower_bound_j"] - 1))
    assert 0 <= figures["gap_percent"] < 5
    assert figures["clock_changes_per_rank"] == plan.execution.changes.tolist()


def test_with_a_straggler_everybody_waits(frontier: Frontier) -> None:
    t_prime_ps = round(1.3 * frontier.baseline.time_ps)
    plan = plan_for_straggler(frontier, t_prime_ps)
    waiting_w = 2 * sum(BLOCKING_W)
    own_j, all_max_j = (
        execution.total_uj / 1e6 + waiting_w * (t_prime_ps - execution.time_ps) / 1e12
        for execution in (plan.execution, frontier.baseline)
    )
    figures = plan_figures(plan)
    assert figures["until_s"] == figures["deadline_s"] == pytest.approx(t_prime_ps / 1e12)
    assert figures["time_s"] < figures["until_s"]
    assert figures["energy_j"] == pytest.approx(own_j)
    assert figures["saving_percent"] == pytest.approx(100 * (1 - own_j / all_max_j))
    in_time = frontier.time_ps <= t_prime_ps
    assert own_j == pytest.approx(frontier.effective_uj[in_time].min() / 1e6 + waiting_w * t_prime_ps / 1e12)


def test_a_straggler_faster_than_all_max_does_not_shorten_all_max(frontier: Frontier) -> None:
    t_prime_ps = frontier.baseline.time_ps - 1
    if t_prime_ps < frontier.fastest_ps:
        t_prime_ps = frontier.fastest_ps
    plan = plan_for_straggler(frontier, t_prime_ps)
    assert plan.saving_share == pytest.approx(1 - plan.energy_uj / frontier.baseline.total_uj)


@pytest.mark.parametrize("choose", [plan_for_deadline, plan_for_straggler])
def test_nothing_is_faster_than_the_fastest(frontier: Frontier, choose: type) -> None:
    assert choose(frontier, frontier.fastest_ps).execution.time_ps == frontier.fastest_ps
    with pytest.raises(PlanningError, match=r"cannot be met: the fastest plan takes"):
        choose(frontier, frontier.fastest_ps - 1)
    with pytest.raises(PlanningError, match=r"the deadline of nan s cannot be met"):
        choose(frontier, math.nan)
    with pytest.raises(PlanningError, match=r"deadlines_ps: saw nan, expected whole picoseconds"):
        plan_frontier(frontier.problem, deadlines_ps=[math.nan])  # type: ignore[list-item]


def test_document(frontier: Frontier) -> None:
    plan = plan_for_deadline(frontier, frontier.t_star_ps)
    document = json.loads(json.dumps(plan_document(plan)))
    assert document["schema_version"] == 1
    assert document.items() >= plan_figures(plan).items()
    assert document["baseline_time_s"] == pytest.approx(frontier.baseline.time_ps / 1e12)
    assert document["baseline_energy_j"] == pytest.approx(frontier.baseline.total_uj / 1e6)
    assert document["schedule_digest"] == frontier.problem.dag.schedule.digest()
    assert (document["switch_latency_ms"], document["tensor_parallel"]) == (3, 2)
    assert document["blocking_power_w"] == list(BLOCKING_W)
    assert [rank["pp_rank"] for rank in document["ranks"]] == [0, 1, 2, 3]
    orders = "".join(" ".join(item["id"] for item in rank["instructions"]) + "\n" for rank in document["ranks"])
    assert orders == ORDERS
    clocks = {item["id"]: item["clock_mhz"] for rank in document["ranks"] for item in rank["instructions"]}
    assert clocks["0LOAD0"] is clocks["0STEP"] is None
    computed = [clock for clock in clocks.values() if clock is not None]
    assert len(computed) == 16
    assert all(855 <= clock <= 1410 for clock in computed)
    assert len(set(computed)) > 1
