"""The same job in virtual time comes to the same figures, whatever process plays it."""

import json
import subprocess
import sys
from typing import Any

PLAYS = """\
import json
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import virtual_job
from perseus_dist.simulator.throttle import Throttle, ThrottleScript
simulated = SimulatedJob(
    schedule=one_f_one_b(pp=2, microbatches=4), num_pipelines=2, num_iterations=75, imbalance=0.1
)
with virtual_job(simulated, "a100") as job:
    hot, cool = Throttle(at=45, gpu=3, cap_mhz=1110), Throttle(at=60, gpu=3, cap_mhz=None)
    script = ThrottleScript([hot, cool], job.machine.gpus)
    for iteration in range(75):
        script.apply_due(iteration)
        job.run_iteration()
    end_ns, energy_j = job.machine.now_ns, job.machine.true_energy_j
    job.end()
    status = job.status
print(json.dumps({
    "end_ns": end_ns,
    "energy_j": energy_j,
    "phases": [iteration.phase for iteration in job.iterations],
    "saved_j": status.saved_j,
    "points": [pipeline.point for pipeline in status.pipelines],
    "messages": status.messages,
    "events": [(event.kind, event.iteration, event.degree) for event in status.events],
}))
"""


def play(hash_seed: str) -> dict[str, Any]:
    command, environment = [sys.executable, "-P", "-c", PLAYS], {"PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    played: dict[str, Any] = json.loads(ran.stdout)
    return played


def test_two_processes_play_the_same() -> None:
    one, other = play("1"), play("2")
    assert one == other
    assert [event[0] for event in one["events"] if event[0] != "sweep"][:2] == ["switch", "verdict"]
