"""The committed code is what ``protos/`` generates."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_generated_code_is_up_to_date() -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed: nothing to generate with")
    checkout = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHON": sys.executable}
    command = [str(checkout / "launch" / "protos"), "--check"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
