"""Which semaphores the ranks of a simulated job wait for each other with.

A semaphore counts how often one kind of instruction of one stage has ended. Ranks run their instructions in the order
of the schedule, so the count says which microbatches' results are there.
"""

from collections import Counter
from typing import NamedTuple

from perseus_dist.hooks import RankSpec
from perseus_dist.planning.schedule.dag import inputs_of
from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.planning.schedule.schedule import Schedule


class Need(NamedTuple):
    """A result from another rank, there in iteration ``i`` once the semaphore is at least ``i * period + first``."""

    semaphore: int
    period: int
    first: int


class Rendezvous:
    """The semaphores of one pipeline of a job, and the one that all its pipelines meet at.

    Attributes:
        barrier: Every rank of the job adds 1 to this semaphore at the end of each iteration.
        group: Every rank of a tensor-parallel group adds 1 to this semaphore at each of its meetings.
    """

    def __init__(self, schedule: Schedule, spec: RankSpec, first_semaphore: int) -> None:
        self.barrier = first_semaphore
        inputs = inputs_of(schedule)
        rank_of_stage = schedule.rank_of_stage
        self._needed = {
            instruction: [n for n in inputs[instruction] if rank_of_stage[n.stage] != pp_rank]
            for pp_rank, order in enumerate(schedule.ranks)
            for instruction in order
        }
        sources = sorted({(needed.stage, needed.kind) for needs in self._needed.values() for needed in needs})
        pipeline = spec.dp_rank * spec.tp_size + spec.tp_rank
        first = first_semaphore + 1 + pipeline * len(sources)
        self._semaphores = {source: first + index for index, source in enumerate(sources)}
        of_groups = first_semaphore + 1 + spec.dp_size * spec.tp_size * len(sources)
        self.group = of_groups + spec.dp_rank * spec.pp_size + spec.pp_rank
        self._periods: Counter[tuple[int, str]] = Counter()
        self._counts: dict[Instruction, int] = {}
        for order in schedule.ranks:
            for instruction in order:
                source = (instruction.stage, instruction.kind)
                self._periods[source] += 1
                self._counts[instruction] = self._periods[source]

    def needs(self, instruction: Instruction) -> list[Need]:
        """The instructions that one waits for before it begins."""
        return [self._need(needed) for needed in self._needed[instruction]]

    def signal_after(self, instruction: Instruction) -> int | None:
        """The semaphore that an instruction adds 1 to when it ends; None where no other rank waits for its kind."""
        return self._semaphores.get((instruction.stage, instruction.kind))

    def _need(self, needed: Instruction) -> Need:
        source = (needed.stage, needed.kind)
        return Need(self._semaphores[source], self._periods[source], self._counts[needed])
