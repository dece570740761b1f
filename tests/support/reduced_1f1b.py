"""Profiles of 1F1B jobs of ``torch.distributed.pipelining`` on simulated A100s, as a sweep would find them."""

from pathlib import Path

from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, Instruction
from perseus_dist.planning.schedule.schedule import Schedule, one_f_one_b
from perseus_dist.simulation.simulated_profile import profile_of_schedule
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.work import WorkTimes
from perseus_dist.training.rank.constant_kinds import REDUCE, STEP

PP_SIZE, NUM_MICROBATCHES = 2, 4
TIMES = WorkTimes(forward_s=0.05, backward_s=0.1, imbalance=0.3)


def saved_profile(folder: Path, *, constants_s: dict[str, float]) -> tuple[str, str]:
    """Options of a run that need not sweep.

    Args:
        folder: Gets the profile.
        constants_s: [s] of ``REDUCE``, and of ``STEP`` where the optimizer ends the iteration.
    """
    order = one_f_one_b(pp=PP_SIZE, microbatches=NUM_MICROBATCHES)
    kinds = [kind for kind in (REDUCE, STEP) if kind in constants_s]
    ranks = tuple(
        (*computations, *(Instruction(pp_rank, kind, NO_MICROBATCH) for kind in kinds))
        for pp_rank, computations in enumerate(order.ranks)
    )
    path = folder / "saved.csv"
    path.write_text(profile_of_schedule(PRESETS["a100"], TIMES, Schedule(ranks=ranks), constants_s=constants_s))
    return "--perseus-profile", str(path)
