"""The stand-in libcuda: devices as CUDA numbers them, events, and writes into host memory in the stream's order."""

import ctypes
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from ctypes import byref, c_char, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p

import pytest
from waiting import wait_until

from perseus_dist.simulator import Fault, SimulatedMachine, load_nvml
from perseus_dist.simulator.native_library import library_folder

MS = 1_000_000
PAGE = 4096


@pytest.fixture
def cuda() -> ctypes.CDLL:
    return ctypes.CDLL(str(library_folder() / "cuda" / "libcuda.so.1"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedMachine]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with SimulatedMachine("a100", count=3, virtual=True) as made, load_nvml(made, cuda=True):
        yield made


def make_context(cuda: ctypes.CDLL, ordinal: int = 0) -> None:
    context = c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(byref(context), ordinal) == 0
    assert cuda.cuCtxSetCurrent(context) == 0


def read_word(memory: mmap.mmap) -> int:
    value: int = struct.unpack_from("<I", memory, PAGE)[0]
    return value


def register(cuda: ctypes.CDLL, memory: mmap.mmap) -> c_uint64:
    """The device's address of the second page."""
    address = ctypes.addressof(c_char.from_buffer(memory)) + PAGE
    pointer = c_uint64()
    assert cuda.cuMemHostRegister_v2(c_void_p(address), c_size_t(PAGE), 3) == 0
    assert cuda.cuMemHostRegister_v2(c_void_p(address), c_size_t(PAGE), 3) == 712
    assert cuda.cuMemHostGetDevicePointer_v2(byref(pointer), c_void_p(address), 0) == 0
    return pointer


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("1", [1]),
        ("", []),
        ("0,7,1", [0]),
        ("GPU-51a1a7ed-0000-4000-8000-000000000002", [2]),
    ],
)
def test_devices_are_numbered_as_cuda_does(
    machine: SimulatedMachine,
    cuda: ctypes.CDLL,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    expected: list[int],
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert cuda.cuInit(0) == (0 if expected else 100)
    count = c_int()
    cuda.cuDeviceGetCount(byref(count))
    assert count.value == len(expected)
    uuid = (c_char * 16)()
    for ordinal, index in enumerate(expected):
        device = c_int()
        assert cuda.cuDeviceGet(byref(device), ordinal) == 0
        assert cuda.cuDeviceGetUuid_v2(uuid, device) == 0
        assert bytes(uuid).hex() == machine.gpu(index).uuid.removeprefix("GPU-").replace("-", "")
    assert cuda.cuDeviceGet(byref(c_int()), len(expected)) == 101


def test_nothing_works_without_a_context(machine: SimulatedMachine, cuda: ctypes.CDLL) -> None:
    assert cuda.cuInit(0) == 0
    context = c_void_p(1)
    assert cuda.cuCtxGetCurrent(byref(context)) == 0
    assert context.value is None
    assert cuda.cuEventCreate(byref(c_void_p()), 0) == 201
    make_context(cuda, 2)
    device = c_int(-1)
    assert cuda.cuCtxGetDevice(byref(device)) == 0
    assert device.value == 2
    text = ctypes.c_char_p()
    assert cuda.cuGetErrorString(201, byref(text)) == 0
    assert text.value == b"invalid device context"
    machine.inject(Fault(function="cuEventCreate", result=2))
    assert cuda.cuEventCreate(byref(c_void_p()), 0) == 2


def test_events_have_the_devices_time(machine: SimulatedMachine, cuda: ctypes.CDLL) -> None:
    make_context(cuda, 1)
    stream, begin, end = c_void_p(), c_void_p(), c_void_p()
    assert cuda.cuStreamCreate(byref(stream), 0) == 0
    assert stream.value == machine.gpu(1).stream.handle
    for event in (begin, end):
        assert cuda.cuEventCreate(byref(event), 0) == 0
    assert cuda.cuEventQuery(begin) == 0  # never recorded: nothing to wait for
    elapsed_ms = c_float()
    assert cuda.cuEventElapsedTime(byref(elapsed_ms), begin, end) == 400
    cuda.cuEventRecord(begin, stream)
    machine.gpu(1).stream.kernel("forward", 0.05)
    cuda.cuEventRecord(end, stream)
    machine.advance(20 * MS)
    assert (cuda.cuEventQuery(begin), cuda.cuEventQuery(end), cuda.cuStreamQuery(stream)) == (0, 600, 600)
    assert cuda.cuEventElapsedTime(byref(elapsed_ms), begin, end) == 600
    machine.advance(30 * MS)
    assert cuda.cuEventElapsedTime(byref(elapsed_ms), begin, end) == 0
    assert elapsed_ms.value == pytest.approx(50.0)
    assert cuda.cuStreamSynchronize(stream) == 0
    assert cuda.cuEventDestroy_v2(begin) == 0
    assert cuda.cuEventDestroy_v2(begin) == 400
    assert cuda.cuStreamQuery(c_void_p(0x1234)) == 400


@pytest.mark.parametrize("how", ["named file", "unlinked file", "memfd"])
def test_writes_arrive_when_the_device_reaches_them(machine: SimulatedMachine, cuda: ctypes.CDLL, how: str) -> None:
    make_context(cuda)
    with tempfile.NamedTemporaryFile(delete=how == "named file") as file:
        descriptor = os.memfd_create("ring") if how == "memfd" else file.fileno()
        os.ftruncate(descriptor, 2 * PAGE)
        memory = mmap.mmap(descriptor, 2 * PAGE)
        if how != "named file":
            os.unlink(file.name)  # noqa: PTH108
        pointer = register(cuda, memory)
        stream = machine.gpu(0).stream
        for value in (1, 2):
            stream.kernel("forward", 0.05)
            assert cuda.cuStreamWriteValue32_v2(c_void_p(stream.handle), pointer, c_uint32(value), 0) == 0
        for expected in (0, 1, 2):
            machine.advance(0)
            assert read_word(memory) == expected
            machine.advance(50 * MS)
        address = pointer.value
        assert cuda.cuStreamWriteValue32_v2(c_void_p(stream.handle), c_uint64(address + PAGE), 3, 0) == 1
        stream.kernel("forward", 0.05)
        cuda.cuStreamWriteValue32_v2(c_void_p(stream.handle), pointer, 3, 0)
        assert cuda.cuMemHostUnregister(c_void_p(address)) == 0
        machine.advance(50 * MS)
        assert read_word(memory) == 2  # the page is no longer the device's
        if how == "memfd":
            os.close(descriptor)


def test_memory_that_is_no_file_is_refused(machine: SimulatedMachine, cuda: ctypes.CDLL) -> None:
    del machine
    make_context(cuda)
    assert cuda.cuMemHostRegister_v2(ctypes.create_string_buffer(PAGE), c_size_t(PAGE), 3) == 801


def test_writes_arrive_in_wall_time(cuda: ctypes.CDLL) -> None:
    with SimulatedMachine("a100") as machine, load_nvml(machine, cuda=True), tempfile.TemporaryFile() as file:
        make_context(cuda)
        os.ftruncate(file.fileno(), 2 * PAGE)
        memory = mmap.mmap(file.fileno(), 2 * PAGE)
        pointer = register(cuda, memory)
        stream = machine.gpu(0).stream
        stream.kernel("forward", 0.05)
        cuda.cuStreamWriteValue32_v2(c_void_p(stream.handle), pointer, 7, 0)
        event = stream.event()
        assert read_word(memory) == 0
        wait_until(lambda: read_word(memory) == 7)
        reached_ns = event.time_ns()
        assert reached_ns is not None
        assert reached_ns <= time.monotonic_ns()
        assert cuda.cuStreamSynchronize(c_void_p(stream.handle)) == 0
