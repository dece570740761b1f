"""Requests and answers as the queue keeps them: JSON and bytes, so that nothing of a database is ever unpickled."""

from perseus_dist.planner.job.facts.plans import TableAhead
from perseus_dist.planner.store.fact_rows import text_of_value, value_of_text
from perseus_dist.planner.store.request_queue import PATIENT, URGENT, QueuedRequest, TakenRequest
from perseus_dist.planner.worker.made_ahead import answer_made_ahead
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult


def queued(request: PlanningRequest) -> QueuedRequest:
    """A request for the queue. Takes about 10 us a sample, away from an event loop."""
    body, _ = text_of_value(request)
    return QueuedRequest(digest=request.digest, urgency=URGENT if request.is_urgent else PATIENT, body=body)


def request_of(taken: TakenRequest) -> PlanningRequest:
    """The inverse.

    Raises:
        ValueError: The text is damaged, or of another version.
    """
    return value_of_text(PlanningRequest, taken.body)


def text_of_answer(digest: str, result: PlanResult) -> tuple[str, bytes]:
    """An answer for the queue, the same for all requests of the digest."""
    return text_of_value(result.made_ahead(digest))


def result_of(request: PlanningRequest, body: str, blob: bytes) -> PlanResult:
    """The answer under the request's own numbers.

    Raises:
        ValueError: It cannot be read, or is none of the request.
        InvalidMessageError: Its tables are no messages.
    """
    return answer_made_ahead(request, value_of_text(TableAhead, body, blob))
