"""Megatron's own schedules and its communicator in virtual time: when each instruction and transfer begins and ends.

Start it as a program with Megatron on PYTHONPATH and cases in JSON on its standard input; it prints each one's moments.
``P2PCommunicator`` and ``forward_backward_pipelining_with(out)_interleaving`` are Megatron's; ``torch.distributed``'s
sends and receives are those of virtual ranks, and a forward and a backward let their rank's time pass and compute
nothing.
"""

import json
import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from megatron.core.pipeline_parallel import p2p_communication, schedules
from virtual_ranks import Case, Rank, Transfer, local, moments_of

zeros = torch.zeros
empty = torch.empty


class Group:
    """Stands for a process group."""

    def __init__(self, size: int, rank: int) -> None:
        self.size, self.rank = (lambda: size), (lambda: rank)


class Config(SimpleNamespace):
    """Stands for Megatron's, with nothing else asked for."""

    def __getattr__(self, name: str) -> None:
        return None


class Operation(NamedTuple):
    """Stands for ``P2POp``."""

    call: Any
    tensor: Any
    peer: int
    group: Any


def isend(tensor: Any, dst: int, **_: object) -> Transfer:
    sent: Transfer = local.rank.send(tensor, dst)
    return sent


def irecv(tensor: Any, src: int, **_: object) -> Transfer:
    received: Transfer = local.rank.ask(src)
    tensor.transfer = received
    return received


def run_iteration(rank: Rank) -> None:
    """Megatron's function, with its own communicator."""
    case, alone = rank.case, Group(1, 0)
    group, chunks = Group(case["pp"], rank.number), case["chunks"]
    config = Config(
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
        microbatch_group_size_per_vp_stage=case["group"],
        overlap_p2p_comm=case["overlap"],
        batch_p2p_comm=not case["overlap"],
        deallocate_pipeline_outputs=case["frees_outputs"],
        hidden_size=1,
        pipeline_dtype=torch.float32,
        cuda_graph_scope=[],
    )
    models = [torch.nn.Module() for _ in range(chunks)]
    for chunk, model in enumerate(models):
        model.__dict__.update(config=config, model_type=None, stage=chunk * case["pp"] + rank.number)
    interleaved = schedules.forward_backward_pipelining_with_interleaving
    function = interleaved if chunks > 1 else schedules.forward_backward_pipelining_without_interleaving
    function(
        forward_step_func=None,
        data_iterator=[None] * chunks,
        model=models,
        num_microbatches=case["microbatches"],
        seq_length=1,
        micro_batch_size=1,
        p2p_communicator=p2p_communication.P2PCommunicator(group, config),
        pg_collection=collection(tp=alone, cp=alone, dp_cp=alone, pp=group, embd=None, pos_embd=None),
    )


def collection(**groups: Any) -> Any:
    """Megatron's own, where it asks for one, without its dataclass's checks."""
    found = schedules.ProcessGroupCollection.__new__(schedules.ProcessGroupCollection)
    for name, group in groups.items():
        setattr(found, name, group)
    return found


def forward_step(_0: object, _1: object, model: Any, _3: object, tensor: Any, *_: object, **options: Any) -> Any:
    """Stands for Megatron's."""
    microbatch = options["current_microbatch"]
    if model.stage:
        assert one(tensor).transfer.text == f"{model.stage - 1}F{microbatch}"
    return local.rank.run(model.stage, "F", microbatch), 0


def backward_step(_input: object, output: Any, gradient: Any, *_: object) -> str:
    """Stands for Megatron's."""
    stage, microbatch = map(int, one(output).split("F"))
    if one(gradient) is not None:
        assert one(gradient).transfer.text == f"{stage + 1}B{microbatch}"
    result: str = local.rank.run(stage, "B", microbatch)
    return result


def one(value: Any) -> Any:
    """Megatron's schedule without interleaving has lists of a single tensor."""
    return value[0] if isinstance(value, list) else value


def on_cpu(make: Any) -> Any:
    """For Megatron, which asks for a GPU by name."""
    return lambda *sizes, **options: make(*sizes, **options | {"device": "cpu"})


if __name__ == "__main__":
    torch.__dict__.update(zeros=on_cpu(zeros), empty=on_cpu(empty))
    torch.cuda.__dict__.update(current_device=lambda: 0, synchronize=lambda *_: None)
    torch.distributed.__dict__.update(
        isend=isend,
        irecv=irecv,
        P2POp=Operation,
        batch_isend_irecv=lambda operations: [do(tensor, peer) for do, tensor, peer, _ in operations],
        get_global_rank=lambda _, rank: rank,
        get_backend=lambda _: "nccl",
    )
    first, last = (lambda group: group.rank() == 0), (lambda group: group.rank() == group.size() - 1)
    for module in (schedules, p2p_communication):
        module.__dict__.update(is_pp_first_stage=first, is_pp_last_stage=last)
    schedules.__dict__.update(
        forward_step=forward_step, backward_step=backward_step, deallocate_output_tensor=lambda *_: None
    )
    cases: list[Case] = json.load(sys.stdin)
    json.dump([moments_of(case, run_iteration) for case in cases], sys.stdout)
