"""Noise figures: they warn, and they do not cry wolf."""

from pathlib import Path

import numpy as np
import pytest

from perseus_dist.planning.profile.noise import noise
from perseus_dist.planning.profile.profile import Measurements, read_profile
from perseus_dist.units import FloatArray

CLOCKS_MHZ = np.arange(1410, 840, -15)


def measurements(times_s: FloatArray, *, num_samples: float = 1) -> Measurements:
    times_s = np.atleast_2d(times_s)
    energies_j = 300 * times_s * (CLOCKS_MHZ[: times_s.shape[1]] / 1410) ** 2
    return Measurements(
        clocks_mhz=CLOCKS_MHZ[: times_s.shape[1]],
        gpus=tuple(f"{gpu}" for gpu in range(len(times_s))),
        times_s=times_s,
        energies_j=energies_j,
        num_samples=np.full_like(times_s, num_samples),
        time_std_s=np.full_like(times_s, np.nan),
        energy_std_j=np.full_like(times_s, np.nan),
    )


def smooth_times_s(seed: int = 0) -> FloatArray:
    scatter = np.random.default_rng(seed).normal(0, 0.002, len(CLOCKS_MHZ))
    return 0.05 * (0.2 + 0.8 * 1410 / CLOCKS_MHZ) * (1 + scatter)


def test_share_of_steps_in_which_time_falls() -> None:
    assert noise(measurements(np.array([1.0, 2.0, 1.5, 1.5, 1.4]))).non_monotone_share == 0.5
    assert noise(measurements(np.array([1.0]))).non_monotone_share == 0


@pytest.mark.parametrize("index", [2, 10, 20, len(CLOCKS_MHZ) - 3])
@pytest.mark.parametrize("factor", [0.9, 1.06])
def test_a_single_spike_is_found_alone(index: int, factor: float) -> None:
    times_s = smooth_times_s()
    times_s[index] *= factor
    found = noise(measurements(times_s)).suspicious
    assert {(point.index, point.gpu) for point in found} == {(index, 0)}
    assert found[0].quantity == "time"
    assert found[0].deviation == pytest.approx(factor - 1, abs=0.02)


def test_two_spikes_side_by_side() -> None:
    times_s = smooth_times_s()
    times_s[[14, 15]] *= 1.1
    assert {point.index for point in noise(measurements(times_s)).suspicious} == {14, 15}


def test_a_point_of_many_samples_is_believed() -> None:
    times_s = smooth_times_s()
    times_s[10] *= 1.1
    assert not noise(measurements(times_s, num_samples=5)).suspicious


def test_the_gpu_is_named() -> None:
    times_s = np.stack([smooth_times_s(1), smooth_times_s(2)])
    times_s[1, 10] *= 1.1
    assert {(point.index, point.gpu) for point in noise(measurements(times_s)).suspicious} == {(10, 1)}


@pytest.mark.parametrize("seed", range(5))
def test_smooth_noisy_and_kinked_curves_are_not_accused(seed: int) -> None:
    times_s = smooth_times_s(seed)
    assert not noise(measurements(times_s)).suspicious
    assert not noise(measurements(np.maximum(times_s, times_s[12]))).suspicious  # a power cap holds the fastest clocks


def test_too_few_clocks_to_judge() -> None:
    assert not noise(measurements(np.array([1.0, 5.0, 1.2, 1.3, 1.4]))).suspicious


def test_shared_profiles(shared_data: Path) -> None:
    """The figures that the project states: the A40 is noisy, and one forward point of every stage stands apart."""
    shares = {}
    suspicious = {}
    for name in ("gpt3-175b+a100_sxm_bf16", "bloom+a40_bf16"):
        profile = read_profile(shared_data / "sosp24" / "stage_profile" / f"{name}.csv")
        judged = {key: noise(found) for key, found in profile.measurements.items()}
        shares[name] = np.mean([found.non_monotone_share for found in judged.values()])
        suspicious[name] = {
            (*key, int(profile.measurements[key].clocks_mhz[point.index]))
            for key, found in judged.items()
            for point in found.suspicious
        }
    assert shares["gpt3-175b+a100_sxm_bf16"] == 0
    assert 0.16 < shares["bloom+a40_bf16"] < 0.19
    assert suspicious["gpt3-175b+a100_sxm_bf16"] == set()
    assert suspicious["bloom+a40_bf16"] == {(stage, "F", 1050) for stage in range(8)}
