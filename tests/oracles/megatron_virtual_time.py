"""Megatron's own interleaved schedule in virtual time: when each instruction begins on each rank.

Start it as a program with Megatron on PYTHONPATH and cases in JSON as its argument; it prints the starts of each. Ranks
are threads of one process. ``forward_backward_pipelining_with_interleaving`` is Megatron's; a forward and a backward
let their rank's time pass and compute nothing, and a tensor arrives at the moment at which it was sent. A receive is
over when its tensor has arrived, a send when it is asked for at the other end; a call that does not overlap waits for
all of its own.
"""

import json
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch
from megatron.core.pipeline_parallel import schedules

TIMEOUT_S = 60
local = threading.local()  # the Rank whose thread it is
zeros = torch.zeros


class Group:
    """Stands for a process group."""

    def __init__(self, size: int, rank: int) -> None:
        self.size, self.rank = (lambda: size), (lambda: rank)


class Channel:
    """From one rank to another, in one direction of the pipeline: the n-th receive takes what was sent n-th."""

    def __init__(self, num: int) -> None:
        transfers = [(Future[tuple[str, int]](), Future[int]()) for _ in range(num)]
        self._put, self._take = iter(transfers), iter(transfers)

    def send(self, value: str, time: int) -> "Sent":
        sent, asked_for = next(self._put)
        sent.set_result((value, time))
        return Sent(asked_for)

    def receive(self, time: int) -> "Received":
        sent, asked_for = next(self._take)
        asked_for.set_result(time)
        return Received(sent)


class Received:
    """A tensor that may be under way; also the handle that waits for it."""

    def __init__(self, sent: "Future[tuple[str, int]]") -> None:
        self._sent = sent

    def wait(self) -> "Received":
        local.rank.time = max(local.rank.time, self._sent.result(TIMEOUT_S)[1])
        return self

    def __str__(self) -> str:
        return self._sent.result(TIMEOUT_S)[0]


class Sent:
    """The handle of a send, over when the other end has asked for it."""

    def __init__(self, asked_for: "Future[int]") -> None:
        self._asked_for = asked_for

    def wait(self) -> None:
        local.rank.time = max(local.rank.time, self._asked_for.result(TIMEOUT_S))


class Config(SimpleNamespace):
    """Stands for Megatron's, with nothing else asked for."""

    def __getattr__(self, name: str) -> None:
        return None


class Rank:
    """A rank with its time, and its part of Megatron's ``P2PCommunicator``."""

    def __init__(self, case: Mapping[str, Any], number: int, channels: Mapping[tuple[int, int, str], Channel]) -> None:
        pp, chunks = case["pp"], case["chunks"]
        self.time, self.starts = 0, dict[str, int]()
        self.pp_group = Group(pp, number)
        self.virtual_pipeline_model_parallel_size = chunks
        self.config = Config(
            virtual_pipeline_model_parallel_size=chunks,
            microbatch_group_size_per_vp_stage=case["group"],
            overlap_p2p_comm=case["overlap"],
            hidden_size=1,
            cuda_graph_scope=[],
        )
        before, after = (number - 1) % pp, (number + 1) % pp
        self._sends = {"send_next": channels[number, after, "F"], "send_prev": channels[number, before, "B"]}
        self._receives = {"recv_prev": channels[before, number, "F"], "recv_next": channels[after, number, "B"]}
        self._case, self._number = case, number

    def __call__(self) -> dict[str, int]:
        """Run an iteration; the start of each instruction."""
        local.rank = self
        case, alone = self._case, Group(1, 0)
        models = [torch.nn.Module() for _ in range(case["chunks"])]
        for chunk, model in enumerate(models):
            model.__dict__.update(config=self.config, model_type=None, stage=chunk * case["pp"] + self._number)
        schedules.forward_backward_pipelining_with_interleaving(
            forward_step_func=None,
            data_iterator=[None] * len(models),
            model=models,
            num_microbatches=case["microbatches"],
            seq_length=1,
            micro_batch_size=1,
            p2p_communicator=self,
            pg_collection=SimpleNamespace(tp=alone, cp=alone, dp_cp=alone, pp=self.pp_group, embd=None, pos_embd=None),
        )
        return self.starts

    def run(self, stage: int, kind: str, microbatch: int) -> str:
        """An instruction, whose text stands for its result."""
        self.starts[f"{stage}{kind}{microbatch}"] = self.time
        self.time += self._case["durations"][kind][stage]
        return f"{stage}{kind}{microbatch}"

    def recv_forward(self, _shape: object, is_first_stage: object) -> Any:
        return None if is_first_stage else self._exchange(recv_prev=True)[0]

    def recv_backward(self, _shape: object, is_last_stage: object) -> Any:
        return None if is_last_stage else self._exchange(recv_next=True)[1]

    def send_forward_recv_forward(self, output: object, **options: Any) -> Any:
        activation, _, handles = self._exchange(send_next=output, **options)
        return (activation, handles) if options.get("overlap_p2p_comm") else activation

    def send_backward_recv_backward(self, gradient: object = None, **options: Any) -> Any:
        _, gradient, handles = self._exchange(send_prev=options.pop("input_tensor_grad", gradient), **options)
        return (gradient, handles) if options.get("overlap_p2p_comm") else gradient

    def send_forward_backward_recv_forward_backward(self, output: object, gradient: object, **options: Any) -> Any:
        return self._exchange(send_next=output, send_prev=gradient, **options)[:2]

    def _exchange(self, **options: Any) -> tuple[Any, Any, dict[str, Any]]:
        """The activation, the gradient, and handles of all; over when it returns, unless it is to overlap."""
        handles: dict[str, Any] = {}
        for name, channel in self._sends.items():
            if options.get(name) is not None:
                handles[name] = channel.send(options[name], self.time)
        for name, channel in self._receives.items():
            if options.get(name):
                handles[name] = channel.receive(self.time)
        if not options.get("overlap_p2p_comm"):
            for handle in handles.values():
                handle.wait()
        return handles.get("recv_prev"), handles.get("recv_next"), handles


def forward_step(_0: object, _1: object, model: Any, _3: object, tensor: Any, *_: object, **options: Any) -> Any:
    """Stands for Megatron's."""
    microbatch = options["current_microbatch"]
    if model.stage:
        assert str(tensor) == f"{model.stage - 1}F{microbatch}"
    return local.rank.run(model.stage, "F", microbatch), 0


def backward_step(_input: object, output: str, gradient: Any, *_: object) -> str:
    """Stands for Megatron's."""
    stage, microbatch = map(int, output.split("F"))
    if gradient is not None:
        assert str(gradient) == f"{stage + 1}B{microbatch}"
    result: str = local.rank.run(stage, "B", microbatch)
    return result


def zeros_on_cpu(*sizes: Any, **options: Any) -> Any:
    """For Megatron, which asks for a GPU by name."""
    return zeros(*sizes, **options | {"device": "cpu"})


def starts_of(case: Mapping[str, Any]) -> dict[str, int]:
    """The moment at which each instruction begins."""
    pp, num = case["pp"], case["chunks"] * case["microbatches"]
    channels = {(a, b, kind): Channel(num) for a, b, kind in product(range(pp), range(pp), "FB")}
    with ThreadPoolExecutor(pp) as pool:
        futures = [pool.submit(Rank(case, number, channels)) for number in range(pp)]
        return {text: start for future in futures for text, start in future.result().items()}


if __name__ == "__main__":
    torch.__dict__["zeros"] = zeros_on_cpu
    schedules.__dict__.update(
        forward_step=forward_step,
        backward_step=backward_step,
        is_pp_first_stage=lambda group: group.rank() == 0,
        is_pp_last_stage=lambda group: group.rank() == group.size() - 1,
    )
    json.dump([starts_of(case) for case in json.loads(sys.argv[1])], sys.stdout)
