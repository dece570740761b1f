"""The rounds of a series at their limits: how many clocks, who measures them, and what is measured again."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from builders import make_rank
from test_sweeping_next_clocks_bounds import curve
from test_sweeping_samples_bounds import begun
from test_sweeping_witnesses_bounds import sample, taken

from perseus_dist.messages.terms import Gpu
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.membership import RankState
from perseus_dist.planner.job.state.profiling import TakenSamples
from perseus_dist.planner.lifecycle.sweeping.rounds import (
    _held_back_to,
    _unsteady,
    first_round,
    next_round,
)
from perseus_dist.straggler.layout import RankCoords

MENU_MHZ = tuple(range(1400, 700, -100))
FINE_MHZ = tuple(range(1990, 490, -15))


def job_of(
    dp: int = 1, *, pp: int = 1, tp: int = 1, menu_mhz: tuple[int, ...] = MENU_MHZ, policy: Policy | None = None
) -> Job:
    """All ranks are attached and can set clocks; by pipeline, stage and tensor-parallel rank."""
    job = Job(job_id="job", policy=policy or Policy(max_saving_doubt=0.5))
    job.spec = JobRegistered(schedule_digest="", pp_size=pp, dp_size=dp, tp_size=tp, token_sha256="")
    for rank in range(dp * pp * tp):
        place = RankCoords(pp_rank=rank // tp % pp, dp_rank=rank // tp // pp, tp_rank=rank % tp)
        at = make_rank(rank=rank, **place._asdict(), pp_size=pp, dp_size=dp, tp_size=tp, schedule_digest="")
        gpu = Gpu(uuid="", name="A100", driver_version="", clocks_mhz=menu_mhz, control="clockd")
        job.members.ranks[rank] = RankState(
            rank=at, gpu=gpu, incarnation=1, stream=rank, has_profile=False, version="", control="clockd"
        )
        job.members.places[rank], job.members.rank_at[place] = place, rank
        job.members.rank_of_stream[rank] = rank
    return job


def set_menu(job: Job, rank: int, menu_mhz: tuple[int, ...]) -> None:
    job.members.ranks[rank].gpu = replace(job.members.ranks[rank].gpu, clocks_mhz=menu_mhz)


# ---- the first round -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dp", "num_first", "max_measured", "num_clocks", "num_steps"),
    [
        (1, 6, 8, 6, 6),
        (2, 6, 8, 7, 4),
        (3, 6, 8, 7, 3),
        (3, 6, 7, 6, 3),
        (3, 8, 8, 8, 4),
        (3, 7, 99, 7, 3),
        (3, 5, 99, 7, 3),
        (4, 6, 99, 7, 4),
        (6, 6, 99, 7, 3),
    ],
)
def test_replicas_measure_more_clocks_in_as_many_steps_but_leave_one_for_a_later_round(
    dp: int, num_first: int, max_measured: int, num_clocks: int, num_steps: int
) -> None:
    policy = Policy(num_first_clocks=num_first, max_measured_clocks=max_measured, max_sweep_clocks=999)
    steps = first_round(job_of(dp, menu_mhz=FINE_MHZ, policy=policy), range(dp))
    assert steps.keys() == set(range(dp))
    assert {own[0] for own in steps.values()} == {FINE_MHZ[0]}
    assert len(set().union(*steps.values())) == num_clocks
    assert max(map(len, steps.values())) == num_steps


def test_where_sweeps_are_not_shared_each_replica_measures_all_clocks() -> None:
    steps = first_round(job_of(3, policy=Policy(shares_sweep=False)), range(3))
    assert len(set(steps.values())) == 1
    assert len(steps[0]) == 6
    assert first_round(job_of(), ()) == {}


# ---- what heat allows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reached_mhz", "held_mhz"),
    [
        ({}, 0),
        ({0: 1250, 1: 1250}, 0),  # the other replica reaches the maximum
        ({0: 1250, 2: 1050}, 1200),
        ({0: 1200, 2: 1050}, 1200),
        ({0: 1199, 2: 1050}, 1100),
        ({0: 1250, 1: 950, 2: 1050}, 1000),  # a group is as fast as its slowest
        ({0: 799, 2: 750}, 0),
    ],
)
def test_a_stage_is_held_back_to_the_highest_clock_that_one_of_its_replicas_reaches(
    reached_mhz: dict[int, int], held_mhz: int
) -> None:
    job = job_of(2, tp=2)
    job.profiling.reached_mhz = reached_mhz
    assert _held_back_to(job, {0: [0, 1], 1: [2, 3]}) == held_mhz
    assert _held_back_to(job, {}) == 0


# ---- disturbed measurements ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors_s", "unsteady"),
    [
        ((0.002, 0.002, 0.002, 0.006), set()),
        ((0.002, 0.002, 0.002, 0.00601), {3}),
        ((0.0001, 0.006, 0.0001, 0.0), set()),
        ((0.0001, 0.0061, 0.0001, 0.0), {1}),
        ((0.004, 0.004, 0.004, 0.012), set()),
        ((0.004, 0.004, 0.004, 0.01201), {3}),
    ],
)
def test_runs_at_a_clock_are_unsteady_that_scatter_thrice_as_much_as_usual_and_more_than_a_little(
    errors_s: tuple[float, ...], unsteady: set[int]
) -> None:
    """Of times of 2 s, of which 0.3 % are a little."""
    assert _unsteady(curve((2.0,) * 4, (1.0,) * 4, time_errors_s=errors_s)) == unsteady


# ---- the next round --------------------------------------------------------------------------------------------------


def measured(rank_mhz: Collection[int], *, factor: float = 1.0, kinds: str = "F") -> list[TakenSamples]:
    """Times follow the clock, and energy is least at the maximum, so that no other clock is wanted."""
    return [
        taken(mhz, *(sample(1400 * factor / mhz, kind=kind, energy_j=2400.0 - mhz) for kind in kinds))
        for mhz in rank_mhz
    ]


def swept_job(
    of_ranks: Mapping[int, Collection[int]],
    *,
    pp: int = 1,
    clocks_mhz: tuple[int, ...] = (1400, 1200, 1000),
    num_round: int = 1,
    policy: Policy | None = None,
) -> Job:
    """A series whose ranks have measured at these clocks; as many replicas as there are."""
    job = job_of(len(of_ranks) // pp, pp=pp, policy=policy)
    ranks = tuple(sorted(of_ranks))
    job.profiling.sweeps = {3: begun(3, clocks_mhz=clocks_mhz, ranks=ranks)}
    for later in range(2, num_round + 1):
        job.profiling.sweeps[2 + later] = begun(2 + later, series=3, clocks_mhz=(1400,), ranks=ranks, num_round=later)
    job.profiling.samples = {3: {rank: measured(own) for rank, own in of_ranks.items()}}
    return job


ALL_MHZ = (1400, 1200, 1000)


@pytest.mark.parametrize(
    ("of_ranks", "steps"),
    [
        ({0: ALL_MHZ, 1: (1400, 1000)}, {1: (1400, 1200)}),
        ({0: (1400, 1000), 1: (1400, 1200)}, {0: (1400, 1200)}),
        ({0: (1400, 1200), 1: (1400, 1200)}, {}),  # the sweep was stopped before the last clock
        ({0: (1200, 1000), 1: ALL_MHZ}, {0: (1400,)}),
    ],
)
def test_a_stage_is_measured_at_what_the_lowest_of_all_stages_has_seen(
    of_ranks: dict[int, tuple[int, ...]], steps: dict[int, tuple[int, ...]]
) -> None:
    assert next_round(swept_job(of_ranks, pp=2), 3) == steps


@pytest.mark.parametrize("change", ["away", "without rights", ""])
def test_ranks_that_are_away_or_cannot_set_clocks_measure_nothing_more(change: str) -> None:
    job = swept_job({0: (1200, 1000), 1: (1200, 1000)})
    if change == "away":
        del job.members.rank_of_stream[0]
    elif change:
        job.members.ranks[0].control = "observe"
    assert next_round(job, 3) == dict.fromkeys(range(1, 2) if change else range(2), (1400,))


def test_a_clock_at_which_one_measurement_was_disturbed_is_measured_again() -> None:
    job = swept_job({0: ALL_MHZ}, policy=Policy(max_measured_clocks=3))
    job.profiling.samples[3][0][1:2] = measured((1200,), factor=1.05)
    assert next_round(job, 3) == {0: (1400, 1200)}
    job.profiling.samples[3][0] += measured((1400, 1200))
    assert next_round(job, 3) == {}


@pytest.mark.parametrize(("num_round", "maximum"), [(1, (1400,)), (2, (1400,)), (3, ())])
def test_a_stage_that_heat_holds_back_is_asked_for_the_maximum_until_the_third_round(
    num_round: int, maximum: tuple[int, ...]
) -> None:
    job = swept_job({0: (1200, 1000)}, num_round=num_round)
    job.profiling.reached_mhz = {0: 1150}
    assert next_round(job, 3) == {0: (1400, 1100)}
    job.profiling.samples[3][0] += measured((1100,))
    assert next_round(job, 3) == ({0: maximum} if maximum else {})


def test_stages_on_gpus_of_other_models_are_asked_for_their_own_clocks() -> None:
    job = swept_job({0: (1400, 1000), 1: (1300, 1100)}, pp=2, clocks_mhz=(1400, 1300, 1200, 1100, 1000))
    set_menu(job, 1, (1300, 1100))
    job.profiling.sweeps[3] = replace(job.profiling.sweeps[3], clocks_of_ranks=(ALL_MHZ, (1300, 1100)))
    assert next_round(job, 3) == {0: (1400, 1200)}
    job.profiling.samples[3][1] = measured((1300,))
    assert next_round(job, 3) == {0: (1400, 1200)}, "its sweep was stopped there"
