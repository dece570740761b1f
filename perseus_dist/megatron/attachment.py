"""Training in this process under Perseus: Megatron's boundaries go to the rank's agent, and training is never harmed.

An iteration begins when a schedule is called to train. It ends when ``train_step`` returns, or, in a program whose own
loop runs megatron-core, when the schedule does. Once whole iterations run as a CUDA graph, nothing within one is seen.
"""

import logging
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from perseus_dist.boundaries.record import Mark
from perseus_dist.errors import ScheduleError
from perseus_dist.fingerprint import Workload
from perseus_dist.megatron.input_wait import InputWait
from perseus_dist.megatron.loops.training_loop import MegatronLoop, TrainingLoop
from perseus_dist.megatron.loops.writers import shows_job, write_status
from perseus_dist.megatron.model_schedule import TrainingIteration, chunks_of, read_iteration, read_schedule
from perseus_dist.megatron.model_workload import workload_of
from perseus_dist.megatron.output_tag import instruction_of, tag_output
from perseus_dist.megatron.place import read_place
from perseus_dist.megatron.refusals import reason_against
from perseus_dist.megatron.requested import report_refusal, requested_options
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, OVERLAPPED_FORWARD, Instruction, Kind
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.training.final_report import make_report_at_exit
from perseus_dist.training.options import PerseusOptions, options_from_environment
from perseus_dist.training.rank.constant_kinds import REDUCE, STEP
from perseus_dist.training.rank.device import Device, open_device
from perseus_dist.training.rank.iteration_work import TokenCount
from perseus_dist.training.rank.job_identity import torch_store
from perseus_dist.training.rank.job_member import Framework, JobMember, RankIdentity
from perseus_dist.training.replaced_function import replace_function

_log = logging.getLogger(__name__)

_LEAST_EAGER = 20  # iterations before a graph; with fewer, no profile would be whole before the instructions are gone


class Attachment:
    """Perseus in one process. It takes part from the first iteration at which it is asked to.

    Attributes:
        knows_pairs: Whether ``run_pair`` is called for every forward and backward that run as one.
    """

    def __init__(self) -> None:
        self.knows_pairs = False
        self._loop: TrainingLoop = MegatronLoop()
        self._member: JobMember | None = None
        self._group: weakref.ref[Any] | None = None  # the default process group that the member is of
        self._iteration: TrainingIteration | None = None  # the newest
        self._workload_of_call: Callable[[], Workload] = Workload  # of the iteration that begins
        self._pp_rank, self._pp_size, self._tp_size = 0, 1, 1
        self._stages: dict[int, int] = {}  # by the identity of a model chunk
        self._tokens = TokenCount()
        self._input_wait = InputWait()  # of the newest iteration
        self._is_in_step = False
        self._is_in_schedule = False
        self._is_iterating = False
        self._sees_instructions = True
        self._has_graph = False  # of whole iterations, made by Megatron's own wrapper
        self._has_report = False

    # ---- what Megatron runs -----------------------------------------------------------------------------------------

    def run_step(self, train_step: Callable[[], Any], optimizer: Any, loop: TrainingLoop | None = None) -> Any:
        """Run Megatron's ``train_step``, which steps this optimizer, in a loop that may be another's than its own."""
        if self._is_in_step:
            return train_step()
        self._loop = loop or self._loop
        put_back = replace_function(optimizer, "step", lambda call: self._run_once(call, STEP))
        self._is_in_step = True
        try:
            result = train_step()
        except BaseException:
            self._abandon_iteration()
            raise
        finally:
            self._is_in_step = False
            put_back()
        self._end_iteration()
        return result

    def run_graph(self, graph: Callable[..., Any], wrapper: Any, call: Mapping[str, Any]) -> Any:
        """Run what Megatron's ``FullCudaGraphWrapper`` runs: a schedule function, from some iteration on as a graph.

        Args:
            graph: Its ``__call__``.
            wrapper: The wrapper.
            call: The schedule function's arguments by name.
        """
        if self._is_in_schedule:
            return graph(**call)
        self._has_graph = True
        if call.get("forward_only"):
            return self._evaluate(partial(graph, **call))
        num_eager = int(wrapper.cuda_graph_warmup_steps)
        if wrapper.curr_iter("training") >= num_eager:
            function = getattr(wrapper.forward_backward_func, "__name__", "")
            return self.run_schedule(graph, function, call, sees_instructions=False)
        if num_eager < _LEAST_EAGER:
            return self._run_unseen(partial(graph, **call))
        return graph(**call)  # and the schedule function within

    def run_schedule(
        self, schedule: Callable[..., Any], function: str, call: Mapping[str, Any], *, sees_instructions: bool = True
    ) -> Any:
        """Run one of Megatron's schedule functions.

        Args:
            schedule: The function, or what runs it.
            function: Its name.
            call: Its arguments by name.
            sees_instructions: Whether its forward and backward steps are called as they run.
        """
        if self._is_in_schedule:
            return schedule(**call)
        if call.get("forward_only"):
            return self._evaluate(partial(schedule, **call))
        config = self._begin_iteration(function, call, sees_instructions=sees_instructions)
        if config is not None:
            call = self._input_wait.time(call)
        put_back = replace_function(config, "finalize_model_grads_func", lambda call: self._run_once(call, REDUCE))
        self._is_in_schedule = True
        try:
            result = schedule(**call)
        except BaseException:
            if not self._is_in_step:
                self._abandon_iteration()
            raise
        finally:
            self._is_in_schedule = False
            self._input_wait.put_back()
            put_back()
        if not self._is_in_step:
            self._end_iteration()
        return result

    def run_forward(self, forward: Callable[[], Any], model: Any, microbatch: Any, received: Any) -> Any:
        """Run ``forward_step`` of a model chunk on what it received from the stage before."""
        if not self._is_iterating or not self._is_in_schedule:
            return forward()
        try:
            stage, number = self._stages[id(model)], int(microbatch)
        except (KeyError, TypeError, ValueError):
            return self._run_once(forward, Kind.FORWARD)  # no plan has one without a microbatch: clocks are released
        result = self._run(forward, Instruction(stage, Kind.FORWARD, number))
        if stage == self._pp_rank:  # later chunks compute on the same tokens
            self._tokens.add(received, result)  # the first stage receives nothing, the last returns a loss
        tag_output(result, Instruction(stage, Kind.BACKWARD, number))
        return result

    def run_backward(self, backward: Callable[[], Any], output: Any) -> Any:
        """Run ``backward_step`` on what a ``forward_step`` returned."""
        if not self._is_iterating or not self._is_in_schedule:
            return backward()
        instruction = instruction_of(output)
        return self._run_once(backward, Kind.BACKWARD) if instruction is None else self._run(backward, instruction)

    def run_pair(
        self,
        pair: Callable[..., Any],
        waits: Mapping[str, Any],
        model: Any,
        microbatch: Any,
        received: Any,
        output: Any,
    ) -> Any:
        """Run a forward and a backward as one.

        Args:
            pair: The step; functions of ``waits`` can be replaced by keyword.
            waits: Functions that it calls within, by the names of its parameters: ``pre_forward`` and ``pre_backward``
                wait, in this order, for what other ranks send, and ``post_forward`` sends first.
            model: The forward's model chunk.
            microbatch: The forward's.
            received: As of ``run_forward``.
            output: As of ``run_backward``.
        """
        if not self._is_iterating or not self._is_in_schedule:
            return pair()
        backward, stage = instruction_of(output), self._stages.get(id(model))
        if backward is None or stage is None or microbatch is None:
            return self._run_once(pair, Kind.FORWARD_BACKWARD)
        number = int(microbatch)
        instruction = backward._replace(kind=Kind.FORWARD_BACKWARD)
        self._run(lambda: None, Instruction(stage, OVERLAPPED_FORWARD, number))

        def begin() -> None:
            self._safely(lambda member: member.begin(instruction))

        hooks: dict[str, Any] = {}
        if "pre_backward" in waits:  # it begins when what it needs has arrived
            hooks["pre_backward"] = _then(waits["pre_backward"], begin)
        else:
            begin()
        if "post_forward" in waits:  # its result leaves when it is there
            hooks["post_forward"] = _after(lambda: self._safely(JobMember.finish), waits["post_forward"])
        result = pair(**hooks)
        self._safely(lambda member: member.end(instruction))
        if stage == self._pp_rank:
            self._tokens.add(received, result[0])
        tag_output(result, Instruction(stage, Kind.BACKWARD, number))
        return result

    def mark(self, phase: str) -> None:
        """Mark the begin of another phase: as ``Hook.mark``."""
        self._safely(lambda member: member.mark(phase))

    def write_status(self, iteration: int) -> None:
        """Write the agent's figures: Megatron has logged this iteration."""
        hook = None if self._member is None else self._member.hook
        if hook is not None:
            write_status(hook, iteration, self._loop.writers)

    def _evaluate(self, schedule: Callable[[], Any]) -> Any:
        self.mark(Mark.EVAL_BEGIN)
        try:
            return self._run_unseen(schedule)
        finally:
            self.mark(Mark.EVAL_END)

    def _run_unseen(self, schedule: Callable[[], Any]) -> Any:
        """Schedules within are no iterations."""
        self._is_in_schedule = True
        try:
            return schedule()
        finally:
            self._is_in_schedule = False

    def _run_once(self, function: Callable[[], Any], kind: str) -> Any:
        """As an instruction without a microbatch."""
        if not self._is_iterating:
            return function()
        return self._run(function, Instruction(self._pp_rank, kind, NO_MICROBATCH))

    def _run(self, function: Callable[[], Any], instruction: Instruction) -> Any:
        self._safely(lambda member: member.begin(instruction))
        result = function()
        self._safely(lambda member: member.end(instruction))
        return result

    # ---- iterations -------------------------------------------------------------------------------------------------

    def _begin_iteration(self, function: str, call: Mapping[str, Any], *, sees_instructions: bool) -> Any:
        """The model's configuration; None where no iteration begins.

        Called again within ``train_step``, a schedule belongs to the iteration that has begun, and does not fit it.
        """
        if self._is_iterating:
            return None
        try:
            from megatron.core.package_info import MAJOR, MINOR
            from megatron.core.utils import get_model_config

            chunks = chunks_of(call)
            config = get_model_config(chunks[0])
            self._iteration = read_iteration(
                function, call, config, core_version=(MAJOR, MINOR), has_step=self._is_in_step
            )
            self._workload_of_call = partial(workload_of, call, config)
            self._attach(call, config, self._iteration)
        except Exception as error:
            self._leave()
            report_refusal(str(error) or type(error).__name__)
            return None
        self._is_iterating = self._member is not None
        self._sees_instructions = sees_instructions
        self._safely(lambda member: self._tell_iteration(member, chunks))
        self._workload_of_call = Workload  # the call's arguments are not to outlive it
        return config if self._is_iterating else None

    def _tell_iteration(self, member: JobMember, chunks: list[Any]) -> None:
        # Stages go chunk by chunk over all ranks, as layers do.
        stages = {id(chunk): index * self._pp_size + self._pp_rank for index, chunk in enumerate(chunks)}
        if self._stages and stages != self._stages:
            member.change("another model is trained")
        self._stages = stages
        assert self._iteration is not None
        self._tokens.begin_iteration()
        member.begin_iteration(self._iteration.num_microbatches, sees_instructions=self._sees_instructions)

    def _end_iteration(self) -> None:
        if self._is_iterating:
            self._is_iterating = False
            assert self._iteration is not None
            # A graph that runs again calls nothing, so that what it works on is counted once at most.
            num_tokens = self._tokens.num_tokens if self._sees_instructions else 0
            tokens = num_tokens * self._tp_size // self._iteration.token_copies
            wait_ns = self._input_wait.wait_ns
            self._safely(lambda member: member.end_iteration(tokens, wait_ns))

    def _abandon_iteration(self) -> None:
        if self._is_iterating:
            self._is_iterating = False
            self._safely(JobMember.abandon_iteration)

    # ---- taking part ------------------------------------------------------------------------------------------------

    def _attach(self, call: Mapping[str, Any], config: Any, iteration: TrainingIteration) -> None:
        """Take part, once for each default process group: a restart within the process makes another.

        Raises:
            PerseusError: No plan is made for what runs.
        """
        from torch.distributed import group

        if self._group is not None and self._group() is group.WORLD:
            return
        self._leave()
        reason = reason_against(call, config, knows_graph=self._has_graph, knows_pairs=self.knows_pairs)
        if reason is not None:
            raise ScheduleError(reason)
        place = read_place(call.get("pg_collection"))
        options = (requested_options() or PerseusOptions()).over(options_from_environment())
        framework = Framework(
            read_schedule=self._read_schedule,
            open_device=lambda: _open_device(place, iteration.num_chunks),
            open_store=torch_store,
            shows_job=shows_job(self._loop.writers),
            read_workload=self._read_workload,
        )
        self._group = weakref.ref(group.WORLD)
        self._pp_rank, self._pp_size, self._tp_size = place.pp_rank, place.pp_size, place.tp_size
        self._stages = {}
        self._member = JobMember(place, options, framework)
        if place.rank == 0:
            self._begin_job(config, options)

    def _begin_job(self, config: Any, options: PerseusOptions) -> None:
        """Set up the job on rank 0, for all ranks."""
        if getattr(config, "variable_seq_lengths", False):
            _log.warning("perseus: shapes change from microbatch to microbatch, and plans are made for their means")
        if options.report is not None and not self._has_report:
            self._has_report = True
            make_report_at_exit(options.report, self._leave, was_asked_to_end=self._loop.was_asked_to_end)

    def _read_schedule(self) -> Schedule:
        assert self._iteration is not None
        return read_schedule(self._iteration, self._pp_size)

    def _read_workload(self) -> Workload:
        return self._workload_of_call()

    def _leave(self) -> None:
        member, self._member = self._member, None
        self._is_iterating = False
        if member is not None:
            with suppress(Exception):
                member.close()

    def _safely(self, tell: Callable[[JobMember], None]) -> None:
        """Nothing of ours reaches training: after the first error we are gone, until a restart."""
        member = self._member
        if member is None:
            return
        try:
            tell(member)
        except Exception as error:
            self._leave()
            _log.warning("perseus: clocks stay as they are: %s", error or type(error).__name__)


def _then(function: Callable[..., Any], following: Callable[[], None]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        following()
        return result

    return run


def _after(before: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        before()
        return function(*args, **kwargs)

    return run


def _open_device(place: RankIdentity, num_chunks: int) -> Device:
    import torch

    return open_device(
        place.local_rank,
        is_cuda=torch.cuda.is_available(),
        num_stages=place.pp_size * num_chunks,
        num_chunks=num_chunks,
    )
