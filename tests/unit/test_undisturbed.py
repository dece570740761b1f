"""Which replicas are believed."""

from perseus_dist.planning.profile_csv import Row
from perseus_dist.planning.undisturbed import undisturbed_rows


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
    assert [one.time_s for one in undisturbed_rows([row(1.1), row(1.0)])] == [1.0]


def test_replicas_that_differ_by_noise_all_count() -> None:
    assert len(undisturbed_rows([row(1.0), row(1.015), row(1.01)])) == 3
    assert len(undisturbed_rows([row(1.0, time_std_s=0.05), row(1.06, time_std_s=0.05)])) == 2
    assert len(undisturbed_rows([row(1.0, time_std_s=float("nan")), row(1.06, time_std_s=float("nan"))])) == 1
