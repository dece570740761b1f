"""A job without a planner gets one from its rank 0, and all its ranks find it."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from perseus_dist.boundaries.rank_spec import AgentStart, RankSpec
from perseus_dist.simulator.machine import SimulatedMachine

_TRAINER = """
import itertools, sys, time
from perseus_dist.hooks import attach
from perseus_dist.boundaries.rank_spec import AgentStart
hook = attach(AgentStart.from_json(sys.stdin.buffer.read()).spec)
for iteration in itertools.count():
    hook.iteration_begin(iteration)
    time.sleep(0.05)
"""
_PATIENCE_S = 40.0


def _wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_rank_0_embeds_a_planner_that_ends_with_the_job(tmp_path: Path) -> None:
    address_file = tmp_path / "perseus-planner-job.json"
    logs = [tmp_path / f"rank{rank}.log" for rank in range(2)]
    with SimulatedMachine("a100", count=2) as machine:
        trainers = []
        try:
            for rank in range(2):
                spec = RankSpec(
                    job_id="job",
                    rank=rank,
                    pp_rank=rank,
                    dp_rank=0,
                    tp_rank=0,
                    pp_size=2,
                    dp_size=1,
                    tp_size=1,
                    schedule="0F0 0B0\n1F0 1B0\n",
                    local_rank=rank,
                    gpu_uuid=machine.gpus[rank].uuid,
                    rendezvous=str(tmp_path),
                )
                start = AgentStart(spec=spec, trainer_pid=0, trainer_pidfd=0, ring_fd=0, doorbell_fd=0)
                with logs[rank].open("w") as log:
                    trainer = subprocess.Popen(
                        [sys.executable, "-c", _TRAINER],
                        stdin=subprocess.PIPE,
                        stderr=log,
                        env={**os.environ, **machine.environment(), "PERSEUS_LEASE_DIR": str(tmp_path)},
                    )
                trainers.append(trainer)
                assert trainer.stdin is not None
                trainer.stdin.write(start.to_json())
                trainer.stdin.close()
            _wait_until(lambda: all("attached to the planner" in log.read_text() for log in logs))
            assert stat.S_IMODE(address_file.stat().st_mode) == 0o600
            trainers[1].send_signal(signal.SIGKILL)
            time.sleep(0.5)
            assert address_file.exists()
        finally:
            for trainer in trainers:
                trainer.kill()
                trainer.wait()
        _wait_until(lambda: not address_file.exists())
        assert "done: every rank's trainer has ended" in logs[0].read_text()
