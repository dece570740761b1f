"""The native part: finding it, its functions, and the structures that both sides share (native/layout.h)."""

import ctypes
from ctypes import POINTER, Structure, c_char, c_double, c_int, c_int32, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path

import perseus_dist
from perseus_dist.simulator.errors import SimulatorError

MAX_CLOCKS = 192
MAX_CLASSES = 8
NUM_SEMAPHORES = 4096
NEVER = 2**64 - 1

OP_KERNEL, OP_FIXED, OP_SIGNAL, OP_WAIT, OP_WRITE, OP_TIMESTAMP, OP_MARK = range(7)
(
    SET_THERMAL_CAP,
    SET_TEMPERATURE,
    SET_REASONS,
    SET_POWER_LIMIT,
    SET_MIG,
    SET_LOST,
    SET_ADD_PROCESS,
    SET_REMOVE_PROCESS,
    SET_HAS_POWER_PROFILES,
    SET_REQUESTED_PROFILES,
    SET_ENFORCED_PROFILES,
) = range(11)


class NativeClass(Structure):
    """The C library's ``struct sim_class``: power and time of a class of kernels."""

    _fields_ = (
        ("name", c_char * 32),
        ("relative_time", c_double * MAX_CLOCKS),
        ("power_mw", c_double * MAX_CLOCKS),
    )


class NativePreset(Structure):
    """The C library's ``struct sim_preset``: a GPU's model."""

    _fields_ = (
        ("name", c_char * 64),
        ("architecture", c_uint32),
        ("compute_major", c_uint32),
        ("compute_minor", c_uint32),
        ("pci_device_id", c_uint32),
        ("memory_mib", c_uint32),
        ("num_clocks", c_uint32),
        ("num_memory_clocks", c_uint32),
        ("num_classes", c_uint32),
        ("clocks_mhz", c_uint32 * MAX_CLOCKS),
        ("memory_clocks_mhz", c_uint32 * 4),
        ("min_power_limit_mw", c_uint32),
        ("default_power_limit_mw", c_uint32),
        ("max_power_limit_mw", c_uint32),
        ("call_latency_us", c_uint32),
        ("call_jitter_us", c_uint32),
        ("release_us", c_uint32),
        ("energy_period_us", c_uint32),
        ("power_average_us", c_uint32),
        ("padding", c_uint32),
        ("settle_us", c_uint32 * MAX_CLOCKS),
        ("regulated_share", c_double),
        ("idle_power_mw", c_double),
        ("blocking_power_mw", c_double * MAX_CLOCKS),
        ("classes", NativeClass * MAX_CLASSES),
    )


class NativeOp(Structure):
    """struct sim_op, of those that have a duration or need none."""

    _fields_ = (
        ("kind", c_uint32),
        ("target", c_uint32),
        ("value", c_uint64),
        ("duration_ns", c_double),
    )


class NativeReading(Structure):
    """The C library's ``struct sim_reading``: one publication of the energy counter."""

    _fields_ = (("time_ns", c_uint64), ("energy_mj", c_uint64))


class NativeFault(Structure):
    """The C library's ``struct sim_fault``: how calls of one function fail or are slow."""

    _fields_ = (
        ("function", c_char * 64),
        ("gpu_mask", c_uint64),
        ("result", c_int32),
        ("num_skipped", c_int32),
        ("num_left", c_int32),
        ("delay_us", c_uint32),
        ("is_ignored", c_uint32),
        ("padding", c_uint32),
    )


class NativeCall(Structure):
    """The C library's ``struct sim_call``: one recorded call of a function that sets clocks."""

    _fields_ = (
        ("time_ns", c_uint64),
        ("pid", c_uint32),
        ("gpu", c_uint32),
        ("lo", c_uint32),
        ("hi", c_uint32),
        ("result", c_int32),
        ("padding", c_uint32),
        ("function", c_char * 40),
    )


class NativeGpuState(Structure):
    """The C library's ``struct sim_gpu_state``: of one simulated GPU."""

    _fields_ = (
        ("lock_lo_mhz", c_uint32),
        ("lock_hi_mhz", c_uint32),
        ("is_pending", c_uint32),
        ("clock_mhz", c_uint32),
        ("load", c_uint32),
        ("power_limit_mw", c_uint32),
        ("power_mw", c_uint32),
        ("temperature_c", c_uint32),
        ("reasons", c_uint64),
        ("num_sets", c_uint64),
        ("num_resets", c_uint64),
        ("num_enqueued", c_uint64),
        ("num_completed", c_uint64),
        ("time_ns", c_uint64),
        ("energy_counter_mj", c_uint64),
        ("pending_at_ns", c_uint64),
        ("power_w", c_double),
        ("true_energy_j", c_double),
        ("running_s", c_double),
    )


_FUNCTIONS = {
    "layout": (c_uint64, ()),
    "create": (c_int, (ctypes.c_char_p, POINTER(NativePreset), c_uint32, c_uint32, c_uint32)),
    "open": (c_void_p, (ctypes.c_char_p,)),
    "close": (None, (c_void_p,)),
    "num_gpus": (c_uint32, (c_void_p,)),
    "now_ns": (c_uint64, (c_void_p,)),
    "advance": (None, (c_void_p, c_uint64)),
    "advance_to_mark": (c_uint64, (c_void_p, c_uint64, POINTER(c_uint64))),
    "next_event_ns": (c_uint64, (c_void_p,)),
    "engine": (None, (c_void_p, POINTER(c_uint32))),
    "stop_engine": (None, (c_void_p, POINTER(c_uint32))),
    "find_class": (c_int, (c_void_p, c_uint32, ctypes.c_char_p)),
    "open_stream": (None, (c_void_p, c_uint32)),
    "claim_stream": (c_uint32, (c_void_p, c_uint32)),
    "enqueue": (c_int, (c_void_p, c_uint32, c_uint32, c_uint32, c_uint64, c_double)),
    "enqueue_all": (c_int, (c_void_p, c_uint32, POINTER(NativeOp), c_uint32)),
    "take_marks": (c_uint32, (c_void_p, c_uint32, POINTER(c_uint64), c_uint32)),
    "drop_work": (None, (c_void_p,)),
    "num_enqueued": (c_uint64, (c_void_p, c_uint32)),
    "wait": (c_int, (c_void_p, c_uint32, c_uint64, c_uint64)),
    "progress": (c_uint64, (c_void_p,)),
    "awaited": (c_uint32, (c_void_p, c_uint32, POINTER(c_uint32), POINTER(c_uint64), POINTER(c_uint64))),
    "new_timestamp": (c_int, (c_void_p, c_uint32)),
    "record_timestamp": (c_int, (c_void_p, c_uint32, c_uint32)),
    "timestamp_ns": (c_int, (c_void_p, c_uint32, c_uint32, POINTER(c_uint64))),
    "free_timestamp": (None, (c_void_p, c_uint32, c_uint32)),
    "semaphore": (c_uint64, (c_void_p, c_uint32)),
    "raise": (c_int, (c_void_p, c_uint32, c_uint64)),
    "gpu_state": (None, (c_void_p, c_uint32, POINTER(NativeGpuState))),
    "keep_readings": (c_uint64, (c_void_p, c_uint32, c_uint32)),
    "take_readings": (c_uint32, (c_void_p, c_uint32, POINTER(NativeReading), c_uint32)),
    "true_energy_j": (c_double, (c_void_p,)),
    "uuid": (ctypes.c_char_p, (c_void_p, c_uint32)),
    "request_lock": (None, (c_void_p, c_uint32, c_uint32, c_uint32)),
    "set": (c_int, (c_void_p, c_uint32, c_uint32, c_uint64)),
    "set_driver": (None, (c_void_p, c_uint32)),
    "inject": (c_int, (c_void_p, POINTER(NativeFault))),
    "clear_faults": (None, (c_void_p,)),
    "calls": (c_uint64, (c_void_p, POINTER(c_uint64), POINTER(NativeCall), c_uint64)),
}


def library_folder() -> Path:
    """The folder of ``libnvidia-ml.so.1``; its subfolder ``cuda`` has ``libcuda.so.1``.

    Raises:
        SimulatorError: The package was built without the simulator.
    """
    for entry in perseus_dist.__path__:  # an editable installation keeps what is built apart from the Python files
        folder = Path(entry) / "simulator" / "lib"
        if (folder / "libperseus-sim.so").is_file():
            return folder
    raise SimulatorError(
        "no simulated GPUs: libperseus-sim.so is not beside perseus_dist.simulator; install the package with a C "
        "compiler at hand and without -DPERSEUS_SIMULATOR=OFF"
    )


@cache
def native() -> ctypes.CDLL:
    """The control library, loaded once, with the types of its functions.

    Raises:
        SimulatorError: It is missing, or from another version of the package.
    """
    path = library_folder() / "libperseus-sim.so"
    library = ctypes.CDLL(str(path))
    layout = ctypes.sizeof(NativePreset) + ctypes.sizeof(NativeFault) * 1000003 + ctypes.sizeof(NativeCall) * 10007
    library.perseus_sim_layout.restype = c_uint64
    other_version = SimulatorError(f"{path}: built from another version of the package; install the package again")
    layout += ctypes.sizeof(NativeGpuState) * 101 + ctypes.sizeof(NativeOp) * 1009
    if library.perseus_sim_layout() != layout:
        raise other_version
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, f"perseus_sim_{name}", None)
        if function is None:
            raise other_version
        function.restype, function.argtypes = result, arguments
    return library
