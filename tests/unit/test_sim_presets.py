"""The GPU models: the shared profiles within 3 %, and sense where nothing was measured."""

import csv
from pathlib import Path

import pytest

from perseus_dist.simulator import PRESETS, SimulatedMachine, SimulatorError, find_preset

MEASURED = {"a100": "gpt3-175b+a100_sxm_bf16.csv", "a40": "bloom+a40_bf16.csv"}


def measured(folder: Path, preset: str, instruction: str) -> dict[int, tuple[float, float]]:
    """(time [s], energy [J]) by clock, stage 0."""
    with (folder / "sosp24" / "stage_profile" / MEASURED[preset]).open() as file:
        return {
            int(row["frequency"]): (float(row["time"]), float(row["energy"]))
            for row in csv.DictReader(file)
            if row["stage"] == "0" and row["instruction"] == instruction
        }


@pytest.mark.parametrize("instruction", ["forward", "backward"])
@pytest.mark.parametrize("preset", ["a100", "a40"])
def test_measured_profiles_are_reproduced_within_3_percent_at_every_clock(
    shared_data: Path, preset: str, instruction: str
) -> None:
    points = measured(shared_data, preset, instruction)
    time_at_maximum_s = points[max(points)][0]
    with SimulatedMachine(preset, virtual=True) as machine:
        gpu = machine.gpu(0)
        for clock_mhz, (time_s, energy_j) in points.items():
            gpu.request_clock(clock_mhz)
            machine.advance(20_000_000)
            before = gpu.state()
            gpu.stream.kernel(instruction, time_at_maximum_s)
            gpu.stream.synchronize()
            after = gpu.state()
            assert (after.time_ns - before.time_ns) * 1e-9 == pytest.approx(time_s, rel=0.03), clock_mhz
            assert after.true_energy_j - before.true_energy_j == pytest.approx(energy_j, rel=0.03), clock_mhz


@pytest.mark.parametrize("name", PRESETS)
def test_the_device_does_what_the_preset_says(name: str) -> None:
    preset = find_preset(name)
    with SimulatedMachine(preset, virtual=True) as machine:
        gpu = machine.gpu(0)
        for clock_mhz in preset.clocks_mhz[::20]:
            gpu.request_clock(clock_mhz)
            machine.advance(20_000_000)
            before = gpu.state()
            gpu.stream.kernel("backward", 0.1)
            gpu.stream.synchronize()
            after = gpu.state()
            time_s = (after.time_ns - before.time_ns) * 1e-9
            assert time_s == pytest.approx(preset.kernel_time_s("backward", 0.1, clock_mhz), abs=2e-9)
            power_w = (after.true_energy_j - before.true_energy_j) / time_s
            assert power_w == pytest.approx(preset.kernel_power_w("backward", clock_mhz))


@pytest.mark.parametrize("name", PRESETS)
def test_below_what_was_measured_time_grows_and_power_falls(name: str) -> None:
    preset = find_preset(name)
    low_mhz = [clock_mhz for clock_mhz in preset.clocks_mhz if clock_mhz <= 855]
    for kernel_class in ("forward", "backward"):
        times_s = [preset.kernel_time_s(kernel_class, 1.0, mhz) for mhz in low_mhz]
        powers_w = [preset.kernel_power_w(kernel_class, mhz) for mhz in low_mhz]
        assert times_s == sorted(times_s)
        assert powers_w == sorted(powers_w, reverse=True)
        assert powers_w[-1] > preset.blocking_power_at_w(low_mhz[-1]) > 0
        energies_j = [time_s * power_w for time_s, power_w in zip(times_s, powers_w, strict=True)]
        assert energies_j == sorted(energies_j)  # nothing to be saved down there


@pytest.mark.parametrize("name", PRESETS)
def test_there_is_energy_to_save(name: str) -> None:
    preset = find_preset(name)
    for kernel_class in ("forward", "backward"):
        energies_j = [
            preset.kernel_time_s(kernel_class, 1.0, mhz) * preset.kernel_power_w(kernel_class, mhz)
            for mhz in preset.clocks_mhz
        ]
        assert min(energies_j) < 0.85 * energies_j[0]
        assert preset.kernel_time_s(kernel_class, 1.0, preset.clocks_mhz[0]) == pytest.approx(1.0)


def test_blocking_power_is_the_measured_one_at_the_maximum_clock() -> None:
    assert find_preset("a100").blocking_power_at_w(1410) == 83.64
    assert find_preset("a40").blocking_power_at_w(1740) == 70.38


def test_what_does_not_exist_is_named_with_what_does() -> None:
    preset = find_preset("a100")
    with pytest.raises(SimulatorError, match="a100, a40, h100, h200"):
        find_preset("v100")
    with pytest.raises(SimulatorError, match="210 to 1410 MHz in steps of 15"):
        preset.kernel_time_s("forward", 1.0, 1000)
    with pytest.raises(SimulatorError, match="forward, backward"):
        preset.kernel_power_w("sideways", 1410)
    with pytest.raises(SimulatorError, match="expected 1 to 64"):
        SimulatedMachine("a100", count=65)


def test_each_gpu_of_a_machine_can_be_another_model() -> None:
    a100, a40 = find_preset("a100"), find_preset("a40")
    with SimulatedMachine("a100,a40,a100", count=3, virtual=True) as machine:
        assert [gpu.preset for gpu in machine.gpus] == [a100, a40, a100]
        for gpu in machine.gpus:
            gpu.stream.kernel("forward", 0.5)
            gpu.request_clock(1440 if gpu.index == 1 else 1200)  # an A100 has no 1440 MHz
        machine.advance(100_000_000)
        assert [gpu.state().clock_mhz for gpu in machine.gpus] == [1200, 1440, 1200]
        of_a100, of_a40 = a100.kernel_power_w("forward", 1200), a40.kernel_power_w("forward", 1440)
        assert [gpu.state().power_w for gpu in machine.gpus] == pytest.approx([of_a100, of_a40, of_a100])


@pytest.mark.parametrize(
    ("names", "message"), [("a100,a40", "2 GPU models .a100,a40. for 3 GPUs"), ("a100,,a40", "GPU '': the simulator")]
)
def test_models_that_are_not_one_for_each_gpu_are_refused(names: str, message: str) -> None:
    with pytest.raises(SimulatorError, match=message):
        SimulatedMachine(names, count=3)
