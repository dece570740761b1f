"""Cases with real schedules of ``torch.distributed.pipelining``: torch is imported once, each case forks its ranks.

See ``fork_harness``. A rank trains each of the case's schedules twice over gloo, alone and under Perseus, whose agent
is a recorder. What torch runs is also written down in its own classes, which the adapter does not touch.
"""

import gc
import logging
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from fork_harness import Recorder, Sentences, serve
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining.schedules import OVERLAP_F_B
from torch.distributed.pipelining.stage import _PipelineStageBase

from perseus_dist import hooks
from perseus_dist.pipelining import activation, attach, detach
from perseus_dist.pipelining.titan import patch_trainer
from perseus_dist.training.options import PerseusOptions

WIDTH = 16
ONE_STAGE = ("Schedule1F1B", "ScheduleGPipe")
V_SHAPED = ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
METHODS = (
    "forward_one_chunk",
    "backward_one_chunk",
    "backward_weight_one_chunk",
    "perform_reduce_grad",
    "get_fwd_send_ops",
    "get_bwd_send_ops",
)
_ran: list[str] = []


def spy_on_torch() -> None:
    """Write down what stages run, as in ``2F0``."""

    def spy(name: str, describe: Callable[..., str]) -> None:
        method = getattr(_PipelineStageBase, name)

        def run(stage: Any, chunk: int, *args: Any, **kwargs: Any) -> Any:
            _ran.append(f"{stage.stage_index}{describe(**kwargs)}{chunk}")
            return method(stage, chunk, *args, **kwargs)

        setattr(_PipelineStageBase, name, run)

    spy("forward_one_chunk", lambda **_: "F")
    spy("backward_one_chunk", lambda full_backward=True, **_: "B" if full_backward else "I")
    spy("backward_weight_one_chunk", lambda **_: "W")


class Block(nn.Module):  # type: ignore[misc] # torch is Any
    """A stage."""

    def __init__(self, fails_at: int | None) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.num_until_failure = fails_at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.num_until_failure is not None:
            self.num_until_failure -= 1
            if self.num_until_failure == 0:
                raise ArithmeticError("the layer has failed")
        return torch.tanh(self.layer(x)) + x


class Trainer:
    """A schedule, its stages and their optimizer, as a user's script makes them."""

    def __init__(self, case: dict[str, Any], name: str) -> None:
        torch.manual_seed(0)
        self.case, rank, pp = case, dist.get_rank(), case["pp"]
        self.pp_group, self.dp_group = _groups(case)
        pp_rank = dist.get_rank(self.pp_group)
        num_stages = pp if name in ONE_STAGE else 2 * pp
        mine = [pp_rank] if name in ONE_STAGE else [pp_rank, 2 * pp - 1 - pp_rank if name in V_SHAPED else pp_rank + pp]
        blocks = [Block(case.get("fails_at") if stage == 0 else None) for stage in range(num_stages)]
        device = torch.device("cpu")
        mine = [num_stages - 1 - stage for stage in mine] if case.get("is_reversed") else mine
        self.stages = [
            pipelining.PipelineStage(blocks[stage], stage, num_stages, device, group=self.pp_group) for stage in mine
        ]
        loss_fn = None if case.get("no_loss") else nn.MSELoss()
        schedule_class = getattr(pipelining, name)
        self.schedule = schedule_class(
            self.stages[0] if name in ONE_STAGE else self.stages, case["mb"], loss_fn=loss_fn
        )
        parameters = [parameter for stage in self.stages for parameter in stage.submod.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
        self.generator = torch.Generator().manual_seed(7 + rank // pp)
        self.is_v_shaped = name in V_SHAPED
        self.is_first, self.is_last = 0 in mine, num_stages - 1 in mine
        self.losses: list[str] = []
        self.caught: list[str] = []

    def run(self, *, is_training: bool) -> None:
        """One iteration, or an evaluation."""
        x = torch.randn(self.case["mb"] * 2, 8, WIDTH, generator=self.generator)
        losses: list[torch.Tensor] = []
        inputs = (x,) if self.is_first else ()
        given = {"target": x * 0.5, "losses": losses} if self.is_last else {}
        (self.schedule.step if is_training else self.schedule.eval)(*inputs, **given)
        self.losses += [float(loss.detach()).hex() for loss in losses]

    def do_train(self) -> None:
        self.run(is_training=True)
        if self.dp_group is not None:  # what keeps pipelines of a job together
            for stage in self.stages:
                for parameter in stage.submod.parameters():
                    dist.all_reduce(parameter.grad, group=self.dp_group)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def do_accumulate(self) -> None:
        """Without the optimizer's step."""
        self.run(is_training=True)

    def do_eval(self) -> None:
        if self.is_v_shaped:  # which torch 2.13 itself fails to evaluate
            return
        with torch.no_grad():
            self.run(is_training=False)

    def do_fail(self) -> None:
        try:
            self.run(is_training=True)
        except Exception as error:
            self.caught.append(type(error).__name__)

    def parameters(self) -> list[str]:
        """Exactly."""
        return [float(p.detach().double().sum()).hex() for stage in self.stages for p in stage.submod.parameters()]


def _groups(case: dict[str, Any]) -> tuple[Any, Any]:
    """The pipeline's and the data-parallel group; of a single pipeline none has a group of its own."""
    if case.get("dp", 1) == 1:
        return None, None
    sizes = {"dp": case["dp"], "pp": case["pp"]}
    names = ("pp", "dp") if "accumulation" in case else ("dp", "pp")  # torchtitan's order, or another
    mesh = dist.init_device_mesh("cpu", tuple(sizes[name] for name in names), mesh_dim_names=names)
    return mesh.get_group("pp"), mesh.get_group("dp")


def do(step: str, trainers: list[Trainer], name: str) -> None:
    """One step, of the newest trainer unless it is of the first."""
    if step == "remake":
        new = Trainer(trainers[0].case, name)
        new.losses, new.caught = trainers[0].losses, trainers[0].caught
        trainers.append(new)
    elif step == "forget":
        del trainers[0].schedule, trainers[0].stages
        gc.collect()
    else:
        trainer = trainers[0] if step.endswith("_first") else trainers[-1]
        getattr(trainer, f"do_{step.removesuffix('_first')}")()


def give_to_titan(trainer: Trainer) -> None:
    """Have a class like torchtitan's trainer own the schedule, by the names that torchtitan 0.3.0 gives it."""
    case = trainer.case

    class Trainer:
        def __init__(self) -> None:
            self.pp_schedule, self.optimizers = trainer.schedule, trainer.optimizer
            self.gradient_accumulation_steps = case["accumulation"]
            pp, dp = case["pp"], case.get("dp", 1)
            self.parallel_dims = SimpleNamespace(world_size=pp * dp, pp=pp, cp=1, tp=1, ep=1)

    module: Any = SimpleNamespace(Trainer=Trainer)
    patch_trainer(module)
    patch_trainer(module)
    trainer.__dict__["titan"] = module.Trainer()


def train(case: dict[str, Any], name: str, recorder: Recorder) -> dict[str, Any]:
    """One schedule alone and under Perseus; what both did."""
    plain = [Trainer(case, name)]
    for step in case["steps"]:
        if step not in ("attach", "detach", "activate"):
            do(step, plain, name)
    trainers = [Trainer(case, name)]
    (trainer,) = trainers
    before = [set(vars(owner)) for owner in (trainer.schedule, *trainer.stages)]
    if case.get("custom"):
        trainer.schedule.register_custom_function(OVERLAP_F_B, lambda *_: None)
    recorder.agents.clear()
    ran = []
    for step in case["steps"]:
        _ran.clear()
        if step == "attach":
            options = PerseusOptions(**case.get("options", {}))
            given = {"optimizer": trainers[-1].optimizer} if case.get("has_optimizer", True) else {}
            given |= {} if case.get("is_dp_untold") else {"dp_group": trainer.dp_group}
            schedule = None if case.get("is_none") else trainers[-1].schedule
            attachment = attach(schedule, options, **given)
            assert case["is_refused"] or attach(schedule, options, **given) is attachment
            del attachment, schedule
        elif step == "activate":
            activation.activate(PerseusOptions(**case.get("options", {})))
            if "accumulation" in case:
                give_to_titan(trainer)
        elif step == "detach":
            detach(trainer.schedule)
        else:
            do(step, trainers, name)
        ran.append(list(_ran))
    if "forget" in case["steps"]:
        return {"agents": recorder.answer(), "losses": [plain[0].losses, trainer.losses]}
    left = [
        sorted((set(vars(owner)) - names) & {*METHODS, "_step_microbatches", "_maybe_compute_loss"})
        for owner, names in zip((trainer.schedule, *trainer.stages), before, strict=True)
    ]
    hooks_left = len(trainer.optimizer._optimizer_step_pre_hooks) + len(trainer.optimizer._optimizer_step_post_hooks)
    if "detach" not in case["steps"]:
        for each in trainers:
            detach(each.schedule)
    return {
        "agents": recorder.answer(),
        "ran": ran,
        "losses": [plain[0].losses, trainer.losses],
        "parameters": [plain[0].parameters(), trainer.parameters()],
        "caught": [plain[0].caught, trainer.caught],
        "left": left,
        "hooks_left": hooks_left,
    }


def rank_main(case: dict[str, Any]) -> dict[str, Any]:
    """One rank; what it saw, schedule by schedule."""
    torch.set_num_threads(1)
    os.environ.update(case.get("environment", {}))
    sentences = Sentences()
    logging.getLogger("perseus_dist").addHandler(sentences)
    recorder = Recorder()
    setattr(hooks, "start_agent", recorder.start)  # noqa: B010 - not its public name
    spy_on_torch()
    dist.init_process_group("gloo")
    answers: dict[str, Any] = {}
    for name in case["schedules"]:
        said = len(sentences.said)
        answers[name] = train(case, name, recorder)
        answers[name]["said"] = sentences.said[said:]
    return answers


if __name__ == "__main__":
    serve(torch.__version__, rank_main)
