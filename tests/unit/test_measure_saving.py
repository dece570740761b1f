"""Clocks that are swept, the noise of points, what a pipeline would save, and the simulator's models beside it."""

from pathlib import Path

import numpy as np
import pytest

from perseus_dist.measure.clock_sweep import Point, choose_clocks
from perseus_dist.measure.preset_match import match_presets
from perseus_dist.measure.results.tables import reason_names
from perseus_dist.measure.saving import Noise, noise_of, predict_saving, write_stage_profile
from perseus_dist.measure.switch_latency import Trial, summarise
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.simulator.presets import PRESETS, find_preset

TIMES_S = {"F": 0.035, "B": 0.065}
CLASSES = {"F": "forward", "B": "backward"}


def points(
    gpu: str, num_clocks: int = 24, *, time_noise: float = 0.0, energy_noise: float = 0.0, seed: int = 0
) -> list[Point]:
    """What a sweep of a simulated GPU would find, down and up again, with independent noise."""
    preset, random = find_preset(gpu), np.random.default_rng(seed)
    found = []
    for downwards in (True, False):
        for kind, time_s in TIMES_S.items():
            for clock_mhz in choose_clocks(preset.clocks_mhz, num_clocks):
                time = preset.kernel_time_s(CLASSES[kind], time_s, clock_mhz) * (1 + time_noise * random.normal())
                energy = preset.kernel_time_s(CLASSES[kind], time_s, clock_mhz) * preset.kernel_power_w(
                    CLASSES[kind], clock_mhz
                )
                found.append(
                    Point(
                        kind=kind,
                        clock_mhz=clock_mhz,
                        observed_mhz=clock_mhz,
                        downwards=downwards,
                        time_s=time,
                        time_std_s=1e-6,
                        num_runs=10,
                        power_w=energy * (1 + energy_noise * random.normal()) / time,
                        power_se_w=0.01,
                        event_reasons=0,
                        temperature_c=40,
                    )
                )
    return found


def test_clocks_are_spread_from_the_maximum_to_where_nothing_is_saved() -> None:
    supported = find_preset("a100").clocks_mhz
    chosen = choose_clocks(supported, 5)
    assert chosen == (1410, 1320, 1140, 915, 645)
    assert choose_clocks(supported, 1000) == tuple(clock for clock in supported if clock >= 0.45 * 1410)
    assert choose_clocks((1000, 300), 8) == (1000, 300)


def test_noise_is_what_repetitions_show() -> None:
    told = noise_of(points("a100", 32, time_noise=0.01, energy_noise=0.02))
    assert told.num_pairs == 64
    assert told.time == pytest.approx(0.01, rel=0.3)
    assert told.energy == pytest.approx(0.02, rel=0.3)
    single = noise_of([point for point in points("a100", 8, time_noise=0.01) if point.downwards])
    assert single.num_pairs == 0
    assert 0 < single.time < 0.001  # what the points say of themselves: nobody repeated them


def test_the_profile_is_one_that_plan_reads(tmp_path: Path) -> None:
    changes = [
        Trial(to_mhz=to_mhz, call_s=None, read_back_s=read_back_s, kernels_s=kernels_s)
        for to_mhz, read_back_s, kernels_s in ((1140, 0.02, 0.011), (1140, 0.02, 0.013), (645, 0.05, None))
    ]
    latencies = summarise([*changes, Trial(to_mhz=915, call_s=0.01, read_back_s=None, kernels_s=None)])
    write_stage_profile(points("a100", 6), latencies, tmp_path / "profile.csv", num_stages=3)
    profile = read_profile(tmp_path / "profile.csv")
    assert profile.num_stages == 3
    measured = profile.measurements[2, "B"]
    assert measured.clocks_mhz.tolist() == list(choose_clocks(find_preset("a100").clocks_mhz, 6))
    assert measured.times_s[0, 0] == pytest.approx(0.065)
    assert measured.num_samples[0, 0] == 20  # both directions
    changes_of = profile.clock_changes[2]
    assert changes_of.clocks_mhz.tolist() == [1140, 645]
    np.testing.assert_allclose(changes_of.times_s, [0.012, 0.05])  # kernels' time, or else NVML's
    np.testing.assert_allclose(changes_of.p90_s, [0.0128, 0.05])
    assert changes_of.num_samples.tolist() == [2, 1]


@pytest.mark.parametrize("gpu", ["a100", "h100"])
def test_the_interval_holds_the_truth(gpu: str, tmp_path: Path) -> None:
    def saving_of(measured: list[Point], noise: Noise) -> tuple[float, float]:
        write_stage_profile(measured, [], tmp_path / "profile.csv", num_stages=3)
        saving, frontier = predict_saving(
            tmp_path / "profile.csv",
            noise=noise,
            blocking_power_w=find_preset(gpu).blocking_power_w,
            switch_latency_s=0.0,
            pp_size=3,
            num_microbatches=4,
        )
        assert saving.slowdown_percent <= 0.0
        assert saving.iteration_s == pytest.approx(frontier.baseline.time_ps / 1e12)
        return saving.saving_percent, saving.half_width_percent

    truth, _ = saving_of(points(gpu, 12), Noise(time=1e-6, energy=1e-6, num_pairs=1))
    assert truth > 3.0
    held = 0
    for seed in range(6):
        noisy = points(gpu, 12, time_noise=0.005, energy_noise=0.01, seed=seed)
        saving, half_width = saving_of(noisy, noise_of(noisy))
        assert 0.0 < half_width < 3.0
        held += abs(saving - truth) <= half_width
    assert held >= 5


@pytest.mark.parametrize("gpu", PRESETS)
def test_a_model_is_found_to_be_itself(gpu: str) -> None:
    preset = find_preset(gpu)
    matches = match_presets(points(gpu, 10), preset.clocks_mhz[0], preset.nvml_name)
    assert matches[0].preset == gpu
    assert matches[0].is_same_model
    assert [match.is_same_model for match in matches].count(True) == 1
    assert matches[0].time_worst_percent == pytest.approx(0.0, abs=1e-9)
    assert matches[0].energy_worst_percent == pytest.approx(0.0, abs=1e-9)
    assert matches[0].power_ratio == pytest.approx(1.0)
    other = next(match for match in matches if match.preset == ("a100" if gpu == "a40" else "a40"))
    assert other.time_worst_percent > 5.0


def test_event_reasons_in_words() -> None:
    assert reason_names(0) == "none"
    assert reason_names(0x24) == "power cap, thermal, software"
    assert reason_names(0x1000) == "0x1000"
