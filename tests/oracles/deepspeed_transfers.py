"""DeepSpeed's own ``TrainSchedule`` in virtual time: when each instruction and transfer begins and ends.

Start it as a program with cases in JSON on its standard input; it prints the moments of each. The schedule, the loop of
the engine over its commands, and what the engine does to send, receive and reduce tied gradients are DeepSpeed's;
``p2p.send``, ``p2p.recv`` and ``dist.all_reduce`` are those of virtual ranks, and loading, forward, backward, the
reduction over pipelines that are all alike, and the step let their rank's time pass and compute nothing.
"""

import json
import sys
from collections import Counter
from typing import Any

import torch
from deepspeed.runtime.pipe import engine, p2p, schedule
from deepspeed.runtime.pipe.engine import PipelineEngine
from virtual_ranks import Case, Rank, local, moments_of


class Engine:
    """Stands for a ``PipelineEngine``, of whose methods it has those that send and receive."""

    has_attention_mask = has_bool_tensors = dynamic_shape = first_output_send = False
    is_pipe_partitioned = is_grad_partitioned = using_bf16_optimizer = False
    pipeline_enable_backward_allreduce = True

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.prev_stage, self.next_stage = rank.number - 1, rank.number + 1
        self.pipe_recv_buf, self.grad_layer = torch.zeros(1), torch.zeros(1)
        self.counts: Counter[str] = Counter()
        self.pipe_buffers: dict[str, list[Any]] = {}
        self.at_end = rank.case.get("at_end")
        self.module = self

    def wall_clock_breakdown(self) -> bool:
        return False

    def _reserve_pipe_buffers(self, num: int) -> None:
        self.pipe_buffers = {name: [torch.zeros(1) for _ in range(num)] for name in ("inputs", "outputs")}

    def run(self, kind: str) -> torch.Tensor:
        result: Any = torch.zeros(1)
        result.text = self.rank.run(self.rank.number, kind, self.counts[kind])
        self.counts[kind] += 1
        return torch.as_tensor(result)

    def load(self, buffer_id: int) -> None:
        self.pipe_buffers["labels"] = [self.run("LOAD")] * (buffer_id + 1)

    def forward(self, buffer_id: int) -> None:
        self.pipe_buffers["outputs"][buffer_id] = self.run("F")

    def backward(self, buffer_id: int) -> None:
        inputs = torch.zeros(1)
        inputs.grad = self.run("B")
        self.pipe_buffers["inputs"][buffer_id] = inputs
        self.keep = inputs.grad

    def zero_optimization_partition_gradients(self) -> bool:
        return False

    def get_tied_weights_and_groups(self) -> list[tuple[Any, list[int]]]:
        assert self.at_end
        weight = torch.zeros(1)
        weight.grad = torch.zeros(1)
        ranks = self.at_end["tied_ranks"]
        return [(weight, ranks)] if self.rank.number in ranks else []

    def allreduce_gradients(self, **_: object) -> None:
        assert self.at_end
        self.rank.time += self.at_end["reduce"][self.rank.number]

    def reduce_tied(self) -> None:
        if self.at_end:
            self.rank.run_constant("TIED", lambda: PipelineEngine._exec_reduce_tied_grads(self))

    def reduce(self) -> None:
        if self.at_end:
            self.rank.run_constant("REDUCE", lambda: PipelineEngine._exec_reduce_grads(self))

    def step(self) -> None:
        if self.at_end:
            self.rank.run_constant("STEP", self.rank.step)

    _INSTRUCTION_MAP = PipelineEngine._INSTRUCTION_MAP | {
        schedule.LoadMicroBatch: load,
        schedule.ForwardPass: forward,
        schedule.BackwardPass: backward,
        schedule.ReduceTiedGrads: reduce_tied,
        schedule.ReduceGrads: reduce,
        schedule.OptimizerStep: step,
    }


def send(tensor: Any, to: int) -> None:
    local.rank.send(tensor.text, to).wait()


def receive(tensor: Any, of: int) -> None:
    tensor.transfer = local.rank.ask(of)
    tensor.transfer.wait()


def all_reduce(_: Any, group: list[int]) -> None:
    local.rank.reduce("TIED", group, local.rank.case["at_end"]["tied"])


def run_iteration(rank: Rank) -> None:
    """The engine's loop."""
    case = rank.case
    steps = schedule.TrainSchedule(micro_batches=case["microbatches"], stages=case["pp"], stage_id=rank.number)
    PipelineEngine._exec_schedule(Engine(rank), steps)


if __name__ == "__main__":
    p2p.__dict__.update(send=send, recv=receive)
    engine.dist.all_reduce = all_reduce
    cases: list[Case] = json.load(sys.stdin)
    found = [moments_of(case, run_iteration) for case in cases]
    sys.stdout.write("\n" + json.dumps(found))
