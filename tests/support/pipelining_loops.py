"""Runs of the example of ``torch.distributed.pipelining`` on simulated GPUs, as tests start them."""

from pathlib import Path

from pipelining_harness_client import Harness

from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.simulation.frameworks.pipelining_run import PipeliningRun
from perseus_dist.simulation.simulated_profile import profile_of_schedule
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.work import WorkTimes

SCRIPT = Path(__file__).parents[2] / "examples" / "pipelining_gpt.py"
PP_SIZE, NUM_MICROBATCHES = 2, 4
TIMES = WorkTimes(forward_s=0.03, backward_s=0.06, imbalance=0.3)
CONSTANTS_S = {"REDUCE": 0.0005, "REDUCE_CHUNK": 0.0005, "STEP": 0.002, "SEND_F": 0.0001, "SEND_B": 0.0001}


def promised(harness: Harness, name: str) -> Schedule:
    """The order that the adapter reads of torch's schedule."""
    (first, _) = harness.run_schedules(f"Schedule{name}", mb=NUM_MICROBATCHES, steps=("attach", "train", "train"))
    return parse_schedule(first[f"Schedule{name}"]["agents"][0]["spec"]["schedule"])


def pipelining_run_in(folder: Path, name: str, schedule: Schedule, *, num_steps: int) -> PipeliningRun:
    """A run that need not sweep."""
    profile = folder / "saved.csv"
    profile.write_text(profile_of_schedule(PRESETS["a100"], TIMES, schedule, constants_s=CONSTANTS_S))
    return PipeliningRun(
        script=SCRIPT,
        schedule=name,
        pp_size=PP_SIZE,
        num_microbatches=NUM_MICROBATCHES,
        num_steps=num_steps,
        folder=folder,
        preset="a100",
        forward_s=TIMES.forward_s,
        backward_s=TIMES.backward_s,
        imbalance=TIMES.imbalance,
        perseus_options=("--perseus-profile", str(profile)),
    )
