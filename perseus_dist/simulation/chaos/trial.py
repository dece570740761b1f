"""One seed: draw, play, judge."""

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_dist.simulation.chaos.drawing.draw import draw_history
from perseus_dist.simulation.chaos.invariants.every import broken_invariants
from perseus_dist.simulation.chaos.play import play
from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.scenario.scenario import Scenario
from perseus_dist.simulation.chaos.shrink import shrink
from perseus_dist.simulation.chaos.world.virtual_world import open_virtual_world

CRASH = "crash"
"""The name under which a run that ends in an exception is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of a seed.

    Attributes:
        seed: The number that the scenario was drawn by.
        scenario: What was played.
        faults: Kinds of faults in the history, as drawn.
        broken: Invariants that do not hold.
        reached_plan: Whether some iteration ran under a plan.
        cpu_s: [s] that it took.
    """

    seed: int
    scenario: Scenario
    faults: tuple[str, ...]
    broken: tuple[Broken, ...]
    reached_plan: bool
    cpu_s: float


def try_seed(seed: int) -> Trial:
    """Play a seed; an exception of the code that is tried is a broken invariant."""
    begin_s = time.process_time()
    history = draw_history(seed)
    run, broken = judge(history.scenario)
    return Trial(
        seed=seed,
        scenario=history.scenario,
        faults=tuple(history.faults),
        broken=broken,
        reached_plan=run is not None and any(run.followed),
        cpu_s=time.process_time() - begin_s,
    )


def judge(scenario: Scenario) -> tuple[PlayedRun | None, tuple[Broken, ...]]:
    """Play a scenario and judge it; no run where it ends in an exception."""
    try:
        run = play(scenario, open_virtual_world)
    except Exception as error:  # whatever it is, it is what the seeds are tried for
        kind, raised = type(error).__name__, traceback.extract_tb(error.__traceback__)[-1]
        origin = f"{kind} {raised.filename}:{raised.lineno}"
        return None, (Broken(name=CRASH, sentence=f"{kind}: {error}", origin=origin),)
    return run, broken_invariants(run)


def shrunk(scenario: Scenario, broken: Sequence[Broken], *, max_runs: int) -> Scenario:
    """The smallest scenario found that breaks the first of the invariants that one broke, or ends in its crash."""
    wanted = (broken[0].name, broken[0].origin)

    def still_breaks(smaller: Scenario) -> bool:
        return any((one.name, one.origin) == wanted for one in judge(smaller)[1])

    return shrink(scenario, still_breaks, max_runs=max_runs)
