"""Megatron's own schedules and its communicator in virtual time: when each instruction and transfer begins and ends.

Start it as a program with Megatron on PYTHONPATH and cases in JSON on its standard input; it prints each one's moments.
``P2PCommunicator`` and ``forward_backward_pipelining_with(out)_interleaving`` are Megatron's; ``torch.distributed``'s
sends and receives are those of virtual ranks, and a forward and a backward let their rank's time pass and compute
nothing. Where gradients are reduced, ``finalize_model_grads``, the groups of buckets and what their
``DistributedDataParallel`` asks of them are Megatron's as well; pipelines are all alike, and a rank's reductions follow
one another beside what it computes.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads, param_and_grad_buffer
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


class Work:
    """A reduction that a rank has begun, on a stream of its own: the handle that it waits for."""

    def __init__(self) -> None:
        rank = local.rank
        num = rank.case["at_end"]["buckets"] * rank.case["chunks"]
        self._end = max(rank.time, local.reduced) + rank.case["at_end"]["reduce"][rank.number] / num
        local.reduced = self._end

    def wait(self) -> None:
        local.rank.time = max(local.rank.time, self._end)


def model_chunk(at_end: Any, config: Any, stage: int) -> Any:
    """Stands for one in Megatron's ``DistributedDataParallel``, with groups of buckets that hold a parameter each."""
    ddp_config = SimpleNamespace(
        overlap_grad_reduce=bool(at_end and at_end["overlap"]),
        use_distributed_optimizer=False,
        overlap_param_gather=False,
        num_distributed_optimizer_instances=1,
        reduce_scatter_with_fp32_accumulation=False,
        check_for_nan_in_grad=False,
        check_for_large_grads=False,
        average_in_collective=False,
        use_megatron_fsdp=False,
        reuse_grad_buf_for_mxfp8_param_ag=False,
    )
    chunk = torch.nn.Module()
    own = {name: getattr(DistributedDataParallel, name) for name in ("no_sync", "start_grad_sync", "finish_grad_sync")}
    chunk.__dict__.update(
        {name: partial(function, chunk) for name, function in own.items()},
        config=config,
        ddp_config=ddp_config,
        model_type=None,
        stage=stage,
        bucket_groups=[bucket_group(ddp_config) for _ in range(at_end["buckets"] if at_end else 0)],
        expert_parallel_bucket_groups=[],
        pre_process=True,
        share_embeddings_and_output_weights=True,
        shared_embedding_or_output_weight=lambda: SimpleNamespace(grad=zeros(1)),
    )
    return chunk


def bucket_group(ddp_config: Any) -> Any:
    """Megatron's own, of one parameter."""
    parameter = torch.nn.Parameter(zeros(1))
    bucket = SimpleNamespace(
        params_list=[parameter],
        params=[],
        params_with_extra_main_grads=[],
        grad_data=zeros(1),
        gradient_scaling_factor=1.0,
    )
    group = param_and_grad_buffer._ParamAndGradBucketGroup([bucket], ddp_config, Group(2, 0), 2)
    group.is_first_batch = False  # it is known how often each gradient is made
    group.golden_per_param_grad_ready_counts = {parameter: 1}
    return group


def run_backward(chunk: Any, microbatch: int) -> str:
    """Of a microbatch; each bucket's gradients are there when as large a part of it is over."""
    begin = local.rank.time
    result: str = local.rank.run(chunk.stage, "B", microbatch)
    end = local.rank.time
    for number, group in enumerate(chunk.bucket_groups, start=1):
        local.rank.time = begin + (end - begin) * number / len(chunk.bucket_groups)
        if chunk.ddp_config.overlap_grad_reduce:
            (parameter,) = group.params
            group.register_grad_ready(parameter)
    local.rank.time = end
    return result


@contextmanager
def coalescing(_: object, *, async_ops: bool) -> Iterator[Work]:
    """Stands for torch's ``_coalescing_manager``, in which reductions begin together."""
    work = Work()
    yield work
    if not async_ops:
        work.wait()


def all_reduce(_: object, *, group: Any, **__: object) -> None:
    """Stands for torch's: of tied gradients; reductions over pipelines are those of ``coalescing``."""
    if isinstance(group, TiedRanks):
        local.rank.reduce("TIED", group.ranks, local.rank.case["at_end"]["tied"])


class TiedRanks(Group):
    """Stands for the group of ranks that have the embedding."""

    def __init__(self, ranks: list[int]) -> None:
        super().__init__(len(ranks), 0)
        self.ranks = ranks


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
    at_end = case.get("at_end")
    local.reduced = 0.0  # when the last of its reductions is over
    config = Config(
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
        microbatch_group_size_per_vp_stage=case["group"],
        overlap_p2p_comm=case["overlap"],
        batch_p2p_comm=not case["overlap"],
        deallocate_pipeline_outputs=case["frees_outputs"],
        hidden_size=1,
        pipeline_dtype=torch.float32,
        cuda_graph_scope=[],
        gtp_weight_remat_size=1,
        expert_gtp_weight_remat_size=1,
        moe_router_load_balancing_type="none",
    )
    models = [model_chunk(at_end, config, chunk * case["pp"] + rank.number) for chunk in range(chunks)]
    local.chunks = {model.stage: model for model in models}
    if at_end:  # as Megatron's training loop sets them
        config.finalize_model_grads_func = lambda *args, **options: rank.run_constant(
            "REDUCE", lambda: finalize_model_grads(*args, **options)
        )
        if at_end["overlap"]:
            config.no_sync_func = each_or_one([model.no_sync for model in models])
            if at_end["align"]:
                config.grad_sync_func = each_or_one([model.start_grad_sync for model in models])
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
        pg_collection=collection(
            tp=alone,
            cp=alone,
            dp_cp=alone,
            pp=group,
            embd=TiedRanks(at_end["tied_ranks"]) if at_end else None,
            pos_embd=None,
        ),
    )
    if at_end:
        rank.run_constant("STEP", rank.step)


def each_or_one(functions: list[Callable[..., Any]]) -> Any:
    """As Megatron has functions of its chunks."""
    return functions[0] if len(functions) == 1 else functions


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
    result: str = run_backward(local.chunks[stage], microbatch)
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
        all_reduce=all_reduce,
        is_initialized=lambda: True,
        get_rank=lambda: local.rank.number,
        get_process_group_ranks=lambda group: group.ranks,
    )
    param_and_grad_buffer.__dict__.update(_coalescing_manager=coalescing)
    gradients = sys.modules[finalize_model_grads.__module__]
    gradients.__dict__.update(_allreduce_replicated_grads_over_gtp_remat_group=lambda *_, **__: None)
    first, last = (lambda group: group.rank() == 0), (lambda group: group.rank() == group.size() - 1)
    for module in (schedules, p2p_communication, gradients):
        module.__dict__.update(is_pp_first_stage=first, is_pp_last_stage=last)
    schedules.__dict__.update(
        forward_step=forward_step, backward_step=backward_step, deallocate_output_tensor=lambda *_: None
    )
    cases: list[Case] = json.load(sys.stdin)
    json.dump([moments_of(case, run_iteration) for case in cases], sys.stdout)
