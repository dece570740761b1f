"""Cases with real models and schedules of megatron-core, fast: it is imported once, and each case forks its ranks.

See ``fork_harness``. Start it as ``python -m perseus_dist.simulation.megatron_on_cpu THIS_FILE`` with Megatron on
PYTHONPATH and OMP_NUM_THREADS=1.

A rank first does the case's steps plainly and then under Perseus, whose agent is a recorder. megatron-core has no
``train_step``; where a case wants one, this file's stands for that of ``megatron.training``, which others test.
"""

import functools
import logging
import os
import re
import tempfile
import time
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from inspect import signature
from itertools import count, cycle
from pathlib import Path
from typing import Any

import megatron.core
import torch
import torch.distributed as dist
from fork_harness import Recorder, Sentences, serve
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.enums import ModelType
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
from megatron.core.rerun_state_machine import RerunDataIterator
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.utils.data import DataLoader

from perseus_dist import hooks
from perseus_dist.megatron import activation, adapter, requested
from perseus_dist.megatron.place import read_place
from perseus_dist.simulation.frameworks.training_run import free_port
from perseus_dist.training.options import PerseusOptions

VOCABULARY, LENGTH, WIDTH = 64, 16, 16
PERSEUS_ONLY = ("install", "ask", "break", "lose_tags")
GROUPS = {"pp": "pipeline_model_parallel_size", "tp": "tensor_model_parallel_size", "cp": "context_parallel_size"}

Case = dict[str, Any]
training = types.ModuleType("megatron.training.training")
"""Stands for Megatron's."""


def train_step(job: "Job", optimizer: Any, num_passes: int = 1) -> Any:
    """As Megatron's: one pass, or several where the first is to be checked."""
    for _ in range(num_passes):
        losses = job.run_schedule()
    optimizer.step()
    return losses


def training_log(loss_dict: object, iteration: int) -> None: ...


def save_checkpoint_and_time(path: str) -> None:
    torch.save({}, path)


training.__dict__.update(
    train_step=train_step, training_log=training_log, save_checkpoint_and_time=save_checkpoint_and_time
)


def failing_once(fails_at: int) -> Callable[..., None]:
    """What is called before each forward of a layer's, and fails before the n-th."""
    numbers = count(1)

    def fail(*_: object) -> None:
        if next(numbers) == fails_at:
            raise ArithmeticError("the layer has failed")

    return fail


def make_config(case: Case) -> Any:
    overlap = {"overlap_p2p_comm": True, "batch_p2p_comm": False} if case.get("overlap") else {}
    groups = {"microbatch_group_size_per_vp_stage": case["group"]} if "group" in case else {}
    experts = (
        {"num_moe_experts": case.get("experts", 2), "expert_model_parallel_size": case["ep"]} if "ep" in case else {}
    )
    pairs = {}
    if case.get("pairs"):
        pairs = {"overlap_moe_expert_parallel_comm": True, "moe_token_dispatcher_type": "alltoall", "bf16": True}
        pairs |= {"add_bias_linear": False}
    lengths = {"variable_seq_lengths": True, "moe_token_dispatcher_type": "alltoall"} if "lengths" in case else {}
    return TransformerConfig(
        num_layers=case["pp"] * case.get("vp", 1),
        hidden_size=WIDTH,
        num_attention_heads=4,
        pipeline_model_parallel_size=case["pp"],
        virtual_pipeline_model_parallel_size=case.get("vp"),
        tensor_model_parallel_size=case.get("tp", 1),
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        params_dtype=torch.float32,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        deallocate_pipeline_outputs=not pairs,
        **lengths,
        **overlap,
        **groups,
        **experts,
        **pairs,
    )


def make_chunk(config: Any, chunk: int | None, num_experts: int | None) -> Any:
    """A rank's chunk of the model, its weights those of its layers' names."""
    is_first, is_last = parallel_state.is_pipeline_first_stage, parallel_state.is_pipeline_last_stage
    ends = {"ignore_virtual": False, "vp_stage": chunk}
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(num_experts),
        vocab_size=VOCABULARY,
        max_sequence_length=LENGTH,
        pre_process=is_first(**ends),
        post_process=is_last(**ends),
        vp_stage=chunk,
    )
    model.model_type = ModelType.encoder_or_decoder
    for name, parameter in model.named_parameters():
        global_name = re.sub(r"layers\.(\d+)", lambda k: str(model.decoder.layers[int(k[1])].layer_number), name)
        generator = torch.Generator().manual_seed(zlib.crc32(global_name.encode()))
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


class Job:
    """A model on this rank, and the steps of a case on it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.num_microbatches: int = case["mb"]
        self.iteration = 0
        self.losses: list[str] = []
        self.caught: list[str] = []
        self.make_model()
        if "graph_after" in case:
            from megatron.core.full_cuda_graph import FullCudaGraphWrapper

            FullCudaGraphWrapper.curr_iteration = dict.fromkeys(FullCudaGraphWrapper.curr_iteration, 0)

    def make_model(self) -> None:
        case = self.case
        torch.manual_seed(1)
        model_parallel_cuda_manual_seed(1)
        self.config = make_config(case)
        if case.get("pairs"):  # which Megatron makes for half precision alone
            self.config.bf16 = False
        chunks = [None] if "vp" not in case else range(case["vp"])
        self.model: list[Any] = [make_chunk(self.config, c, self.config.num_moe_experts) for c in chunks]
        if "fails_at" in case:
            self.model[0].decoder.register_forward_pre_hook(failing_once(case["fails_at"]))
        if case.get("iteration_graph") or "graph_after" in case:  # only said: there is no device to make one on
            from megatron.core.transformer.enums import CudaGraphScope

            self.config.cuda_graph_impl, self.config.cuda_graph_scope = "local", [CudaGraphScope.full_iteration]
        if not case.get("ddp"):
            parameters = [parameter for chunk in self.model for parameter in chunk.parameters()]
            self.optimizer: Any = torch.optim.SGD(parameters, lr=0.1)
            return
        ddp = DistributedDataParallelConfig(use_distributed_optimizer=True, overlap_grad_reduce=True)
        self.model = [
            DistributedDataParallel(self.config, ddp, chunk, index > 0) for index, chunk in enumerate(self.model)
        ]
        self.config.finalize_model_grads_func = finalize_model_grads
        no_sync = [chunk.no_sync for chunk in self.model]
        self.config.no_sync_func = no_sync if len(no_sync) > 1 else no_sync[0]
        adam = {"optimizer": "adam", "lr": 1e-2, "params_dtype": torch.float32, "use_distributed_optimizer": True}
        self.optimizer = get_megatron_optimizer(OptimizerConfig(**adam), self.model)

    def schedule(self) -> Any:
        """Whatever Megatron chooses for the groups, looked up as its own loop does."""
        function = schedules.get_forward_backward_func()
        if "graph_after" not in self.case:
            return function
        from megatron.core.full_cuda_graph import FullCudaGraphWrapper

        return FullCudaGraphWrapper(function, cuda_graph_warmup_steps=self.case["graph_after"])

    def run_schedule(self, **options: Any) -> Any:
        self.zero_gradients()
        is_interleaved = "vp" in self.case
        return self.schedule()(
            forward_step_func=forward_step,
            data_iterator=[self.data() for _ in self.model] if is_interleaved else self.data(),
            model=self.model if is_interleaved else self.model[0],
            num_microbatches=self.num_microbatches,
            seq_length=LENGTH,
            micro_batch_size=1,
            **{"forward_only": False, **options},
        )

    def zero_gradients(self) -> None:
        for chunk in self.model:
            if self.case.get("ddp"):
                chunk.zero_grad_buffer()
        self.optimizer.zero_grad()

    def data(self) -> Any:
        """As the case's loader gives it."""
        match self.case.get("loader"):
            case "replaying":
                return RerunDataIterator(self.batches())
            case "torch":
                return iter(DataLoader(list(self.batches()), batch_size=None))
            case "own":
                return OwnLoader(self.batches())
            case "none":
                return None
        return self.batches()

    def batches(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(self.iteration)
        for _, length in zip(range(self.num_microbatches), cycle(self.case.get("lengths", [LENGTH])), strict=False):
            time.sleep(self.case.get("wait_s", 0.0))
            yield torch.randint(0, VOCABULARY, (1, length), generator=generator)

    def note(self, losses: Any) -> None:
        self.iteration += 1
        self.losses += [float(loss["lm loss"]).hex() for loss in losses]

    def weights(self) -> str:
        return float(sum(float(p.double().sum()) for chunk in self.model for p in chunk.parameters())).hex()

    def do(self, step: str) -> None:
        """One step: a word, and after = its argument."""
        name, _, argument = step.partition("=")
        getattr(self, f"do_{name}")(*([argument] if argument else []))

    def do_loop(self) -> None:
        """An iteration of one's own loop."""
        self.note(self.run_schedule())
        self.optimizer.step()

    def do_train(self, num_passes: str = "1") -> None:
        """An iteration of ``megatron.training``."""
        self.note(training.train_step(self, self.optimizer, num_passes=int(num_passes)))
        training.training_log({}, iteration=self.iteration)

    def do_verl(self, num_updates: str = "1") -> None:
        """A step of verl's: log-probabilities of all data, then an update for each mini-batch."""
        self.note_lists(self.verl_pass(forward_only=True))
        for _ in range(int(num_updates)):
            self.zero_gradients()
            self.note_lists(self.verl_pass(forward_only=False))
            self.optimizer.step()
            self.iteration += 1
        self.zero_gradients()

    def verl_pass(self, *, forward_only: bool) -> Any:
        """As verl calls megatron-core: sizes are left to what stages send each other, and chunks are always a list."""
        batches = list(self.batches())
        return get_forward_backward_func()(
            forward_step_func=functools.partial(reinforcing_step, forward_only=forward_only),
            data_iterator=[iter(batches) for _ in self.model] if len(self.model) > 1 else iter(batches),
            model=self.model,
            num_microbatches=len(batches),
            seq_length=1,
            micro_batch_size=1,
            forward_only=forward_only,
        )

    def do_slime(self, sizes_text: str) -> None:
        """A rollout of slime's: log-probabilities, then steps of so many microbatches."""
        sizes = [int(size) for size in sizes_text.split(",")]
        for forward_only in (True, False):
            for chunk in self.model:
                chunk.train(not forward_only)
            for self.num_microbatches in sizes:
                if forward_only:
                    self.note_lists(self.slime_pass(forward_only=True))
                    continue
                self.zero_gradients()
                self.note_lists(self.slime_pass(forward_only=False))
                self.optimizer.step()
                self.zero_gradients()
                self.iteration += 1

    def slime_pass(self, *, forward_only: bool) -> Any:
        """As slime calls megatron-core: with loaders of its own, and a loss for each token."""
        return get_forward_backward_func()(
            forward_step_func=functools.partial(per_token_step, forward_only=forward_only),
            data_iterator=[KeyedLoader(self.batches()) for _ in self.model],
            model=self.model,
            num_microbatches=self.num_microbatches,
            seq_length=LENGTH,
            micro_batch_size=1,
            decoder_seq_length=None,
            forward_only=forward_only,
        )

    def note_lists(self, results: Any) -> None:
        """What the last stage's losses leave."""
        self.losses += [float(result["loss"]).hex() for result in results]

    def do_eval(self) -> None:
        self.note(self.run_schedule(forward_only=True))

    def do_microbatches(self, number: str) -> None:
        self.num_microbatches = int(number)

    def do_save(self) -> None:
        training.save_checkpoint_and_time(str(Path(tempfile.mkdtemp()) / "checkpoint"))

    def do_another_model(self) -> None:
        self.make_model()

    def do_fail(self) -> None:
        try:
            self.do_train()
        except ArithmeticError as error:
            self.caught.append(str(error))

    def do_restart(self) -> None:
        """As a restart within the process: everything but the process is new."""
        port = [free_port()]
        dist.broadcast_object_list(port, 0)
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
        os.environ["MASTER_PORT"] = str(port[0])
        initialize(self.case)
        self.make_model()

    # ---- what concerns Perseus alone --------------------------------------------------------------------------------

    def do_install(self) -> None:
        activation.install()
        adapter.patch_schedules(schedules)
        adapter.patch_training(training)

    def do_ask(self) -> None:
        requested.request_options(PerseusOptions(**self.case["options"]))

    def do_break(self) -> None:
        """The hook raises, which it never does."""

        def broken(*_: object) -> None:
            raise RuntimeError("the hook is broken")

        adapter._attachment._member.hook.begin = broken  # type: ignore[union-attr, method-assign]

    def do_lose_tags(self) -> None:
        """What forwards return is handed on as copies."""
        backward = schedules.backward_step

        def backward_step(input_tensor: Any, output_tensor: Any, *args: Any) -> Any:
            tensors = output_tensor if isinstance(output_tensor, list) else [output_tensor]
            for tensor in tensors:
                tensor.__dict__.clear()
            return backward(input_tensor, output_tensor, *args)

        schedules.backward_step = backward_step


class OwnLoader:
    """A user's."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __next__(self) -> Any:
        return next(self._batches)


class KeyedLoader:
    """As slime's: no iterator."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def get_next(self, keys: Sequence[str]) -> dict[str, Any]:
        return dict.fromkeys(keys, next(self._batches))


def run_model(model: Any, tokens: Any) -> Any:
    length = tokens.shape[1]
    mask = torch.tril(torch.ones(1, 1, length, length)) < 0.5
    return model(tokens, torch.arange(length).unsqueeze(0), mask, labels=torch.roll(tokens, -1, 1))


def reinforcing_step(batches: Any, model: Any, *, forward_only: bool) -> Any:
    """As verl's: of a loss and figures, and of figures alone where nothing is trained."""
    tokens = next(batches)

    def loss_of(output: Any, *, data: Any) -> Any:
        loss = output.float().mean() / data.shape[1]
        return (torch.tensor(1.0), {"loss": loss}) if forward_only else (loss, {"loss": loss.detach()})

    return run_model(model, tokens), functools.partial(loss_of, data=tokens)


def per_token_step(data: Any, model: Any, return_schedule_plan: bool = False, *, forward_only: bool) -> Any:  # noqa: FBT001, FBT002
    """As slime's: of a sum, how many tokens it is of, and figures."""
    assert not return_schedule_plan
    tokens = data.get_next(["tokens", "loss_masks"])["tokens"]

    def loss_of(output: Any) -> Any:
        total, num_tokens = output.float().sum(), torch.tensor(output.numel(), dtype=torch.int)
        return (torch.tensor(1.0), {"loss": total}) if forward_only else (total, num_tokens, {"loss": total.detach()})

    return run_model(model, tokens), loss_of


def forward_step(data: Any, model: Any, return_schedule_plan: bool = False) -> Any:  # noqa: FBT001, FBT002
    """A user's."""
    tokens = torch.zeros(1, LENGTH, dtype=torch.int64) if data is None else next(data)
    length = tokens.shape[1]
    positions = torch.arange(length).unsqueeze(0)
    mask = torch.tril(torch.ones(1, 1, length, length)) < 0.5
    run = model.build_schedule_plan if return_schedule_plan else model
    output = run(tokens, positions, mask, labels=torch.roll(tokens, -1, 1))
    return output, lambda output: (output.float().mean(), {"lm loss": output.detach().float().mean()})


def initialize(case: Case) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    sizes = {argument: case[name] for name, argument in GROUPS.items() if name in case}
    parallel_state.initialize_model_parallel(
        virtual_pipeline_model_parallel_size=case.get("vp"),
        expert_model_parallel_size=case.get("ep", 1),
        expert_tensor_parallel_size=case.get("etp"),
        order=case.get("order", "tp-cp-ep-dp-pp"),
        **sizes,
    )


def rank_main(case: Case) -> dict[str, Any]:
    """One rank; what it saw."""
    torch.set_num_threads(1)
    os.environ.update(case.get("environment", {}))
    sentences, recorder = Sentences(), Recorder()
    logging.getLogger("perseus_dist").addHandler(sentences)
    setattr(hooks, "start_agent", recorder.start)  # noqa: B010 - not its public name
    if "ep" in case and not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = (
            None  # 0.16 leaves it out where Transformer Engine is not installed, and asks for it
        )
    initialize(case)
    if case["steps"] == ["place"]:
        return {"place": _place(case), "said": sentences.said}

    plain = Job(case)
    for step in case["steps"]:
        if step.partition("=")[0] not in PERSEUS_ONLY:
            plain.do(step)
    _break_signature(case)
    options = None if case.get("options") is None else PerseusOptions(**case["options"])
    activation.install(options if "ask" not in case["steps"] else None)
    adapter.patch_training(training)
    job = Job(case)
    found = dict(job.optimizer.__dict__), dict(job.config.__dict__)
    for step in case["steps"]:
        job.do(step)
    left = dict(job.optimizer.__dict__), dict(job.config.__dict__)
    return {
        "agents": recorder.answer(),
        "losses": [*job.losses, job.weights()],
        "plain_losses": [*plain.losses, plain.weights()],
        "caught": job.caught,
        "plain_caught": plain.caught,
        "said": sentences.said,
        "left_behind": [
            name for before, after in zip(found, left, strict=True) for name in before | after
            if before.get(name) is not after.get(name) and name in ("step", "finalize_model_grads_func")
        ],
    }  # fmt: skip


def _place(case: Case) -> list[Any]:
    collection = None
    if case.get("decentralized"):  # the same groups, where nothing but a collection has them
        from megatron.core.process_groups_config import ProcessGroupCollection  # not in 0.13

        collection = ProcessGroupCollection.use_mpu_process_groups()
        parallel_state.destroy_model_parallel()
    try:
        place = read_place(collection)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return [place.pp_rank, place.dp_rank, place.tp_rank, place.pp_size, place.dp_size, place.tp_size]


def _break_signature(case: Case) -> None:
    """Another Megatron than is known, by what it says of itself."""
    if "without" not in case:
        return
    name, parameter = case["without"]
    function = getattr(schedules, name)
    parameters = [p for p in signature(function).parameters.values() if p.name != parameter]
    function.__signature__ = signature(function).replace(parameters=parameters)


if __name__ == "__main__":
    serve(megatron.core.__version__, rank_main)
