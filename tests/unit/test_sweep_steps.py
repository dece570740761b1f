"""Steps in invented sweeps: computations whose times are partly in proportion to the clock."""

import csv
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from perseus_dist.planning.profile.sweep_steps import ClockTime, SweepStep, largest_step

CLOCKS_MHZ = tuple(range(1400, 700, -70))
PROFILES = Path(__file__).parents[2] / "examples" / "profiles"


def swept(slowdown: Callable[[int], float], *, bound: float = 0.8, num_runs: int = 100) -> list[ClockTime]:
    """By share of the time that is in proportion to the clock."""
    return [
        ClockTime(
            clock_mhz=clock, time_s=slowdown(clock) * (1 - bound + bound * CLOCKS_MHZ[0] / clock), num_runs=num_runs
        )
        for clock in CLOCKS_MHZ
    ]


def step(slowdown: Callable[[int], float], **sweep: float) -> SweepStep | None:
    return largest_step({(3, "forward"): swept(slowdown, **sweep), (3, "backward"): swept(slowdown, **sweep)})  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [0.0, 0.5, 1.0])
def test_what_clocks_make_longer_is_no_step(bound: float) -> None:
    assert step(lambda _: 1.0, bound=bound) is None
    assert step(lambda _: 1.3, bound=bound) is None, "slow all the time"


def test_what_is_slow_from_a_clock_on_is_a_step_there() -> None:
    found = step(lambda clock: 1.2 if clock < 1000 else 1.0)
    assert found is not None
    assert (found.stage, found.clock_mhz) == (3, 980)
    assert 0.1 < found.share < 0.2


def test_what_is_over_at_a_clock_is_a_step_there() -> None:
    found = step(lambda clock: 1.2 if clock > 1000 else 1.0)
    assert found is not None
    assert found.clock_mhz == 980
    assert found.share < -0.05


def test_another_kernel_of_one_kind_of_computation_is_no_step() -> None:
    kinds = {(0, "forward"): swept(lambda clock: 0.9 if clock < 1000 else 1.0), (0, "backward"): swept(lambda _: 1.0)}
    assert largest_step(kinds) is None
    kinds = {(0, "forward"): swept(lambda clock: 1.2 if clock < 1000 else 1.0), (0, "backward"): swept(lambda _: 1.0)}
    assert largest_step(kinds) is None


def test_the_noise_of_few_runs_is_no_step() -> None:
    assert step(lambda clock: 1.06 if clock == 980 else 1.0, num_runs=1) is None
    assert step(lambda clock: 1.06 if clock == 980 else 1.0) is not None


def test_little_is_known_of_few_clocks() -> None:
    assert largest_step({}) is None
    assert largest_step({(0, "forward"): swept(lambda _: 1.0)[:1]}) is None


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.csv")), ids=lambda path: path.stem)
def test_profiles_of_gpus_that_were_well_have_no_steps(path: Path) -> None:
    times: defaultdict[tuple[int, str], list[ClockTime]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            at_clock = ClockTime(clock_mhz=int(row["frequency"]), time_s=float(row["time"]), num_runs=100)
            times[int(row["stage"]), row["instruction"]].append(at_clock)
    assert times
    assert largest_step(times) is None
