"""A whole job in virtual time: deterministic, and as exact as the model."""

from pathlib import Path

from perseus_dist.planner.job_policy import Policy
from perseus_dist.planner.job_status import job_status
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.outcome import Outcome
from perseus_dist.simulation.virtual_planner import VirtualPlanner
from perseus_dist.simulation.virtual_rank import VirtualRank
from perseus_dist.simulator.machine import SimulatedMachine, load_nvml


def run_virtual(simulated: SimulatedJob, preset: str, *, profile_csv: Path | None = None) -> Outcome:
    """Train the job.

    Args:
        simulated: What to train.
        preset: Of the simulated GPUs.
        profile_csv: Where to leave the profile that was measured.

    Raises:
        SimulatorError: No such preset, or too many GPUs.
    """
    with SimulatedMachine(preset, count=simulated.num_ranks, virtual=True) as machine, load_nvml(machine):
        trainers = simulated.trainers(tuple(gpu.uuid for gpu in machine.gpus))
        ranks = [VirtualRank(config, gpu) for config, gpu in zip(trainers, machine.gpus, strict=True)]
        planner = VirtualPlanner(simulated.job_id, Policy())
        for rank in ranks:
            rank.connect(machine.now_ns)
        for iteration in range(simulated.num_iterations):
            for rank in ranks:
                rank.enqueue_iteration(iteration)
            while any(rank.is_training for rank in ranks):
                _pass_time(machine, ranks, planner)
        for rank in ranks:
            rank.end(machine.now_ns)
        until_ns = machine.now_ns + 1_000_000_000
        while machine.now_ns < until_ns:
            _pass_time(machine, ranks, planner)
        status = job_status(planner.job)
        if profile_csv is not None and planner.job.plan is not None:
            profile_csv.write_bytes(planner.job.plan.profile_csv)
        return Outcome(
            baseline=status.baseline,
            enforced=status.enforced,
            predicted_saving=status.predicted_saving,
            num_profiled_clocks=status.profiled_clocks,
            reason=status.reason,
            planner_restarts=0,
            clocks_left_locked=sum(not gpu.state().is_unlocked for gpu in machine.gpus),
            is_virtual=True,
        )


def _pass_time(machine: SimulatedMachine, ranks: list[VirtualRank], planner: VirtualPlanner) -> None:
    """To the next moment at which anything happens, and let it happen."""
    due = [machine.next_event_ns(), planner.next_ns, *(rank.next_ns() for rank in ranks)]
    next_ns = min(time_ns for time_ns in due if time_ns is not None)
    machine.advance(max(0, next_ns - machine.now_ns))
    now_ns = machine.now_ns
    for number, rank in enumerate(ranks):
        for message in rank.run_due(now_ns):
            planner.receive(number, message)
    for number, said in planner.run_due(now_ns):
        ranks[number].receive(said, now_ns)
