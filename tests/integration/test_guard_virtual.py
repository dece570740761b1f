"""Histories after which a job once stayed slow: whole jobs in virtual time, with nothing but what machines do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pytest

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, run_virtual, virtual_job

SLOWNESS = 1.2


class History:
    """A job, and what each of its iterations took."""

    def __init__(self, job: VirtualJob) -> None:
        self.job = job
        self.times_s: list[float] = []

    def train(self, num: int) -> None:
        for _ in range(num):
            begin_ns = self.job.machine.now_ns
            self.job.run_iteration()
            self.times_s.append((self.job.machine.now_ns - begin_ns) / 1e9)

    def train_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(200):
            if condition():
                return
            self.train(1)
        raise AssertionError("it does not come true")

    def has_plan(self) -> bool:
        switch = self.job.planner.job.switch
        return switch is not None and NO_POINT not in switch.points and self.job.status.phase == "enforcing"

    def latest_s(self, num: int = 20) -> float:
        """[s] what the latest iterations take, the three of a probe apart."""
        return median(self.times_s[-num:])


def simulated(pp: int, dp: int, profile: str | None = None) -> SimulatedJob:
    return SimulatedJob(
        schedule=one_f_one_b(pp=pp, microbatches=4),
        num_pipelines=dp,
        num_iterations=1000,
        imbalance=0.1,
        profile=profile,
    )


@cache
def profile_csv(pp: int) -> str:
    """Of the undisturbed machine."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "profile.csv"
        job = SimulatedJob(
            schedule=one_f_one_b(pp=pp, microbatches=4), num_pipelines=1, num_iterations=60, imbalance=0.1
        )
        run_virtual(job, "a100", profile_csv=path)
        return path.read_text()


@contextmanager
def history(pp: int, dp: int, tmp_path: Path, *, is_saved: bool) -> Iterator[History]:
    path = tmp_path / "profile.csv"
    path.write_text(profile_csv(pp))
    with virtual_job(simulated(pp, dp, str(path) if is_saved else None), "a100") as job:
        yield History(job)


@pytest.mark.parametrize(
    ("dp", "delay"), [(2, 4), *(pytest.param(*one, marks=pytest.mark.stress) for one in ((2, 1), (4, 1), (4, 4)))]
)
def test_slow_soon_after_the_plan_and_free_again(dp: int, delay: int, tmp_path: Path) -> None:
    """Once the others wait, nobody runs at the straggler's clock any more: its recovery went unseen for ever."""
    with history(2, dp, tmp_path, is_saved=True) as run:
        run.train_until(run.has_plan)
        run.train(2)
        usual_s = run.times_s[0]
        run.train(delay)
        run.job.slow_down(3, SLOWNESS)
        run.train(32)
        assert run.latest_s(8) > 1.08 * usual_s
        run.job.slow_down(3, 1.0)
        run.train(45)
        assert run.latest_s() == pytest.approx(usual_s, rel=0.005)
        assert run.has_plan()
        assert run.job.status.verdicts == ()


@pytest.mark.parametrize("dp", [1, *(pytest.param(dp, marks=pytest.mark.stress) for dp in (2, 4))])
def test_slow_while_it_is_profiled(dp: int, tmp_path: Path) -> None:
    """A profile that everybody beats later alarmed nobody."""
    with history(2, dp, tmp_path, is_saved=False) as run:
        run.train(1)
        usual_s = run.times_s[0]
        run.job.slow_down(1, SLOWNESS)
        run.train_until(run.has_plan)
        run.train(10)
        run.job.slow_down(1, 1.0)
        run.train(20)
        run.train_until(run.has_plan)
        run.train(25)
        assert run.latest_s() == pytest.approx(usual_s, rel=0.005)
        assert run.has_plan()


@pytest.mark.parametrize("dp", [1, pytest.param(3, marks=pytest.mark.stress)])
def test_what_heat_and_power_leave_behind(dp: int, tmp_path: Path) -> None:
    with history(2, dp, tmp_path, is_saved=True) as run:
        run.train(1)
        usual_s = run.times_s[0]
        gpu = run.job.machine.gpus[1]
        gpu.set_power_limit_w(250.0)
        run.train_until(run.has_plan)
        run.train(20)
        gpu.set_power_limit_w(run.job.machine.preset.power_limits_w[1])
        gpu.set_thermal_cap(1005)
        run.train(25)
        gpu.set_thermal_cap(None)
        run.train(20)
        run.train_until(run.has_plan)
        run.train(25)
        assert run.latest_s() == pytest.approx(usual_s, rel=0.005)


def test_an_undisturbed_job_is_probed_and_saves_on(tmp_path: Path) -> None:
    with history(2, 2, tmp_path, is_saved=True) as run:
        run.train_until(run.has_plan)
        run.train(100)
        guard = run.job.status.guard
        assert guard.falls == 0
        assert 2 <= guard.probes <= 4
        assert guard.reference_s == pytest.approx(run.times_s[0], rel=0.002)
        assert guard.lost_s < 0.002 * 100 * guard.reference_s
        assert run.has_plan()
