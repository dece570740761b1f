"""How iterations end: tied weights, gradient reduction that overlaps backwards, and the step, by frameworks' functions.

An iteration at full clocks is measured as ranks measure it, waiting and all; what the planner makes of it is held
against that iteration, and its plan against one that runs at the plan's clocks.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import pytest
from virtual_cases import MEGATRON_VERSIONS, Case, Moments, a_size, run_deepspeed, run_megatron

from perseus_dist.messages.from_agent import Sample
from perseus_dist.planner.worker.measured_profile import measured_profile, with_transfers
from perseus_dist.planner.worker.plan_request import Contribution
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.plan import plan_for_deadline
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, Instruction
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    Schedule,
    interleaved,
    joint_exchanges,
    one_f_one_b,
)
from perseus_dist.units import UW_PER_W

TRANSFERS_MS = (0, 5, 200)
MS = 10**9  # [ps]
SLOWER = {1400: 1.0, 1200: 1.12, 1000: 1.35}
WATTS = {1400: 300.0, 1200: 230.0, 1000: 190.0}
BLOCKING_W = 80.0
ROUNDED_MS = 0.01  # that times of instructions may be rounded to

ONE_STAGE = [a_size(2, 1, 4), a_size(4, 1, 8), a_size(5, 1, 3)]
CHUNKS = [a_size(3, 2, 6), a_size(4, 2, 8)]
SEEDS = [
    pytest.param(range(1, 2), id="a sample", marks=pytest.mark.stress),
    pytest.param(range(2, 9), id="all", marks=pytest.mark.soak),
]


def drawn_cases(sizes: Sequence[Case], seed: int = 0) -> list[Case]:
    """Each size with each transfer; the first and the last rank share weights, and may reduce many more."""
    random = Random(seed)
    cases = []
    for size in sizes:
        for transfer_ms in TRANSFERS_MS:
            stages, ranks = range(size["pp"] * size["chunks"]), range(size["pp"])
            durations = {
                kind: [random.randint(low, high) for _ in stages] for kind, low, high in (("F", 30, 60), ("B", 60, 120))
            }
            durations["LOAD"] = [0] * len(stages)
            with_embedding = (0, size["pp"] - 1)
            at_end = {
                "tied_ranks": [0, size["pp"] - 1],
                "tied": random.choice(TRANSFERS_MS),
                "reduce": [
                    random.randint(20, 60) + random.choice((0, 90)) * (rank in with_embedding) for rank in ranks
                ],
                "step": [random.randint(5, 15) for _ in ranks],
                "overlap": random.random() < 0.7,
                "align": random.random() < 0.5,
                "buckets": 4,
            }
            transfers = {kind: [transfer_ms for _ in stages] for kind in "FB"}
            cases.append(size | {"durations": durations, "transfers": transfers, "at_end": at_end})
    return cases


def with_ends(schedule: Schedule, kinds: Sequence[str]) -> Schedule:
    ranks = tuple(
        (*order, *(Instruction(rank, kind, NO_MICROBATCH) for kind in kinds))
        for rank, order in enumerate(schedule.ranks)
    )
    return Schedule(ranks=ranks, joint=schedule.joint, exchange=schedule.exchange)


def megatron_schedule(case: Case) -> Schedule:
    pp, microbatches, chunks = case["pp"], case["microbatches"], case["chunks"]
    schedule = (
        one_f_one_b(pp=pp, microbatches=microbatches)
        if chunks == 1
        else joint_exchanges(interleaved(pp=pp, microbatches=microbatches, chunks=chunks))
    )
    return with_ends(schedule, ("REDUCE", "STEP"))


def deepspeed_schedule(case: Case) -> Schedule:
    plain = one_f_one_b(pp=case["pp"], microbatches=case["microbatches"])
    schedule = with_ends(plain, ("TIED", "REDUCE", "STEP"))
    return Schedule(ranks=schedule.ranks, exchange=Exchange.SERIAL)


def length(moments: Moments) -> float:
    return max(end for text, (_, end) in moments.items() if "SEND" not in text)


def contributions(schedule: Schedule, case: Case, found: Moments) -> list[Contribution]:
    """What ranks measure: computations as long as they take, constants from begin to end."""
    told = []
    for rank, order in enumerate(schedule.ranks):
        stages = sorted({one.stage for one in order})
        samples = []
        for stage, kind in sorted({one[:2] for one in order}):
            for clock, slower in SLOWER.items():
                if kind in case["durations"]:
                    time_s, watts = case["durations"][kind][stage] * slower / 1e3, WATTS[clock]
                else:
                    begin, end = found[f"{rank}{kind}"]
                    time_s, watts = (end - begin) / 1e3, BLOCKING_W
                samples.append(
                    Sample(
                        chunk=stages.index(stage),
                        kind=kind,
                        clock_mhz=clock,
                        time_s=max(time_s, 1e-6),
                        energy_j=max(time_s, 1e-6) * watts,
                        time_std_s=0.0,
                        energy_std_j=0.0,
                        num_runs=8,
                        window_s=1.0,
                    )
                )
        told.append(Contribution(pp_rank=rank, tp_rank=0, samples=tuple(samples)))
    return told


def problem_of(schedule: Schedule, case: Case, found: Moments) -> PlanningProblem:
    """As the planner makes it of what ranks have measured, with transfers as they are."""
    profile = measured_profile(
        schedule,
        contributions(schedule, case, found),
        tensor_parallel=1,
        blocking_power_w=[BLOCKING_W] * case["pp"],
        source="test",
    )
    last = {"F": schedule.num_stages - 1, "B": 0}
    transfers_s = {
        (stage, f"SEND_{kind}"): ms / 1e3
        for kind, of_stage in case["transfers"].items()
        for stage, ms in enumerate(of_stage)
        if stage != last[kind]
    }
    blocking_uw = [round(BLOCKING_W * UW_PER_W)] * case["pp"]
    return make_problem(schedule, with_transfers(profile, transfers_s), blocking_uw_of_rank=blocking_uw)


def check(
    cases: Sequence[Case], schedule_of: Callable[[Case], Schedule], run: Callable[[Sequence[Case]], list[Moments]]
) -> None:
    """Full clocks are predicted but for what steps take longer than the first rank's, and no plan is later than they.

    Steps that are longer elsewhere are not told from waiting for the first rank.
    """
    at_full = run(cases)
    problems = [problem_of(schedule_of(case), case, found) for case, found in zip(cases, at_full, strict=True)]
    at_plans, predicted_ms = [], []
    for case, problem, found in zip(cases, problems, at_full, strict=True):
        played = replay_all_max(problem)
        longer_ms = max(case["at_end"]["step"]) - case["at_end"]["step"][0]
        predicted_ms.append(played.time_ps / MS)
        assert length(found) - longer_ms - ROUNDED_MS <= predicted_ms[-1] <= length(found) + ROUNDED_MS, case
        plan = plan_for_deadline(plan_frontier(problem), played.time_ps).execution
        assert plan.total_uj < played.total_uj
        lasts_ms = ((plan.end_ps - plan.start_ps) / MS).tolist()
        lasts = zip(map(str, problem.dag.instructions), lasts_ms, strict=True)
        at_plans.append(case | {"lasts": {text: ms for text, ms in lasts if text in found and text[-1].isdigit()}})
    for case, full, planned in zip(cases, at_full, run(at_plans), strict=True):
        assert planned != full
        assert length(planned) <= length(full) + ROUNDED_MS, case


@pytest.mark.stress
def test_a_sample_of_megatron() -> None:
    cases = drawn_cases([a_size(3, 1, 4), a_size(3, 2, 3)])
    assert {case["at_end"]["overlap"] for case in cases} == {False, True}
    check(cases, megatron_schedule, partial(run_megatron, MEGATRON_VERSIONS[-1]))


def test_a_sample_of_deepspeed() -> None:
    check(drawn_cases([a_size(3, 1, 4)]), deepspeed_schedule, run_deepspeed)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("version", MEGATRON_VERSIONS)
def test_megatron(version: str, seeds: range) -> None:
    cases = [case for seed in seeds for case in drawn_cases([*ONE_STAGE, *CHUNKS], seed)]
    check(cases, megatron_schedule, partial(run_megatron, version))


@pytest.mark.parametrize("seeds", SEEDS)
def test_deepspeed(seeds: range) -> None:
    cases = [case for seed in seeds for case in drawn_cases(ONE_STAGE, seed)]
    check(cases, deepspeed_schedule, run_deepspeed)
