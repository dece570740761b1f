"""How long a change of clocks takes, by its target: until NVML reads the clock back, and until kernels feel it.

The driver's time depends mostly on the target (LATEST, arXiv 2502.20075), so each target is gone to many times, always
from the same clock: the maximum, and for the maximum the lowest that was swept.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_dist.measure.bench.bench import Bench
from perseus_dist.measure.clock_sweep import Progress
from perseus_dist.measure.estimates import Quantiles, change_ns

_BEFORE_S = 0.008
_AFTER_S = 0.03  # once the clock was read back: kernels may feel it later
_MAX_WAIT_S = 0.6  # where it was not: the slowest changes known take half a second
_A_TRIAL_S = 0.08  # about, with all waiting
_MIN_TRIALS, _MAX_TRIALS = 3, 20
_MAX_TARGETS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One change of clocks; None is not known.

    Attributes:
        to_mhz: The clock that was asked for.
        call_s: [s] from the request until NVML had set it.
        read_back_s: [s] until NVML read the clock, looked at every 2 ms.
        kernels_s: [s] until kernels took another time.
    """

    to_mhz: int
    call_s: float | None
    read_back_s: float | None
    kernels_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLatency:
    """All changes to one clock [s]; a figure without any readings was never told."""

    clock_mhz: int
    num_trials: int
    call_s: Quantiles
    read_back_s: Quantiles
    kernels_s: Quantiles

    @property
    def switch_s(self) -> Quantiles:
        """Until kernels felt it, or until NVML read it back where that is not known."""
        return self.kernels_s if self.kernels_s.num else self.read_back_s


def measure_latencies(bench: Bench, clocks_mhz: Sequence[int], seconds: float, say: Progress) -> list[TargetLatency]:
    """Go to every one of some clocks and back, as often as there is time for.

    Args:
        bench: With a control that sets clocks.
        clocks_mhz: Descending; of a single one there is nothing to measure.
        seconds: For all of it; every target is gone to three times, however long that takes.
        say: Called with the progress, a sentence.

    Raises:
        MeasureError: A clock cannot be set.
    """
    if len(clocks_mhz) < 2:
        return []
    highest_mhz, lowest_mhz = clocks_mhz[0], clocks_mhz[-1]
    step = -(-len(clocks_mhz[1:]) // _MAX_TARGETS)
    targets = sorted({*clocks_mhz[1::step], lowest_mhz}, reverse=True)
    num_rounds = min(_MAX_TRIALS, max(_MIN_TRIALS, int(seconds / (2 * _A_TRIAL_S * len(targets)))))
    until_s = time.monotonic() + seconds
    trials: list[Trial] = []
    for number in range(num_rounds):
        if number >= _MIN_TRIALS and time.monotonic() > until_s:
            break
        say(f"changes of clocks, round {number + 1} of {num_rounds}")
        for target_mhz in targets:
            bench.hold(highest_mhz)
            trials.append(_try(bench, target_mhz))
        bench.hold(lowest_mhz)
        trials.append(_try(bench, highest_mhz))
    return summarise(trials)


def summarise(trials: Sequence[Trial]) -> list[TargetLatency]:
    """One summary a target clock, highest clock first."""
    by_target: dict[int, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_target[trial.to_mhz].append(trial)
    return [
        TargetLatency(
            clock_mhz=clock_mhz,
            num_trials=len(same),
            call_s=Quantiles.of([trial.call_s for trial in same if trial.call_s is not None]),
            read_back_s=Quantiles.of([trial.read_back_s for trial in same if trial.read_back_s is not None]),
            kernels_s=Quantiles.of([trial.kernels_s for trial in same if trial.kernels_s is not None]),
        )
        for clock_mhz, same in sorted(by_target.items(), reverse=True)
    ]


def _try(bench: Bench, to_mhz: int) -> Trial:
    """One change from the clock that the GPU is held at, under short kernels."""
    probes = bench.probes()
    until_s = time.monotonic() + _BEFORE_S
    while time.monotonic() < until_s:
        probes.launch()
    request_ns = bench.request(to_mhz)
    report, end_s = None, time.monotonic() + _MAX_WAIT_S
    while time.monotonic() < end_s:
        probes.launch()
        if report is None and (report := bench.report_of(request_ns)) is not None and report.reached:
            end_s = time.monotonic() + _AFTER_S
    begins_ns, ends_ns = probes.times_ns()
    changed_ns = change_ns(begins_ns, ends_ns, request_ns)
    return Trial(
        to_mhz=to_mhz,
        call_s=(report.set_ns - request_ns) / 1e9 if report is not None and report.set_ns else None,
        read_back_s=(report.reached_ns - request_ns) / 1e9 if report is not None and report.reached_ns else None,
        kernels_s=None if changed_ns is None else (changed_ns - request_ns) / 1e9,
    )
