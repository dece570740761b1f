"""DeepSpeed's own DualPipeV in virtual time: when each instruction and transfer begins and ends.

A program as ``deepspeed_transfers``. The schedule, the loop over its commands, and what the engine does to put
transfers in line and to exchange them are DeepSpeed's; ``P2POp`` and ``batch_isend_irecv`` are those of virtual ranks,
and loading, forward and backward let their rank's time pass and compute nothing.
"""

import json
import sys
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from deepspeed.runtime.pipe import dualpipev, schedule
from deepspeed.runtime.pipe.dualpipev import DualPipeVEngine
from deepspeed.runtime.pipe.engine import PipelineEngine
from virtual_ranks import Case, Rank, Transfer, local, moments_of


class Engine:
    """Stands for a ``DualPipeVEngine``, of whose methods it has those that exchange."""

    device = torch.device("cpu")

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.stage_id, self.num_stages = rank.number, rank.case["pp"]
        self.grid = SimpleNamespace(stage_to_global=lambda stage: stage)
        self.counts: Counter[tuple[int, str]] = Counter()
        self._p2p_ops: list[Any] = []
        self._first_send = [False, False]
        self._recv_specs = [(True, [(torch.Size([1]), torch.float32)])] * 2
        self.pipe_buffers: defaultdict[str, list[Any]] = defaultdict(list)

    def wall_clock_breakdown(self) -> bool:
        return False

    def _reserve_pipe_buffers(self, num: int) -> None:
        self.pipe_buffers = defaultdict(lambda: [torch.zeros(1) for _ in range(num)])

    def run(self, phase: int, kind: str) -> torch.Tensor:
        stage = self.stage_id if phase == 0 else 2 * self.num_stages - 1 - self.stage_id
        result: Any = torch.zeros(1)
        result.text = self.rank.run(stage, kind, self.counts[stage, kind])
        self.counts[stage, kind] += 1
        return torch.as_tensor(result)

    def load(self, buffer_id: int) -> None:  # noqa: ARG002 - as it is called
        self.run(0, "LOAD")

    def forward(self, buffer_id: int, phase: int) -> None:
        self.pipe_buffers["outputs"][buffer_id] = self.run(phase, "F")

    def backward(self, buffer_id: int, phase: int) -> None:
        self.pipe_buffers["inputs"][buffer_id] = SimpleNamespace(grad=self.run(phase, "B"), is_floating_point=bool)
        self.pipe_buffers["inputs"][buffer_id].is_floating_point = lambda: True

    def nothing(self) -> None: ...

    _downstream_stage = DualPipeVEngine._downstream_stage
    _upstream_stage = DualPipeVEngine._upstream_stage
    _queue_p2p = DualPipeVEngine._queue_p2p
    _INSTRUCTION_MAP = DualPipeVEngine._INSTRUCTION_MAP | {
        schedule.LoadMicroBatch: load,
        schedule.ForwardPass: forward,
        schedule.BackwardPass: backward,
        schedule.ReduceTiedGrads: nothing,
        schedule.ReduceGrads: nothing,
        schedule.OptimizerStep: nothing,
    }


def isend(tensor: Any, to: int) -> Transfer:
    transfer: Transfer = local.rank.send(tensor.text, to)
    return transfer


def irecv(tensor: Any, of: int) -> Transfer:  # noqa: ARG001 - the tensor is filled by nobody
    transfer: Transfer = local.rank.ask(of)
    return transfer


def batch_isend_irecv(ops: list[Any]) -> list[Transfer]:
    return [op(tensor, peer) for op, tensor, peer in ops]


def run_iteration(rank: Rank) -> None:
    """The engine's loop."""
    case = rank.case
    steps = schedule.DualPipeVSchedule(micro_batches=case["microbatches"], stages=case["pp"], stage_id=rank.number)
    PipelineEngine._exec_schedule(Engine(rank), steps)


if __name__ == "__main__":
    dualpipev.dist = SimpleNamespace(
        P2POp=lambda op, tensor, peer: (op, tensor, peer), isend=isend, irecv=irecv, batch_isend_irecv=batch_isend_irecv
    )
    dualpipev._as_list = lambda tensors: [tensors]
    cases: list[Case] = json.load(sys.stdin)
    found = [moments_of(case, run_iteration) for case in cases]
    sys.stdout.write("\n" + json.dumps(found))
