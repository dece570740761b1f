"""Rows of a profile at clocks between those that a sweep has measured."""

import itertools
from collections.abc import Sequence

import numpy as np

from perseus_dist.planning.profile.between_clocks import energy_between, irregular_intervals, time_between
from perseus_dist.planning.profile.profile import Measurements
from perseus_dist.units import FloatArray


def with_clocks_between(measured: Measurements, menu_mhz: Sequence[int]) -> Measurements:
    """The same, with the clocks of a menu that lie between two measured ones where times follow the clock there.

    Such a row counts as one run. Its energy's deviation is what it may be wrong by: smooth curves lie at one end.

    Args:
        measured: A computation.
        menu_mhz: [MHz] that can be set.
    """
    clocks_mhz: list[int] = measured.clocks_mhz.tolist()
    errors_s = np.nan_to_num(measured.time_std_s) / np.sqrt(np.maximum(measured.num_samples, 1))
    irregular: set[int] = set()
    for times_s, of_gpu_s in zip(measured.times_s.tolist(), errors_s.tolist(), strict=True):
        irregular |= irregular_intervals(clocks_mhz, times_s, of_gpu_s)
    added = [
        clock
        for clock in menu_mhz
        for i, (high, low) in enumerate(itertools.pairwise(clocks_mhz))
        if low < clock < high and i not in irregular
    ]
    if not added:
        return measured
    order = np.argsort(-np.array([*clocks_mhz, *added]), kind="stable")

    def joined(known: FloatArray, rows: FloatArray) -> FloatArray:
        together: FloatArray = np.concatenate([known, rows], axis=1)[:, order]
        return together

    times_s = [[time_between(clocks_mhz, own, clock).most for clock in added] for own in measured.times_s.tolist()]
    energies = [[energy_between(clocks_mhz, own, clock) for clock in added] for own in measured.energies_j.tolist()]
    energies_j = [[one.likely for one in of_gpu] for of_gpu in energies]
    energy_std_j = [[one.doubt for one in of_gpu] for of_gpu in energies]
    unknown = np.full((len(measured.gpus), len(added)), np.nan)
    return Measurements(
        clocks_mhz=np.array([*clocks_mhz, *added], dtype=np.int64)[order],
        gpus=measured.gpus,
        times_s=joined(measured.times_s, np.array(times_s)),
        energies_j=joined(measured.energies_j, np.array(energies_j)),
        num_samples=joined(measured.num_samples, np.ones_like(unknown)),
        time_std_s=joined(measured.time_std_s, unknown),
        energy_std_j=joined(measured.energy_std_j, np.array(energy_std_j)),
        line=measured.line,
    )
