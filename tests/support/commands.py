"""The command line in the tests' own process, where it is not the process that is tested."""

import io
import subprocess
from contextlib import redirect_stderr, redirect_stdout

from perseus_dist.cli import main


def run_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """What ``perseus-dist`` with the arguments returns and prints."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        try:
            code = main([*arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), error.getvalue())
