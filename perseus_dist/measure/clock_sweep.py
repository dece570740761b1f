"""Forward and backward at each of some clocks, downwards and upwards again: time, power, and how both repeat."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perseus_dist.agent.measuring.held_clock import THROTTLE_REASONS
from perseus_dist.measure.bench.bench import Bench, Block
from perseus_dist.measure.estimates import undisturbed

KINDS = ("F", "B")
_LEAST_SHARE = 0.45  # of the maximum clock: below that nothing saves energy
_CROWDING = 1.5  # 1 spreads clocks evenly
_MIN_CLOCKS, _MAX_CLOCKS = 4, 32
_MIN_BLOCK_S = 0.3
_PERIODS_PER_BLOCK = 8
_RUNS_PER_BLOCK = 5
_LOST_S = 0.25  # of a block: settling, and the end of its last run

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One kind of work at one clock, measured once.

    Attributes:
        kind: F or B.
        clock_mhz: Asked for; where nothing was, the one that was read.
        observed_mhz: That was read while it ran.
        downwards: Whether the sweep went down then, or up.
        time_s, time_std_s: [s] mean and standard deviation over its runs.
        num_runs: How many.
        power_w, power_se_w: [W] mean and its standard error.
        event_reasons: NVML's, bits.
        temperature_c: At the end.
    """

    kind: str
    clock_mhz: int
    observed_mhz: int
    downwards: bool
    time_s: float
    time_std_s: float
    num_runs: int
    power_w: float
    power_se_w: float
    event_reasons: int
    temperature_c: int | None

    @property
    def is_braked(self) -> bool:
        """Whether heat or a hardware brake kept the GPU below its clock."""
        return bool(self.event_reasons & THROTTLE_REASONS)

    @property
    def energy_j(self) -> float:
        """[J] of one run."""
        return self.power_w * self.time_s


def choose_clocks(supported_mhz: Sequence[int], num_clocks: int) -> tuple[int, ...]:
    """From the maximum down to where lower clocks save nothing, closer together near the maximum, descending.

    Near the maximum the energy falls fastest, and little time to spare is all that most instructions have.

    Args:
        supported_mhz: Descending.
        num_clocks: At most so many.
    """
    useful = [clock for clock in supported_mhz if clock >= _LEAST_SHARE * supported_mhz[0]]
    count = min(max(2, num_clocks), len(useful))
    if count < 2:
        return tuple(supported_mhz[:2])
    shares = [(k / (count - 1)) ** _CROWDING for k in range(count)]
    return tuple(useful[max(k, round(share * (len(useful) - 1)))] for k, share in enumerate(shares))


def sweep_clocks(bench: Bench, seconds: float, say: Progress) -> tuple[tuple[int, ...], list[Point]]:
    """Measure at as many clocks as there is time for.

    Args:
        bench: At the maximum clock, with a control that sets clocks.
        seconds: For all of it; half of the blocks at least are measured, however long that takes.
        say: Called with the progress, a sentence.

    Returns:
        The clocks, descending, and two points of each kind at each clock; one where time ran out.

    Raises:
        MeasureError: A clock cannot be set, or power not be determined.
    """
    until_s = time.monotonic() + seconds
    pilots = {kind: bench.run(kind, _MIN_BLOCK_S) for kind in KINDS}
    block_s = {
        kind: max(_MIN_BLOCK_S, _PERIODS_PER_BLOCK * bench.period_ns / 1e9, _RUNS_PER_BLOCK * max(pilot.times_s))
        for kind, pilot in pilots.items()
    }
    a_clock_s = 2 * sum(length_s + _LOST_S for length_s in block_s.values())
    num_clocks = min(_MAX_CLOCKS, max(_MIN_CLOCKS, int((until_s - time.monotonic()) / a_clock_s)))
    clocks_mhz = choose_clocks(bench.control.clocks_mhz, num_clocks)
    points: list[Point] = []
    for downwards in (True, False):
        for clock_mhz in clocks_mhz if downwards else reversed(clocks_mhz):
            if not downwards and time.monotonic() > until_s:
                break
            say(f"{clock_mhz} MHz, {'downwards' if downwards else 'upwards'}")
            bench.hold(clock_mhz)
            points += [
                point_of(bench.run(kind, block_s[kind]), clock_mhz=clock_mhz, downwards=downwards) for kind in KINDS
            ]
    return clocks_mhz, points


def observe_clock(bench: Bench, seconds: float) -> list[Point]:
    """Measure at whatever clock the GPU runs by itself, twice.

    Raises:
        MeasureError: Power cannot be determined.
    """
    block_s = max(_MIN_BLOCK_S, _PERIODS_PER_BLOCK * bench.period_ns / 1e9, seconds / 4 - _LOST_S)
    blocks = [(bench.run(kind, block_s), downwards) for downwards in (True, False) for kind in KINDS]
    # A clock that wanders by itself, as under a power cap, is one clock: there is no other to choose.
    clock_mhz = blocks[0][0].clock_mhz
    return [point_of(block, clock_mhz=clock_mhz, downwards=downwards) for block, downwards in blocks]


def point_of(block: Block, *, clock_mhz: int, downwards: bool) -> Point:
    """Time and energy of a block."""
    times_s = undisturbed(block.times_s)
    return Point(
        kind=block.kind,
        clock_mhz=clock_mhz,
        observed_mhz=block.clock_mhz,
        downwards=downwards,
        time_s=statistics.fmean(times_s),
        time_std_s=statistics.stdev(times_s),
        num_runs=len(times_s),
        power_w=block.power_w,
        power_se_w=block.power_se_w,
        event_reasons=block.event_reasons,
        temperature_c=block.temperature_c,
    )
