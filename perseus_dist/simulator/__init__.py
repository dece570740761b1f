"""Simulated GPUs: a stand-in for NVIDIA's management library, and the timing model behind it."""

from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.fault import Fault, LoggedCall
from perseus_dist.simulator.gpu import GpuState, Load, SimulatedGpu
from perseus_dist.simulator.gpu_preset import GpuPreset, KernelClass, Timing
from perseus_dist.simulator.machine import SimulatedMachine, load_nvml
from perseus_dist.simulator.presets import PRESETS, find_preset
from perseus_dist.simulator.stream import SimulatedStream, StreamEvent
from perseus_dist.simulator.throttle import Throttle, ThrottleScript, parse_throttle
from perseus_dist.simulator.work import SimulatedWork, WorkTimes, work_environment

__all__ = [
    "PRESETS",
    "Fault",
    "GpuPreset",
    "GpuState",
    "KernelClass",
    "Load",
    "LoggedCall",
    "SimulatedGpu",
    "SimulatedMachine",
    "SimulatedStream",
    "SimulatedWork",
    "SimulatorError",
    "StreamEvent",
    "Throttle",
    "ThrottleScript",
    "Timing",
    "WorkTimes",
    "find_preset",
    "load_nvml",
    "parse_throttle",
    "work_environment",
]
