"""Virtual jobs with tensor-parallel groups: ranks with a GPU and an agent each, which wait in each computation."""

from dataclasses import replace
from statistics import median

import pytest

from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.simulation.job import SimulatedJob, as_simulated
from perseus_dist.simulation.virtual.run import run_virtual, virtual_job
from perseus_dist.simulation.virtual.training import VirtualIteration, virtual_training
from perseus_dist.simulator.presets import PRESETS

GPU = PRESETS["a100"]
ONE = SimulatedJob(
    schedule=as_simulated(make_schedule("1f1b", pp=2, microbatches=4)),
    num_pipelines=2,
    num_iterations=80,
    imbalance=0.1,
)
ALONE = replace(ONE, schedule=as_simulated(make_schedule("1f1b", pp=1, microbatches=4)), num_pipelines=1)


def trained(simulated: SimulatedJob, slowness: dict[int, float], **more: float) -> VirtualIteration:
    with virtual_training(simulated, "a100", **more) as training:  # type: ignore[arg-type]
        for rank, factor in slowness.items():
            training.slow_down(rank, factor)
        for _ in range(20):
            iteration = training.run_iteration()
        assert iteration is not None
        return iteration


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_that_are_well_take_as_long_and_draw_so_many_times_as_much(size: int) -> None:
    one, group = (trained(job, {}) for job in (ONE, replace(ONE, tensor_parallel=size)))
    assert group.time_s == pytest.approx(one.time_s, rel=1e-9)
    assert group.energy_j == pytest.approx(size * one.energy_j, rel=1e-6)


@pytest.mark.parametrize("size", [2, 4])
def test_a_group_is_as_slow_as_its_slowest_rank_and_the_others_wait(size: int) -> None:
    one, slow = trained(ALONE, {0: 1.2}), trained(replace(ALONE, tensor_parallel=size), {size - 1: 1.2})
    usual = trained(ALONE, {})
    assert slow.time_s == pytest.approx(one.time_s, rel=1e-9)
    waiting_j = (one.time_s - usual.time_s) * GPU.blocking_power_w
    assert slow.energy_j == pytest.approx(one.energy_j + (size - 1) * (usual.energy_j + waiting_j), rel=1e-6)


def test_heat_of_one_rank_is_its_own_clock_and_everybodys_time() -> None:
    with virtual_training(replace(ALONE, tensor_parallel=2), "a100") as training:
        usual = training.run_iteration()
        training.set_thermal_cap_mhz(1, 1005)
        hot = training.run_iteration()
        clocks_mhz = [gpu.state().clock_mhz for gpu in training.machine.gpus]
    assert usual is not None
    assert hot is not None
    assert hot.time_s > 1.2 * usual.time_s
    assert clocks_mhz == [1410, 1005]


def test_a_plan_keeps_its_time_and_saves_as_much_of_each_gpu() -> None:
    one, group = (run_virtual(job, "a100") for job in (ONE, replace(ONE, tensor_parallel=2)))
    assert group.enforced.num_iterations > 30
    assert group.slowdown_percent < 0.5
    assert group.saving_percent == pytest.approx(one.saving_percent, abs=0.5)
    assert group.saving_percent == pytest.approx(group.predicted_saving_percent, abs=1.0)
    assert group.clocks_left_locked == 0


def test_an_agent_that_is_killed_takes_no_other_of_its_group_along() -> None:
    """Between probes, which every rank takes part in, times and energies are those of before."""
    with virtual_job(replace(ONE, tensor_parallel=2), "a100", quick_plans=True) as job:
        while job.planner.job.phase != "enforcing":
            job.run_iteration()
        planned = [job.run_iteration() for _ in range(20)]
        job.faults.kill_agent(3)
        without_one = [job.run_iteration() for _ in range(10)]
        job.faults.restart_agent(3)
        again = [job.run_iteration() for _ in range(40)]
        job.end()
        assert job.clocks_left_locked == 0
    before, meanwhile, after = (
        (median(one.time_s for one in run if one), median(one.energy_j for one in run if one))
        for run in (planned, without_one, again)
    )
    assert meanwhile[0] == pytest.approx(before[0], rel=0.005)
    assert after == pytest.approx(before, rel=0.005)
