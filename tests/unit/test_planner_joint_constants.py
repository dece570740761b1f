"""What ranks do together is freed from the waiting that those who came early have measured."""

import pytest

from perseus_dist.messages.from_agent import Sample
from perseus_dist.planner.worker.collective_times import joint_kinds, last_stages
from perseus_dist.planner.worker.measured_profile import measured_profile
from perseus_dist.planner.worker.plan_request import Contribution
from perseus_dist.planning.profile.profile import Profile
from perseus_dist.planning.schedule.schedule import gpipe, interleaved
from perseus_dist.planning.schedule.schedule_text import parse_schedule

SCHEDULE = parse_schedule("0LOAD0 0F0 0B0 0TIED 0REDUCE 0STEP\n1LOAD0 1F0 1B0 1TIED 1REDUCE 1STEP\n")
BLOCKING_W = (80.0, 90.0)
CLOCKS_MHZ = (1410, 1200)


def sample(kind: str, clock_mhz: int, time_s: float, energy_j: float) -> Sample:
    return Sample(
        chunk=0,
        kind=kind,
        clock_mhz=clock_mhz,
        time_s=time_s,
        energy_j=energy_j,
        time_std_s=0.001 * time_s,
        energy_std_j=0.0,
        num_runs=3,
        window_s=2.0,
    )


def profile_of(constants: tuple[dict[str, tuple[float, float]], ...]) -> Profile:
    """One rank for each stage; its constants as (time, energy)."""
    return measured_profile(
        SCHEDULE,
        [
            Contribution(
                pp_rank=pp_rank,
                tp_rank=0,
                samples=tuple(
                    sample(kind, clock, *figures)
                    for clock in CLOCKS_MHZ
                    for kind, figures in {"F": (0.03, 9.0), "B": (0.06, 18.0), "LOAD": (0.002, 0.2), **measured}.items()
                ),
            )
            for pp_rank, measured in enumerate(constants)
        ],
        tensor_parallel=1,
        blocking_power_w=BLOCKING_W,
        source="test",
    )


def figures_of(profile: Profile, stage: int, kind: str) -> tuple[list[float], list[float]]:
    measurements = profile.measurements[stage, kind]
    return measurements.times_s[0].tolist(), measurements.energies_j[0].tolist()


def test_once_an_iteration_means_together() -> None:
    assert joint_kinds(SCHEDULE) == {"TIED", "REDUCE", "STEP"}


def test_the_last_to_come_tells_how_long_it_takes() -> None:
    first = {"TIED": (0.004, 0.5), "REDUCE": (0.01, 1.5), "STEP": (0.02, 4.0)}
    # Stage 1 has done its last backward 0.2 s earlier, and waits at blocking power.
    second = {"TIED": (0.204, 0.55 + 0.2 * 90), "REDUCE": (0.01, 1.6), "STEP": (0.02, 4.2)}
    profile = profile_of((first, second))
    assert figures_of(profile, 0, "TIED") == ([0.004] * 2, [0.5] * 2)
    times_s, energies_j = figures_of(profile, 1, "TIED")
    assert times_s == [0.004] * 2
    assert energies_j == pytest.approx([0.55] * 2)
    assert figures_of(profile, 1, "STEP") == ([0.02] * 2, [4.2] * 2)
    assert figures_of(profile, 1, "LOAD") == ([0.002] * 2, [0.2] * 2)


def test_what_the_last_to_come_does_beyond_others_counts() -> None:
    """The first stage comes last: it reduces an embedding too, and what it measures ends the iteration."""
    first = {"TIED": (0.004, 0.5), "REDUCE": (0.05, 7.0), "STEP": (0.02, 4.0)}
    second = {"TIED": (0.204, 18.5), "REDUCE": (0.01, 1.6), "STEP": (0.06, 3.6)}
    profile = profile_of((first, second))
    assert figures_of(profile, 0, "REDUCE") == ([0.05] * 2, [7.0] * 2)
    assert figures_of(profile, 1, "REDUCE") == ([0.01] * 2, [1.6] * 2)
    assert figures_of(profile, 1, "STEP")[0] == [0.02] * 2


def test_the_last_to_come_by_schedule() -> None:
    assert last_stages(SCHEDULE) == {0}
    assert last_stages(gpipe(pp=3, microbatches=4)) == {0}
    assert last_stages(interleaved(pp=2, microbatches=4, chunks=2)) == {0, 2}
    apart = parse_schedule("0F0 0I0 0W0 0STEP\n1F0 1I0 1W0 1STEP\n")
    assert last_stages(apart) == {0, 1}


def test_whoever_has_no_part_in_it_says_nothing() -> None:
    without_part = {"TIED": (5e-6, 4e-4), "REDUCE": (0.01, 1.5), "STEP": (0.02, 4.0)}
    profile = profile_of((without_part, {**without_part, "TIED": (0.03, 3.0)}))
    assert figures_of(profile, 0, "TIED") == ([5e-6] * 2, [4e-4] * 2)
    assert figures_of(profile, 1, "TIED") == ([0.03] * 2, [3.0] * 2)


def test_no_energy_is_lost_beyond_what_was_drawn() -> None:
    working = {"TIED": (0.001, 0.2), "REDUCE": (0.01, 1.5), "STEP": (0.02, 4.0)}
    idle = {**working, "TIED": (0.101, 0.101 * 60)}  # below what waiting is thought to draw
    _, energies_j = figures_of(profile_of((working, idle)), 1, "TIED")
    assert energies_j == pytest.approx([0.001 * 60] * 2)
