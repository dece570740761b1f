"""Form of a target: a position of the slider on a frontier."""

from perseus_dist.planner.access.refusal import not_now
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.events import TargetSet
from perseus_dist.planner.web.views.frontier_chart import target_choices
from perseus_dist.rpc.fields import target_from_wire, target_to_wire
from perseus_dist.rpc.violations import Checker


def chosen_target(job: Job, form: dict[str, str]) -> TargetSet:
    """The event of a form, whose target is checked as one that comes over gRPC.

    Args:
        job: Of the slider.
        form: ``position`` on the frontier ``revision``.

    Raises:
        RefusalError: The frontier is another one by now.
        InvalidMessageError: The position is none.
    """
    check = Checker()
    if job.plan is None:
        raise not_now(f"job {job.job_id} has no plan yet: it is {job.phase}, {job.reason}")
    revision = _number(check, "revision", form.get("revision", ""))
    if revision != job.plan.revision:
        raise not_now("the frontier has been planned anew since: look at it, and choose again")
    choices = target_choices(job.plan.summary, len(job.progress.pipelines))
    position = check.integer("position", _number(check, "position", form.get("position", "")), 0, len(choices) - 1)
    check.finish()
    target = target_from_wire(check, "target", target_to_wire(choices[position].target))
    check.finish()
    return TargetSet(target=target)


def _number(check: Checker, field: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        check.violated(field, text, "a whole number")
        check.finish()
    return int(text)
