"""The answer to a scenario: one JSON object, and a few lines of text."""

from collections.abc import Sequence
from typing import Any

from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.scenario.event_fields import format_event
from perseus_dist.simulation.chaos.world.world import Iteration


def answer_document(run: PlayedRun, broken: Sequence[Broken]) -> dict[str, Any]:
    """For ``--json``.

    ``saving_percent`` and ``time_lost_percent`` compare all iterations, sweeps included, with the same history without
    Perseus; ``undisturbed_time_s`` is that of the first job.
    """
    return {
        "simulated_gpus": True,
        "virtual_time": True,
        "iterations": [_iteration(one) for one in run.iterations],
        "without": [_iteration(one) for one in run.without],
        "undisturbed_time_s": run.jobs[0].undisturbed_time_s,
        "saving_percent": saving_percent(run),
        "time_lost_percent": time_lost_percent(run),
        "clocks_left_locked": run.clocks_left_locked,
        "events": [format_event(event) for event in run.scenario.events],
        "broken_invariants": [broken_document(one) for one in broken],
    }


def answer_text(run: PlayedRun, broken: Sequence[Broken]) -> str:
    """For a terminal."""
    lines = [
        f"simulated GPUs: {len(run.iterations)} iterations of {run.scenario.job.num_ranks} ranks with "
        f"{len(run.scenario.events)} events: saving {saving_percent(run):.2f} %, time lost "
        f"{time_lost_percent(run):+.2f} %, against the same history without Perseus; clocks left locked: "
        f"{run.clocks_left_locked}",
        *broken_lines(broken),
    ]
    return "\n".join(lines)


def broken_lines(broken: Sequence[Broken]) -> list[str]:
    """A line for each broken invariant, or one that says that there is none."""
    return [f"broken: {one.name}: {one.sentence}" for one in broken] or ["no invariant is broken"]


def broken_document(broken: Broken) -> dict[str, str]:
    """A broken invariant as JSON."""
    return {"name": broken.name, "sentence": broken.sentence}


def saving_percent(run: PlayedRun) -> float:
    """Energy of all iterations below that without Perseus."""
    return 100 - 100 * sum(one.energy_j for one in run.iterations) / sum(one.energy_j for one in run.without)


def time_lost_percent(run: PlayedRun) -> float:
    """Time of all iterations above that without Perseus."""
    return 100 * sum(one.time_s for one in run.iterations) / sum(one.time_s for one in run.without) - 100


def _iteration(iteration: Iteration) -> dict[str, Any]:
    return {"time_s": iteration.time_s, "energy_j": iteration.energy_j, "phase": iteration.phase}
