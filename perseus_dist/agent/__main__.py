"""``python -m perseus_dist.agent``: how the trainer's hook starts an agent."""

import ctypes
import logging
import os
import sys
from contextlib import suppress

from perseus_dist.agent.process.process import run_agent

_M_ARENA_MAX = -8  # malloc.h

# glibc gives each of gRPC's threads a heap of its own, 1 MB and more on every rank. Under Python's lock one is enough.
with suppress(OSError, AttributeError):  # another C library
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
code = run_agent(sys.stdin.buffer.read())
logging.shutdown()
os._exit(code)  # a thread that hangs in the driver would keep the process
