"""Jobs that torchrun restarts: after a trainer's death, with a node less, with the node that is back."""

from collections.abc import Callable
from pathlib import Path

import pytest
from elastic_nodes import deepspeed, elastic_job, history, megatron
from two_nodes import refusal

from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.megatron_run import MegatronRun


@pytest.mark.soak
@pytest.mark.skipif(bool(refusal()), reason=refusal() or "possible")
@pytest.mark.parametrize("make", [megatron, deepspeed])
def test_only_the_first_start_is_swept(
    make: Callable[[Path], MegatronRun | DeepSpeedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All attempts come under a plan; how soon, ``benchmarks/elastic_jobs.py`` says."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with elastic_job(make(tmp_path)) as job:
        attempts = history(job).values()
    assert [attempt.dp_size for attempt in attempts] == [2, 2, 1, 2, 2]
    assert [attempt.is_swept for attempt in attempts] == [True, False, False, False, False]
