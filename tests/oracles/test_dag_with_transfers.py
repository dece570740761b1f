"""When instructions and transfers begin and end: our DAG against frameworks' own functions in virtual time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from virtual_cases import MEGATRON_VERSIONS as VERSIONS
from virtual_cases import Case, Moments, a_size, run_deepspeed, run_megatron, run_torch

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.planner.job.measured_transfers import slowest, transfers_of_runs
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.calls.dualpipev import dualpipev
from perseus_dist.planning.schedule.instruction import LOAD, SEND_FORWARD, Instruction, Kind, profile_name
from perseus_dist.planning.schedule.results import transfers_of
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    Schedule,
    format_schedule,
    interleaved,
    joint_exchanges,
    one_f_one_b,
)
from perseus_dist.planning.schedule.schedule_text import parse_schedule

MS = 10**9  # [ps]
TRANSFERS_MS = (0, 5, 200)
WORK_MS = {"F": (30, 60), "B": (60, 120), LOAD: (1, 9)}
TORCH_WORK_MS = {"I": (30, 60), "W": (30, 60), "REDUCE": (1, 9), "REDUCE_CHUNK": (1, 9)}


def drawn_cases(sizes: Sequence[Case], *, has_loads: bool = False, of_torch: bool = False) -> list[Case]:
    """Of each size: transfers that are all the same, drawn for each link and direction, drawn for each two pp_ranks."""
    random = Random(16)
    cases = []
    for size in sizes:
        pp, stages = size["pp"], range(size["pp"] * size["chunks"])
        between = {(sender, receiver): random.choice(TRANSFERS_MS) for sender in range(pp) for receiver in range(pp)}
        drawn: list[dict[str, list[int]]] = [{kind: [one_ms] * len(stages) for kind in "FB"} for one_ms in TRANSFERS_MS]
        drawn.append({kind: [random.choice(TRANSFERS_MS) for _ in stages] for kind in "FB"})
        if size["chunks"] > 1:
            steps = {"F": 1, "B": -1}
            drawn.append({kind: [between[s % pp, (s + step) % pp] for s in stages] for kind, step in steps.items()})
        for transfers in drawn:
            durations = {
                kind: [random.randint(low, high) for _ in stages]
                for kind, (low, high) in (WORK_MS | (TORCH_WORK_MS if of_torch else {})).items()
                if kind != LOAD or has_loads
            }
            cases.append(size | {"durations": durations, "transfers": transfers})
    return cases


def planned(schedule: Schedule, case: Case, folder: Path) -> Moments:
    """Begin and end of each instruction and of each transfer that takes time [ms], as our replay has them."""
    rows = [
        f"{stage},{profile_name(kind)},{clock},{ms * slower / 1e3},1"
        for kind, of_stage in case["durations"].items()
        for stage, ms in enumerate(of_stage)
        if any(one[:2] == (stage, kind) for order in schedule.ranks for one in order)
        for clock, slower in ((1400, 1), (1000, 1.4 if kind in set(Kind) else 1))
    ]
    last = schedule.num_stages - 1
    rows += [
        f"{stage},send_{kind.lower()},,{ms / 1e3},"
        for kind, of_stage in case["transfers"].items()
        for stage, ms in enumerate(of_stage)
        if ms and stage != (last if kind == "F" else 0)
    ]
    path = folder / "profile.csv"
    path.write_text("stage,instruction,frequency,time,energy\n" + "\n".join(rows) + "\n")
    problem = make_problem(schedule, read_profile(path), blocking_uw_of_rank=[80 * 10**6] * schedule.num_ranks)
    played = replay_all_max(problem)
    moments = zip(problem.dag.instructions, played.start_ps.tolist(), played.end_ps.tolist(), strict=True)
    return {str(one): (start_ps // MS, end_ps // MS) for one, start_ps, end_ps in moments}


def check(schedule: Schedule, case: Case, found: Moments, folder: Path) -> None:
    """All that ours knows happens when the framework has it; a transfer that takes no time is none of ours."""
    ours = planned(schedule, case, folder)
    timed = {text: moments for text, moments in found.items() if "SEND" not in text or moments[0] != moments[1]}
    if len(timed) == schedule_size(schedule) and schedule.sends_block:
        # Where no transfer takes time, ours sends without being asked, and some instructions begin earlier.
        assert ours.keys() == timed.keys(), case
        assert all(ours[text][0] <= timed[text][0] for text in ours), case
        assert max(end for _, end in ours.values()) == max(end for _, end in timed.values()), case
    else:
        assert ours == timed, case


def check_measured(schedule: Schedule, case: Case, found: Moments, folder: Path, *, at_most: float = 1.002) -> None:
    """What the planner measures makes a replay as long as the iteration, where clocks and links allow to know it.

    Clocks of two hosts tell half of there and back. Links between the same two pp_ranks are taken to be alike while
    that explains 95 % of the iteration. Loads of 1 to 9 ms, which times of computations do not tell, may stand between.
    """
    times = []
    for order in schedule.ranks:
        moments = [found[str(one)] for one in order if one.kind in set(Kind)]
        begins_ns, ends_ns = (tuple(ms * 10**6 for ms in column) for column in zip(*moments, strict=True))
        times.append(RunTimes(iteration=0, begins_ns=begins_ns, ends_ns=ends_ns))
    lasts_ms = max(end_ms for text, (_, end_ms) in found.items() if "SEND" not in text)
    loads_ms = case["microbatches"] * max(case["durations"].get(LOAD, [0])) + case.get("loads_ms", 0)
    sent = transfers_of(schedule, None)
    between: dict[tuple[int, int], set[int]] = {}
    for stage, kind in {transfer[:2] for transfer in sent.values()}:
        receiver = stage + (1 if kind == SEND_FORWARD else -1)
        pair = schedule.rank_of_stage[stage], schedule.rank_of_stage[receiver]
        between.setdefault(pair, set()).add(case["transfers"][kind[-1]][stage])
    are_alike = all(len(of_pair) == 1 for of_pair in between.values())
    are_all_alike = len(set().union(*between.values())) == 1
    for host_clock in ("", "of one host"):
        told = [replace(one, host_clock=host_clock) for one in times]
        measured = slowest([transfers_of_runs(format_schedule(schedule), told)])
        stages = range(schedule.num_stages)
        ms = {kind: [1e3 * measured.get((stage, f"SEND_{kind}"), 0.0) for stage in stages] for kind in "FB"}
        replayed = planned(schedule, case | {"transfers": ms}, folder)
        replayed_ms = max(end_ms for text, (_, end_ms) in replayed.items() if "SEND" not in text)
        assert replayed_ms <= at_most * lasts_ms + loads_ms, case
        if measured and (are_all_alike or (host_clock and are_alike)):
            assert replayed_ms >= 0.998 * lasts_ms, case
        elif measured and host_clock:
            assert replayed_ms >= 0.95 * lasts_ms - loads_ms, case


def schedule_size(schedule: Schedule) -> int:
    return sum(map(len, schedule.ranks))


def with_loads(schedule: Schedule) -> Schedule:
    """As DeepSpeed runs it: the first and the last stage load before their forwards."""
    ranks = [
        [
            one
            for instruction in order
            for one in (
                [Instruction(instruction.stage, LOAD, instruction.microbatch)] * (instruction.kind == Kind.FORWARD)
                + [instruction]
            )
            if one.kind != LOAD or one.stage in (0, schedule.num_ranks - 1)
        ]
        for order in schedule.ranks
    ]
    return Schedule(ranks=tuple(map(tuple, ranks)), exchange=Exchange.SERIAL)


ONE_STAGE = [a_size(pp, 1, microbatches) for pp, microbatches in ((2, 3), (4, 8), (5, 3), (3, 11), (8, 8))]
CHUNKS = [a_size(*size) for size in ((3, 2, 6), (4, 2, 4), (4, 2, 8), (4, 3, 12), (4, 2, 10, 5), (4, 2, 8, 8))]


def megatron_schedule(case: Case) -> Schedule:
    pp, microbatches, chunks = case["pp"], case["microbatches"], case["chunks"]
    if chunks == 1:
        return one_f_one_b(pp=pp, microbatches=microbatches)
    return joint_exchanges(
        interleaved(pp=pp, microbatches=microbatches, chunks=chunks, microbatch_group_size=case["group"])
    )


def check_megatron(version: str, cases: Sequence[Case], folder: Path) -> None:
    for case, found in zip(cases, run_megatron(version, cases), strict=True):
        check(megatron_schedule(case), case, found, folder)
        check_measured(megatron_schedule(case), case, found, folder)


def test_a_sample_of_megatron(tmp_path: Path) -> None:
    check_megatron(VERSIONS[-1], drawn_cases([a_size(3, 1, 5), a_size(3, 2, 3)]), tmp_path)


@pytest.mark.stress
def test_a_sample_of_megatron_with_p2p_overlap(tmp_path: Path) -> None:
    check_overlapped(VERSIONS[-1], [a_size(3, 2, 4, 4)], tmp_path, frees_outputs=True)


@pytest.mark.stress
@pytest.mark.parametrize("version", VERSIONS)
def test_megatron(version: str, tmp_path: Path) -> None:
    check_megatron(version, drawn_cases(ONE_STAGE + CHUNKS), tmp_path)


def overlapped_cases(sizes: Sequence[Case]) -> list[Case]:
    return [case | {"overlap": True, "one_at_a_time": True} for case in drawn_cases(sizes)]


def check_overlapped(version: str, sizes: Sequence[Case], folder: Path, *, frees_outputs: bool) -> None:
    cases = [case | {"frees_outputs": frees_outputs} for case in overlapped_cases(sizes)]
    waits_at_once = frees_outputs and version == VERSIONS[-1]
    exchange = Exchange.OVERLAPPED_BACKWARDS if waits_at_once else Exchange.OVERLAPPED
    for case, found in zip(cases, run_megatron(version, cases), strict=True):
        schedule = interleaved(
            pp=case["pp"],
            microbatches=case["microbatches"],
            chunks=case["chunks"],
            microbatch_group_size=case["group"],
        )
        check(replace(schedule, exchange=exchange), case, found, folder)
        check_measured(replace(schedule, exchange=exchange), case, found, folder)


@pytest.mark.stress
@pytest.mark.parametrize("frees_outputs", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_megatron_with_p2p_overlap(version: str, frees_outputs: bool, tmp_path: Path) -> None:  # noqa: FBT001
    check_overlapped(version, [*CHUNKS, a_size(2, 2, 5, 3), a_size(2, 3, 10, 4)], tmp_path, frees_outputs=frees_outputs)


@pytest.mark.stress
def test_deepspeed(tmp_path: Path) -> None:
    cases = drawn_cases(ONE_STAGE, has_loads=True)
    for case, found in zip(cases, run_deepspeed(cases), strict=True):
        schedule = with_loads(one_f_one_b(pp=case["pp"], microbatches=case["microbatches"]))
        check(schedule, case, found, tmp_path)
        check_measured(schedule, case, found, tmp_path)


def with_first_loads(schedule: Schedule) -> Schedule:
    """As DeepSpeed's DualPipeV: only the first stage loads, right before its forwards."""
    ranks = (
        tuple(
            one
            for instruction in order
            for one in (
                *[Instruction(0, LOAD, instruction.microbatch)] * (instruction[:2] == (0, Kind.FORWARD)),
                instruction,
            )
        )
        for order in schedule.ranks
    )
    return replace(schedule, ranks=tuple(ranks))


def check_dualpipev(sizes: Sequence[tuple[int, int]], folder: Path) -> None:
    drawn = drawn_cases([a_size(pp, 2, microbatches) for pp, microbatches in sizes], has_loads=True)
    cases = [case | {"one_at_a_time": True} for case in drawn]
    for case in cases:  # the last pp_rank's two stages follow each other
        case["transfers"]["F"][case["pp"] - 1] = case["transfers"]["B"][case["pp"]] = 0
    for case, found in zip(cases, run_deepspeed(cases, "deepspeed_dualpipev.py"), strict=True):
        schedule = with_first_loads(dualpipev(pp=case["pp"], microbatches=case["microbatches"]))
        check(schedule, case, found, folder)
        check_measured(schedule, case, found, folder)


def test_a_sample_of_dualpipev(tmp_path: Path) -> None:
    check_dualpipev([(3, 7)], tmp_path)


@pytest.mark.stress
def test_dualpipev(tmp_path: Path) -> None:
    check_dualpipev([(1, 3), (2, 4), (2, 9), (3, 6), (4, 8), (4, 13), (6, 12)], tmp_path)


TORCH_SINGLE, TORCH_CHUNKS = ("GPipe", "1F1B"), ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble")
TORCH_V_SHAPED = ("ZBVZeroBubble", "DualPipeV")


def check_torch(name: str, sizes: Sequence[Case], folder: Path) -> None:
    """Of the schedule that the adapter reads, with how it exchanges."""
    cases = [
        case | {"schedule": name, "one_at_a_time": True, "loads_ms": 2 * 9 * (case["chunks"] - 1)}
        for case in drawn_cases(sizes, of_torch=True)
    ]
    for case in cases:
        if name in TORCH_V_SHAPED:  # the last pp_rank's two stages follow each other
            case["transfers"]["F"][case["pp"] - 1] = case["transfers"]["B"][case["pp"]] = 0
    for case, (text, found) in zip(cases, run_torch(cases), strict=True):
        schedule = parse_schedule(text)
        assert schedule.exchange == (Exchange.DEFERRED if name in TORCH_SINGLE else Exchange.POSTED)
        check(schedule, case, found, folder)
        check_measured(schedule, case, found, folder, at_most=1.002 if name in TORCH_SINGLE else 1.004)


@pytest.mark.parametrize(
    "name", [TORCH_SINGLE[-1], pytest.param(TORCH_CHUNKS[-1], marks=pytest.mark.stress), TORCH_V_SHAPED[-1]]
)
def test_a_sample_of_torch(name: str, tmp_path: Path) -> None:
    check_torch(name, [a_size(3, 1, 5) if name in TORCH_SINGLE else a_size(3, 2, 6)], tmp_path)


@pytest.mark.stress
@pytest.mark.parametrize("name", TORCH_SINGLE)
def test_torch(name: str, tmp_path: Path) -> None:
    """torch refuses 1F1B with fewer microbatches than stages."""
    sizes = [size for size in ONE_STAGE if name == "GPipe" or size["microbatches"] >= size["pp"]]
    check_torch(name, [*sizes, a_size(4, 1, 4), a_size(8, 1, 16)], tmp_path)


@pytest.mark.stress
@pytest.mark.parametrize("name", [*TORCH_CHUNKS, *TORCH_V_SHAPED])
def test_torch_with_several_stages_on_a_rank(name: str, tmp_path: Path) -> None:
    sizes = [a_size(2, 2, 4), a_size(4, 2, 8), a_size(4, 2, 13), a_size(8, 2, 16)]
    if name not in TORCH_V_SHAPED:
        sizes = [a_size(4, 1, 8), a_size(3, 3, 6), a_size(4, 5, 8), *sizes[:2], a_size(8, 2, 16)]
    check_torch(name, sizes, tmp_path)
