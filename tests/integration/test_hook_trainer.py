"""The stand-in trainer: a small job of four ranks on simulated GPUs takes as long as its schedule says."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
from builders import make_spec

from perseus_dist.hooks import RankSpec
from perseus_dist.planning.schedule.instruction import Kind, parse_instruction
from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.planning.schedule.schedule import Schedule, format_schedule
from perseus_dist.simulation.trainers.rendezvous import Rendezvous
from perseus_dist.simulation.trainers.trainer_config import InstructionTime, TrainerConfig
from perseus_dist.simulator.machine import SimulatedMachine

WAIT_S = 60
PP = 2
DP = 2
NUM_ITERATIONS = 4
FORWARD_S = 0.02
BACKWARD_S = 0.04
OPTIMIZER_S = 0.01
LATE_S = 0.5  # of a rank's process on a busy machine, at the end of an iteration

SCHEDULE = make_schedule("interleaved", pp=PP, microbatches=4, chunks=2)


def rank_spec(schedule: Schedule, pp_rank: int = 0, dp_rank: int = 0, dp_size: int = DP) -> RankSpec:
    return make_spec(
        rank=dp_rank * schedule.num_ranks + pp_rank,
        pp_rank=pp_rank,
        dp_rank=dp_rank,
        pp_size=schedule.num_ranks,
        dp_size=dp_size,
        schedule=format_schedule(schedule),
    )


def trainer_config(pp_rank: int, dp_rank: int, *, device_ordered: bool) -> TrainerConfig:
    seconds = {Kind.FORWARD: FORWARD_S, Kind.BACKWARD: BACKWARD_S}
    return TrainerConfig(
        spec=rank_spec(SCHEDULE, pp_rank, dp_rank),
        gpu=dp_rank * PP + pp_rank,
        times=tuple(
            InstructionTime(stage=stage, kind=kind, seconds=seconds[kind])
            for stage in range(SCHEDULE.num_stages)
            for kind in seconds
        ),
        num_iterations=NUM_ITERATIONS,
        device_ordered=device_ordered,
        optimizer_s=OPTIMIZER_S,
    )


@pytest.mark.parametrize("device_ordered", [True, False])
def test_iterations_take_what_the_schedule_says(device_ordered: bool) -> None:  # noqa: FBT001
    with SimulatedMachine("a100", count=PP * DP) as machine, ExitStack() as stack:
        environment = {**os.environ, **machine.environment(cuda=True), "PERSEUS_DISABLE": "1"}
        trainers = []
        for dp_rank in range(DP):
            for pp_rank in range(PP):
                trainer = subprocess.Popen(
                    [sys.executable, "-m", "perseus_dist.simulation.trainers.trainer"],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                stack.callback(trainer.wait)
                stack.callback(trainer.kill)
                assert trainer.stdin is not None
                trainer.stdin.write(trainer_config(pp_rank, dp_rank, device_ordered=device_ordered).to_json())
                trainer.stdin.close()
                trainer.stdin = None
                trainers.append(trainer)
        outputs = [trainer.communicate(timeout=WAIT_S)[0] for trainer in trainers]
        assert [trainer.returncode for trainer in trainers] == [0] * len(trainers)

    lines = [[json.loads(line) for line in output.splitlines()] for output in outputs]
    assert [[line["iteration"] for line in rank] for rank in lines] == [list(range(NUM_ITERATIONS))] * len(trainers)
    # 4 microbatches x 2 chunks on each rank, and one forward and backward of the other rank that nothing hides.
    pipeline_s = (4 * 2 + 1) * (FORWARD_S + BACKWARD_S)
    longest_s = [max(rank[i]["pipeline_end_ns"] - rank[i]["begin_ns"] for rank in lines) / 1e9 for i in range(1, 4)]
    # Python may be late: a little between iterations, more between instructions.
    assert min(longest_s) >= pipeline_s - 1e-6
    assert min(longest_s) < pipeline_s * (1.1 if device_ordered else 2)
    for i in range(NUM_ITERATIONS):  # nobody steps before everybody is there
        last_ns = max(rank[i]["pipeline_end_ns"] for rank in lines)
        for rank in lines:
            late_s = (rank[i]["end_ns"] - last_ns) / 1e9 - OPTIMIZER_S
            assert -1e-3 <= late_s < LATE_S


def test_configuration_round_trip() -> None:
    config = trainer_config(1, 0, device_ordered=True)
    assert TrainerConfig.from_json(config.to_json()) == config
    assert config.time_of(3, "B").seconds == BACKWARD_S
    assert config.time_of(3, "B").kernel_class == "backward"


def test_pipelines_share_the_barrier_alone() -> None:
    schedule = make_schedule("1f1b", pp=4, microbatches=8)
    first = Rendezvous(schedule, rank_spec(schedule, dp_rank=0), 100)
    second = Rendezvous(schedule, rank_spec(schedule, dp_rank=1), 100)
    assert first.barrier == second.barrier == 100
    semaphores = [
        {r.signal_after(instruction) for order in schedule.ranks for instruction in order} - {None}
        for r in (first, second)
    ]
    # Forwards of all stages but the last, backwards of all but the first.
    assert [len(found) for found in semaphores] == [6, 6]
    assert not semaphores[0] & semaphores[1]
    assert first.barrier not in semaphores[0]


def test_a_result_is_named_by_its_place_in_the_senders_order() -> None:
    schedule = make_schedule("1f1b", pp=2, microbatches=3)
    rendezvous = Rendezvous(schedule, rank_spec(schedule), 0)
    backwards = [instruction for instruction in schedule.ranks[0] if instruction.kind == "B"]
    assert [(need.period, need.first) for i in backwards for need in rendezvous.needs(i)] == [(3, 1), (3, 2), (3, 3)]
    assert rendezvous.needs(schedule.ranks[0][0]) == []


def test_joint_instructions_need_everything_before_the_first() -> None:
    schedule = make_schedule("interleaved", pp=2, microbatches=4, chunks=2, overlap_p2p=False)
    rendezvous = Rendezvous(schedule, rank_spec(schedule), 0)
    first, second, sent = (parse_instruction(token) for token in ("1F2", "1B0", "2B0"))
    # The result of 0F2 leaves after 2B0, whose own result 1B0 needs: it is one exchange.
    assert rendezvous.needs(first) == [(rendezvous.signal_after(sent), 4, 1)]
    assert rendezvous.needs(second) == []
