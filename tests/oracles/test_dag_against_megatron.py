"""When instructions of an interleaved schedule begin: the DAG against Megatron's own function, in virtual time.

``PERSEUS_TEST_MEGATRON`` names a folder with a folder for each version of Megatron, unpacked; build/megatron otherwise.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest
from python_path import python_path

from perseus_dist.planning.schedule.dag import build_dag
from perseus_dist.planning.schedule.dry_run import dry_run
from perseus_dist.planning.schedule.schedule import Exchange, Schedule, interleaved, joint_exchanges

PROGRAM = Path(__file__).with_name("megatron_virtual_time.py")
MEGATRON = Path(os.environ.get("PERSEUS_TEST_MEGATRON", Path(__file__).parents[2] / "build" / "megatron"))

Case = dict[str, Any]


@pytest.fixture(scope="module", params=[pytest.param("0.16.1", marks=pytest.mark.stress), "0.19.2"])
def starts(request: pytest.FixtureRequest) -> list[tuple[Case, dict[str, int]]]:
    """Cases, each with the start of every instruction under Megatron."""
    folder = MEGATRON / str(request.param)
    if find_spec("torch") is None or not folder.is_dir():
        pytest.skip(f"no torch, or no Megatron at {folder}; PERSEUS_TEST_MEGATRON names the folder of its versions")
    random = Random(5)
    cases = [
        {
            "pp": pp,
            "chunks": chunks,
            "microbatches": microbatches,
            "group": group,
            "overlap": overlap,
            "durations": {
                kind: [random.randint(low, low + low // 3) for _ in range(pp * chunks)] for kind, low in work
            },
        }
        for pp, chunks, microbatches, group in (
            (2, 2, 4, 2),
            (4, 2, 4, 4),
            (4, 2, 8, 4),
            (4, 3, 12, 4),
            (4, 2, 10, 5),
            (4, 2, 8, 8),
        )
        for overlap in (False, True)
        for work in [(("F", 1000), ("B", 2000))]
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "perseus_dist.simulation.megatron_on_cpu",
            str(PROGRAM),
            json.dumps(cases),
        ],
        env=os.environ | {"PYTHONPATH": python_path(folder), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    return list(zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True))


def planned_starts(schedule: Schedule, durations: dict[str, list[int]]) -> dict[str, int]:
    dag = build_dag(schedule)
    steps = dry_run(schedule, places=["pp_rank"] * schedule.num_ranks)
    ends = [0] * len(dag.instructions)
    starts = {}
    before: list[list[int]] = [[] for _ in ends]
    for source, target in dag.edges.tolist():
        before[target].append(source)
    for index in sorted(range(len(ends)), key=lambda i: steps[dag.instructions[i]]):
        instruction = dag.instructions[index]
        start = max((ends[i] for i in before[index]), default=0)
        ends[index] = start + durations[instruction.kind][instruction.stage]
        starts[str(instruction)] = start
    return starts


def test_every_instruction_begins_when_the_dag_says(starts: list[tuple[Case, dict[str, int]]]) -> None:
    for case, found in starts:
        sizes = {name: case[name] for name in ("pp", "chunks", "microbatches")}
        schedule = interleaved(**sizes, microbatch_group_size=case["group"])
        overlapped = replace(schedule, exchange=Exchange.OVERLAPPED)
        as_run, other = overlapped, joint_exchanges(schedule)
        if not case["overlap"]:
            as_run, other = other, as_run
        assert planned_starts(as_run, case["durations"]) == found, case
        assert planned_starts(other, case["durations"]) != found, case  # so that it tells them apart
