"""What plans are made for and counted by, at its limits: overlap, slightly slow ranks, full clocks by other names."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from fleets import fleet_enforcing
from test_enforcement_plan_choice_bounds import FULL, TABLE, give_own_plan, job, report_slow, slow, switch_to
from test_enforcement_switching_bounds import waiting
from test_lifecycle_baseline_bounds import baseline

from perseus_dist.fingerprint import Fingerprint, Workload
from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.facts.runs import FingerprintKnown
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.enforcement.followed_plan import followed_plan
from perseus_dist.planner.lifecycle.enforcement.overlap import full_s_to_plan, overlap_is_new
from perseus_dist.planner.lifecycle.enforcement.slightly_slow import newly_slow
from perseus_dist.planning.frontier.slow_rank import SlowRank
from perseus_dist.straggler.layout import RankCoords

# ---- overlap ---------------------------------------------------------------------------------------------------------


def overlapping(full_s: float, framework: str = "torch.distributed.pipelining") -> Job:
    """A job whose iterations take 2 s alone; rank 0 has told what it runs."""
    made = job(table=replace(TABLE, baseline_time_ps=2 * TABLE.baseline_time_ps))
    fingerprint = Fingerprint(workload=Workload(framework=framework))
    made.members.fingerprints[0] = FingerprintKnown(rank=0, run_id="", fingerprint=fingerprint)
    made.measured.baseline = baseline(full_s)
    return made


@pytest.mark.parametrize(("full_s", "is_new"), [(1.9, True), (1.9899, True), (1.99, False), (2.1, False)])
def test_iterations_overlap_where_they_take_clearly_less_than_one_alone(full_s: float, *, is_new: bool) -> None:
    why = overlap_is_new(overlapping(full_s))
    told = f"iterations at full clocks take {1e3 * (2 - full_s):.1f} ms less than one takes alone: planning for "
    assert why.startswith(told) if is_new else why == ""


@pytest.mark.parametrize(
    "why", ["another framework", "not told", "no baseline", "no plan", "planned", "asked", "a plan to come", "nothing"]
)
def test_overlap_is_planned_for_once_and_where_frameworks_leave_it_to_scripts(why: str) -> None:
    made = overlapping(1.9, "deepspeed" if why == "another framework" else "torch.distributed.pipelining")
    assert made.plan is not None
    if why == "not told":
        made.members.fingerprints.clear()
    elif why == "no baseline":
        made.measured.baseline = None
    elif why == "no plan":
        made.plan = None
    elif why == "planned":
        made.plan = replace(made.plan, summary=replace(made.plan.summary, gained_ps=1))
    elif why == "asked":
        made.planning.full_s = 1.9
    elif why == "a plan to come":
        made.planning.pending = 1
    assert bool(overlap_is_new(made)) == (why == "nothing")
    assert full_s_to_plan(made) == (0.0 if why in ("another framework", "not told", "no baseline") else 1.9)


# ---- slightly slow ranks ---------------------------------------------------------------------------------------------


def slightly_slow(
    slower: Mapping[int, float], *, beside_replicas: bool = False, known: float = 0.0
) -> dict[int, float]:
    """By pp_rank of four in two pipelines, the factor that is planned with; some job may have a plan for stage 1."""
    made = job()
    made.members.places = {rank: RankCoords(pp_rank=rank % 4, dp_rank=rank // 4) for rank in range(8)}
    made.detection.verdicts = (slow(1),)
    made.planning.slightly_slow = (SlowRank(pp_rank=1, factor=known),) if known else ()
    return {one.pp_rank: round(one.factor, 6) for one in newly_slow(made, slower, beside_replicas=beside_replicas)}


@pytest.mark.parametrize(
    ("excess", "factor"),
    [(0.005, 1.005), (0.02, 1.02), (0.020002, 1.02), (0.02001, 1.025), (0.0499, 1.05), (0.05, 1.05), (0.0501, 0.0)],
)
def test_a_slightly_slow_rank_is_planned_with_as_the_next_half_percent(excess: float, factor: float) -> None:
    assert slightly_slow({1: excess}) == ({1: factor} if factor else {})


@pytest.mark.parametrize(
    ("slower", "known", "expected"),
    [
        ({1: 0.01, 5: 0.02}, 0.0, {1: 1.02}),
        ({1: 0.02, 5: 0.01}, 0.0, {1: 1.02}),
        ({0: 0.01, 1: 0.02, 2: 0.03}, 0.0, {1: 1.02, 2: 1.03}),
        ({0: 0.03, 1: 0.02, 2: 0.01}, 0.0, {0: 1.03, 1: 1.02}),
        ({4: 0.02}, 0.0, {}),  # a straggler's
        ({0: 0.02}, 0.0, {0: 1.02}),
        ({8: 0.02}, 0.0, {}),
        ({1: 0.02}, 1.02, {}),
        ({1: 0.01}, 1.02, {}),
        ({1: 0.025}, 1.02, {1: 1.025}),
        ({2: 0.01}, 1.02, {1: 1.02, 2: 1.01}),
    ],
)
def test_the_two_slowest_stages_are_planned_with_if_the_plan_does_not_know_them(
    slower: Mapping[int, float], known: float, expected: Mapping[int, float]
) -> None:
    assert slightly_slow(slower, known=known) == expected


@pytest.mark.parametrize(("slower", "is_found"), [({1: 0.02}, True), ({1: 0.02, 5: 0.02}, False)])
def test_a_stage_that_is_slow_in_all_pipelines_is_the_profiles_fault(
    slower: Mapping[int, float], *, is_found: bool
) -> None:
    assert bool(slightly_slow(slower, beside_replicas=True)) == is_found
    assert slightly_slow(slower) == {1: 1.02}


# ---- what is followed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("t_prime_s", "is_reported", "has_deadline", "is_set"),
    [
        (0.0, False, False, False),
        (0.5, False, False, False),
        (0.0, True, False, False),
        (0.5, True, False, True),
        (0.0, False, True, True),
    ],
)
def test_a_deadline_or_an_operators_straggler_sets_how_long_iterations_last(
    t_prime_s: float, *, is_reported: bool, has_deadline: bool, is_set: bool
) -> None:
    made = waiting(t_prime_s)
    switch_to(made, points=(1, 1))
    if is_reported:
        report_slow(made, 1.0)
    if has_deadline:
        made.chosen_target = TargetChosen(target=Target(deadline_s=1.15), by_operator=True)
    found = followed_plan(made)
    assert found is not None
    assert (found.time_s, found.stretch) == pytest.approx((1.1, 0.0 if is_set else 1.1))
    assert found.is_waiting == (t_prime_s > 0 and not is_set)


@pytest.mark.parametrize(
    ("points", "is_own", "is_around"), [((0, 0), False, False), ((0, FULL), False, True), ((0, 0), True, True)]
)
def test_full_clocks_or_a_plan_of_its_own_are_around_a_pipelines_slow_ranks(
    points: tuple[int, int], *, is_own: bool, is_around: bool
) -> None:
    made = job()
    switch_to(made, points=points)
    if is_own:
        give_own_plan(made, table=TABLE, is_followed=True)
    found = followed_plan(made)
    assert found is not None
    assert found.is_around_slow == is_around


@pytest.mark.parametrize(
    ("rows", "can_set", "is_full"),
    [
        ("0,1400 0,1000 1,1000 1,1400", True, True),
        ("0,1400 1,1300", True, False),  # one was held back throughout the sweep
        ("0,1300 1,1300", True, False),
        ("0,1300 1,1300", False, True),
        ("0,1400 0, 1,1400", True, True),
    ],
)
def test_a_plan_of_the_highest_clocks_is_full_clocks_if_the_profile_knows_them(
    rows: str, *, can_set: bool, is_full: bool
) -> None:
    made = fleet_enforcing().job
    assert made.plan is not None
    table = replace(TABLE, total_uj=(TABLE.baseline_uj, 700, 650, 660))
    profile_csv = "\n".join(["stage,frequency", *rows.split(" "), ""]).encode()
    made.plan = replace(made.plan, summary=table, profile_csv=profile_csv)
    if not can_set:
        for state in made.members.ranks.values():
            state.gpu = replace(state.gpu, clocks_mhz=())
    assert (followed_plan(made) is None) == is_full
    made.plan = replace(made.plan, summary=replace(table, baseline_time_ps=table.baseline_time_ps + 1))
    assert followed_plan(made) is not None, "it takes less time"
