"""CUDA's own view of device 0, through its driver alone: a context, and the UUID. Run as a program, prints the UUID."""

import ctypes
import sys
from uuid import UUID

from perseus_dist.boundaries.libcuda import CudaCallError

_UUID_BYTES = 16


def make_context() -> None:
    """Make the primary context of device 0 current on this thread, as a framework does.

    Raises:
        CudaCallError: No driver, or no device.
    """
    driver = _load()
    driver.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
    context = ctypes.c_void_p()
    _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    _check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def read_uuid() -> str:
    """The UUID of device 0 of this process, as NVML writes it.

    Raises:
        CudaCallError: No driver, or no device.
    """
    driver = _load()
    device, raw = ctypes.c_int(), (ctypes.c_ubyte * _UUID_BYTES)()
    _check(driver.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    _check(driver.cuDeviceGetUuid(raw, device), "cuDeviceGetUuid")
    return f"GPU-{UUID(bytes=bytes(raw))}"


def _load() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaCallError(f"libcuda.so.1 cannot be loaded ({error})") from None
    _check(driver.cuInit(0), "cuInit")
    return driver


def _check(result: int, call: str) -> None:
    if result:
        raise CudaCallError(f"{call} failed ({result})")


if __name__ == "__main__":
    try:
        sys.stdout.write(read_uuid())
    except CudaCallError as failure:
        sys.exit(str(failure))
