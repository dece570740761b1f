"""Which tests a machine that is too slow for the gate leaves to others."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize(
    ("begin_in_s", "words"), [(-1, ["1 passed, 1 skipped", "1 stress tests were left"]), (900, ["2 passed"])]
)
def test_stress_tests_of_after_the_time_are_left_and_counted(
    tmp_path: Path, begin_in_s: float, words: list[str]
) -> None:
    tests = tmp_path / "test_two.py"
    tests.write_text("import pytest\n@pytest.mark.stress\ndef test_long(): pass\ndef test_short(): pass\n")
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "PERSEUS_TESTS_BEGIN_BY": str(time.time() + begin_in_s)}
    pytest_ = [sys.executable, "-m", "pytest", "-p", "slow_machines", "-p", "no:cacheprovider", "-W", "ignore"]
    ran = subprocess.run(
        [*pytest_, str(tests)], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert all(one in ran.stdout for one in words), ran.stdout
    assert ("were left" in ran.stdout) == (begin_in_s < 0)
