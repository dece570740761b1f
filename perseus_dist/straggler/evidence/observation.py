"""Observations of a rank: an iteration and its GPU, and the check of them."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationObservation:
    """One iteration of one rank.

    Attributes:
        iteration: Its number.
        time_ratios: (num_kinds) time of all instructions of a kind over what the profile says at the clocks that were
            *requested*. So a plan is never taken for a straggler, and a throttled GPU is.
        requested_mhz: (num_kinds) [MHz] requested on average over the kind's instructions; 0 where none was. Times are
            compared among ranks of the same stage and the same number here.
        pipeline_time_s: [s] from the iteration's begin until the pipeline waits for gradient synchronisation.
        planned_time_s: [s] the same by the plan in force; 0 where it is not known.
        tokens: Work done, in any unit that is the same for all ranks; 0 where it is not known.
        input_wait_s: [s] waited for input data; None where it is not known.
    """

    iteration: int
    time_ratios: tuple[float, ...]
    requested_mhz: tuple[int, ...]
    pipeline_time_s: float = 0.0
    planned_time_s: float = 0.0
    tokens: float = 0.0
    input_wait_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuObservation:
    """A GPU at one instant while it computes.

    Attributes:
        requested_mhz: [MHz] clock requested and due at that instant; 0 where none is.
        observed_mhz: [MHz] the SM clock that NVML reads.
        event_reasons: NVML's clock event reasons, bits.
        temperature_c: [degrees Celsius]; 0 where it is not known.
        power_w: [W]; 0 where it is not known.
        iteration: The newest that the rank had begun; -1 where it is not known.
    """

    requested_mhz: int
    observed_mhz: int
    event_reasons: int = 0
    temperature_c: float = 0.0
    power_w: float = 0.0
    iteration: int = -1


MAX_CLOCK_MHZ = 100_000
MAX_TIME_S = 1e6
MAX_ITERATION = 2**53  # beyond it floats skip integers
MAX_TEMPERATURE_C = 200.0
MAX_POWER_W = 100_000.0


def refusal_of_iteration(seen: IterationObservation, num_kinds: int, max_ratio: float) -> str:
    """Why an iteration's numbers cannot be true, in a sentence; empty where they can."""
    ratios, clocks = seen.time_ratios, seen.requested_mhz
    if len(ratios) != num_kinds or len(clocks) != num_kinds:
        return f"saw {len(ratios)} times and {len(clocks)} clocks, expected {num_kinds} of each: one for each kind"
    for ratio in ratios:
        if not 1 / max_ratio <= ratio <= max_ratio:  # NaN compares false
            return f"saw a time of {ratio:g} times the profile's, expected {1 / max_ratio:g} to {max_ratio:g}"
    for clock_mhz in clocks:
        if not 0 <= clock_mhz <= MAX_CLOCK_MHZ:
            return f"saw a requested clock of {clock_mhz} MHz, expected 0 to {MAX_CLOCK_MHZ}"
    if not 0 <= seen.iteration <= MAX_ITERATION:
        return f"saw iteration {seen.iteration}, expected 0 to {MAX_ITERATION}"
    if not (0 <= seen.pipeline_time_s <= MAX_TIME_S and 0 <= seen.planned_time_s <= MAX_TIME_S):
        times = f"{seen.pipeline_time_s:g} s (planned: {seen.planned_time_s:g} s)"
        return f"saw a pipeline's time of {times}, expected 0 to {MAX_TIME_S:g} s"
    if not (seen.tokens >= 0 and math.isfinite(seen.tokens)):
        return f"saw {seen.tokens:g} tokens, expected a number of at least 0, 0 for unknown"
    if seen.input_wait_s is not None and not 0 <= seen.input_wait_s <= MAX_TIME_S:
        return f"saw {seen.input_wait_s:g} s of waiting for input, expected 0 to {MAX_TIME_S:g} s"
    return ""


def refusal_of_gpu(seen: GpuObservation) -> str:
    """Why a GPU's reading cannot be true, in a sentence; empty where it can."""
    if not (0 <= seen.requested_mhz <= MAX_CLOCK_MHZ and 0 <= seen.observed_mhz <= MAX_CLOCK_MHZ):
        clocks = f"{seen.observed_mhz} MHz (requested: {seen.requested_mhz} MHz)"
        return f"saw a clock of {clocks}, expected 0 to {MAX_CLOCK_MHZ} MHz"
    if not 0 <= seen.event_reasons < 2**63:
        return f"saw event reasons {seen.event_reasons}, expected bits within 63"
    if not -MAX_TEMPERATURE_C <= seen.temperature_c <= MAX_TEMPERATURE_C:
        return f"saw a temperature of {seen.temperature_c:g} degrees, expected -200 to 200"
    if not 0 <= seen.power_w <= MAX_POWER_W:
        return f"saw a power of {seen.power_w:g} W, expected 0 to {MAX_POWER_W:g} W"
    if not -1 <= seen.iteration <= MAX_ITERATION:
        return f"saw iteration {seen.iteration}, expected 0 to {MAX_ITERATION}, -1 for unknown"
    return ""
