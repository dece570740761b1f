"""References at their limits: how many peers, how long a history, how clearly the profile must speak."""

import math

import numpy as np
import pytest
from test_gpu_evidence import POLICY
from test_straggler_peers import usual

from perseus_dist.straggler.evidence.peer_baseline import PeerBaseline, _shared_change
from perseus_dist.straggler.evidence.peers import median_of_others
from perseus_dist.units import FloatArray

CLEARLY = math.log(POLICY.min_degree) + 0.02  # by the profile, whose error is two percent


class Replicas:
    """Of stages, with one kind; times are logarithms over the profile."""

    def __init__(self, num: int, *, is_profiled: bool = True, stages: list[int] | None = None) -> None:
        self.num, self.is_profiled = num, is_profiled
        self.reference = PeerBaseline(np.array(stages or [0] * num), np.ones(1), POLICY)
        self.clocks = [1410.0] * num

    def take(
        self,
        *times: float,
        stragglers: tuple[int, ...] = (),
        frozen: tuple[int, ...] = (),
        throttled: tuple[int, ...] = (),
    ) -> tuple[FloatArray, FloatArray]:
        """One iteration: (agreed, alone)."""
        is_straggler, is_frozen, is_throttled = (
            np.isin(np.arange(self.num), of) for of in (stragglers, frozen, throttled)
        )
        return self.reference.deviations(
            np.array(times)[:, None],
            np.array(self.clocks)[:, None],
            is_straggler,
            is_frozen | is_straggler,
            usual(self.num),
            is_throttled if self.is_profiled else None,
        )

    def settle(self, *times: float, num: int = 12) -> "Replicas":
        for _ in range(num):
            self.take(*times)
        return self


@pytest.mark.parametrize(("num", "is_enough"), [(POLICY.min_peers, False), (POLICY.min_peers + 1, True)])
def test_enough_peers_speak_from_the_first_iteration_on(num: int, *, is_enough: bool) -> None:
    made = Replicas(num)
    agreed, alone = made.take(0.03, *[0.0] * (num - 1))
    assert made.reference.num_others.tolist() == [num - 1] * num
    np.testing.assert_allclose(agreed, [0.03, *[0.0] * (num - 1)] if is_enough else [math.nan] * num)
    np.testing.assert_allclose(alone, agreed)
    assert made.reference.doubts.tolist() == [0.0] * num


def test_iterations_are_counted_in_which_there_was_a_peer() -> None:
    made = Replicas(3, stages=[0, 0, 1])
    made.take(0.0, 0.0, 0.0)
    made.take(0.0, math.nan, 0.0)
    made.take(0.0, 0.0, 0.0)
    assert made.reference.num_compared.tolist() == [2, 2, 0]


def test_what_has_always_been_a_little_slower_than_enough_peers_is_usual() -> None:
    made = Replicas(5).settle(0.01, 0.0, 0.0, 0.0, 0.0, num=150)
    agreed, _ = made.take(0.01, 0.0, 0.0, 0.0, 0.0)
    assert agreed[0] == pytest.approx(0.0, abs=0.003)
    agreed, _ = made.take(0.2, 0.0, 0.0, 0.0, 0.0)
    assert agreed[0] == pytest.approx(0.19, abs=0.003)


@pytest.mark.parametrize("frozen", [(4,), ()], ids=str)
def test_beside_what_is_not_usual_a_place_with_enough_peers_learns_all_the_same(frozen: tuple[int, ...]) -> None:
    made = Replicas(5)
    for _ in range(80):
        made.take(0.01, *[0.0] * 4, frozen=frozen)
    assert made.take(0.01, *[0.0] * 4)[0][0] < 0.006


def test_nothing_usual_is_learned_where_it_must_not_be() -> None:
    made = Replicas(5)
    for _ in range(80):
        made.take(0.01, 0.0, 0.0, 0.0, 0.0, frozen=(0,))
    agreed, _ = made.take(0.01, 0.0, 0.0, 0.0, 0.0)
    assert agreed[0] == pytest.approx(0.01, abs=1e-4)


@pytest.mark.parametrize(("share", "is_slow"), [(0.98, False), (1.02, True)])
def test_the_profile_speaks_where_it_says_clearly_that_one_of_two_is_slow(share: float, *, is_slow: bool) -> None:
    made = Replicas(2)
    agreed, _ = made.take(share * CLEARLY, 0.0)
    np.testing.assert_allclose(agreed, [share * CLEARLY if is_slow else math.nan, math.nan])
    np.testing.assert_allclose(made.reference.doubts, [0.02 if is_slow else 0.0, 0.0])


def test_beside_the_profile_the_only_peer_need_agree_by_half() -> None:
    agreed, _ = Replicas(2).take(0.2, 0.16, frozen=(1,))
    assert agreed[0] == pytest.approx(0.08)
    agreed, _ = Replicas(2).take(0.2, 0.18, frozen=(1,))
    assert np.isnan(agreed[0])


@pytest.mark.parametrize(("peer", "agreed_on"), [(0.0, 0.2), (0.1, 0.2), (0.14, 0.12), (0.2, 0.0), (0.3, 0.0)])
def test_beside_history_the_only_peer_need_agree_by_half_and_only_about_being_slow(
    peer: float, agreed_on: float
) -> None:
    made = Replicas(2, is_profiled=False).settle(0.0, 0.0)
    agreed, alone = made.take(0.2, peer, stragglers=(0,), frozen=(1,))
    assert agreed[0] == pytest.approx(agreed_on, abs=1e-6)
    assert alone[0] == pytest.approx(0.2, abs=1e-6)


def test_a_place_that_is_faster_than_it_was_is_so_whatever_its_peer_says() -> None:
    made = Replicas(2).settle(0.0, 0.0)
    agreed, _ = made.take(-0.2, -0.3, stragglers=(0,), frozen=(1,))
    assert agreed[0] == pytest.approx(-0.2)


def test_a_history_speaks_once_it_has_settled_and_begins_anew_at_another_clock() -> None:
    made = Replicas(2, is_profiled=False)
    for _ in range(2):
        known = [not np.isnan(made.take(0.0, 0.0)[1]).any() for _ in range(POLICY.history_settle + 2)]
        assert known == [False] * (POLICY.history_settle + 1) + [True]
        made.clocks = [clock - 15.0 for clock in made.clocks]


def test_a_history_is_the_mean_of_its_first_iterations() -> None:
    made = Replicas(2, is_profiled=False)
    for time in (0.9, *[0.01, 0.03] * 3):  # the first one at new clocks may be of both
        made.take(time, 0.0)
    _, alone = made.take(0.05, 0.0)
    assert alone[0] == pytest.approx(0.03)


def test_a_history_moves_by_bounded_steps() -> None:
    made = Replicas(2, is_profiled=False).settle(0.0, 0.0, num=7)
    moved = []
    for outlier in (0.03, 3.0):
        one = Replicas(2, is_profiled=False).settle(0.0, 0.0, num=7)
        one.take(outlier, 0.0)
        moved.append(one.take(0.0, 0.0)[1][0])
    assert moved[0] == pytest.approx(moved[1])
    assert moved[0] < made.take(0.0, 0.0)[1][0]


def test_what_all_others_have_changed_by_is_no_ones_own_change() -> None:
    made = Replicas(5, is_profiled=False).settle(*[0.0] * 5)
    made.clocks = [1000.0, 1100.0, 1200.0, 1300.0, 1410.0]
    made.settle(*[0.0] * 5)
    _, alone = made.take(0.3, 0.1, 0.1, 0.1, 0.1)
    assert alone[0] == pytest.approx(0.2, abs=0.01)
    _, alone = made.take(0.0, -0.1, -0.1, -0.1, -0.1)
    assert alone[0] == pytest.approx(0.1, abs=0.02)


def test_one_or_two_that_become_faster_make_others_slower_by_no_more_than_a_little() -> None:
    made = Replicas(3, is_profiled=False).settle(*[0.0] * 3)
    made.clocks = [1000.0, 1100.0, 1200.0]
    made.settle(*[0.0] * 3)
    _, alone = made.take(0.0, -0.1, -0.1)
    assert alone[0] == pytest.approx(0.02)
    _, alone = made.take(0.0, 0.1, 0.1)
    assert alone[0] == pytest.approx(-0.1, abs=0.01)


@pytest.mark.parametrize(("change", "begin"), [(0.18, 0.0), (-0.18, 0.1)], ids=["slower", "faster"])
def test_a_place_that_has_no_part_in_what_happens_to_the_job_has_a_history_without_it(
    change: float, begin: float
) -> None:
    made = Replicas(6, is_profiled=False, stages=[0, 0, 0, 0, 1, 2]).settle(*[0.0] * 6)
    made.clocks[4:] = [1200.0, 1200.0]
    for _ in range(POLICY.history_settle + 2):
        made.take(*[change] * 4, begin, begin, frozen=())
    _, alone = made.take(*[0.0] * 4, begin, begin)
    assert np.abs(alone[4:]).max() < 0.05


@pytest.mark.parametrize("num", [1, 2, 3, 4, 5, 6])
def test_what_is_left_out_is_compared_with_all_that_remain_of_its_group(num: int) -> None:
    remaining = np.array([0.7, 0.1, 0.9, 0.3, 0.5, 0.2])[:num]
    values = np.concatenate([[9.0, 8.0], remaining, [50.0, 60.0, 70.0]])
    groups = np.array([1, 1, *[1] * num, 2, 2, 2])
    medians, num_others = median_of_others(values, groups, np.isin(np.arange(len(values)), (0, 1)))
    assert medians[:2] == pytest.approx([np.median(remaining)] * 2)
    assert num_others[:2].tolist() == [num] * 2
    assert medians[-3:].tolist() == [65.0, 60.0, 55.0]


# ---- where no peer runs at the same clock ----------------------------------------------------------------------------


def test_a_straggler_alone_at_its_clock_is_compared_with_what_it_was_beside_its_peer() -> None:
    made = Replicas(2).settle(0.05, 0.05)
    made.clocks = [1410.0, 1005.0]
    agreed, _ = made.take(0.3, 0.0, stragglers=(0,))
    assert agreed[0] == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("common", [0.2, -0.01])
def test_what_happens_to_the_whole_job_is_taken_out_of_that(common: float) -> None:
    made = Replicas(5).settle(*[0.0] * 5)
    made.clocks = [1410.0, 1005.0, 1110.0, 1200.0, 1305.0]
    made.settle(*[0.0] * 5)
    agreed, _ = made.take(0.25 + common, *[common] * 4, stragglers=(0,))
    assert agreed[0] == pytest.approx(0.25, abs=0.001)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_straggler_that_was_known_before_is_held_against_the_profile(*, is_resumed: bool) -> None:
    made = Replicas(4, stages=[0, 0, 1, 1])
    if is_resumed:
        made.reference.resume(0)
    made.clocks = [1410.0, 1005.0, 1410.0, 1005.0]
    agreed, alone = made.take(0.25, 0.0, 0.0, 0.0, stragglers=(0,))
    np.testing.assert_allclose(agreed, [0.25 if is_resumed else math.nan, *[math.nan] * 3])
    np.testing.assert_allclose(alone, agreed)


@pytest.mark.parametrize(("above", "is_well"), [(0.019, True), (0.021, False)])
def test_all_of_a_stage_that_were_slow_from_the_beginning_are_well_where_the_profile_says_so(
    above: float, *, is_well: bool
) -> None:
    made = Replicas(2)
    agreed, _ = made.take(above, above, stragglers=(0, 1))
    np.testing.assert_allclose(agreed, [above if is_well else math.nan] * 2)


def test_a_place_that_is_no_straggler_is_shown_alone_at_its_clock_without_the_profiles_error() -> None:
    made = Replicas(5).settle(*[0.0] * 5)
    made.clocks = [1410.0, 1005.0, 1110.0, 1200.0, 1305.0]
    agreed, _ = made.take(0.1, *[0.0] * 4)
    assert agreed == pytest.approx([0.08, 0.0, 0.0, 0.0, 0.0], abs=0.001)
    agreed, _ = made.take(-0.1, *[0.0] * 4)
    assert agreed[0] == pytest.approx(-0.08, abs=0.005)
    few = Replicas(3).settle(*[0.0] * 3)
    few.clocks = [1410.0, 1005.0, 1110.0]
    assert np.isnan(few.take(0.1, 0.0, 0.0)[0]).all()


def test_kinds_count_by_their_share_in_what_a_rank_computes() -> None:
    reference = PeerBaseline(np.zeros(5, dtype=np.intp), np.array([0.75, 0.25]), POLICY)
    values = np.zeros((5, 2))
    values[0], values[1] = (0.1, 0.0), (0.0, 0.1)
    nobody = np.zeros(5, dtype=bool)
    above, _ = reference.deviations(values, np.full((5, 2), 1410.0), nobody, nobody, usual(5), nobody)
    np.testing.assert_allclose(above, [0.075, 0.025, 0.0, 0.0, 0.0])


def test_where_few_others_are_seen_nothing_is_taken_out_of_what_a_straggler_was_beside_its_peers() -> None:
    made = Replicas(5).settle(*[0.0] * 5, num=3)
    made.clocks = [1410.0, 1005.0, 1110.0, 1200.0, 1305.0]
    agreed, _ = made.take(0.25, 0.0, math.nan, math.nan, math.nan, stragglers=(0,))
    np.testing.assert_allclose(agreed, [0.25, *[math.nan] * 4])


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ((0.3, 0.1, 0.2), 0.1),
        ((-0.3, -0.1), -0.1),
        ((0.3, -0.1), 0.0),
        ((0.0, 0.2), 0.0),
        ((0.3,), 0.0),
        ((), 0.0),
    ],
    ids=["slower", "faster", "both ways", "one not at all", "one alone", "none"],
)
def test_places_share_the_least_change_that_all_have_one_way(changes: tuple[float, ...], shared: float) -> None:
    assert _shared_change(np.array(changes)) == pytest.approx(shared)
