"""Training jobs that Slurm runs on simulated GPUs, and what they leave."""

import shlex
import sys

from embedded_job import IMBALANCE, SCHEDULE, SECONDS, WORKLOAD, seconds_of, write_profile
from slurm_cluster import NODES, Cluster, SlurmJob

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.runlog.accounting.record import EnergyRecord
from perseus_dist.runlog.accounting.record_files import records_in
from perseus_dist.simulation.trainers.trainer_config import InstructionTime, TrainerConfig
from perseus_dist.simulator.machine import SimulatedMachine

assert IMBALANCE > 1  # so that the plan lowers a clock


def submit_training(
    cluster: Cluster,
    machine: SimulatedMachine,
    *words: str,
    num_iterations: int,
    job_id: str = "job",
    planner: str | None = None,
    token_file: str | None = None,
    tls_ca: str | None = None,
) -> SlurmJob:
    """Two trainers, one on each node, and no planner but their own unless one is named."""
    options = {"blocking_power_w": "83.6"} | ({} if tls_ca is None else {"tls_ca": tls_ca})
    root = cluster.root
    write_profile(machine, root / "profile.csv")
    for rank in range(len(NODES)):
        spec = RankSpec(
            job_id=job_id,
            rank=rank,
            pp_rank=rank,
            dp_rank=0,
            tp_rank=0,
            pp_size=2,
            dp_size=1,
            tp_size=1,
            local_rank=rank,
            schedule=SCHEDULE,
            gpu_uuid=machine.gpus[rank].uuid,
            planner=planner,
            rendezvous=str(root / "rendezvous-JOB"),
            token_file=token_file,
            profile=str(root / "profile.csv"),
            report=str(root / "perseus-JOB"),
            control="direct",
            run_id="JOB",
            workload=WORKLOAD,
            options=options,
        )
        times = tuple(InstructionTime(stage=rank, kind=kind, seconds=seconds_of(rank, kind)) for kind in SECONDS)
        config = TrainerConfig(spec=spec, gpu=rank, times=times, num_iterations=num_iterations, device_ordered=False)
        (root / f"rank-{rank}.json").write_text(config.to_json())
    trainer = f"{shlex.quote(sys.executable)} -P -m perseus_dist.simulation.trainers.trainer"
    (root / "train").write_text(
        "#!/bin/bash\n"
        '[ "${PERSEUS:-}" = 1 ] || export PERSEUS_DISABLE=1\n'
        f'sed "s/JOB/$SLURM_JOB_ID/" rank-$SLURM_PROCID.json | sed "s/JOB/$SLURM_JOB_ID/g" | {trainer} >/dev/null\n'
    )
    (root / "batch").write_text("#!/bin/bash\nsrun bash train\n")
    return cluster.submit("--nodes=2", "--ntasks-per-node=1", "--account=nlp", *words, "batch")


def record_of(cluster: Cluster, job: SlurmJob) -> EnergyRecord:
    (record,) = [one for one in records_in(cluster.records) if one.submission.slurm_job_id == job.number]
    return record


def are_unlocked(machine: SimulatedMachine) -> bool:
    return all(gpu.state().is_unlocked for gpu in machine.gpus)
