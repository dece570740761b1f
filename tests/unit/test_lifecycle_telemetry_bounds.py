"""Telemetry at its limits: what comes twice, late or in parts, and what is made of it for the whole job."""

from dataclasses import replace
from typing import Any

import pytest
from fleets import fleet_enforcing
from test_planner_lifecycle import Fleet

from perseus_dist.messages.from_agent import GpuSample, IterationReport, KindTime, Telemetry
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.state.membership import RankState
from perseus_dist.planner.job.state.progress import MIXED, Iteration
from perseus_dist.planner.lifecycle.telemetry import NUM_UNFINISHED, handle_telemetry


class Teller:
    """Ranks of a job, each of which tells of iterations."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.job = fleet.job

    def state(self, rank: int) -> RankState:
        return self.job.members.ranks[rank]

    def tell(self, rank: int, *reports: IterationReport, sequence: int = 0, **changes: object) -> bool:
        """The next telemetry of a rank, or one with this number; whether it matters."""
        number = sequence or self.state(rank).telemetry_sequence + 1
        told: dict[str, Any] = {"control": self.state(rank).control, "trouble": self.state(rank).trouble, **changes}
        message = Telemetry(sequence=number, iterations=reports, **told)
        return handle_telemetry(self.job, self.state(rank), message, self.fleet.now_s)


def teller(*, dp: int = 1) -> Teller:
    fleet = Fleet(dp=dp)
    fleet.attach_all()
    return Teller(fleet)


def enforced() -> Teller:
    return Teller(fleet_enforcing())


def report(number: int, **changes: object) -> IterationReport:
    values = {"time_s": 1.0, "pipeline_time_s": 0.5, "energy_j": 5.0, **changes}
    return IterationReport(iteration=number, **values)  # type: ignore[arg-type]


def latest(one: Teller, dp_rank: int = 0) -> Iteration:
    found = one.job.progress.pipelines[dp_rank].latest
    assert found is not None
    return found


def test_a_report_that_comes_again_or_out_of_order_is_refused_and_counted() -> None:
    one = teller()
    assert one.tell(0, sequence=3, trouble="hot")
    for sequence in (3, 2, 1):
        assert not one.tell(0, report(7), sequence=sequence, trouble="cold")
    assert one.job.num_refused_reports == 3
    assert one.state(0).trouble == "hot"
    assert one.job.progress.iteration == 0
    assert one.tell(0, sequence=4, trouble="cold")
    assert one.job.num_refused_reports == 3


@pytest.mark.parametrize(
    ("sequences", "num_lost"), [((5,), 0), ((5, 6), 0), ((5, 7), 1), ((5, 7, 6), 1), ((1, 2, 5, 6), 2)]
)
def test_reports_between_two_that_came_are_lost_and_those_before_the_first_are_not(
    sequences: tuple[int, ...], num_lost: int
) -> None:
    one = teller()
    for sequence in sequences:
        one.tell(0, sequence=sequence)
    assert one.state(0).lost_messages == num_lost


def test_a_rank_has_reported_once_it_has_sent_telemetry() -> None:
    one = teller()
    assert not one.state(0).has_reported
    one.tell(0)
    assert one.state(0).has_reported


def test_the_latest_reading_of_a_clock_stays_until_there_is_another_one() -> None:
    one = teller()
    for clock_mhz, known_mhz in ((1, 1), (0, 1), (1300, 1300), (0, 1300)):
        one.tell(0, gpu=GpuSample(clock_mhz=clock_mhz))
        assert one.state(0).gpu_sample.clock_mhz == clock_mhz
        assert one.state(0).gpu_reading.clock_mhz == known_mhz


@pytest.mark.parametrize("name", ["lost_boundaries", "missed_clocks"])
def test_whoever_watches_sees_at_once_what_a_rank_has_missed_and_nothing_hangs_on_it(name: str) -> None:
    one = teller()
    for missed, num_changes in ((1, 1), (1, 0), (2, 1)):
        before, told = one.job.num_changes, {name: missed}
        assert not one.tell(0, **told)
        assert one.job.num_changes - before == num_changes
        assert getattr(one.state(0), name) == missed


@pytest.mark.parametrize(("name", "value"), [("control", "observe"), ("trouble", "hot")])
def test_what_a_rank_can_do_and_complains_of_is_looked_at_when_it_changes(name: str, value: str) -> None:
    one, told = teller(), dict[str, Any]({name: value})
    before = one.job.num_changes
    assert one.tell(0, **told)
    assert one.job.num_changes == before + 1
    assert not one.tell(0, **told)
    assert one.job.num_changes == before + 1


def test_training_is_as_far_as_the_newest_iteration_that_any_rank_has_begun() -> None:
    one = teller()
    for now_s, number, known in ((1.0, 7, (7, 1.0)), (2.0, 7, (7, 1.0)), (3.0, 6, (7, 1.0)), (4.0, 8, (8, 4.0))):
        one.fleet.now_s = now_s
        one.tell(0, iteration=number)
        assert (one.job.progress.iteration, one.job.progress.iteration_at_s) == known


def test_an_iteration_that_has_ended_says_that_the_next_one_has_begun_and_its_time_counts_once() -> None:
    one = teller()
    one.fleet.now_s = 1.0
    one.tell(0, report(3, time_s=2.0))
    assert (one.job.progress.iteration, one.job.progress.iteration_at_s) == (4, 1.0)
    one.fleet.now_s = 2.0
    one.tell(1, report(3, time_s=2.5))
    assert (one.job.progress.iteration, one.job.progress.iteration_at_s) == (4, 1.0)
    one.tell(1, report(4, time_s=3.0))
    assert (one.job.progress.iteration, one.job.progress.iteration_at_s) == (5, 2.0)
    assert list(one.job.progress.recent_times_s) == [2.0, 3.0]


def test_a_pipeline_takes_what_the_latest_report_of_its_newest_iteration_says() -> None:
    one = teller()
    pipeline = one.job.progress.pipelines[0]
    for rank, number, time_s, known in ((0, 5, 1.0, (5, 1.0)), (1, 4, 9.0, (5, 1.0)), (1, 5, 2.0, (5, 2.0))):
        one.tell(rank, report(number, time_s=time_s))
        assert (pipeline.iteration, pipeline.time_s) == known
    one.tell(0, report(6, time_s=7.0, is_live=False))
    assert (pipeline.iteration, pipeline.time_s) == (6, 2.0), "it says how far training is, and nothing else"


@pytest.mark.parametrize(
    ("time_s", "is_live", "counts"), [(1e-9, True, True), (0.0, True, False), (1.0, False, False), (0.0, False, False)]
)
def test_an_iteration_counts_where_it_was_seen_live_and_took_time(
    time_s: float, *, is_live: bool, counts: bool
) -> None:
    one = teller()
    assert not one.tell(0, report(0, time_s=time_s, is_live=is_live))
    assert one.tell(1, report(0, time_s=time_s, is_live=is_live)), "all ranks have reported it"
    progress = one.job.progress
    assert progress.iteration == 1
    assert bool(progress.recent_times_s) == counts
    assert bool(progress.pipelines[0].latest) == counts
    assert bool(progress.pipelines[0].recent_times_s) == counts
    assert one.job.history.energy_j == (10.0 if counts else 0.0)
    assert one.job.measured.num_warm == int(counts)


def test_an_iteration_is_whole_once_each_rank_of_each_pipeline_has_reported_it() -> None:
    one = teller(dp=2)
    before = one.job.num_changes
    for rank in (0, 2, 3):
        assert not one.tell(rank, report(0))
    assert one.job.history.energy_j == 0
    assert one.job.num_changes == before
    assert one.job.progress.pipelines[0].latest is None
    assert latest(one, 1).num_parts == 2
    assert list(one.job.progress.unfinished) == [0]
    assert one.tell(1, report(0))
    assert one.job.history.energy_j == 20.0
    assert one.job.num_changes == before + 1
    assert not one.job.progress.unfinished
    assert not one.job.progress.pipelines[0].unfinished


def test_an_iteration_takes_as_long_as_its_slowest_rank_and_draws_what_all_do() -> None:
    one = teller(dp=2)
    one.job.policy = replace(one.job.policy, num_warmup_iterations=0)
    for rank, time_s in enumerate((1.0, 3.0, 2.0, 1.5)):
        one.tell(rank, report(0, time_s=time_s, pipeline_time_s=time_s / 4, energy_j=10.0**rank))
    assert (latest(one, 0).time_s, latest(one, 0).pipeline_time_s, latest(one, 0).energy_j) == (3.0, 0.75, 11.0)
    assert (latest(one, 1).time_s, latest(one, 1).pipeline_time_s, latest(one, 1).energy_j) == (2.0, 0.5, 1100.0)
    (whole,) = one.job.measured.baseline_iterations
    assert (whole.number, whole.num_parts, whole.time_s, whole.pipeline_time_s) == (0, 2, 3.0, 0.75)
    assert (whole.energy_j, whole.is_released, whole.is_planned) == (1111.0, True, False)
    assert [list(pipeline.recent_times_s) for pipeline in one.job.progress.pipelines] == [[0.75], [0.5]]


@pytest.mark.parametrize(
    ("energies_j", "energy_j"),
    [((5.0, 6.0), 11.0), ((0.0, 6.0), 6.0), ((5.0, 0.0), 5.0), ((None, 6.0), None), ((5.0, None), None)],
)
def test_the_energy_of_an_iteration_is_not_known_where_that_of_a_rank_is_not(
    energies_j: tuple[float | None, float | None], energy_j: float | None
) -> None:
    one = teller()
    for rank, own_j in enumerate(energies_j):
        one.tell(rank, report(0, energy_j=own_j))
    assert latest(one).energy_j == energy_j


@pytest.mark.parametrize(
    ("points", "is_released", "is_planned"),
    [((NO_POINT, NO_POINT), True, False), ((2, 2), False, True), ((2, NO_POINT), False, False)],
)
def test_an_iteration_is_released_or_planned_where_all_ranks_were(
    points: tuple[int, int], *, is_released: bool, is_planned: bool
) -> None:
    one = teller()
    for rank, point in enumerate(points):
        one.tell(rank, report(0, point=point, table_revision=3))
    assert (latest(one).is_released, latest(one).is_planned) == (is_released, is_planned)
    assert latest(one).followed == {0: (3, points[0]) if points[0] == points[1] else MIXED}


def test_iterations_that_a_rank_never_reports_are_kept_up_to_a_bound_the_newest_of_them() -> None:
    one = teller()
    unfinished = one.job.progress.pipelines[0].unfinished
    for number in range(NUM_UNFINISHED):
        one.tell(0, report(number))
    assert list(unfinished) == list(range(NUM_UNFINISHED))
    one.tell(0, report(NUM_UNFINISHED))
    assert list(unfinished) == list(range(1, NUM_UNFINISHED + 1))
    one.tell(1, report(1))
    assert latest(one).number == 1


@pytest.mark.parametrize(
    ("changed_revision", "changed_point", "is_followed"), [(0, 0, True), (1, 0, False), (0, 1, False), (-1, 0, False)]
)
def test_what_instructions_take_counts_under_the_order_in_force_alone(
    changed_revision: int, changed_point: int, *, is_followed: bool
) -> None:
    one = enforced()
    switch = one.job.switch
    assert switch is not None
    slow = tuple(KindTime(kind=kind, time_ratio=1.25, requested_mhz=1400) for kind in "FB")
    told = report(
        one.fleet.iteration,
        point=switch.points[0] + changed_point,
        table_revision=switch.table_revision + changed_revision,
        kind_times=slow,
    )
    one.tell(0, told)
    assert one.job.enforcement.guard.instruction_excess == (0.25 if is_followed else 0.0)


def test_under_a_plan_an_iteration_is_known_once_all_attached_ranks_have_told_of_it() -> None:
    one = enforced()
    number = one.fleet.iteration
    assert not one.tell(0, report(number))
    assert one.tell(1, report(number))
    one.fleet.detach(1)
    assert one.tell(0, report(number + 1)), "the guard judges by those that are there"
    assert one.job.progress.pipelines[0].unfinished.keys() == {number + 1}
