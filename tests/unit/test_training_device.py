"""Which device a rank finds, and what it does there."""

import sys
from types import SimpleNamespace

import pytest

from perseus_dist.pipelining import attachment
from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.simulator.work import work_environment
from perseus_dist.training.rank.device import Device, DeviceError, Host, SimulatedGpu, open_device


def test_the_host_alone() -> None:
    device = open_device(0, is_cuda=False, num_stages=2)
    assert device == Host()
    assert (device.gpu_uuid, device.device_stream, device.has_clock) == (None, None, False)
    device.begin("F", 0)
    device.end()
    device.close()


@pytest.mark.parametrize(("uuid", "expected"), [("1-2-3", "GPU-1-2-3"), (None, None)])
def test_the_current_cuda_device(uuid: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch without CUDA has no such functions that work, and the tests run without torch.
    cuda = SimpleNamespace(
        current_device=lambda: 1,
        get_device_properties=lambda _: SimpleNamespace(uuid=uuid),
        current_stream=lambda: SimpleNamespace(cuda_stream=42),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    device = open_device(0, is_cuda=True, num_stages=2)
    assert device.gpu_uuid == expected
    assert device.has_clock
    assert device.device_stream is not None
    assert device.device_stream() == 42
    device.begin("F", 0)
    device.end()
    device.send("F", 0)
    device.close()


def test_stages_on_another_than_the_current_cuda_device_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in torch's own tutorial: everything is put on cuda:3 by name, and the current device is 0 on all ranks.
    cuda = SimpleNamespace(
        current_device=lambda: 0,
        get_device_properties=lambda _: SimpleNamespace(uuid="first"),
        current_stream=lambda: SimpleNamespace(cuda_stream=42),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, device=lambda device: device))

    def open_for(index: int | None) -> Device:
        stage = SimpleNamespace(device=SimpleNamespace(type="cuda", index=index), num_stages=4)
        return attachment._device_opener([stage], 3)()

    assert open_for(0).gpu_uuid == open_for(None).gpu_uuid == "GPU-first"
    with pytest.raises(DeviceError, match=r"is on cuda:3, .* is cuda:0, .*set_device\(3\)"):
        open_for(3)


def test_a_simulated_gpu_runs_a_kernel_beside_the_hosts_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedMachine("a100", count=2) as machine:
        for name, value in {**machine.environment(), **work_environment(forward_s=0.02, backward_s=0.04)}.items():
            if name != "LD_LIBRARY_PATH":
                monkeypatch.setenv(name, value)
        device = open_device(1, is_cuda=False, num_stages=4)
        assert isinstance(device, SimulatedGpu)
        assert device.gpu_uuid == machine.gpu(1).uuid
        assert device.device_stream is None
        assert device.has_clock
        for kind, least_s in [("F", 0.02), ("B", 0.04), ("STEP", 0.0)]:
            begin_ns = machine.now_ns
            device.begin(kind, 1)
            device.end()
            assert machine.now_ns - begin_ns >= least_s * 1e9
        device.close()
        with pytest.raises(SimulatorError):
            open_device(7, is_cuda=False, num_stages=4)
