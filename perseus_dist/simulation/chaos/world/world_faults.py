"""Effects of a scenario's events on a job in virtual time, and which of them outlast the job."""

from perseus_dist.planner.lifecycle.events import JobEvent, StragglerCleared, StragglerReported, TargetSet
from perseus_dist.simulation.chaos.scenario.events import (
    DiskFull,
    Event,
    HeatCap,
    Loss,
    MessageDelay,
    Partition,
    PowerCap,
    Process,
    ProcessAction,
    ProcessEvent,
    Repetition,
    SlowDown,
    SlowLink,
    StragglerOrder,
    TargetOrder,
)
from perseus_dist.simulation.chaos.scenario.target import parse_scenario_target
from perseus_dist.simulation.virtual.run import VirtualJob
from perseus_dist.simulation.virtual.training import VirtualTraining


class WorldFaults:
    """Of one world. What happens to Perseus alone does nothing where the job runs without."""

    def __init__(self, training: VirtualTraining) -> None:
        self._training = training
        self._of_gpus: dict[tuple[type[Event], int], float | int | None] = {}
        self._reports: set[int] = set()
        self._orders: list[tuple[Event, JobEvent]] = []

    def apply(self, event: Event) -> None:
        """Let it happen now."""
        match event:
            case SlowDown():
                self._on_gpus(SlowDown, event.ranks(self._num_ranks), event.slowdown)
            case HeatCap():
                self._on_gpus(HeatCap, event.ranks(self._num_ranks), event.thermal_cap_mhz)
            case PowerCap():
                self._on_gpus(PowerCap, event.ranks(self._num_ranks), event.power_limit_w)
            case SlowLink():
                self._on_gpus(SlowLink, event.ranks(self._num_ranks), event.transfer_s or 0.0)
            case ProcessEvent(process=Process.TRAINER):
                self._on_trainers(event)
            case _:
                if isinstance(self._training, VirtualJob):
                    self._on_perseus(self._training, event)

    def begin_job(self, *, is_other_gpu: bool) -> None:
        """Another job has begun: what is wrong with GPUs and links stays, unless they are others now."""
        kept = {} if is_other_gpu else self._of_gpus
        self._of_gpus = {}
        for (kind, rank), value in kept.items():
            if rank < self._num_ranks:
                self._on_gpus(kind, (rank,), value)

    def unheeded_orders(self) -> tuple[Event, ...]:
        """Operators' orders that the planner has refused, or has never heard of, as they see."""
        training = self._training
        if not isinstance(training, VirtualJob):
            return ()
        unheeded = set(map(id, training.planner.unheeded))
        return tuple(event for event, told in self._orders if id(told) in unheeded)

    @property
    def _num_ranks(self) -> int:
        return len(self._training.machine.gpus)

    def _on_gpus(self, kind: type[Event], ranks: tuple[int, ...], value: float | None) -> None:
        training = self._training
        for rank in ranks:
            self._of_gpus[kind, rank] = value
            if kind is SlowDown:
                training.slow_down(rank, value or 1.0)
            elif kind is HeatCap:
                training.set_thermal_cap_mhz(rank, None if value is None else int(value))
            elif kind is PowerCap:
                training.set_power_limit_w(rank, value)
            else:
                training.set_transfer_s(rank, value or 0.0)

    def _on_trainers(self, event: ProcessEvent) -> None:
        """One that dies takes the others along; nothing else can happen to them that a job would survive."""
        if event.action is ProcessAction.KILL:
            self._training.kill_trainers()
        elif event.action is ProcessAction.RESTART:
            self._training.restart_trainers()

    def _on_perseus(self, job: VirtualJob, event: Event) -> None:
        match event:
            case ProcessEvent(process=Process.PLANNER):
                getattr(job.faults, f"{event.action}_planner")()
            case ProcessEvent(process=Process.AGENT, rank=int(rank)):
                getattr(job.faults, f"{event.action}_agent")(rank)
            case ProcessEvent(process=Process.LEASE, rank=int(rank)):
                if event.action is not ProcessAction.RESTART:  # its agent starts another by itself
                    getattr(job.faults, f"{event.action}_lease")(rank)
            case MessageDelay():
                for rank in self._ranks(event.rank):
                    job.faults.delay_messages(rank, event.delay_s or 0.0)
            case Partition():
                change = job.faults.cut_network if event.is_partitioned else job.faults.mend_network
                for rank in self._ranks(event.rank):
                    change(rank)
            case Repetition():
                for rank in self._ranks(event.rank):
                    job.faults.repeat_messages(rank, event.repeat or 0.0)
            case Loss():
                for rank in self._ranks(event.rank):
                    job.faults.lose_messages(rank, event.lose or 0.0)
            case DiskFull(is_full=True):
                job.faults.fill_disk()
            case DiskFull():
                job.faults.free_disk()
            case TargetOrder() | StragglerOrder() if not job.planner.is_alive:
                pass  # the order fails, as the operator sees
            case TargetOrder():
                self._order(job, event, TargetSet(target=parse_scenario_target(event.target)))
            case StragglerOrder():
                self._report(job, event)

    def _report(self, job: VirtualJob, event: StragglerOrder) -> None:
        if event.pipeline is not None and event.degree is not None:
            self._reports.add(event.pipeline)
            name = _report_id(event.pipeline)
            told = StragglerReported(straggler_id=name, degree=event.degree, dp_rank=event.pipeline)
            self._order(job, event, told)
            return
        over = self._reports if event.pipeline is None else self._reports & {event.pipeline}
        for pipeline in sorted(over):
            self._order(job, event, StragglerCleared(straggler_id=_report_id(pipeline)))
        self._reports = self._reports - over

    def _order(self, job: VirtualJob, event: Event, told: JobEvent) -> None:
        self._orders.append((event, told))
        job.planner.tell(told)

    def _ranks(self, rank: int | None) -> range:
        return range(self._num_ranks) if rank is None else range(rank, rank + 1)


def _report_id(pipeline: int) -> str:
    return f"pipeline-{pipeline}"
