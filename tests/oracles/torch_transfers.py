"""torch.distributed.pipelining's own schedules in virtual time: when each instruction and transfer begins and ends.

A program as ``deepspeed_transfers``. The schedules' loops, and what they do to send, receive and wait, are torch's;
``isend``, ``irecv`` and ``batch_isend_irecv`` are those of virtual ranks, and a stage's forwards and backwards let
their rank's time pass and compute nothing.
"""

import json
import sys
from types import SimpleNamespace
from typing import Any

from torch.distributed.pipelining import schedules
from virtual_ranks import Case, Rank, Transfer, local, moments_of


class Stage:
    """Stands for a ``PipelineStage``."""

    has_backward = True
    submod = None

    def __init__(self, rank: Rank, stage_index: int) -> None:
        self.rank, self.stage_index = rank, stage_index
        self.group_rank, self.group_size = rank.number, rank.case["pp"]
        self.num_stages = rank.case["pp"] * rank.case["chunks"]
        self.is_first, self.is_last = stage_index == 0, stage_index == self.num_stages - 1
        self.stage_index_to_group_rank: dict[int, int] = {}  # a schedule of several stages says it

    def forward_one_chunk(self, microbatch: int, *_: object, **__: object) -> None:
        self.rank.run(self.stage_index, "F", microbatch)

    def backward_one_chunk(self, microbatch: int, *, full_backward: bool = True, **_: object) -> None:
        self.rank.run(self.stage_index, "B" if full_backward else "I", microbatch)

    def backward_weight_one_chunk(self, microbatch: int, **_: object) -> None:
        self.rank.run(self.stage_index, "W", microbatch)

    def get_fwd_recv_ops(self, microbatch: int) -> list[Any]:
        return [] if self.is_first else [self.op(irecv, self.stage_index - 1, "F", microbatch)]

    def get_fwd_send_ops(self, microbatch: int) -> list[Any]:
        return [] if self.is_last else [self.op(isend, self.stage_index + 1, "F", microbatch)]

    def get_bwd_recv_ops(self, microbatch: int) -> list[Any]:
        return [] if self.is_last else [self.op(irecv, self.stage_index + 1, "B", microbatch)]

    def get_bwd_send_ops(self, microbatch: int) -> list[Any]:
        return [] if self.is_first else [self.op(isend, self.stage_index - 1, "B", microbatch)]

    def op(self, op: Any, stage: int, kind: str, microbatch: int) -> Any:
        """Stands for a ``P2POp``."""
        peer = self.stage_index_to_group_rank.get(stage, stage)
        text = f"{self.stage_index}{kind}{microbatch}"
        return SimpleNamespace(op=op, tensor=text, peer=peer, group_peer=peer, group=None, tag=0)

    def set_local_fwd_input(self, *_: object) -> None: ...

    def set_local_bwd_input(self, *_: object) -> None: ...

    def get_local_bwd_output(self, *_: object) -> None: ...

    def perform_reduce_grad(self, *_: object) -> None: ...


def isend(tensor: str, *, group_dst: int, **_: object) -> Transfer:
    transfer: Transfer = local.rank.send(tensor, group_dst)
    return transfer


def irecv(tensor: str, *, group_src: int, **_: object) -> Transfer:  # noqa: ARG001 - it is filled by nobody
    transfer: Transfer = local.rank.ask(group_src)
    return transfer


def batch_isend_irecv(ops: list[Any]) -> list[Transfer]:
    return [op.op(op.tensor, **{"group_dst" if op.op is isend else "group_src": op.group_peer}) for op in ops]


def run_iteration(rank: Rank) -> None:
    """The schedule's loop."""
    case = rank.case
    make = getattr(schedules, f"Schedule{case['schedule']}")
    if case["chunks"] == 1 and issubclass(make, schedules.PipelineScheduleSingle):
        schedule = make(Stage(rank, rank.number), case["microbatches"])
        schedule._initialize_stage = lambda *_, **__: None
    else:
        stages = [Stage(rank, one) for one in stages_of(rank, is_v=case["is_v"])]
        schedule = make(stages, case["microbatches"])
        schedule._initialize_stages = lambda *_, **__: None
    schedule._step_microbatches()


def stages_of(rank: Rank, *, is_v: bool) -> list[int]:
    pp, chunks = rank.case["pp"], rank.case["chunks"]
    return [rank.number, 2 * pp - 1 - rank.number] if is_v else [chunk * pp + rank.number for chunk in range(chunks)]


if __name__ == "__main__":
    schedules.dist = SimpleNamespace(isend=isend, irecv=irecv, batch_isend_irecv=batch_isend_irecv)
    cases: list[Case] = json.load(sys.stdin)
    found = [moments_of(case, run_iteration) for case in cases]
    sys.stdout.write("\n" + json.dumps(found))
