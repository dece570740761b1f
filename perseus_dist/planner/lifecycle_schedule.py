"""The schedule's text: asked of one rank, checked against what all ranks say they run."""

from perseus_dist.errors import ScheduleError
from perseus_dist.messages import Refused, ScheduleText, ScheduleWanted
from perseus_dist.planner.job import Job
from perseus_dist.planner.lifecycle_events import Effect, Persist, Refuse, Send
from perseus_dist.planner.lifecycle_facts import ScheduleReceived
from perseus_dist.planning.schedule_text import parse_schedule


def want_schedule(job: Job) -> list[Effect]:
    """Ask an attached rank for the text, unless it is there or one has been asked."""
    if job.schedule_text or job.schedule_asked is not None or not job.rank_of_stream:
        return []
    job.schedule_asked = next(iter(job.rank_of_stream))
    return [Send(stream=job.schedule_asked, message=ScheduleWanted())]


def take_schedule(job: Job, stream: int, message: ScheduleText) -> list[Effect]:
    """Keep a text that fits, refuse the stream of one that does not."""
    assert job.spec is not None
    if job.schedule_text:
        return []
    try:
        schedule = parse_schedule(message.text)
    except ScheduleError as error:
        return [_refuse(stream, f"the schedule cannot run: {error}")]
    if schedule.digest() != job.spec.schedule_digest:
        return [
            _refuse(
                stream,
                f"saw a schedule with digest {schedule.digest()[:12]}, expected {job.spec.schedule_digest[:12]} as "
                "attached; send what the digest was made of",
            )
        ]
    if schedule.num_ranks != job.spec.pp_size:
        return [
            _refuse(
                stream,
                f"saw a schedule for {schedule.num_ranks} pp_ranks, expected {job.spec.pp_size}; give every pp_rank "
                "of the pipeline a line",
            )
        ]
    job.schedule_text = message.text
    job.num_changes += 1
    return [Persist(facts=(ScheduleReceived(text=message.text),))]


def _refuse(stream: int, reason: str) -> Refuse:
    return Refuse(stream=stream, refused=Refused(reason=reason, retry=False))
