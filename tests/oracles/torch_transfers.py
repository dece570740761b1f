"""torch.distributed.pipelining's own schedules in virtual time: when each instruction and transfer begins and ends.

A program as ``deepspeed_transfers``, which also prints the schedule that the adapter reads. The schedules' loops, and
what they do to send, receive and wait, are torch's; ``isend``, ``irecv`` and ``batch_isend_irecv`` are those of virtual
ranks, and a stage's forwards and backwards let their rank's time pass and compute nothing.
"""

import json
import sys
from types import SimpleNamespace
from typing import Any

from torch.distributed.pipelining import schedules
from virtual_ranks import Case, Rank, Transfer, local, moments_of

from perseus_dist.pipelining.schedule_order import read_schedule
from perseus_dist.planning.schedule.schedule import format_schedule

V_SHAPED = ("ZBVZeroBubble", "DualPipeV")


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

    def perform_reduce_grad(self, *_: object) -> None:
        num_before = sum("REDUCE" in text for text in self.rank.moments)
        is_last = num_before == self.rank.case["chunks"] - 1
        self.rank.run(self.stage_index, "REDUCE" if is_last else "REDUCE_CHUNK", "")


def isend(tensor: str, *, group_dst: int, **_: object) -> Transfer:
    transfer: Transfer = local.rank.send(tensor, group_dst)
    return transfer


def irecv(tensor: str, *, group_src: int, **_: object) -> Transfer:  # noqa: ARG001 - it is filled by nobody
    transfer: Transfer = local.rank.ask(group_src)
    return transfer


def batch_isend_irecv(ops: list[Any]) -> list[Transfer]:
    return [op.op(op.tensor, **{"group_dst" if op.op is isend else "group_src": op.group_peer}) for op in ops]


def schedule_of(rank: Rank) -> Any:
    """torch's, of a rank's stages."""
    case = rank.case
    make = getattr(schedules, f"Schedule{case['schedule']}")
    if issubclass(make, schedules.PipelineScheduleSingle):
        schedule = make(Stage(rank, rank.number), case["microbatches"])
        schedule._initialize_stage = lambda *_, **__: None
        return schedule
    pp, chunks = case["pp"], case["chunks"]
    stages = [chunk * pp + rank.number for chunk in range(chunks)]
    if case["schedule"] in V_SHAPED:
        stages = [rank.number, 2 * pp - 1 - rank.number]
    schedule = make([Stage(rank, stage) for stage in stages], case["microbatches"])
    schedule._initialize_stages = lambda *_, **__: None
    return schedule


def run_iteration(rank: Rank) -> None:
    """The schedule's loop."""
    schedule_of(rank)._step_microbatches()


def text_of(case: Case) -> str:
    return format_schedule(read_schedule(schedule_of(Rank(case, 0, {}, {})), has_step=False))


if __name__ == "__main__":
    schedules.dist = SimpleNamespace(isend=isend, irecv=irecv, batch_isend_irecv=batch_isend_irecv)
    cases: list[Case] = json.load(sys.stdin)
    found = [[text_of(case), moments_of(case, run_iteration)] for case in cases]
    sys.stdout.write("\n" + json.dumps(found))
