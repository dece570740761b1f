"""How much evidence a verdict takes: the numbers behind the detector's decisions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerPolicy:
    """Times are seconds of the caller's monotonic clock; degrees are time over the time expected.

    Attributes:
        min_degree: What the lower end of a degree's interval must be above, before anybody acts.
        windows: Iterations that medians are taken over, ascending; times alone judge no sooner than the first.
        z: Of each window: a median must exceed 0 by so many standard errors. In a noisy job this decides, and
            they are so many because noise has heavy tails, and more where a window is short because three outliers
            make a median of five; in a quiet job the interval's lower end decides.
        interval_z: Standard errors between a degree and either end of its interval.
        excused_z: The same, while evidence is collected, where NVML says that a GPU is throttled.
        num_passes: Iterations in a row at which the evidence must suffice.
        max_blind: Iterations in a row that may say nothing about a straggler, before its evidence is no longer fresh.
        latest_window: Iterations that recovery is judged by, and slowness where NVML says that a GPU is throttled:
            their median, ``num_passes`` times in a row.
        release_share: A straggler has recovered where less than this share of its excess is left.
        min_history: Iterations before anything is judged.
        min_peers: Others of the same stage, kind and clock that a reference can be made of; with fewer a rank's own
            history must agree.
        history_settle: Iterations at one clock before a rank's own history there is a reference.
        max_offset: How much slower than its peers a rank may always have been without being a straggler.
        work_doubt: Share of a correction for unequal work that may be wrong.
        min_gpu_samples: NVML readings in a row before they predict by themselves, or say that it is over.
        gpu_gain_share: Least share of a clock's loss that shows in time; the rest may be memory's or the network's.
        grace_s: An iteration that some rank has not reported is judged without it after this.
        stale_s: A rank is silent after this: nothing is known about it any more.
        min_hold_s, min_hold_iterations: A verdict stands for the shorter of both at least.
        gpu_hold_s: The same, where NVML has said why and says that it is over.
        max_raises: Verdicts on one place within ``flap_window_s`` that stood for less than ``worth_iterations``; one
            more is not acted upon before it has stood for so many, or for ``flap_window_s``.
        worth_iterations: What a verdict must stand for, so that waiting saves more than its end costs: the others
            wait some iterations longer than they need to.
        flap_window_s: [s] The span that ``max_raises`` counts in.
        degree_step: A published degree moves when the estimate is this far from it.
        max_ahead: Iterations that may be unjudged at once; half of them wait for ranks that have not reported.
        max_ratio: A time over its expectation beyond this, or below its inverse, is a wrong number.
    """

    min_degree: float = 1.03
    windows: tuple[int, ...] = (5, 8, 16)
    z: tuple[float, ...] = (10.0, 8.0, 7.0)
    interval_z: float = 3.0
    excused_z: float = 2.5
    num_passes: int = 2
    max_blind: int = 6
    latest_window: int = 3
    release_share: float = 0.5
    min_history: int = 8
    min_peers: int = 3
    history_settle: int = 6
    max_offset: float = 0.025
    work_doubt: float = 0.1
    min_gpu_samples: int = 3
    gpu_gain_share: float = 0.5
    grace_s: float = 2.5
    stale_s: float = 10.0
    min_hold_s: float = 3.0
    min_hold_iterations: int = 8
    gpu_hold_s: float = 1.0
    max_raises: int = 3
    worth_iterations: int = 16
    flap_window_s: float = 600.0
    degree_step: float = 0.01
    max_ahead: int = 64
    max_ratio: float = 100.0
