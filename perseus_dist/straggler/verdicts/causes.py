"""Why a rank is slow, as far as evidence goes."""

from enum import StrEnum

from perseus_dist.straggler.evidence.gpu_evidence import (
    REASON_HW_SLOWDOWN,
    REASON_HW_THERMAL,
    REASON_POWER_BRAKE,
    REASON_POWER_CAP,
    REASON_SW_THERMAL,
)

_HOT_C = 80.0  # hardware slowdown names no reason of its own: hot GPUs are slowed by heat, cool ones by their supply


class Cause(StrEnum):
    """The cause of slowness."""

    THERMAL = "thermal"
    POWER_CAP = "power_cap"
    POWER_BRAKE = "power_brake"
    SLOW_COMPUTE = "slow_compute"
    SLOW_INPUT = "slow_input"
    SLOW_NETWORK = "slow_network"
    UNKNOWN = "unknown"


def cause_of_throttling(reasons: int, temperature_c: float) -> Cause:
    """The cause behind NVML's event reasons; hardware before software, heat before power.

    Args:
        reasons: Bits read while the clock was below the one requested.
        temperature_c: [degrees Celsius]; 0 where it is not known.
    """
    if reasons & (REASON_HW_THERMAL | REASON_SW_THERMAL):
        return Cause.THERMAL
    if reasons & REASON_POWER_BRAKE:
        return Cause.POWER_BRAKE
    if reasons & REASON_HW_SLOWDOWN:
        return Cause.THERMAL if temperature_c >= _HOT_C else Cause.POWER_BRAKE
    if reasons & REASON_POWER_CAP:
        return Cause.POWER_CAP
    return Cause.UNKNOWN


def cause_of_slow_cell(*, is_whole_pipeline: bool, is_below_clock: bool) -> Cause:
    """The cause of slow instructions that NVML names no reason for.

    Args:
        is_whole_pipeline: The other stages of the pipeline are slow alike, so that no one GPU is to blame.
        is_below_clock: The clock is not the one requested, and no reason is given.
    """
    return Cause.UNKNOWN if is_whole_pipeline or is_below_clock else Cause.SLOW_COMPUTE


def cause_of_late_pipeline(*, is_explained: bool, excess: float, input_share: float) -> Cause:
    """The cause of a pipeline that is late though none of its ranks stands out.

    Args:
        is_explained: All its instructions are slow.
        excess: How much later than the others it is, as a share of an iteration.
        input_share: How much longer it waits for input than the others, as a share of an iteration; NaN if unknown.
    """
    if is_explained or input_share != input_share:
        return Cause.UNKNOWN
    return Cause.SLOW_INPUT if input_share >= excess / 2 else Cause.SLOW_NETWORK
