"""Presets in the layout of the native part."""

from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.gpu_preset import GpuPreset
from perseus_dist.simulator.native_library import MAX_CLASSES, MAX_CLOCKS, NativeClass, NativePreset


def native_preset(preset: GpuPreset) -> NativePreset:
    """A GPU model as the native part wants it.

    Raises:
        SimulatorError: It has more clocks or kernel classes than fit.
    """
    num_clocks = len(preset.clocks_mhz)
    if not 2 <= num_clocks <= MAX_CLOCKS or len(preset.classes) > MAX_CLASSES:
        raise SimulatorError(
            f"GPU {preset.name!r} has {num_clocks} clocks and {len(preset.classes)} kernel classes; "
            f"expected 2 to {MAX_CLOCKS} and at most {MAX_CLASSES}"
        )
    filled = NativePreset(
        name=preset.nvml_name.encode(),
        architecture=preset.architecture,
        compute_major=preset.compute_capability[0],
        compute_minor=preset.compute_capability[1],
        pci_device_id=preset.pci_device_id,
        memory_mib=preset.memory_mib,
        num_clocks=num_clocks,
        num_memory_clocks=len(preset.memory_clocks_mhz),
        num_classes=len(preset.classes),
        min_power_limit_mw=round(preset.power_limits_w[0] * 1e3),
        default_power_limit_mw=round(preset.power_limits_w[1] * 1e3),
        max_power_limit_mw=round(preset.power_limits_w[2] * 1e3),
        call_latency_us=round(preset.timing.call_latency_s * 1e6),
        call_jitter_us=round(preset.timing.call_jitter_s * 1e6),
        release_us=round(preset.timing.settle_s * 1e6),
        energy_period_us=round(preset.timing.energy_period_s * 1e6),
        power_average_us=round(preset.power_average_s * 1e6),
        regulated_share=preset.regulated_share,
        idle_power_mw=preset.idle_power_w * 1e3,
    )
    filled.clocks_mhz[:num_clocks] = preset.clocks_mhz
    filled.settle_us[:num_clocks] = [round(preset.timing.settle_to_s(mhz) * 1e6) for mhz in preset.clocks_mhz]
    filled.memory_clocks_mhz[: len(preset.memory_clocks_mhz)] = preset.memory_clocks_mhz
    filled.blocking_power_mw[:num_clocks] = [preset.blocking_power_at_w(mhz) * 1e3 for mhz in preset.clocks_mhz]
    for native_class, curve in zip(filled.classes, preset.classes, strict=False):
        _fill_class(native_class, preset, curve.name)
    return filled


def _fill_class(native_class: NativeClass, preset: GpuPreset, name: str) -> None:
    times, powers_w = preset.class_tables(name)
    native_class.name = name.encode()
    native_class.relative_time[: len(times)] = times
    native_class.power_mw[: len(powers_w)] = [power_w * 1e3 for power_w in powers_w]
