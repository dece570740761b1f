"""From a seed to a scenario."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_dist.simulation.chaos.calm import NUM_SETTLED, NUM_SETTLING
from perseus_dist.simulation.chaos.drawing.draw_fault import Fault, draw_events
from perseus_dist.simulation.chaos.drawing.draw_job import (
    draw_job,
    draw_next_job,
    on_mixed_gpus,
    with_dualpipev,
    with_noise,
    with_tensor_parallel,
)
from perseus_dist.simulation.chaos.drawing.fault_kinds import JOB_FAULTS, WEIGHTS, FaultKind
from perseus_dist.simulation.chaos.drawing.phases import Phases, estimated_phases, estimated_time_s
from perseus_dist.simulation.chaos.scenario.events import Event, NextJob, ProcessEvent
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.virtual.planner import USUAL_PLANNING_S
from perseus_dist.straggler.policy import StragglerPolicy

_NUM_FAULTS, _NUM_FAULTS_WEIGHTS = (0, 1, 2, 3, 4), (1, 4, 6, 5, 4)
_SHARE_OVER = 0.75  # of faults that end
_ROOM_S = 14.0  # after the last event, beside planning twice
_MIN_NEXT_JOB = 12  # iterations that a job has trained at least before another takes its name
_MAX_EXTRA = 60
_TAIL = (5, 58)  # iterations after everything has settled


FIRST_MIXED = 24_000
"""The first seed whose job may be on GPUs of two models: earlier ones stay the histories that tests are named after."""
FIRST_SLOW_PLANNER = 25_000
"""The first seed whose planner may take long for a plan."""
FIRST_DUALPIPEV = 30_000
"""The first seed whose job may run DualPipeV."""
FIRST_TENSOR_PARALLEL = 32_000
"""The first seed whose job may have tensor-parallel groups."""
FIRST_NOISY = 33_000
"""The first seed whose computations may vary by several percent."""
_PLANNING_S, _MAX_PLANNING = (3.0, 3.0, 10.0, 30.0, 90.0), 40  # iterations


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnHistory:
    """A scenario, and what it was made of."""

    scenario: Scenario
    faults: tuple[FaultKind, ...]


def draw_scenario(seed: int) -> Scenario:
    """The scenario of a seed: always the same."""
    return draw_history(seed).scenario


def draw_history(seed: int) -> DrawnHistory:
    """The same, with the kinds of faults in it."""
    rng = random.Random(f"perseus-chaos-{seed}")
    job = draw_job(rng)
    if seed >= FIRST_MIXED:
        job = on_mixed_gpus(random.Random(f"perseus-chaos-gpus-{seed}"), job)
    if seed >= FIRST_DUALPIPEV:
        job = with_dualpipev(random.Random(f"perseus-chaos-dualpipev-{seed}"), job)
    if seed >= FIRST_TENSOR_PARALLEL:
        job = with_tensor_parallel(random.Random(f"perseus-chaos-tensor-parallel-{seed}"), job)
    if seed >= FIRST_NOISY:
        job = with_noise(random.Random(f"perseus-chaos-noise-{seed}"), job)
    planning_s = USUAL_PLANNING_S
    if seed >= FIRST_SLOW_PLANNER:
        planning_s = _draw_planning_s(random.Random(f"perseus-chaos-planning-{seed}"), job)
    kinds = _draw_kinds(rng)
    events: list[Event] = []
    phases = [estimated_phases(job)]
    scenario = Scenario(job=job, iterations=1)
    for kind in kinds:
        if kind in JOB_FAULTS:
            scenario, phases = _with_next_job(rng, kind, scenario, phases)
    events += scenario.events
    begins: list[int] = []
    for kind in kinds:
        if kind not in JOB_FAULTS:
            of = rng.choice(phases)
            begin = _draw_moment(rng, of, begins)
            end = begin + _draw_duration(rng, of.time_s) if rng.random() < _SHARE_OVER else None
            begins += [begin] if end is None else [begin, end]
            drawn = draw_events(rng, Fault(kind=kind, begin=begin, end=end), scenario.job_at(begin))
            events += _without_events_of_ended_jobs(drawn, begin, phases)
    events.sort(key=lambda event: event.iteration)
    last = max((event.iteration for event in events), default=0)
    room = math.ceil((_ROOM_S + 2 * planning_s) / phases[-1].time_s)
    settled = max(last + NUM_SETTLING + NUM_SETTLED, max(last, phases[-1].plan) + max(room, NUM_SETTLED))
    iterations = settled + rng.randint(*_TAIL)
    scenario = Scenario(job=job, iterations=iterations, seed=seed, planning_s=planning_s, events=tuple(events))
    return DrawnHistory(scenario=scenario, faults=tuple(kinds))


def _draw_planning_s(rng: random.Random, job: ScenarioJob) -> float:
    """As long as a large pipeline takes, or a queue: no more than some iterations, which cost time to play."""
    longest_s = max(USUAL_PLANNING_S, _MAX_PLANNING * estimated_time_s(job))
    return round(min(rng.choice(_PLANNING_S), longest_s), 1)


def _draw_kinds(rng: random.Random) -> list[FaultKind]:
    """Some kinds, each once; one ``JOB_FAULTS`` at most."""
    num = rng.choices(_NUM_FAULTS, _NUM_FAULTS_WEIGHTS)[0]
    kinds: list[FaultKind] = []
    while len(kinds) < num:
        left = [kind for kind in WEIGHTS if kind not in kinds and not (kind in JOB_FAULTS and {*kinds} & {*JOB_FAULTS})]
        kinds += rng.choices(left, [WEIGHTS[kind] for kind in left])
    return kinds


def _with_next_job(
    rng: random.Random, kind: FaultKind, scenario: Scenario, phases: list[Phases]
) -> tuple[Scenario, list[Phases]]:
    changes = draw_next_job(rng, scenario.job) if kind is FaultKind.OTHER_JOB else {}
    at = max(_MIN_NEXT_JOB, _draw_moment(rng, phases[0], []))
    event = NextJob(iteration=at, changes=changes)
    changed = Scenario(job=scenario.job, iterations=at + 1, events=(event,))
    return changed, [*phases, estimated_phases(changed.job_at(at), at)]


def _draw_moment(rng: random.Random, phases: Phases, earlier: Sequence[int]) -> int:
    """Relative to the baseline, the sweep, the plan, or the switch that an earlier event brings about; or anywhere."""
    match rng.randrange(5 if earlier else 4):
        case 0:
            return phases.begin + rng.randint(0, 8)
        case 1:
            return rng.randint(phases.sweep, phases.planning)
        case 2:
            return phases.plan + rng.randint(0, 8)
        case 3:
            return rng.randint(phases.begin, phases.plan + _MAX_EXTRA)
        case _:  # detection takes some iterations, the switch is up to four more away
            return rng.choice(earlier) + rng.randint(1, 6) + rng.randint(0, 4)


def _draw_duration(rng: random.Random, time_s: float) -> int:
    """Iterations: about as long as the detector's windows, or as its hold times, or anything."""
    policy = StragglerPolicy()
    match rng.randrange(3):
        case 0:
            window = rng.choice((policy.latest_window, policy.min_history, *policy.windows, 2 * policy.windows[-1]))
            return max(1, window + rng.randint(-2, 3))
        case 1:
            hold_s = rng.choice((policy.gpu_hold_s, policy.min_hold_s, policy.grace_s, policy.stale_s))
            return min(_MAX_EXTRA, math.ceil(hold_s / time_s) + rng.randint(0, 3))
        case _:
            return rng.randint(1, _MAX_EXTRA)


def _without_events_of_ended_jobs(drawn: list[Event], begin: int, phases: Sequence[Phases]) -> list[Event]:
    """A process that went with its job does not come back in the next: that has its own."""
    until = min((of.begin for of in phases if of.begin > begin), default=None)
    if until is None:
        return drawn
    return [event for event in drawn if not (isinstance(event, ProcessEvent) and event.iteration >= until)]
