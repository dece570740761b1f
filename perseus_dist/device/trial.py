"""Whether clocks can really be set: by doing it. NVML tells rights only when they are used."""

import os
import select
import time
from collections.abc import Mapping

from perseus_dist.device.opening import open_clock_control

_ANSWER_S = 5.0


def why_clocks_stay(gpu_uuid: str, environ: Mapping[str, str]) -> str:
    """Lock a GPU's clock at its maximum for a moment, as a job would, and unlock it again. Takes up to some seconds.

    Args:
        gpu_uuid: As NVML writes it; no job runs on it.
        environ: Of this process.

    Returns:
        Why its clock cannot be set, a sentence; empty if it can.
    """
    control = open_clock_control("auto", gpu_uuid, own_pids=[os.getpid()], environ=environ)
    try:
        if control.refusal:
            return control.refusal
        control.request(control.clocks_mhz[0], time.monotonic_ns())
        until_s = time.monotonic() + _ANSWER_S
        while (left_s := until_s - time.monotonic()) > 0:
            select.select([control.fileno()], [], [], min(left_s, 0.1))
            for report in control.poll(time.monotonic_ns()):
                return report.error
            if control.refusal:
                return control.refusal
        return f"{control.name} has not answered for {_ANSWER_S:g} s"
    finally:
        control.close()
