"""Cases with the real ``PipelineEngine``, fast: DeepSpeed is imported once, and each case forks its ranks over gloo.

See ``fork_harness``. Start it with DS_ACCELERATOR=cpu, OMP_NUM_THREADS=1 and PERSEUS_DISABLE=1.

A rank first does the case's steps on a plain engine and then on one under Perseus, whose agent is a recorder.
"""

import gc
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import deepspeed
import deepspeed.ops
import deepspeed.pipe
import torch
from deepspeed.pipe import LayerSpec, TiedLayerSpec
from deepspeed.runtime.pipe import engine as engine_module
from deepspeed.runtime.pipe.schedule import TrainSchedule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology, ProcessTopology
from fork_harness import Recorder, Sentences, serve
from torch import nn

from perseus_dist import hooks
from perseus_dist.boundaries.ring import RingReader
from perseus_dist.deepspeed.adapter import attach, detach, patch_pipeline_engine, patch_plain_engine
from perseus_dist.training.options import PerseusOptions
from perseus_dist.training.rank import job_identity

WIDTH = 16
NUM_ENFORCED = 3


class FailingOnce(nn.Module):  # type: ignore[misc] # torch is Any
    """Fails in its n-th forward."""

    def __init__(self, fails_at: int) -> None:
        super().__init__()
        self.left = fails_at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if self.left == 0:
            raise ArithmeticError("the layer has failed")
        return x


def make_engine(case: dict[str, Any]) -> Any:
    """An engine as a user's script makes it."""
    torch.manual_seed(0)
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": case["mb"],
        "steps_per_print": 1000,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": case.get("zero", 0)},
        **case.get("config", {}),
    }
    if case.get("plain"):
        module: Any = nn.Linear(WIDTH, WIDTH)
    else:
        layers: list[Any] = [TiedLayerSpec("tied", nn.Linear, WIDTH, WIDTH)] if case.get("tied") else []
        for _ in range(8):
            layers += [LayerSpec(nn.Linear, WIDTH, WIDTH), LayerSpec(nn.Tanh)]
        layers += [LayerSpec(FailingOnce, case["fails_at"])] if "fails_at" in case else []
        layers += [TiedLayerSpec("tied", nn.Linear, WIDTH, WIDTH)] if case.get("tied") else []
        tp = case.get("tp", 1)
        shape: dict[str, Any] = {"num_stages": case["pp"]}
        if tp > 1:
            shape = {"topology": PipeModelDataParallelTopology(case["pp"], tp, case.get("dp", 1))}
        if "axes" in case:
            shape = {"topology": ProcessTopology(case["axes"], case["dims"])}
        module = getattr(deepspeed.pipe, case.get("module", "PipelineModule"))(
            layers=layers,
            loss_fn=nn.MSELoss(),
            partition_method="uniform",
            activation_checkpoint_interval=case.get("checkpoint_interval", 0),
            **({"dynamic_shape": True} if "lengths" in case else {}),
            **shape,
        )
    parameters = [p for p in module.parameters() if p.requires_grad]
    engine, *_ = deepspeed.initialize(model=module, model_parameters=parameters, config=config)
    return engine


class Steps:
    """Does a case's steps on an engine."""

    def __init__(self, engine: Any, case: dict[str, Any]) -> None:
        self.engine = engine
        self._case = case
        self._other: Any = None
        dp_rank = engine.grid.get_data_parallel_id()
        self._dtype = torch.bfloat16 if "bf16" in case.get("config", {}) else torch.float32
        self._lengths = case.get("lengths", [None])  # of sequences, microbatch by microbatch
        self._generator = torch.Generator().manual_seed(7 + dp_rank)
        self._data = self._batches()
        self.losses: list[str] = []
        self.caught: list[str] = []

    def _batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for length in cycle(self._lengths):
            shape = (2, WIDTH) if length is None else (2, length, WIDTH)
            x = torch.randn(*shape, generator=self._generator).to(self._dtype)
            yield x, x * 0.5

    def do(self, step: str) -> None:
        """One step: a word, and after = its argument."""
        name, _, argument = step.partition("=")
        getattr(self, f"do_{name}")(*([argument] if argument else []))

    def do_train(self) -> None:
        self.losses.append(float(self.engine.train_batch(self._data)).hex())

    def do_eval(self) -> None:
        self.losses.append(float(self.engine.eval_batch(self._data)).hex())

    def do_microbatches(self, number: str) -> None:
        engine = self.engine
        engine.set_train_batch_size(
            engine.train_micro_batch_size_per_gpu() * int(number) * engine.grid.get_data_parallel_world_size()
        )

    def do_starve(self, number: str) -> None:
        """The loader ends in the middle of an iteration."""
        self._catch(lambda: self.engine.train_batch(next(self._data) for _ in range(int(number))))

    def do_fail(self) -> None:
        self._catch(lambda: self.engine.train_batch(self._data))

    def do_train_until_enforced(self, most: str) -> None:
        """As many iterations as it would be at most."""
        for _ in range(int(most)):
            self.do_train()

    def do_save(self) -> None:
        self.engine.save_checkpoint(tempfile.mkdtemp())

    def do_reshape(self) -> None:
        self.engine.reset_activation_shape()

    def do_destroy(self) -> None:
        self.engine.destroy()

    def do_drop(self) -> None:
        """The script makes another engine under the same name, as after a change of its configuration."""
        self.engine = None
        self.engine = make_engine(self._case)

    def do_forget(self) -> None:
        """The script refers to its engine no more."""
        self.engine = None
        gc.collect()

    def do_keep(self) -> None:
        """The script makes another engine beside the one that it has, and trains that from now on."""
        self._other, self.engine = self.engine, make_engine(self._case)

    def do_turn(self) -> None:
        """It trains the other engine from now on."""
        self._other, self.engine = self.engine, self._other

    def _catch(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            self.caught.append(f"{type(error).__name__}: {error}")


class PerseusSteps(Steps):
    """Steps that concern Perseus as well; the plain engine leaves them out."""

    recorder: Recorder
    report: Path
    _since = ""

    def do_train_until_enforced(self, most: str) -> None:
        """Until some iterations have run under a plan, as rank 0's agent says."""
        for _ in range(int(most)):
            self.do_train()
            is_enforced = torch.tensor(self._num_enforced() >= NUM_ENFORCED)
            torch.distributed.broadcast(is_enforced, 0)
            if is_enforced:
                return
        raise TimeoutError(f"no {NUM_ENFORCED} iterations ran under a plan within {most}")

    def do_drop(self) -> None:
        super().do_drop()
        self._since = datetime.now(UTC).isoformat(timespec="milliseconds")

    def _num_enforced(self) -> int:
        """Of the job of the engine that was made last."""
        try:
            job = json.loads((self.report / "job.json").read_text())
        except (OSError, ValueError):
            return 0
        return job["enforced"]["num_iterations"] if job["enforced"] and job["started_at"] >= self._since else 0

    def do_attach(self) -> None:
        is_same = attach(self.engine) is attach(self.engine)
        assert is_same or "PERSEUS_DISABLE" in os.environ

    def do_detach(self) -> None:
        detach(self.engine)

    def do_swap(self) -> None:
        """From now on the engine runs its optimizer step before it has reduced."""
        commands = self.engine.__dict__["_INSTRUCTION_MAP"]
        by_name = {command.__name__: command for command in commands}
        reduce, tied = by_name["ReduceGrads"], by_name["ReduceTiedGrads"]
        commands[reduce], commands[tied] = commands[tied], commands[reduce]

    def do_break(self) -> None:
        """The hook raises, which it never does."""

        def broken(*_: object) -> None:
            raise RuntimeError("the hook is broken")

        self.engine.__dict__["_perseus_attachment"]._member.hook.begin = broken

    def do_status(self, joules: str) -> None:
        """The agent says how it goes."""
        from perseus_dist.boundaries.agent_status import AgentStatus

        RingReader(self.recorder.rings[-1]).set_status(
            AgentStatus(phase="enforcing", iteration=1, time_s=0.5, energy_j=50.0, clock_mhz=1200, job_time_s=0.5,
                        job_energy_j=float(joules), predicted_saving=0.1)
        )  # fmt: skip


_REPLACED = {"_INSTRUCTION_MAP", "eval_batch", "save_checkpoint", "reset_activation_shape", "destroy"}
_PERSEUS_ONLY = ("attach", "detach", "swap", "break", "status")


def rank_main(case: dict[str, Any]) -> dict[str, Any]:
    """One rank; what it saw."""
    torch.set_num_threads(1)
    os.environ.update(case.get("environment", {}))
    if case.get("only_rank_0_disabled") and os.environ["RANK"] == "0":
        os.environ["PERSEUS_DISABLE"] = "1"
    if int(os.environ["RANK"]) in case.get("elsewhere", ()):
        job_identity._BOOT_ID = Path("another-host")
        job_identity._BOOT_ID.write_text("another")
    sentences = Sentences()
    logging.getLogger("perseus_dist").addHandler(sentences)
    recorder = Recorder()
    if not case.get("real_agents"):
        setattr(hooks, "start_agent", recorder.start)  # noqa: B010 - not its public name
    deepspeed.init_distributed(verbose=False)
    if case.get("plain"):
        return {"said": _train_plain(case, sentences)}

    plain = Steps(make_engine(case), case)
    for step in case["steps"]:
        if step.partition("=")[0] not in _PERSEUS_ONLY:
            plain.do(step)

    options = PerseusOptions(**case["options"]) if case.get("options") is not None else None
    if "attach" not in case["steps"]:
        patch_pipeline_engine(engine_module, options)
        patch_pipeline_engine(engine_module, options)
    engine = make_engine(case)
    attributes = set(engine.__dict__)
    steps = PerseusSteps(engine, case)
    del engine  # which the steps may drop
    steps.recorder, steps.report = recorder, Path((case.get("options") or {}).get("report", ""))
    for step in case["steps"]:
        steps.do(step)
    return {
        "agents": recorder.answer(),
        "losses": steps.losses,
        "plain_losses": plain.losses,
        "caught": steps.caught,
        "plain_caught": plain.caught,
        "said": sentences.said,
        "left_behind": sorted(steps.engine.__dict__.keys() & _REPLACED - attributes),
        "commands": _commands(steps.engine),
    }


def _commands(engine: Any) -> list[list[list[Any]]]:
    """What DeepSpeed's own schedule says, of every stage: [class, buffer]."""
    return [
        [
            [type(command).__name__, command.kwargs.get("buffer_id")]
            for step in TrainSchedule(engine.micro_batches, engine.num_stages, stage)
            for command in step
        ]
        for stage in range(engine.num_stages)
    ]


def _train_plain(case: dict[str, Any], sentences: Sentences) -> list[str]:
    """An engine without a pipeline."""
    from deepspeed.runtime import engine as plain_module

    patch_plain_engine(plain_module, None if case.get("options") is None else PerseusOptions(**case["options"]))
    engine = make_engine(case)
    for _ in range(2 * case["mb"]):
        x = torch.randn(2, WIDTH)
        engine.backward(nn.functional.mse_loss(engine(x), x))
        engine.step()
    return sentences.said


def main() -> None:
    """Serve cases until standard input ends."""
    del os.environ["PERSEUS_DISABLE"]  # DeepSpeed is imported; from here on each case says what it wants
    # Looking for its operators compiles a program. This one itself is compiled for a minute, and never called here.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    serve(deepspeed.__version__, rank_main)


if __name__ == "__main__":
    main()
