"""Scenario files: JSON that says what is trained and what happens to it; drawn histories are printed as such."""

import json
import os
from typing import Any

from perseus_dist.json_text import unique_keys
from perseus_dist.planning.input_file import InputFileError, read_input
from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.scenario.event_fields import format_event, read_event
from perseus_dist.simulation.chaos.scenario.events import Event, NextJob
from perseus_dist.simulation.chaos.scenario.job_fields import format_job, take_job
from perseus_dist.simulation.chaos.scenario.json_fields import JsonFields, shown
from perseus_dist.simulation.chaos.scenario.scenario import Scenario
from perseus_dist.simulation.virtual.planner import USUAL_PLANNING_S

MAX_ITERATIONS = 100_000


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Read a scenario file.

    Raises:
        ScenarioError: It cannot be read, or is not one; one line that names the field.
    """
    name = os.fspath(path)
    try:
        text = read_input(path).decode()
    except InputFileError as error:
        raise ScenarioError(f"{error}; name a scenario file") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{name}: saw bytes that are not UTF-8, expected JSON; name a scenario file") from None
    return parse_scenario(text, name)


def parse_scenario(text: str, source: str = "scenario") -> Scenario:
    """Read a scenario from JSON.

    Args:
        text: The JSON.
        source: Names it in messages.

    Raises:
        ScenarioError: It is not one; one line that names the field.
    """
    try:
        fields = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"{source}: expected one JSON object ({error}); mend it") from None
    taken = JsonFields(fields, source)
    job = take_job(taken, source)
    iterations = taken.whole("iterations", 1, MAX_ITERATIONS)
    seed = taken.whole("seed", 0, 2**63 - 1, 0)
    planning_s = taken.real("planning_s", 0, 1e4, USUAL_PLANNING_S)
    objects = taken.any("events", [])
    taken.end()
    if not isinstance(objects, list):
        raise ScenarioError(f"{source}: events: saw {shown(objects)}, expected a list of objects; write [...]")
    events = _take_events(objects, source, job, iterations)
    return Scenario(job=job, iterations=iterations, seed=seed, planning_s=planning_s, events=events)


def _take_events(objects: list[Any], source: str, job: Any, iterations: int) -> tuple[Event, ...]:
    """In order of iteration, whatever the file's; a job's events are checked against that job."""
    numbered = sorted(enumerate(objects), key=lambda item: _iteration_of(item[1]))
    events: list[Event] = []
    for number, fields in numbered:
        where = f"{source}: events[{number}]"
        event = read_event(fields, where, job)
        if event.iteration >= iterations:
            raise ScenarioError(
                f"{where}: iteration: saw {event.iteration}, expected less than the {iterations} that are trained; "
                "add iterations, or leave the event out"
            )
        if isinstance(event, NextJob):
            job = Scenario(job=job, iterations=iterations, events=(event,)).job_at(event.iteration)
        events.append(event)
    return tuple(events)


def _iteration_of(fields: object) -> int:
    """For sorting alone: what is no iteration is refused when the event is read."""
    iteration = fields.get("iteration") if isinstance(fields, dict) else None
    return iteration if isinstance(iteration, int) else 0


def scenario_document(scenario: Scenario) -> dict[str, Any]:
    """The scenario as a JSON object."""
    return {
        **format_job(scenario.job),
        "iterations": scenario.iterations,
        "seed": scenario.seed,
        **({} if scenario.planning_s == USUAL_PLANNING_S else {"planning_s": scenario.planning_s}),
        "events": [format_event(event) for event in scenario.events],
    }


def format_scenario(scenario: Scenario) -> str:
    """A scenario file: the inverse of ``parse_scenario``, an event a line."""
    document = scenario_document(scenario)
    events = document.pop("events")
    head = json.dumps(document)[:-1]
    if not events:
        return f'{head}, "events": []}}\n'
    return f'{head},\n "events": [' + ",\n            ".join(json.dumps(event) for event in events) + "]}\n"
