"""What kinds took in an iteration, from exact times alone, against the profile at the clocks requested."""

import pytest

from perseus_dist.agent.core.ledger import Ledger
from perseus_dist.agent.following.exact_runs import ExactRun, RanAt
from perseus_dist.agent.following.plan_view import RELEASED
from perseus_dist.agent.following.position import Run, Stamp
from perseus_dist.agent.following.rank_program import rank_order
from perseus_dist.agent.measuring.kind_times import IterationRuns, KindTimes
from perseus_dist.messages.from_agent import KindTime
from perseus_dist.messages.from_planner import Expected

MS = 1_000_000
S = 1_000_000_000
ORDER = rank_order("0LOAD0 0F0 0LOAD1 0F1 2F0 0B0 2B0 0B1 0STEP\n1F0\n", 0)
CLOCKS = (0, 1400, 0, 1200, 0, 1400, 1400, 1000, 0)
PROFILE = tuple(
    Expected(chunk=chunk, kind=kind, clocks_mhz=(1400, 1000), times_s=times_s, energies_j=(1.0, 1.0))
    for chunk, kind, times_s in ((0, "F", (0.1, 0.2)), (1, "F", (0.3, 0.5)), (0, "B", (0.2, 0.3)), (1, "B", (0.4, 0.6)))
)
# At 1200 MHz halfway between; the third F keeps the clock of the one before it.
PLANNED_S = {"F": 0.1 + 0.15 + 0.4, "B": 0.2 + 0.4 + 0.3}
REQUESTED_MHZ = {"F": (1400 + 1200 + 1200) / 3, "B": (1400 + 1400 + 1000) / 3}


def run(place: int, iteration: int = 0) -> Run:
    stamp = Stamp(0, 0, iteration)
    return Run(place=place, iteration=iteration, before=stamp, begin=stamp, end=stamp)


def exact(place: int, duration_ms: int, iteration: int = 0) -> ExactRun:
    return ExactRun(place, iteration, 0, duration_ms * MS, RanAt(CLOCKS, None))


def kind_times(*, has_device_times: bool = True) -> KindTimes:
    times = KindTimes(ORDER)
    times.expect(PROFILE)
    times.has_device_times = has_device_times
    return times


def ran(times: KindTimes, places: range | list[int], iteration: int = 0) -> None:
    """An iteration's instructions end, and nobody knows yet exactly what they took."""
    for place in places:
        times.wait(run(place, iteration))


def learn(times: KindTimes, iteration: int = 0) -> None:
    for place, work in enumerate(ORDER):
        times.learn(exact(place, {"LOAD": 7, "F": 260, "B": 300}.get(work.kind, 50), iteration))


def test_kinds_are_summed_over_chunks_and_compared_at_each_instructions_clock() -> None:
    times = kind_times()
    runs = times.begin_iteration(0, CLOCKS)
    ran(times, range(len(ORDER)))
    times.end_iteration(CLOCKS)
    assert runs.is_waiting
    assert (runs.kind_times, runs.load_s) == ((), None)
    learn(times)
    assert not runs.is_waiting
    assert runs.kind_times == tuple(
        KindTime(
            kind=kind,
            time_ratio=pytest.approx(taken_s / PLANNED_S[kind]),
            requested_mhz=round(REQUESTED_MHZ[kind]),
        )
        for kind, taken_s in (("F", 0.78), ("B", 0.9))
    )
    assert runs.load_s == pytest.approx(0.014)


def test_one_run_that_is_not_known_exactly_leaves_nothing_to_say() -> None:
    times = kind_times()
    runs = times.begin_iteration(0, CLOCKS)
    ran(times, range(len(ORDER)))
    for place in range(len(ORDER)):
        if place == 2 or place == 5:
            times.forget(run(place))
        else:
            times.learn(exact(place, 100))
    assert not runs.is_waiting
    assert (runs.kind_times, runs.load_s) == ((), None)


def test_nothing_is_said_without_a_plan_or_a_profile_or_of_what_cannot_be() -> None:
    without_profile = KindTimes(ORDER)
    for times, clocks_mhz, duration_ms in (
        (kind_times(), None, 100),
        (without_profile, CLOCKS, 100),
        (kind_times(), (0,) * len(ORDER), 100),
        (kind_times(), CLOCKS, 0),
        (kind_times(), CLOCKS, 10**6),
    ):
        runs = times.begin_iteration(0, clocks_mhz)
        ran(times, range(len(ORDER)))
        for place in range(len(ORDER)):
            times.learn(exact(place, duration_ms))
        assert runs.kind_times == ()


def test_an_iteration_that_left_its_plan_is_not_waited_for() -> None:
    for leave in (
        lambda times: times.spoil(),
        lambda times: times.end_iteration(None),
        lambda times: (times.expect(PROFILE), times.end_iteration(CLOCKS)),  # another profile than it began with
    ):
        times = kind_times()
        runs = times.begin_iteration(0, CLOCKS)
        ran(times, range(len(ORDER)))
        leave(times)
        assert not runs.is_waiting
        learn(times)
        assert (runs.kind_times, runs.load_s) == ((), None)


def test_a_device_that_tells_no_times_is_not_waited_for() -> None:
    times = kind_times(has_device_times=False)
    runs = times.begin_iteration(0, CLOCKS)
    ran(times, range(len(ORDER)))
    assert not runs.is_waiting


def test_iterations_long_past_are_forgotten() -> None:
    times = kind_times()
    first = times.begin_iteration(0, CLOCKS)
    ran(times, range(len(ORDER)))
    for iteration in range(1, 20):
        times.begin_iteration(iteration, CLOCKS)
    learn(times)
    assert first.kind_times == ()


def waiting_runs() -> tuple[KindTimes, IterationRuns]:
    times = kind_times()
    runs = times.begin_iteration(0, CLOCKS)
    ran(times, range(len(ORDER)))
    return times, runs


def ledger_of(runs: IterationRuns, duration_ns: int) -> Ledger:
    ledger = Ledger()
    ledger.add_energy(-1, 0)
    ledger.begin_iteration(0, 0, RELEASED, runs)
    ledger.begin_iteration(1, duration_ns)
    ledger.add_energy(duration_ns + 1, 1000)
    return ledger


def test_a_report_waits_for_exact_times_some_iterations_and_never_for_ever() -> None:
    times, runs = waiting_runs()
    ledger = ledger_of(runs, 2 * S)
    assert ledger.take(7 * S) == ()
    learn(times)
    (report,) = ledger.take(7 * S)
    assert [one.kind for one in report.kind_times] == ["F", "B"]
    assert report.input_wait_s == pytest.approx(0.014)
    ledger = ledger_of(waiting_runs()[1], 2 * S)
    assert ledger.take(8 * S - 1) == ()
    (report,) = ledger.take(8 * S)
    assert (report.kind_times, report.input_wait_s) == ((), None)
    (report,) = ledger_of(waiting_runs()[1], 2 * S).take(2 * S, is_last=True)
    assert report.iteration == 0


def test_what_the_trainer_says_of_its_input_counts_more_than_what_loading_took() -> None:
    times, runs = waiting_runs()
    learn(times)
    ledger = Ledger()
    ledger.begin_iteration(0, 0, RELEASED, runs)
    ledger.add_work(4096, 3 * MS)
    ledger.begin_iteration(1, S)
    (report,) = ledger.take(S, is_last=True)
    assert (report.tokens, report.input_wait_s) == (4096.0, 0.003)
