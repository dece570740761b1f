"""Processes that a simulated run starts, and their end."""

import subprocess

_END_S = 15.0


def end_process(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """Ask a process to end, and kill it if it does not; nothing happens to one that has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
