"""Power budgets and load targets as they come over the wire."""

import pytest
from test_planner_budgets import HALL, demand

from perseus_dist.planner.budget.sharing import share_budget
from perseus_dist.planner.runtime.policy_calls import policy_text
from perseus_dist.planner.service.budget_wire import load_target_from_wire, state_to_wire
from perseus_dist.planner.web.views.budgets import budget_document
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker, InvalidMessageError


def load_target(start_s: float, end_s: float) -> pb.LoadTarget:
    return pb.LoadTarget(name="peak", budget="hall", watts=100, start_s=start_s, end_s=end_s)


def test_every_time_that_is_taken_can_be_written_down() -> None:
    check = Checker()
    fact = load_target_from_wire(check, load_target(0.0, 2.5e11))
    check.finish()
    assert "from 1970-01-01T00:00:00+00:00 to 9892-" in policy_text(fact)


@pytest.mark.parametrize("times_s", [(-1.0, 5.0), (0.0, 2.6e11), (5.0, 5.0), (float("nan"), 5.0), (0.0, float("inf"))])
def test_other_times_are_refused(times_s: tuple[float, float]) -> None:
    check = Checker()
    load_target_from_wire(check, load_target(*times_s))
    with pytest.raises(InvalidMessageError, match=r"load_target\.(start|end)_s"):
        check.finish()


def test_the_owner_of_a_job_hears_of_a_budgets_trouble_beside_a_hidden_job_of_any_name() -> None:
    state = share_budget(HALL, (10.0, ""), [demand("gpt"), demand("can")], ["hidden"])
    (said,) = state_to_wire(state, {"gpt"}, ()).troubles
    assert said.startswith("the cap of 10 W cannot be kept")
    assert budget_document(state, (), {"gpt"})["troubles"] == (said,)
