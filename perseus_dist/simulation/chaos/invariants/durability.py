"""Acknowledged facts are durable, revisions never go back, and no GPU stays locked after its lease."""

from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "durability"
_MAX_NAMED = 4


def check(run: PlayedRun, history: History) -> list[Broken]:  # noqa: ARG001 - as all invariants have it
    """Judge the whole run.

    Whatever was acknowledged and not replaced since, a planner knew that was started again, and one that starts as the
    job ends would know. Of the revisions of tables and switches that the planner shows none is below an earlier one,
    jobs of the same name included; 0 says that there is none. No agent holds a lower revision than before. No GPU is
    locked once a job has ended and its leases are over, and none 0.2 s after its lease was over.
    """
    sentences = _lost(run) + _going_back(run) + _locked(run)
    return [Broken(name=NAME, sentence=sentence) for sentence in sentences]


def _lost(run: PlayedRun) -> list[str]:
    sentences = []
    for span in run.jobs:
        lost = sorted(span.end.acknowledged - span.end.durable)
        if lost:
            named = ", ".join(lost[:_MAX_NAMED]) + (" and others" if len(lost) > _MAX_NAMED else "")
            sentences.append(
                f"{len(lost)} of {len(span.end.acknowledged)} things that were acknowledged are not there as the job "
                f"ends after iteration {span.last}: {named}"
            )
    return sentences


def _going_back(run: PlayedRun) -> list[str]:
    views = [iteration.view for iteration in run.iterations]
    figures = {
        "table": [view.table_revision if view else 0 for view in views],
        "switch": [view.switch_revision if view else 0 for view in views],
    }
    sentences = []
    for name, revisions in figures.items():
        highest = 0
        for number, revision in enumerate(revisions):
            if 0 < revision < highest:
                sentences.append(f"the {name} revision went back from {highest} to {revision} at iteration {number}")
                break
            highest = max(highest, revision)
    return sentences + [sentence for span in run.jobs for sentence in span.end.went_back[:1]]


def _locked(run: PlayedRun) -> list[str]:
    sentences = []
    if run.clocks_left_locked:
        sentences.append(f"{run.clocks_left_locked} GPUs are still locked after the job's end")
    for number, iteration in enumerate(run.iterations):
        if iteration.locked_without_lease:
            sentences.append(
                f"{iteration.locked_without_lease} GPUs are locked at the end of iteration {number}, and no process "
                "holds their lease"
            )
            break
    return sentences
