from collections import Counter
from statistics import fmean

import pytest

from perseus_dist.simulation.chaos.drawing.draw import (
    FIRST_DUALPIPEV,
    FIRST_MIXED,
    FIRST_NOISY,
    FIRST_TENSOR_PARALLEL,
    DrawnHistory,
    draw_history,
    draw_scenario,
)
from perseus_dist.simulation.chaos.drawing.fault_kinds import FaultKind
from perseus_dist.simulation.chaos.drawing.phases import estimated_phases
from perseus_dist.simulation.chaos.scenario.events import SlowDown
from perseus_dist.simulation.chaos.scenario.fewer_ranks import with_fewer_pipelines, with_shorter_pipelines
from perseus_dist.simulation.chaos.scenario.scenario_file import format_scenario, parse_scenario
from perseus_dist.simulator.presets import PRESETS

NUM = 2000


@pytest.fixture(scope="module")
def histories() -> list[DrawnHistory]:
    return [draw_history(seed) for seed in range(FIRST_MIXED, FIRST_MIXED + NUM)]


def test_a_seed_is_a_scenario() -> None:
    assert format_scenario(draw_scenario(7)) == format_scenario(draw_scenario(7))
    assert draw_scenario(7) != draw_scenario(8)


def test_every_scenario_is_a_file(histories: list[DrawnHistory]) -> None:
    for drawn in histories:
        assert parse_scenario(format_scenario(drawn.scenario)) == drawn.scenario


def test_every_kind_of_fault_is_in_a_twentieth_of_the_seeds(histories: list[DrawnHistory]) -> None:
    counts = Counter(kind for drawn in histories for kind in drawn.faults)
    assert min(counts[kind] for kind in FaultKind) >= 0.05 * NUM, counts


def test_sizes(histories: list[DrawnHistory]) -> None:
    jobs = [drawn.scenario.job for drawn in histories]
    assert sum(job.num_ranks >= 16 for job in jobs) >= 0.25 * NUM
    assert max(job.num_ranks for job in jobs) == 64
    assert {job.pp for job in jobs} == {1, 2, 3, 4, 6, 8}
    assert {job.dp for job in jobs} == set(range(1, 9))
    for name in ("schedule", "profile"):
        assert min(Counter(getattr(job, name) for job in jobs).values()) >= 0.05 * NUM
    models = Counter(name for job in jobs for name in set(job.gpu.split(",")))
    assert min(models[name] for name in PRESETS) >= 0.05 * NUM


def test_some_jobs_are_on_gpus_of_two_models(histories: list[DrawnHistory]) -> None:
    mixed = [drawn.scenario.job for drawn in histories if "," in drawn.scenario.job.gpu]
    assert len(mixed) >= 0.05 * NUM
    assert not any("," in draw_scenario(seed).job.gpu for seed in range(200))
    assert all(len(set(job.gpu.split(","))) == 2 and job.gpu.count(",") == job.pp - 1 for job in mixed)


def test_some_jobs_run_dualpipev() -> None:
    jobs = [draw_scenario(seed).job for seed in range(FIRST_DUALPIPEV, FIRST_DUALPIPEV + 500)]
    drawn = [job for job in jobs if job.schedule == "dualpipev"]
    assert len(drawn) >= 0.05 * len(jobs)
    assert all(job.chunks == 1 and job.microbatches >= 2 * job.pp >= 4 for job in drawn)
    assert not any(draw_scenario(seed).job.schedule == "dualpipev" for seed in range(FIRST_MIXED, FIRST_MIXED + 200))


def test_some_jobs_have_noise_of_several_percent() -> None:
    jobs = [draw_scenario(seed).job for seed in range(FIRST_NOISY, FIRST_NOISY + 500)]
    noisy = [job for job in jobs if job.noise_percent >= 1.5]
    assert 0.15 * len(jobs) <= len(noisy) <= 0.4 * len(jobs)
    assert max(job.noise_percent for job in noisy) <= 3.0
    earlier = [draw_scenario(seed).job for seed in (*range(200), *range(FIRST_NOISY - 500, FIRST_NOISY))]
    assert max(job.noise_percent for job in earlier) == 1.0


def test_a_dualpipev_history_is_a_file_and_shrinks_to_ones_that_can_be_played() -> None:
    seeds = range(FIRST_DUALPIPEV, FIRST_DUALPIPEV + 500)
    drawn = [one for seed in seeds if (one := draw_scenario(seed)).job.schedule == "dualpipev"]
    for scenario in drawn:
        assert parse_scenario(format_scenario(scenario)) == scenario
        for smaller in (*with_fewer_pipelines(scenario), *with_shorter_pipelines(scenario)):
            assert parse_scenario(format_scenario(smaller)) == smaller


def test_three_tenths_of_jobs_have_tensor_parallel_groups() -> None:
    seeds = range(FIRST_TENSOR_PARALLEL, FIRST_TENSOR_PARALLEL + 1000)
    drawn = [draw_scenario(seed) for seed in seeds]
    sizes = Counter(scenario.job.tp for scenario in drawn)
    assert 0.27 <= 1 - sizes[1] / len(drawn) <= 0.33, sizes
    assert sizes.keys() == {1, 2, 4}
    assert min(sizes.values()) >= 0.08 * len(drawn)
    assert max(scenario.job.num_ranks for scenario in drawn) == 64
    assert all(parse_scenario(format_scenario(scenario)) == scenario for scenario in drawn)
    assert all(draw_scenario(seed).job.tp == 1 for seed in range(FIRST_DUALPIPEV, FIRST_DUALPIPEV + 200))


def test_lengths(histories: list[DrawnHistory]) -> None:
    assert fmean(drawn.scenario.iterations for drawn in histories) >= 150
    for drawn in histories:
        last = max((event.iteration for event in drawn.scenario.events), default=0)
        assert drawn.scenario.iterations >= last + 40
    times_s = [estimated_phases(drawn.scenario.job).time_s for drawn in histories]
    assert min(times_s) < 0.3
    assert max(times_s) > 15
    assert all(0.19 <= time_s <= 20.5 for time_s in times_s)


def test_moments_lie_in_every_phase(histories: list[DrawnHistory]) -> None:
    seen: Counter[str] = Counter()
    for drawn in histories:
        phases = estimated_phases(drawn.scenario.job)
        for event in drawn.scenario.events:
            if isinstance(event, SlowDown) and event.slowdown > 1:
                seen["baseline"] += event.iteration <= 8
                seen["sweep"] += phases.sweep <= event.iteration < phases.planning
                seen["plan"] += phases.plan <= event.iteration <= phases.plan + 8
    assert min(seen.values()) >= 100, seen


def test_most_faults_end(histories: list[DrawnHistory]) -> None:
    begun = ended = 0
    for drawn in histories:
        slow = [event for event in drawn.scenario.events if isinstance(event, SlowDown)]
        begun += sum(event.slowdown > 1 for event in slow)
        ended += sum(event.slowdown == 1 for event in slow)
    assert 0.7 <= ended / begun <= 0.98
