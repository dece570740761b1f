"""A test file that leaves a process running fails, and names the process."""

import os
import subprocess
import sys
from pathlib import Path

import leftovers

SESSION = """
import subprocess, pytest
@pytest.fixture(scope="session")
def server():
    process = subprocess.Popen(["sleep", "1001"])
    yield process
    process.kill()
    process.wait()
"""
LEAVES = """
import subprocess
def test_leaves_an_orphan():
    subprocess.run(["sh", "-c", "sleep 1002 & exec true"], check=True)
"""
ENDS = """
import subprocess
def test_ends_its_own(server):
    process = subprocess.Popen(["sleep", "1003"])
    process.kill()
    process.wait()
"""


def test_names_what_a_file_left_and_not_what_the_session_keeps(tmp_path: Path) -> None:
    for name, text in {"conftest": SESSION, "test_a_leaves": LEAVES, "test_b_ends": ENDS, "test_c_ends": ENDS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    environ = {**os.environ, "PYTHONPATH": str(Path(leftovers.__file__).parent), "PERSEUS_TEST_LEFTOVERS": "1"}
    plugins = ["-p", "leftovers", "-p", "file_leftovers", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins]
    run = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "3 passed, 1 error" in run.stdout
    assert "sleep 1002" in run.stdout
    assert "sleep 1001" not in run.stdout
    assert "sleep 1003" not in run.stdout
