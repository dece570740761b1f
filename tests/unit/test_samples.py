"""Which replicas are believed."""

from perseus_dist.planning.profile.profile_csv import Row
from perseus_dist.planning.profile.samples import undisturbed


def row(time_s: float, *, time_std_s: float = 0.0, samples: int = 4) -> Row:
    return Row(
        line=0,
        stage=0,
        kind="F",
        clock_mhz=1410,
        time_s=time_s,
        energy_j=1.0,
        samples=samples,
        time_std_s=time_std_s,
        energy_std_j=0.0,
        gpu="",
    )


def test_the_slower_of_two_replicas_is_left_out() -> None:
    assert [one.time_s for one in undisturbed([row(1.1), row(1.0)])] == [1.0]


def test_replicas_that_differ_by_noise_all_count() -> None:
    assert len(undisturbed([row(1.0), row(1.015), row(1.01)])) == 3
    assert len(undisturbed([row(1.0, time_std_s=0.05), row(1.06, time_std_s=0.05)])) == 2
    assert len(undisturbed([row(1.0, time_std_s=float("nan")), row(1.06, time_std_s=float("nan"))])) == 1


def test_a_replica_that_scatters_more_was_disturbed_and_is_no_less_slow_for_that() -> None:
    """A GPU that became slow in the middle of a step."""
    rows = [row(1.0, time_std_s=0.001, samples=12), row(1.04, time_std_s=0.042, samples=12)]
    assert undisturbed(rows) == rows[:1]


def test_one_replica_that_was_too_fast_is_not_believed_against_three() -> None:
    """A GPU that did not hold the clock, perhaps."""
    assert [one.time_s for one in undisturbed([row(1.0), row(0.7), row(1.01), row(1.005)])] == [1.0, 1.01, 1.005]


def test_of_two_halves_the_faster_is_believed() -> None:
    assert [one.time_s for one in undisturbed([row(1.0), row(1.05), row(1.0), row(1.05)])] == [1.0, 1.0]


def test_two_replicas_that_are_well_are_believed_against_four_that_are_not() -> None:
    """A whole node is slow: half of the pipelines and more."""
    slow = [row(1.1), row(1.102), row(1.1), row(1.101)]
    assert [one.time_s for one in undisturbed([*slow, row(1.0), row(1.001)])] == [1.0, 1.001]
    assert undisturbed([*slow, row(1.0), row(0.8)]) == slow, "they do not agree"
