"""A script of thermal caps: which simulated GPU overheats when, how badly, and when it has cooled down."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.gpu import SimulatedGpu

_TEXT = re.compile(r"(?P<gpu>[0-9]+):(?P<cap>[0-9]+|none)@(?P<at>[0-9]+(\.[0-9]+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """One change of a GPU's thermal cap.

    Attributes:
        at: When, counted as the script's reader counts: seconds, or iterations.
        gpu: Index of the GPU.
        cap_mhz: No clock above this one; None lifts the cap.
    """

    at: float
    gpu: int
    cap_mhz: int | None

    def __str__(self) -> str:
        cap = "no cap" if self.cap_mhz is None else f"capped at {self.cap_mhz} MHz by heat"
        return f"simulated GPU {self.gpu}: {cap}"


def parse_throttle(text: str) -> Throttle:
    """Read ``GPU:MHZ@WHEN``, as in ``1:1005@30``; ``none`` for MHZ lifts the cap.

    Raises:
        SimulatorError: It is not one.
    """
    match = _TEXT.fullmatch(text)
    if match is None or not math.isfinite(float(match["at"])):
        raise SimulatorError(f"--throttle {text!r}: give GPU:MHZ@WHEN as in 1:1005@30, or 1:none@60 to lift it")
    cap = match["cap"]
    return Throttle(at=float(match["at"]), gpu=int(match["gpu"]), cap_mhz=None if cap == "none" else int(cap))


class ThrottleScript:
    """Throttles of some GPUs, each done once."""

    def __init__(self, throttles: Iterable[Throttle], gpus: Sequence[SimulatedGpu]) -> None:
        """Args: in any order; (num_gpus) by index.

        Raises:
            SimulatorError: A GPU that is not there, or a cap that is none of its clocks.
        """
        self._waiting = sorted(throttles, key=lambda throttle: throttle.at)
        self._gpus = gpus
        for throttle in self._waiting:
            _check(throttle, gpus)

    def apply_due(self, at: float) -> list[Throttle]:
        """Do what is due; what that was."""
        num_due = sum(throttle.at <= at for throttle in self._waiting)
        due, self._waiting = self._waiting[:num_due], self._waiting[num_due:]
        for throttle in due:
            self._gpus[throttle.gpu].set_thermal_cap(throttle.cap_mhz)
        return due


def _check(throttle: Throttle, gpus: Sequence[SimulatedGpu]) -> None:
    if not 0 <= throttle.gpu < len(gpus):
        raise SimulatorError(f"--throttle of GPU {throttle.gpu}: there are 0 to {len(gpus) - 1}; name one of them")
    if throttle.cap_mhz is not None:
        try:
            gpus[throttle.gpu].preset.check_clock(throttle.cap_mhz)
        except SimulatorError as error:
            raise SimulatorError(f"--throttle {throttle.gpu}:{throttle.cap_mhz}: {error}") from None
