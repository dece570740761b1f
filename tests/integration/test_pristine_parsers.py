"""Argument lists that do not ask for Perseus, parsed by the frameworks' own parsers and by enabled ones.

``PERSEUS_NUM_COMMAND_LINES=10000`` draws that many.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from python_path import python_path

ROOT = Path(__file__).parents[2]
COUNT = int(os.environ.get("PERSEUS_NUM_COMMAND_LINES", "400"))
MEGATRON = Path(os.environ.get("PERSEUS_TEST_MEGATRON", ROOT / "build" / "megatron"))
ON_CPU = ("-m", "perseus_dist.simulation.megatron_on_cpu")


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_deepspeeds_launcher() -> None:
    _compare("deepspeed", seed=1)


@pytest.mark.stress
def test_the_oldest_deepspeeds_launcher() -> None:
    folder = os.environ.get("PERSEUS_TEST_DEEPSPEED_OLD")
    if folder is None:
        pytest.skip("PERSEUS_TEST_DEEPSPEED_OLD names no folder with DeepSpeed 0.14.5")
    _compare("deepspeed", seed=2, folders=[Path(folder)])


@pytest.mark.stress
@pytest.mark.parametrize("version", ["0.17.1", "0.19.2"])
def test_megatrons_scripts(version: str) -> None:
    folder = MEGATRON / version
    if not folder.is_dir():
        pytest.skip(f"no Megatron at {folder}; PERSEUS_TEST_MEGATRON names the folder of its versions")
    _compare("megatron", seed=3, folders=[folder], runner=ON_CPU)


def _compare(framework: str, *, seed: int, folders: Sequence[Path] = (), runner: tuple[str, ...] = ()) -> None:
    script = str(ROOT / "tests" / "stress" / "compare_parsers.py")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERSEUS", "PYTHON", "RANK"))}
    compared = subprocess.run(
        [sys.executable, "-W", "ignore", *runner, script, framework, "--seed", str(seed), "--count", str(COUNT)],
        env={**kept, "DS_ACCELERATOR": "cpu", "PYTHONPATH": python_path(*folders)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert compared.stdout, compared.stderr
    found = json.loads(compared.stdout.splitlines()[-1])
    assert found["different"] == []
    assert compared.returncode == 0
    assert min(found["parsed"], found["refused"]) > COUNT / 5
