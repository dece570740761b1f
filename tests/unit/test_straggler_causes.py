"""The cause that is named for a slow GPU or a late pipeline, by NVML's reasons and by what else is known."""

import numpy as np
import pytest

from perseus_dist.straggler.evidence.gpu_evidence import (
    REASON_CLOCKS_SETTING,
    REASON_HW_SLOWDOWN,
    REASON_HW_THERMAL,
    REASON_IDLE,
    REASON_POWER_BRAKE,
    REASON_POWER_CAP,
    REASON_SW_THERMAL,
)
from perseus_dist.straggler.evidence.peer_baseline import _shared_change
from perseus_dist.straggler.verdicts.causes import Cause, cause_of_slow_cell, cause_of_throttling


@pytest.mark.parametrize(
    ("reasons", "temperature_c", "cause"),
    [
        (REASON_SW_THERMAL, 0.0, Cause.THERMAL),
        (REASON_HW_THERMAL | REASON_POWER_BRAKE, 60.0, Cause.THERMAL),
        (REASON_POWER_BRAKE | REASON_HW_SLOWDOWN, 95.0, Cause.POWER_BRAKE),
        (REASON_HW_SLOWDOWN | REASON_POWER_CAP, 80.0, Cause.THERMAL),
        (REASON_HW_SLOWDOWN | REASON_POWER_CAP, 79.9, Cause.POWER_BRAKE),
        (REASON_HW_SLOWDOWN, 0.0, Cause.POWER_BRAKE),
        (REASON_POWER_CAP | REASON_IDLE, 90.0, Cause.POWER_CAP),
        (REASON_CLOCKS_SETTING | REASON_IDLE, 90.0, Cause.UNKNOWN),
        (0, 90.0, Cause.UNKNOWN),
    ],
)
def test_heat_comes_before_power_and_hardware_before_software(reasons: int, temperature_c: float, cause: Cause) -> None:
    assert cause_of_throttling(reasons, temperature_c) is cause


@pytest.mark.parametrize("is_whole_pipeline", [False, True])
@pytest.mark.parametrize("is_below_clock", [False, True])
def test_a_gpu_is_slow_by_itself_where_nothing_else_explains_it(
    *, is_whole_pipeline: bool, is_below_clock: bool
) -> None:
    cause = cause_of_slow_cell(is_whole_pipeline=is_whole_pipeline, is_below_clock=is_below_clock)
    assert cause is (Cause.UNKNOWN if is_whole_pipeline or is_below_clock else Cause.SLOW_COMPUTE)


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
