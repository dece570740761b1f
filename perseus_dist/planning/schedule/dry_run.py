"""A dry run: does a schedule have every instruction once, and does it come to an end?"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.calls.deferred import deferred_programs
from perseus_dist.planning.schedule.calls.dualpipev import dualpipev_programs
from perseus_dist.planning.schedule.calls.posted import joint_runs, posted_programs
from perseus_dist.planning.schedule.dag import inputs_of
from perseus_dist.planning.schedule.instruction import OVERLAPPED_FORWARD, Instruction, Kind
from perseus_dist.planning.schedule.results import needs_of, waits_for
from perseus_dist.planning.schedule.schedule import Exchange, Schedule, interleaved_group

_WITH_OTHER_FORMS = frozenset({*Kind, OVERLAPPED_FORWARD}) - {Kind.FORWARD, Kind.BACKWARD}


def check_schedule(schedule: Schedule, *, places: Sequence[str] | None = None) -> None:
    """Refuse a schedule that forgets or repeats an instruction, exchanges as it cannot, or deadlocks.

    Args:
        schedule: Any schedule.
        places: (num_ranks) what messages call the pp_ranks, such as ``pp_rank 2 (line 4)``; ``pp_rank 2`` unless given.

    Raises:
        ScheduleError: In one line, the place, the instruction, and what is wrong with it.
    """
    places = places or [f"pp_rank {pp_rank}" for pp_rank in range(schedule.num_ranks)]
    rank_of = _rank_of_each(schedule, places)
    _check_complete(schedule, rank_of, places)
    _check_pairs(schedule, places)
    _check_joint(schedule, rank_of, places)
    if schedule.exchange.overlaps and (schedule.joint or interleaved_group(schedule) is None):
        raise ScheduleError(
            f"exchange: {schedule.exchange}: Megatron's interleaved schedule alone overlaps so, without joint "
            "exchanges, and the order is another: leave the exchange out"
        )
    if schedule.exchange == Exchange.DUALPIPEV and (schedule.joint or dualpipev_programs(schedule) is None):
        raise ScheduleError(
            f"exchange: {schedule.exchange}: DeepSpeed's DualPipeV alone exchanges so, without joint exchanges, and "
            "the order is another: leave the exchange out"
        )
    if schedule.exchange == Exchange.DEFERRED and (schedule.joint or deferred_programs(schedule) is None):
        raise ScheduleError(
            f"exchange: {schedule.exchange}: GPipe and 1F1B of torch.distributed.pipelining alone exchange so, without "
            "joint exchanges, and the order is another: leave the exchange out"
        )
    dry_run(schedule, places=places)
    if schedule.exchange == Exchange.POSTED and posted_programs(schedule, needs_of(schedule)) is None:
        raise ScheduleError(
            f"exchange: {schedule.exchange}: torch.distributed.pipelining alone exchanges so, without sends that the "
            "schedule names: leave the exchange out"
        )


def dry_run(schedule: Schedule, *, places: Sequence[str]) -> dict[Instruction, int]:
    """Run a complete schedule as if every instruction took one step.

    Args:
        schedule: A schedule in which every instruction is there once.
        places: (num_ranks) what messages call the pp_ranks.

    Returns:
        The step, from 0, at which each instruction runs; each comes after all that it waits for.

    Raises:
        ScheduleError: It deadlocks.
    """
    inputs = inputs_of(schedule)
    steps: dict[Instruction, int] = {}
    position = [0] * schedule.num_ranks
    waiting: defaultdict[Instruction, list[int]] = defaultdict(list)
    runnable = list(range(schedule.num_ranks))
    while runnable:
        pp_rank = runnable.pop()
        order = schedule.ranks[pp_rank]
        while position[pp_rank] < len(order):
            instruction = order[position[pp_rank]]
            needs = inputs[instruction]
            blocker = next((needed for needed in needs if needed not in steps), None)
            if blocker is not None:
                waiting[blocker].append(pp_rank)
                break
            previous = order[position[pp_rank] - 1 : position[pp_rank]]
            steps[instruction] = 1 + max((steps[needed] for needed in (*needs, *previous)), default=-1)
            position[pp_rank] += 1
            runnable += waiting.pop(instruction, ())
    if waiting:
        blockers = {pp_rank: blocker for blocker, pp_ranks in waiting.items() for pp_rank in pp_ranks}
        stuck_at = {pp_rank: schedule.ranks[pp_rank][position[pp_rank]] for pp_rank in blockers}
        raise ScheduleError(_deadlock(schedule, stuck_at, blockers, places))
    return steps


def check_joint(instruction: Instruction, following: Instruction | None, *, place: str) -> None:
    """Refuse an instruction that cannot exchange jointly with the one that follows it on its pp_rank, if any.

    Raises:
        ScheduleError: Names the place and the instruction.
    """
    if following is not None and (instruction.kind, following.kind) == (OVERLAPPED_FORWARD, Kind.FORWARD_BACKWARD):
        return
    if following is None:
        reason = "no instruction follows it on its pp_rank"
    elif instruction.is_constant or following.is_constant:
        reason = f"{instruction if instruction.is_constant else following} is a constant, and only computations do"
    elif (instruction.kind == Kind.FORWARD) == (following.kind == Kind.FORWARD):
        reason = f"{following} sends the same way, and only a forward and a backward exchange with each other"
    else:
        return
    raise ScheduleError(
        f"{place}: {instruction}+ cannot exchange jointly with the next instruction: {reason}; remove the +"
    )


def _deadlock(
    schedule: Schedule,
    stuck_at: Mapping[int, Instruction],
    blockers: Mapping[int, Instruction],
    places: Sequence[str],
) -> str:
    """The ring of pp_ranks that wait for each other; all others that are stuck wait behind them."""
    rank_of_stage = schedule.rank_of_stage
    path = [min(stuck_at)]
    while (following := rank_of_stage[blockers[path[-1]].stage]) not in path:
        path.append(following)
    ring = path[path.index(following) :]
    at, wanted = ({pp_rank: str(each[pp_rank]) for pp_rank in ring} for each in (stuck_at, blockers))
    if len(ring) > 1 and schedule.joint:  # between pp_ranks, joint instructions wait and are waited for as one
        runs = [tuple(joint_runs(order, schedule.joint)) for order in schedule.ranks]
        text = {instruction: "+ ".join(map(str, run)) for order in runs for run in order for instruction in run}
        at, wanted = ({pp_rank: text[each[pp_rank]] for pp_rank in ring} for each in (stuck_at, blockers))
    waits = [
        f"{places[pp_rank]} waits at {at[pp_rank]} for {wanted[pp_rank]}, "
        f"which {places[behind]} runs only after {at[behind]}"
        for pp_rank, behind in zip(ring, [*ring[1:], ring[0]], strict=True)
    ]
    if others := len(stuck_at) - len(ring):
        waits.append(f"{others} more wait behind them")
    return f"deadlock: {'; '.join(waits)}: reorder one of them{' or remove a +' if schedule.joint else ''}"


def _check_pairs(schedule: Schedule, places: Sequence[str]) -> None:
    """Of a pair that runs as one, the forward's name comes right before the backward's."""
    for place, order in zip(places, schedule.ranks, strict=True):
        for before, after in zip((None, *order), (*order, None), strict=True):
            is_named = before is not None and before.kind == OVERLAPPED_FORWARD
            is_pair = after is not None and after.kind == Kind.FORWARD_BACKWARD
            if is_named != is_pair:
                raise ScheduleError(
                    f"{place}: {before if is_named else after} is half of a pair: a forward and a backward that run as "
                    "one are written one after the other, as in 0OVERLAP_F4 4FB0; write both"
                )


def _check_joint(schedule: Schedule, rank_of: Mapping[Instruction, int], places: Sequence[str]) -> None:
    for unknown in sorted(schedule.joint.difference(rank_of)):
        raise ScheduleError(f"{unknown} is joint, but no pp_rank runs it: join instructions of the schedule")
    for place, order in zip(places, schedule.ranks, strict=True):
        for instruction, following in zip(order, (*order[1:], None), strict=True):
            if instruction in schedule.joint:
                check_joint(instruction, following, place=place)


def _rank_of_each(schedule: Schedule, places: Sequence[str]) -> dict[Instruction, int]:
    """The pp_rank of each instruction, none repeated, no stage on two pp_ranks."""
    rank_of: dict[Instruction, int] = {}
    rank_of_stage: dict[int, int] = {}
    for pp_rank, order in enumerate(schedule.ranks):
        if not order:
            raise ScheduleError(f"{places[pp_rank]} has no instructions: give it a stage, or leave it out")
        for instruction in order:
            owner = rank_of_stage.setdefault(instruction.stage, pp_rank)
            if owner != pp_rank:
                raise ScheduleError(
                    f"{places[pp_rank]}: {instruction} is of stage {instruction.stage}, which {places[owner]} has "
                    "already: a stage belongs to one pp_rank; move its instructions there"
                )
            if instruction in rank_of:
                raise ScheduleError(f"{places[pp_rank]}: {instruction} is repeated: remove one of the two")
            rank_of[instruction] = pp_rank
    return rank_of


def _check_complete(schedule: Schedule, rank_of: Mapping[Instruction, int], places: Sequence[str]) -> None:
    """Every stage has forward and backward of every microbatch."""
    if not rank_of:
        raise ScheduleError("no instructions: expected a line per pp_rank, such as 0F0 0B0")
    num_microbatches = max(1, schedule.num_microbatches)
    of_kind = Counter(kind for stage, kind, microbatch in rank_of if min(stage, microbatch) >= 0)
    whole = schedule.num_stages * num_microbatches
    if _WITH_OTHER_FORMS.isdisjoint(of_kind) and of_kind[Kind.FORWARD] == of_kind[Kind.BACKWARD] == whole:
        return
    rank_of_stage = {instruction.stage: pp_rank for instruction, pp_rank in rank_of.items()}
    for stage in range(schedule.num_stages):
        place = places[rank_of_stage[stage]] if stage in rank_of_stage else f"no pp_rank has stage {stage}"
        for microbatch in range(num_microbatches):
            forward, backward, input_gradient, weight_gradient, pair = (
                Instruction(stage, kind, microbatch) for kind in Kind
            )
            split = [gradient for gradient in (input_gradient, weight_gradient) if gradient in rank_of]
            overlapped = Instruction(stage, OVERLAPPED_FORWARD, microbatch)
            forms = [form for form in (backward, *split[:1], pair) if form in rank_of]
            if len(forms) > 1:
                raise ScheduleError(
                    f"{place}: {forms[0]} and {forms[1]} are both there: a backward is B, or I and W; remove one form"
                )
            if forward in rank_of and overlapped in rank_of:
                raise ScheduleError(f"{place}: {forward} and {overlapped} are both there: remove one form")
            needed = [overlapped if overlapped in rank_of else forward]
            needed += (input_gradient, weight_gradient) if split else (pair if pair in rank_of else backward,)
            missing = [instruction for instruction in needed if instruction not in rank_of]
            if missing:
                raise ScheduleError(
                    f"{place}: missing {' and '.join(map(str, missing))}: {_why_needed(missing, rank_of)}; add what is "
                    "missing, or number stages and microbatches without gaps"
                )


def _why_needed(missing: Sequence[Instruction], scheduled: Iterable[Instruction]) -> str:
    for instruction in scheduled:
        for needed in waits_for(instruction, missing):
            return f"{instruction} waits for {needed}"
    return "every stage runs forward and backward of every microbatch"
