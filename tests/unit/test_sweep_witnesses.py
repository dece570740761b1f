"""Which replicas have measured a clock, and how often: one that is a group of ranks measures once, with all of them."""

from perseus_dist.messages.from_agent import ProfileSamples, Sample
from perseus_dist.planner.job.state.profiling import TakenSamples
from perseus_dist.planner.lifecycle.sweeping.witnesses import of_newest_state, witnesses
from perseus_dist.straggler.layout import RankCoords

CLOCKS_MHZ = (1400, 1000)


def taken(clock_mhz: int, kinds: str = "FB") -> TakenSamples:
    samples = tuple(
        Sample(
            chunk=0,
            kind=kind,
            clock_mhz=clock_mhz,
            time_s=1400 / clock_mhz,
            energy_j=100.0,
            time_std_s=0.001,
            energy_std_j=1.0,
            num_runs=8,
            window_s=4.0,
        )
        for kind in kinds
    )
    return TakenSamples(clock_mhz, ProfileSamples(sequence=1, sweep_id=1, step=0, samples=samples))


def test_ranks_of_a_group_are_one_witness_for_each_time_that_they_measured() -> None:
    """Counted by rank, a disturbed measurement of one replica looked like several, and was not taken again."""
    places = {rank: RankCoords(0, rank // 4, rank % 4) for rank in range(8)}
    once = {rank: [taken(clock) for clock in CLOCKS_MHZ] for rank in places}
    assert witnesses(once, places, places) == {0: {clock: {0: 1, 1: 1} for clock in CLOCKS_MHZ}}
    again = {**once, **{rank: [*once[rank], taken(1000)] for rank in range(4)}}
    assert witnesses(again, places, places)[0][1000] == {0: 2, 1: 1}


def test_a_rank_that_missed_a_computation_or_is_gone_takes_nothing_from_the_others() -> None:
    places = {rank: RankCoords(0, 0, rank) for rank in range(2)}
    of_ranks = {0: [taken(1400), taken(1000, "F")], 1: [taken(1400), taken(1000)]}
    assert witnesses(of_ranks, places, places) == {0: {1400: {0: 1}, 1000: {0: 1}}}
    assert witnesses(of_ranks, places, [0]) == {0: {1400: {0: 1}}}
    assert witnesses({1: of_ranks[1]}, places, places) == {0: {1400: {0: 1}, 1000: {0: 1}}}


def test_samples_before_the_first_of_the_maximum_clock_may_be_of_another_state() -> None:
    """The step of the maximum clock was lost while a GPU was slow, and came last, when it was no longer."""
    lost_first = {0: [taken(1000), taken(1400), taken(1200)], 1: [taken(1400), taken(1000)]}
    assert of_newest_state(lost_first) == {0: lost_first[0][1:], 1: lost_first[1]}
