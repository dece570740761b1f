"""The GPU models that come with the simulator.

a100 and a40 are fitted to the stage profiles of the Perseus artifact (Chung et al., SOSP 2024; Apache-2.0), stage 0 of
GPT-3 175B on A100 SXM and of Bloom on A40, measured from 855 MHz up to the maximum clock in steps of 15 MHz. Time and
power (measured energy / fitted time) are piecewise linear in the clock, with as few knots as keep time and energy
within 3 % at every measured clock; the knots' values minimise the greatest relative error (a linear programme for each
choice of knots).

h100 and h200 are a model, not a measurement: no public profile has time and energy of pipeline stages by clock. They
are for trying things out on a GPU of that shape.
"""

from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.gpu_preset import GpuPreset, KernelClass, Knots, Timing


def find_preset(name: str) -> GpuPreset:
    """The preset of a name.

    Raises:
        SimulatorError: There is none.
    """
    if name not in PRESETS:
        raise SimulatorError(f"GPU {name!r}: the simulator has {', '.join(PRESETS)}; name one of them")
    return PRESETS[name]


def find_presets(names: str, count: int) -> tuple[GpuPreset, ...]:
    """(count) the preset of each GPU: ``a100`` for all of them, or one name for each, as ``a100,a40``.

    Raises:
        SimulatorError: There is no such preset, or there are neither one nor ``count`` names.
    """
    presets = tuple(find_preset(name) for name in names.split(","))
    if len(presets) not in (1, count):
        raise SimulatorError(
            f"{len(presets)} GPU models ({names}) for {count} GPUs; name one for all of them, or one for each"
        )
    return presets * count if len(presets) == 1 else presets


def _a100() -> GpuPreset:
    """A100 SXM.

    Time falls slower and slower towards the maximum clock, where memory limits: three lines, 0.7 % off at most. Power
    has a knee near 1140 MHz, where the voltage leaves its floor: three lines, energy 2.2 % off at most, hardly more
    than the measurement's own noise. The profile draws up to 480 W, so the limit must be that of the 500 W variant;
    nothing is throttled.
    """
    return GpuPreset(
        name="a100",
        nvml_name="NVIDIA A100-SXM4-80GB",
        architecture=7,
        compute_capability=(8, 0),
        pci_device_id=0x20B210DE,
        memory_mib=81920,
        clocks_mhz=tuple(range(1410, 209, -15)),
        memory_clocks_mhz=(1593,),
        power_limits_w=(100.0, 500.0, 500.0),
        idle_power_w=57.0,
        blocking_power_w=83.64,
        classes=(
            KernelClass(
                name="forward",
                relative_time=((855, 1.5391), (1050, 1.2608), (1305, 1.0290), (1410, 1.0)),
                power_w=((855, 231.1), (1140, 303.7), (1335, 442.7), (1410, 467.6)),
            ),
            KernelClass(
                name="backward",
                relative_time=((855, 1.5038), (1050, 1.2387), (1305, 1.0259), (1410, 1.0)),
                power_w=((855, 235.4), (1140, 308.4), (1275, 403.4), (1410, 489.6)),
            ),
        ),
        source="fitted to the SOSP 2024 profile of GPT-3 175B, stage 0; idle power and latencies are typical values",
    )


def _a40() -> GpuPreset:
    """A40.

    Above about 1515 MHz (forward) and 1570 MHz (backward) the measured power stays at 294 W and time does not change:
    the 300 W limit, regulated at 98 %. So the curves there are straight continuations, and the limit does the rest.
    What remains below has three lines per curve, and one more for a jump: from 1065 to 1050 MHz the forward pass gets
    6 to 10 % *faster* and keeps it, presumably because the library picks another kernel. Forward times scatter by 2 %
    from clock to clock; the fit is 2.3 % off in time and 2.7 % in energy at most, backward 0.8 % and 1.2 %.
    """
    return GpuPreset(
        name="a40",
        nvml_name="NVIDIA A40",
        architecture=7,
        compute_capability=(8, 6),
        pci_device_id=0x223510DE,
        memory_mib=46068,
        clocks_mhz=tuple(range(1740, 209, -15)),
        memory_clocks_mhz=(7251, 6251, 810, 405),
        power_limits_w=(100.0, 300.0, 300.0),
        power_average_s=1.0,
        idle_power_w=31.0,
        blocking_power_w=70.38,
        classes=(
            KernelClass(
                name="forward",
                relative_time=((855, 1.2472), (1050, 1.0734), (1065, 1.1902), (1290, 1.1245), (1740, 0.8795)),
                power_w=((855, 175.4), (1050, 202.8), (1140, 201.7), (1740, 349.4)),
            ),
            KernelClass(
                name="backward",
                relative_time=((855, 1.4084), (1110, 1.1645), (1380, 1.0296), (1740, 0.9765)),
                power_w=((855, 175.3), (1170, 207.7), (1440, 278.4), (1740, 315.2)),
            ),
        ),
        source="fitted to the SOSP 2024 profile of Bloom, stage 0; idle power and latencies are typical values",
    )


def _hopper(
    name: str, nvml_name: str, pci_device_id: int, memory_mib: int, memory_clocks_mhz: tuple[int, ...]
) -> GpuPreset:
    """H100 and H200 SXM, modelled.

    Time = memory-bound share + the rest x maximum clock / clock. Power = static + dynamic x clock x voltage^2, where
    the voltage is flat below 60 % of the maximum clock and proportional to the clock above.
    """
    clocks_mhz = tuple(range(1980, 344, -15))
    return GpuPreset(
        name=name,
        nvml_name=nvml_name,
        architecture=9,
        compute_capability=(9, 0),
        pci_device_id=pci_device_id,
        memory_mib=memory_mib,
        clocks_mhz=clocks_mhz,
        memory_clocks_mhz=memory_clocks_mhz,
        power_limits_w=(200.0, 700.0, 700.0),
        power_average_s=1.0,
        idle_power_w=75.0,
        blocking_power_w=130.0,
        timing=Timing(energy_period_s=0.1),
        classes=(
            KernelClass(
                name="forward",
                relative_time=_modelled_time(clocks_mhz, memory_share=0.22),
                power_w=_modelled_power(clocks_mhz, static_w=190.0, dynamic_w=440.0),
            ),
            KernelClass(
                name="backward",
                relative_time=_modelled_time(clocks_mhz, memory_share=0.18),
                power_w=_modelled_power(clocks_mhz, static_w=190.0, dynamic_w=465.0),
            ),
        ),
        source="a model, not a measurement",
    )


def _modelled_time(clocks_mhz: tuple[int, ...], memory_share: float) -> Knots:
    return tuple((mhz, memory_share + (1.0 - memory_share) * clocks_mhz[0] / mhz) for mhz in reversed(clocks_mhz))


def _modelled_power(clocks_mhz: tuple[int, ...], static_w: float, dynamic_w: float) -> Knots:
    def power_w(clock_mhz: int) -> float:
        share = clock_mhz / clocks_mhz[0]
        return static_w + dynamic_w * share * max(share, 0.6) ** 2

    return tuple((mhz, power_w(mhz)) for mhz in reversed(clocks_mhz))


PRESETS = {
    preset.name: preset
    for preset in (
        _a100(),
        _a40(),
        _hopper("h100", "NVIDIA H100 80GB HBM3", 0x233010DE, 81559, (2619, 1593)),
        _hopper("h200", "NVIDIA H200", 0x233510DE, 143771, (3201, 1593)),
    )
}
