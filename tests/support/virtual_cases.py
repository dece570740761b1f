"""Cases for frameworks' own functions in virtual time, and programs that run them: see ``virtual_ranks``.

``PERSEUS_TEST_MEGATRON`` names a folder with a folder for each version of Megatron, unpacked; build/megatron otherwise.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from python_path import python_path

TESTS = Path(__file__).parents[1]
ORACLES = TESTS / "oracles"
MEGATRON = Path(os.environ.get("PERSEUS_TEST_MEGATRON", TESTS.parent / "build" / "megatron"))
MEGATRON_VERSIONS = ("0.16.1", "0.19.2")

Case = dict[str, Any]
Moments = dict[str, tuple[int, int]]


def a_size(pp: int, chunks: int, microbatches: int, group: int | None = None) -> Case:
    return {
        "pp": pp,
        "chunks": chunks,
        "microbatches": microbatches,
        "group": group or pp,
        "overlap": False,
        "frees_outputs": False,
        "one_at_a_time": False,
    }


def run_megatron(version: str, cases: Sequence[Case]) -> list[Moments]:
    folder = MEGATRON / version
    if find_spec("torch") is None or not folder.is_dir():
        pytest.skip(f"no torch, or no Megatron at {folder}; PERSEUS_TEST_MEGATRON names the folder of its versions")
    program = ("-m", "perseus_dist.simulation.megatron_on_cpu", str(ORACLES / "megatron_transfers.py"))
    return run(program, cases, {"PYTHONPATH": python_path(folder)})


def run_deepspeed(cases: Sequence[Case], program: str = "deepspeed_transfers.py") -> list[Moments]:
    if find_spec("deepspeed") is None:
        pytest.skip("no DeepSpeed")
    return run((str(ORACLES / program),), cases, {})


def run_torch(cases: Sequence[Case]) -> list[tuple[str, Moments]]:
    """The schedule in text that the adapter reads, and the moments, of each case."""
    if find_spec("torch") is None:
        pytest.skip("no torch")
    found = _printed((str(ORACLES / "torch_transfers.py"),), cases, {})
    return [(text, _moments(moments)) for text, moments in found]


def run(program: Sequence[str], cases: Sequence[Case], environment: dict[str, str]) -> list[Moments]:
    return [_moments(one) for one in _printed(program, cases, environment)]


def _printed(program: Sequence[str], cases: Sequence[Case], environment: dict[str, str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *program],
        input=json.dumps(cases),
        env=os.environ | environment | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(done.stdout.splitlines()[-1])


def _moments(printed: dict[str, list[int]]) -> Moments:
    return {text: (begin, end) for text, (begin, end) in printed.items()}
