"""The profile that the project ships is what its GPU model makes."""

import subprocess
import sys
from pathlib import Path

from perseus_dist.planning.profile.cost_curve import cost_curves
from perseus_dist.planning.profile.profile import read_profile

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROFILE = EXAMPLES / "profiles" / "gpu_model_pp4.csv"


def test_the_model_makes_the_profile_byte_for_byte() -> None:
    made = subprocess.run([sys.executable, EXAMPLES / "gpu_model.py"], check=True, capture_output=True)
    assert made.stdout == PROFILE.read_bytes()


def test_it_is_a_pipeline_worth_planning() -> None:
    profile = read_profile(PROFILE)
    curves = cost_curves(profile, stages_kinds=profile.measurements, blocking_uw_of_stage=[80_000_000] * 4)
    assert profile.num_stages == 4
    for curve in curves.values():
        assert 0 < curve.at_least_energy < len(curve.clocks_mhz) - 1  # the least energy lies inside the range
    for kind in ("F", "B"):
        durations_ps = [int(curves[stage, kind].durations_ps[0]) for stage in range(4)]
        assert min(durations_ps) == durations_ps[0]
        assert max(durations_ps) == durations_ps[3]
