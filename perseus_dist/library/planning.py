"""From a profile and a schedule to a frontier."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from perseus_dist.errors import ArgumentError
from perseus_dist.library import arguments
from perseus_dist.library.frontier import Frontier
from perseus_dist.library.profile import Profile, as_profile
from perseus_dist.library.schedule import Schedule, as_schedule
from perseus_dist.planning.coarse.coarse_frontier import plan_by
from perseus_dist.planning.frontier.frontier_file import load_frontier as load_core
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.power_bounds import MIN_GPU_POWER_W
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.units import deadline_ps_from_s, ps_from_s, uw_from_w

_WATTS = f"watts from 0 to {arguments.MAX_POWER_W:g} that one GPU draws while it waits, such as 80"


def plan(
    profile: Profile | str | os.PathLike[str],
    schedule: Schedule,
    *,
    blocking_power_w: float | Iterable[float],
    tensor_parallel: int = 1,
    switch_latency_s: float | None = None,
    slowdowns: float | Iterable[float] = (),
    deadlines_s: float | Iterable[float] = (),
    granularity: str = "instruction",
    progress: Callable[[str, float], bool | None] | None = None,
) -> Frontier:
    """Trace the time-energy frontier of one training iteration.

    Args:
        profile: Time and energy of each instruction at each clock, or the path of such a CSV file.
        schedule: The instructions of each pp_rank, in execution order.
        blocking_power_w: [W] power of ONE GPU while it waits for a peer: one number, or (num_ranks) one for each
            pp_rank.
        tensor_parallel: GPUs that share each instruction.
        switch_latency_s: [s] from asking for a clock to having it, 0.006 to 0.02 on real GPUs, whatever the profile
            says. By default what the profile says of each clock, else 0. Plans meet their times with latencies counted,
            and take longer to find.
        slowdowns: Multiples of the time of all-max at which a plan of its own is wanted. Plans along the frontier lie
            about 0.1 % apart, and ``Frontier.at`` chooses among them.
        deadlines_s: [s] the same as times.
        granularity: ``"instruction"``, or ``"phase"`` or ``"rank"`` where instructions cannot be seen while training
            runs: one clock for each pp_rank in warm-up, steady state and cool-down, or for all its iteration. The bound
            is then that of all such plans.
        progress: Called a few times a second with the phase and the share of it that is done; False cancels.

    Raises:
        ValueError: An argument is of another type or lies outside of what makes sense, the profile cannot be read, it
            does not fit the schedule, or ``progress`` cancelled. The message names the argument or the file.

    Example:
        >>> import perseus_dist
        >>> schedule = perseus_dist.Schedule.one_f_one_b(pp=4, microbatches=8)
        >>> frontier = plan("profile.csv", schedule, blocking_power_w=80, slowdowns=[1.05])
        >>> frontier.at(slowdown=1.05).save("plan.json")
        >>> plan("profile.csv", schedule, blocking_power_w=[80, 81])
        Traceback (most recent call last):
        ...
        perseus_dist.errors.ArgumentError: blocking_power_w: saw 2 values, expected 1 or 4; give one for all, or ...
    """
    measured, order = as_profile(profile), as_schedule(schedule)
    if switch_latency_s is not None:
        measured = replace(measured, clock_changes={})
    problem = make_problem(
        order,
        measured,
        blocking_uw_of_rank=_blocking_uw(blocking_power_w, order.num_ranks),
        tensor_parallel=arguments.positive_int("tensor_parallel", tensor_parallel),
    )
    latency_s = arguments.number(
        "switch_latency_s",
        0.0 if switch_latency_s is None else switch_latency_s,
        low=0,
        high=arguments.MAX_SWITCH_LATENCY_S,
        expected=f"seconds from 0 to {arguments.MAX_SWITCH_LATENCY_S:g}, such as 0.012",
    )
    latency_ps = int(ps_from_s(latency_s))
    all_max_ps = replay_all_max(problem, switch_latency_ps=latency_ps).time_ps
    deadlines_ps = {
        name: arguments.deadline_ps_of_slowdown(name, slowdown, all_max_ps)
        for name, slowdown in arguments.several("slowdowns", slowdowns).items()
    } | {
        name: deadline_ps_from_s(arguments.seconds(name, deadline_s))
        for name, deadline_s in arguments.several("deadlines_s", deadlines_s).items()
    }
    if progress is not None and not callable(progress):
        raise arguments.refusal("progress", progress, "a function of the phase and the share done, or None")
    frontier = plan_by(
        problem,
        _granularity(granularity),
        switch_latency_ps=latency_ps,
        deadlines_ps=tuple(deadlines_ps.values()),
        progress=lambda phase, done: progress is None or progress(phase, done) is not False,
    )
    for name, deadline_ps in deadlines_ps.items():
        with arguments.naming(name):
            frontier.point_for_deadline(deadline_ps)
    return Frontier(frontier)


def _granularity(value: object) -> Granularity:
    """The argument ``granularity``.

    Raises:
        ArgumentError: It is none of them.
    """
    if not isinstance(value, str) or value not in set(Granularity):
        raise arguments.refusal("granularity", value, "'instruction', 'phase' or 'rank'")
    return Granularity(value)


def load_frontier(path: str | os.PathLike[str]) -> Frontier:
    """Read what ``Frontier.save`` or ``perseus-dist plan`` wrote as ``frontier.npz``; nothing is solved again.

    Args:
        path: The file.

    Raises:
        ValueError: The file cannot be read, is damaged, or is something else.

    Example:
        >>> frontier.save("frontier.npz")
        >>> load_frontier("frontier.npz").at(slowdown=1.05).time_s == frontier.at(slowdown=1.05).time_s
        True
    """
    return Frontier(load_core(arguments.path("path", path, expected="a file's path, such as 'frontier.npz'")))


def _blocking_uw(blocking_power_w: object, num_ranks: int) -> list[int]:
    """(num_ranks) [uW] of one GPU of each pp_rank."""
    powers_uw = []
    for name, value in arguments.several("blocking_power_w", blocking_power_w).items():
        power_w = arguments.number(name, value, low=0, high=arguments.MAX_POWER_W, expected=_WATTS)
        if 0 < power_w < MIN_GPU_POWER_W:
            raise arguments.refusal(name, value, f"0, or watts from {MIN_GPU_POWER_W:g} on, such as 80")
        powers_uw.append(int(uw_from_w(power_w)))
    if len(powers_uw) not in (1, num_ranks):
        raise ArgumentError(
            f"blocking_power_w: saw {len(powers_uw)} values, expected 1 or {num_ranks}; give one for all, or one for "
            "each pp_rank"
        )
    return powers_uw * num_ranks if len(powers_uw) == 1 else powers_uw
