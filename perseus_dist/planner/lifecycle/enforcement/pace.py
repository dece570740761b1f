"""The pace that policies ask of a job: the least time that its iterations are to take, whatever its target."""

from perseus_dist.planner.job.facts.decisions import PaceChosen
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.enforcement.switching import decide
from perseus_dist.planner.lifecycle.events import Effect, PaceSet, Persist


def set_pace(job: Job, event: PaceSet, now_s: float) -> list[Effect]:
    """Follow another pace. Clocks that were released stay so: the guard, and no policy, says when they do not."""
    job.holds_probes = event.holds_probes
    before = job.chosen_pace
    job.chosen_pace = None
    if event.slowdown is not None:
        job.chosen_pace = PaceChosen(slowdown=event.slowdown, budget=event.budget, price=event.price)
    if job.chosen_pace == before:
        return []
    job.num_changes += 1
    stored = Persist(facts=(job.chosen_pace,)) if job.chosen_pace else Persist(drop=(PaceChosen.KEY,))
    if before is not None and before.slowdown == event.slowdown:  # another policy asks for it
        return [stored]
    job.detection.keeps_switch = False
    return [stored, *decide(job, now_s, event.reason)]
