"""``python -m perseus_dist.agent``: how the trainer's hook starts an agent."""

import logging
import os
import sys

from perseus_dist.agent.process.process import run_agent

code = run_agent(sys.stdin.buffer.read())
logging.shutdown()
os._exit(code)  # a thread that hangs in the driver would keep the process
