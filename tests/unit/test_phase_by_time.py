"""The benchmark's iterations by time: as planned where everything takes what was planned."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from phase_by_time import Timeline, changes_of

from perseus_dist.planning.coarse.coarse_frontier import plan_by
from perseus_dist.planning.frontier.plan import plan_for_deadline
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule import one_f_one_b

PROFILE = Path(__file__).parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"


@pytest.mark.parametrize("granularity", [Granularity.RANK, Granularity.PHASE])
def test_an_iteration_as_planned(granularity: Granularity) -> None:
    problem = make_problem(
        one_f_one_b(pp=4, microbatches=6), read_profile(PROFILE), blocking_uw_of_rank=[80_000_000] * 4
    )
    deadline_ps = round(1.05 * replay_all_max(problem).time_ps)
    plan = plan_for_deadline(plan_by(problem, granularity, deadlines_ps=[deadline_ps]), deadline_ps)
    timeline, changes = Timeline(problem), changes_of(plan)
    assert sum(map(len, changes)) > (4 if granularity == Granularity.PHASE else 3)
    time_ps, total_uj = timeline.play(changes, np.ones(problem.num_instructions))
    assert time_ps == pytest.approx(plan.execution.time_ps, rel=1e-9)
    assert total_uj == pytest.approx(plan.execution.total_uj, rel=1e-6)
    longer_ps, more_uj = timeline.mean(changes, np.full((2, problem.num_instructions), 1.1))
    assert 1.05 < longer_ps / time_ps < 1.15
    assert 1.05 < more_uj / total_uj < 1.15
