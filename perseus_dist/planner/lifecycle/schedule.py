"""The schedule's text: asked of one rank, checked against what all ranks say they run."""

from perseus_dist.errors import ScheduleError
from perseus_dist.messages.from_agent import ScheduleText
from perseus_dist.messages.from_planner import Refused, ScheduleWanted
from perseus_dist.planner.job.facts.runs import ScheduleReceived
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.events import Effect, Log, Persist, Refuse, Send
from perseus_dist.planner.lifecycle.reset import drop_kept_profile
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule

_NO_STAGE = -1
_OTHER_CHUNKS = "the profile is of other model chunks than the schedule runs: it is measured again"


def want_schedule(job: Job) -> list[Effect]:
    """Ask an attached rank for the text, unless it is there or one has been asked."""
    if job.schedule_text or job.members.schedule_asked is not None or not job.members.rank_of_stream:
        return []
    job.members.schedule_asked = next(iter(job.members.rank_of_stream))
    return [Send(stream=job.members.schedule_asked, message=ScheduleWanted())]


def handle_schedule(job: Job, stream: int, message: ScheduleText, now_s: float) -> list[Effect]:
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
    effects: list[Effect] = [Persist(facts=(ScheduleReceived(text=message.text),))]
    if job.spec.keeps_profile and not _fits_kept_profile(job, schedule):
        effects += [Log(sentence=_OTHER_CHUNKS), *drop_kept_profile(job, now_s)]
    return effects


def _fits_kept_profile(job: Job, schedule: Schedule) -> bool:
    """Whether a profile that was measured under another schedule is of the model chunks that this one runs."""
    of_ranks = [sorted({instruction.stage for instruction in order}) for order in schedule.ranks]
    measured: set[int] = set()
    for of_series in job.profiling.samples.values():
        for rank, taken in of_series.items():
            of_chunk = of_ranks[job.members.places[rank].pp_rank]
            for one in taken:
                for sample in one.samples.samples:
                    own = of_chunk[sample.chunk] if sample.chunk < len(of_chunk) else _NO_STAGE
                    measured.add(sample.stage if sample.stage >= 0 else own)
    return not measured or measured == {stage for stages in of_ranks for stage in stages}


def _refuse(stream: int, reason: str) -> Refuse:
    return Refuse(stream=stream, refused=Refused(reason=reason, retry=False))
