"""Reports of iterations at their limits: what is waited for, how late is live, how far apart readings may be."""

import pytest

from perseus_dist.agent.core.energy_points import EnergyPoints
from perseus_dist.agent.core.ledger import Ledger
from perseus_dist.agent.core.outbox import SampleOutbox
from perseus_dist.agent.measuring.counter import Edge
from perseus_dist.agent.measuring.kind_times import IterationRuns
from perseus_dist.device.nvml.meter import MeterSample
from perseus_dist.messages.from_agent import IterationReport, ProfileSamples, Sample

MS, S = 1_000_000, 1_000_000_000
PERIOD_NS = 100 * MS


def one(ledger: Ledger, now_ns: int = 1000 * S) -> IterationReport:
    (report,) = ledger.take(now_ns)
    return report


def ended(begin_ns: int = 10 * S, end_ns: int = 11 * S, *points: tuple[int, int]) -> Ledger:
    ledger = Ledger()
    for time_ns, energy_mj in points:
        ledger.add_energy(time_ns, energy_mj)
    ledger.begin_iteration(4, begin_ns)
    ledger.close(end_ns)
    return ledger


def test_an_iteration_lasts_until_the_next_one_begins() -> None:
    ledger = Ledger()
    ledger.begin_iteration(4, 10 * S)
    ledger.end_iteration(12 * S)
    ledger.begin_iteration(5, 13 * S)
    report = one(ledger)
    assert (report.iteration, report.time_s, report.pipeline_time_s) == (4, 3.0, 2.0)


def test_the_pipelines_part_ends_where_it_said_so_first_else_with_the_iteration() -> None:
    ledger = Ledger()
    ledger.end_pipeline(1)
    ledger.begin_iteration(4, 10 * S)
    ledger.end_pipeline(11 * S)
    ledger.end_pipeline(12 * S)
    ledger.close(14 * S)
    assert one(ledger).pipeline_time_s == 1.0
    assert one(ended(10 * S, 14 * S)).pipeline_time_s == 4.0


@pytest.mark.parametrize(
    ("tokens", "wait_ns", "told"),
    [
        (10**15, 0, (1e15, 0.0)),
        (10**15 + 1, -1, (0.0, None)),
        (0, 10**16, (0.0, 1e7)),
        (7, 10**16 + 1, (7.0, None)),
    ],
)
def test_work_is_told_as_far_as_it_can_be(tokens: int, wait_ns: int, told: tuple[float, float | None]) -> None:
    ledger = Ledger()
    ledger.begin_iteration(4, 10 * S)
    ledger.add_work(tokens, wait_ns)
    ledger.close(11 * S)
    report = one(ledger)
    assert (report.tokens, report.input_wait_s) == told


@pytest.mark.parametrize(
    ("duration_ns", "late_ns", "is_live"),
    [
        (S, 100 * MS, True),
        (S, 100 * MS + 1, False),
        (2 * S, 200 * MS, True),
        (2 * S, 200 * MS + 1, False),
        (200 * MS, 100 * MS, True),
        (0, 0, False),
        (1, 0, True),
    ],
)
def test_an_iteration_is_live_where_it_was_seen_within_a_tenth_of_it(
    duration_ns: int, late_ns: int, *, is_live: bool
) -> None:
    for at_begin in (True, False):
        ledger = Ledger()
        ledger.begin_iteration(4, 10 * S, late_ns=late_ns if at_begin else 0)
        ledger.close(10 * S + duration_ns, late_ns=0 if at_begin else late_ns)
        assert one(ledger).is_live == is_live


# ---- energy ----------------------------------------------------------------------------------------------------------


def test_energy_is_on_the_line_between_the_readings_on_either_side() -> None:
    ledger = ended(10 * S, 11 * S, (9 * S + S // 2, 1000), (10 * S + S // 2, 3000), (11 * S + S // 4, 9000))
    assert one(ledger).energy_j == pytest.approx(7.0 - 2.0)


@pytest.mark.parametrize(("gap_ns", "is_known"), [(3 * S, True), (3 * S + 1, False)])
def test_energy_is_not_known_between_readings_that_are_far_apart(gap_ns: int, *, is_known: bool) -> None:
    ledger = ended(10 * S, 11 * S, (9 * S, 1000), (9 * S + gap_ns, 4000))
    assert (one(ledger).energy_j is not None) == is_known


@pytest.mark.parametrize(
    ("first_ns", "last_ns", "is_known"),
    [(10 * S - 1, 11 * S, True), (10 * S, 11 * S, False), (9 * S, 11 * S - 1, False)],
)
def test_energy_is_known_within_readings_alone(first_ns: int, last_ns: int, *, is_known: bool) -> None:
    ledger = ended(10 * S, 11 * S, (first_ns, 1000), (last_ns, 2000))
    assert (one(ledger).energy_j is not None) == is_known


def test_readings_that_do_not_come_later_are_left_out_and_no_energy_is_below_nothing() -> None:
    points = ((9 * S, 1000), (9 * S, 7000), (8 * S, 7000), (10 * S + S // 2, 2500), (11 * S + S // 2, 3500))
    assert one(ended(10 * S, 11 * S, *points)).energy_j == pytest.approx(1.0)
    assert one(ended(10 * S, 11 * S, (9 * S, 5000), (12 * S, 10))).energy_j == 0.0


def test_readings_are_kept_for_long_and_not_for_ever() -> None:
    ledger = Ledger()
    for number in range(8193):
        ledger.add_energy(number * S, 1000 * number)
        if number == 8191:
            ledger.begin_iteration(1, 10 * S)
            ledger.close(11 * S)
            assert one(ledger).energy_j == pytest.approx(1.0)
    for number, is_known in ((10, False), (4090, False), (4100, True)):
        ledger.begin_iteration(number, number * S + S // 2)
        ledger.close(number * S + S)
        assert (one(ledger, 9000 * S).energy_j is not None) == is_known


@pytest.mark.parametrize(("waited_ns", "is_told"), [(1500 * MS - 1, False), (1500 * MS, True)])
def test_energy_is_waited_for_a_while(waited_ns: int, *, is_told: bool) -> None:
    assert bool(ended().take(11 * S + waited_ns)) == is_told


@pytest.mark.parametrize(("newest_ns", "is_told"), [(11 * S - 1, False), (11 * S, True)])
def test_nothing_is_waited_for_once_the_counter_has_been_read(newest_ns: int, *, is_told: bool) -> None:
    assert bool(ended(10 * S, 11 * S, (newest_ns, 5)).take(11 * S + 1)) == is_told


@pytest.mark.parametrize(("duration_ns", "patience_ns"), [(100 * MS, 1500 * MS), (S, 3 * S)])
def test_exact_times_are_waited_for_as_long_as_three_such_iterations(duration_ns: int, patience_ns: int) -> None:
    runs = IterationRuns({}, {}, may_wait=True)
    runs.wait()
    for waited_ns, is_told in ((patience_ns - 1, False), (patience_ns, True)):
        ledger = Ledger()
        ledger.begin_iteration(4, 10 * S, runs=runs)
        ledger.close(10 * S + duration_ns)
        ledger.add_energy(60 * S, 1)
        assert bool(ledger.take(10 * S + duration_ns + waited_ns)) == is_told


def test_at_the_end_nothing_is_waited_for_and_what_waits_holds_up_what_is_behind() -> None:
    ledger = ended()
    ledger.begin_iteration(5, 11 * S)
    ledger.close(11 * S + 1)
    assert ledger.take(12 * S) == ()
    assert [report.iteration for report in ledger.take(12 * S, is_last=True)] == [4, 5]


# ---- points of the counter -------------------------------------------------------------------------------------------


class Points(Ledger):
    """Shows what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int]] = []

    def add_energy(self, time_ns: int, energy_mj: int) -> None:
        self.told.append((time_ns, energy_mj))


def sought(period_ns: int = PERIOD_NS, begin_ns: int = 10 * S, last_ns: int = S) -> tuple[EnergyPoints, Points]:
    """At the begin of an iteration, behind one of so long."""
    ledger = Points()
    points = EnergyPoints(ledger, period_ns)
    points.begin_iteration(begin_ns - last_ns)
    points.begin_iteration(begin_ns)
    return points, ledger


@pytest.mark.parametrize(
    ("period_ns", "last_ns", "is_wanted"),
    [
        (50 * MS, S, False),
        (50 * MS + 1, S, True),
        (PERIOD_NS, PERIOD_NS, True),
        (PERIOD_NS, PERIOD_NS - 1, False),
        (PERIOD_NS, 250 * PERIOD_NS, True),
        (PERIOD_NS, 250 * PERIOD_NS + 1, False),
        (0, S, False),
    ],
)
def test_the_counter_is_watched_where_periods_are_long_and_iterations_are_neither_shorter_nor_very_long(
    period_ns: int, last_ns: int, *, is_wanted: bool
) -> None:
    points, _ = sought(period_ns, begin_ns=40 * S, last_ns=last_ns)
    assert points.wants_edges(40 * S) == is_wanted


def test_the_counter_is_not_watched_before_an_iteration_has_begun() -> None:
    ledger = Points()
    points = EnergyPoints(ledger, PERIOD_NS)
    assert not points.wants_edges(S)
    points.add_edge(Edge(S, S, 9000, 7000))
    assert ledger.told == [(S, 9000)]


@pytest.mark.parametrize("seen_ns", [10 * S, 10 * S + 30 * MS])
def test_the_counter_is_watched_for_two_periods_from_when_the_begin_was_seen(seen_ns: int) -> None:
    points, ledger = sought()
    assert points.wants_edges(seen_ns)
    points.add_sample(_sample(seen_ns, 500), is_watched=True)
    assert points.wants_edges(seen_ns + 2 * PERIOD_NS)
    assert ledger.told == []
    assert not points.wants_edges(seen_ns + 2 * PERIOD_NS + 1)
    assert ledger.told == [(seen_ns - PERIOD_NS // 2, 500)]
    points.give_up()
    assert len(ledger.told) == 1


def _sample(now_ns: int, energy_mj: int | None, width_ns: int = 0) -> MeterSample:
    return MeterSample(
        time_before_ns=now_ns - width_ns,
        time_after_ns=now_ns + width_ns,
        energy_mj=energy_mj,
        power_mw=None,
        clock_mhz=None,
        event_reasons=None,
        temperature_c=None,
    )


def test_a_reading_that_nobody_watches_counts_half_a_period_ago() -> None:
    points, ledger = sought()
    points.add_sample(_sample(11 * S, 500, width_ns=4 * MS), is_watched=False)
    points.add_sample(_sample(11 * S, None), is_watched=False)
    assert ledger.told == [(11 * S - PERIOD_NS // 2, 500)]


@pytest.mark.parametrize(("since_ns", "is_near"), [(150 * MS, True), (150 * MS + 1, False)])
def test_a_publication_near_the_begin_tells_what_the_counter_stood_at_there(since_ns: int, *, is_near: bool) -> None:
    points, ledger = sought()
    points.add_sample(_sample(10 * S, 1), is_watched=True)
    points.add_edge(Edge(10 * S + since_ns, 10 * S + since_ns, 9000, 7000))
    told = [(10 * S + since_ns, 9000)]
    assert ledger.told == ([(10 * S, 6000), *told] if is_near else told)
    assert not points.wants_edges(10 * S + since_ns)
    points.add_edge(Edge(10 * S + 250 * MS, 10 * S + 250 * MS, 11000, 9000))
    assert len(ledger.told) == (3 if is_near else 2)


@pytest.mark.parametrize(("width_ns", "counts"), [(25 * MS, True), (25 * MS + 2, False)])
def test_a_publication_counts_where_it_is_known_to_a_quarter_of_a_period(width_ns: int, *, counts: bool) -> None:
    points, ledger = sought()
    points.add_edge(Edge(11 * S, 11 * S + width_ns, 9000, 7000))
    assert ledger.told == ([(11 * S + width_ns // 2, 9000)] if counts else [])


def test_a_publication_from_before_the_begin_ends_no_watch() -> None:
    points, ledger = sought()
    points.add_edge(Edge(10 * S - 20 * MS, 10 * S, 9000, 7000))
    assert ledger.told == [(10 * S - 10 * MS, 9000)]
    assert points.wants_edges(10 * S)


# ---- samples ---------------------------------------------------------------------------------------------------------

SAMPLES = ProfileSamples(sequence=0, sweep_id=1, step=0, samples=(), last=True)


def test_messages_are_numbered_from_one_and_kept_until_they_are_durable() -> None:
    outbox = SampleOutbox()
    assert [outbox.put(SAMPLES).sequence for _ in range(3)] == [1, 2, 3]
    outbox.acknowledge(2)
    assert [samples.sequence for samples in outbox.waiting] == [3]
    outbox.acknowledge(1)
    assert [samples.sequence for samples in outbox.waiting] == [3]
    assert outbox.put(SAMPLES).sequence == 4


@pytest.mark.parametrize(
    ("num_rows", "sizes"), [(0, []), (1, [1]), (4096, [4096]), (4097, [4096, 1]), (8192, [4096, 4096])]
)
def test_a_saved_profile_goes_out_in_full_messages_of_which_the_last_says_so(num_rows: int, sizes: list[int]) -> None:
    row = Sample(
        chunk=0,
        kind="F",
        clock_mhz=1400,
        time_s=1.0,
        time_std_s=0.0,
        energy_j=1.0,
        energy_std_j=0.0,
        num_runs=1,
        window_s=1.0,
    )
    outbox = SampleOutbox()
    outbox.put_saved_profile([row] * num_rows, 70.0)
    assert [len(samples.samples) for samples in outbox.waiting] == sizes
    assert [samples.last for samples in outbox.waiting] == [False] * (len(sizes) - 1) + [True] * bool(sizes)
    assert {(samples.sweep_id, samples.step, samples.blocking_power_w) for samples in outbox.waiting} <= {(0, 0, 70.0)}
