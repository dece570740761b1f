"""Slack of pipelines that wait for a straggler, each now earlier, now later."""

from dataclasses import replace

import numpy as np
import pytest

from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.lifecycle.enforcement.waiting_slack import slack_beside_straggler
from perseus_dist.planning.frontier.noise_margin import TOLERATED

SUMMARY = FrontierSummary(
    time_ps=(1000, 1100, 1200, 1300),
    total_uj=(900, 800, 700, 650),
    lower_bound_uj=(900, 800, 700, 650),
    baseline_time_ps=1000,
    baseline_uj=1000,
    total_blocking_uw=1,
)


@pytest.mark.parametrize("own_noise", [0.002, 0.009, 0.03])
@pytest.mark.parametrize("num_waiting", [1, 5, 63])
def test_the_latest_of_many_pipelines_is_later_than_the_straggler_by_what_is_tolerated(
    own_noise: float, num_waiting: int
) -> None:
    slack = slack_beside_straggler(own_noise, num_waiting)
    random = np.random.default_rng(1)
    straggler = 1 + own_noise * random.standard_normal(20_000)
    others = (1 + own_noise * random.standard_normal((num_waiting, 20_000))) / (1 + slack)
    late = np.maximum(straggler, others.max(axis=0)).mean() - 1
    assert late < 1.1 * TOLERATED
    assert slack == 0 or late > 0.2 * TOLERATED, "it gives no time away that nobody needs"


def test_little_noise_needs_no_slack() -> None:
    assert slack_beside_straggler(0.0, 63) == 0.0
    assert slack_beside_straggler(0.002, 2) == 0.0
    assert slack_beside_straggler(0.009, 0) == 0.0
    assert 0 < slack_beside_straggler(0.009, 1) < slack_beside_straggler(0.009, 5) < 0.02


def test_a_plan_that_noise_makes_later_than_the_straggler_is_not_taken() -> None:
    assert [SUMMARY.point_beside_straggler(one) for one in (900, 1205, 1300)] == [0, 2, 3]
    noisy = replace(SUMMARY, own_noise=0.01, late_by=(0.001, 0.003, 0.006, 0.001))
    assert [noisy.point_beside_straggler(one) for one in (900, 1205, 1208, 1300, 1302)] == [0, 1, 2, 2, 3]
