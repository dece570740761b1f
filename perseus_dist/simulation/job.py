"""A simulated job: a schedule, replicas of its pipeline, and how long the work of each stage takes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, product

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.errors import ScheduleError
from perseus_dist.fingerprint import Workload
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.planning.schedule.schedule import Exchange, Schedule, format_schedule
from perseus_dist.simulation.trainers.trainer_config import InstructionTime, TrainerConfig

_CONSTANT_S = 0.005
_SEQUENCE_LENGTH = 2048  # at a time scale of 1
FULL_LAYERS = 24
_NUM_PARAMETERS = 10**9  # of a whole stage
FULL_STAGE_S: Mapping[str, float] = {
    Kind.FORWARD: 0.050,
    Kind.BACKWARD: 0.093,
    Kind.INPUT_GRADIENT: 0.0465,
    Kind.WEIGHT_GRADIENT: 0.0465,
    Kind.FORWARD_BACKWARD: 0.143,
}
"""[s] what the instructions of a whole stage take at the maximum clock; about those of GPT-3 175B on A100s."""


def as_simulated(schedule: Schedule, *, is_named: bool = False) -> Schedule:
    """A schedule as stand-in trainers run it: who sends is not asked to; with several stages, it computes meanwhile.

    Args:
        schedule: For an iteration.
        is_named: Whether it was asked for by its name, which says an order and not how ranks exchange.

    Raises:
        ScheduleError: It says that it exchanges as DeepSpeed's DualPipeV alone does.
    """
    if schedule.exchange == Exchange.DUALPIPEV and not is_named:
        raise ScheduleError(
            f"# exchange: {schedule.exchange}: stand-in trainers make none of DeepSpeed's calls; leave that line out "
            "to have them exchange while they compute, or train DeepSpeed's own under 'perseus-dist sim'"
        )
    joint = frozenset[Instruction]() if schedule.exchange == Exchange.POSTED else schedule.joint
    played = replace(schedule, exchange=Exchange.BATCHED, joint=joint) if schedule.exchange.holds_up else schedule
    return replace(played, exchange=Exchange.SENDER) if played.sends_block else played


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """Pipelines of stand-in trainers, one simulated GPU for each rank.

    Attributes:
        schedule: Of every pipeline.
        num_pipelines: Data-parallel replicas.
        tensor_parallel: Ranks that share the computations of a pp_rank, and each take the time of it.
        num_iterations: Iterations to train.
        optimizer_s: [s] of the optimizer step on all ranks, at every clock, which no schedule names.
        layers: (num_stages) of each stage; a stage of as many as ``FULL_LAYERS`` is a whole one. Empty: all are, and
            how many layers that is, trainers do not say.
        imbalance: By how much the last stage is heavier than the first; those between lie evenly between.
        job_id: Its name at the planner.
        target: As in ``RankSpec``.
        profile: CSV of an earlier run, or None.
        time_scale: Computations take so many times ``FULL_STAGE_S``.
        granularity: As in ``RankSpec``, where ``PHASE`` lets the agents of a job by rank change clocks by time.
    """

    schedule: Schedule
    num_pipelines: int
    num_iterations: int
    imbalance: float
    job_id: str = "simulated"
    target: str | None = None
    profile: str | None = None
    time_scale: float = 1.0
    granularity: Granularity = Granularity.INSTRUCTION
    layers: tuple[int, ...] = ()
    optimizer_s: float = 0.0
    tensor_parallel: int = 1

    @property
    def num_ranks(self) -> int:
        """Ranks of the whole job."""
        return self.schedule.num_ranks * self.num_pipelines * self.tensor_parallel

    def trainers(
        self, gpu_uuids: tuple[str, ...], *, planner: str | None = None, run_id: str = ""
    ) -> tuple[TrainerConfig, ...]:
        """One configuration per global rank: pipeline by pipeline, pp_rank by pp_rank, tp_rank by tp_rank.

        Args:
            gpu_uuids: (num_ranks) of the simulated GPUs, by index.
            planner: Address of the planner, or None.
            run_id: As in ``RankSpec``.
        """
        text = format_schedule(self.schedule)
        times = self._times()
        is_unseen = self.granularity != Granularity.INSTRUCTION
        places = product(range(self.num_pipelines), range(self.schedule.num_ranks), range(self.tensor_parallel))
        return tuple(
            TrainerConfig(
                spec=RankSpec(
                    job_id=self.job_id,
                    rank=rank,
                    pp_rank=pp_rank,
                    dp_rank=dp_rank,
                    tp_rank=tp_rank,
                    pp_size=self.schedule.num_ranks,
                    dp_size=self.num_pipelines,
                    tp_size=self.tensor_parallel,
                    schedule=text,
                    local_rank=rank,
                    gpu_uuid=gpu_uuids[rank],
                    planner=planner,
                    target=self.target,
                    profile=self.profile if rank == 0 else None,
                    run_id=run_id,
                    workload=self._workload(pp_rank),
                    granularity=Granularity.RANK if is_unseen else Granularity.INSTRUCTION,
                    options={"granularity": self.granularity} if is_unseen else {},
                ),
                gpu=rank,
                times=times[pp_rank],
                num_iterations=self.num_iterations,
                optimizer_s=self.optimizer_s,
            )
            for rank, (dp_rank, pp_rank, tp_rank) in enumerate(places)
        )

    def instruction_times(self) -> tuple[InstructionTime, ...]:
        """Of every stage and kind."""
        return tuple(chain.from_iterable(self._times()))

    def _workload(self, pp_rank: int) -> Workload:
        """The workload as such a model's trainer knows it: tokens lengthen computations, parameters a stage's."""
        stages = sorted({instruction.stage for instruction in self.schedule.ranks[pp_rank]})
        of_stage = _NUM_PARAMETERS / (1 if self.layers else self.schedule.num_stages / self.schedule.num_ranks)
        return Workload(
            framework="simulated",
            precision="bf16",
            microbatch_size=1,
            sequence_length=max(1, round(_SEQUENCE_LENGTH * self.time_scale)),
            stage_parameters=tuple(round(of_stage * self._weight(stage)) for stage in stages),
            stage_layers=tuple(self.layers[stage] for stage in stages) if self.layers else (),
            tp_size=self.tensor_parallel,
            cp_size=1,
            ep_size=1,
        )

    def _weight(self, stage: int) -> float:
        """A stage's work over a whole one's. With layers, the last stage's head is all that makes it heavier."""
        last = self.schedule.num_stages - 1
        if self.layers:
            return self.layers[stage] / FULL_LAYERS + (self.imbalance if stage == last else 0)
        return 1 + self.imbalance * stage / max(1, last)

    def _times(self) -> list[tuple[InstructionTime, ...]]:
        """By pp_rank. A stage's share of the model shrinks with the number of chunks, or is what its layers are."""
        chunks = 1 if self.layers else self.schedule.num_stages / self.schedule.num_ranks
        return [
            tuple(
                InstructionTime(
                    stage=stage,
                    kind=kind,
                    seconds=self.time_scale * FULL_STAGE_S[kind] / chunks * self._weight(stage)
                    if kind in FULL_STAGE_S
                    else _CONSTANT_S,
                )
                for stage, kind in sorted({(instruction.stage, instruction.kind) for instruction in order})
            )
            for order in self.schedule.ranks
        ]
