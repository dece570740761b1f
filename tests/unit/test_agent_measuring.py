"""Small parts of measuring: the counter's edges, least squares, the ledger, how the device is polled, settings."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from perseus_dist.agent.core.ledger import MAX_REPORTS, Ledger
from perseus_dist.agent.core.run_durations import Awaited, Running
from perseus_dist.agent.measuring.counter import EdgeTracker
from perseus_dist.agent.measuring.drift import DriftWatch
from perseus_dist.agent.measuring.least_squares import LeastSquares, Observation, Unknown
from perseus_dist.agent.process import startup
from perseus_dist.agent.process.devices import Devices
from perseus_dist.agent.process.polling import begin_delay_ns, end_delay_ns
from perseus_dist.agent.process.startup import (
    SpecError,
    cache_file,
    parse_target,
    saved_profile_from_spec,
    settings_from_spec,
)
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.device.observe import ObserveOnly
from perseus_dist.messages.from_planner import Expected
from perseus_dist.messages.terms import Gpu, Target

MS = 1_000_000
S = 1_000_000_000


def drifts_by_iteration(ratios: list[float], num_runs: int) -> list[int]:
    """Iterations behind which a drift of the only kind is reported, by how far each iteration's runs are off."""
    watch = DriftWatch(0.05)
    watch.expect([Expected(chunk=0, kind="F", clocks_mhz=(1410,), times_s=(0.02,), energies_j=(1.0,))])
    reported = []
    for iteration, ratio in enumerate(ratios):
        for _ in range(num_runs):
            watch.add((0, "F"), 1410, 0.02 * ratio)
        reported += [iteration] * len(watch.end_iteration())
    return reported


@pytest.mark.parametrize("num_runs", [1, 2, 32])
@pytest.mark.parametrize("num_slow", [20, 30, 60])
@pytest.mark.parametrize("ratio", [1.2, 0.8])
def test_a_drift_that_is_over_is_not_reported_again(num_runs: int, num_slow: int, ratio: float) -> None:
    """Of one microbatch the window holds 32 iterations: it was reported for sixteen more."""
    reported = drifts_by_iteration([1.0] * 20 + [ratio] * num_slow + [1.0] * 40, num_runs)
    assert reported
    assert max(reported) < 20 + num_slow + 4


def test_a_drift_is_reported_whatever_single_iterations_say() -> None:
    rng = random.Random(1)
    noisy = [1.0] * 20 + [1.1 * rng.gauss(1.0, 0.02) for _ in range(60)]
    assert min(drifts_by_iteration(noisy, 1)) < 20 + 32
    assert drifts_by_iteration([rng.gauss(1.0, 0.03) for _ in range(500)], 1) == []


@pytest.mark.parametrize("period_ms", [20, 100])
@pytest.mark.parametrize("told_ms", [0.9, 1.0, 1.1])  # of the period
def test_edges_are_found_to_a_millisecond_with_few_readings(period_ms: int, told_ms: float) -> None:
    period_ns = period_ms * MS
    tracker = EdgeTracker(round(period_ns * told_ms))
    rng = random.Random(1)
    now, edges, num_readings = 0, [], 0
    while now < 200 * period_ns:
        now += int(rng.expovariate(1 / 0.1) * MS)
        edge = tracker.add(now, (now + 7 * MS) // period_ns, now + 30_000)
        num_readings += 1
        if edge is not None:
            edges.append(edge)
            published = edge.energy_mj * period_ns - 7 * MS
            assert edge.earliest_ns <= published <= edge.latest_ns
        now = tracker.next_reading_ns(now + 30_000)
    assert len(edges) >= 199
    assert sum(edge.width_ns <= 2 * MS for edge in edges[20:]) > 0.95 * len(edges[20:])
    assert num_readings < 7 * len(edges)


def test_a_counter_that_stands_still_or_is_gone_has_no_edges() -> None:
    tracker = EdgeTracker(0)
    now = 0
    for _ in range(100):
        assert tracker.add(now, 5, now + 1) is None
        later = tracker.next_reading_ns(now)
        assert later > now
        now = later


@pytest.mark.parametrize("jitter_ms", [0, 1, 40])
def test_readings_of_an_unchanged_counter_may_be_taken_at_once(jitter_ms: int) -> None:
    """As one by one: with edges where they are expected, about there, and anywhere."""
    rng = random.Random(jitter_ms)
    at_ns, published = 0, []
    for energy_mj in range(1, 100):
        at_ns += 100 * MS + rng.randint(0, jitter_ms * MS)
        published.append((at_ns, energy_mj))
    found = []
    for is_at_once in (False, True):
        tracker, now, energy_mj, left, edges = EdgeTracker(100 * MS), 0, 0, list(published), []
        while now < published[-1][0]:
            while left and left[0][0] <= now:
                energy_mj = left.pop(0)[1]
            edges.append(tracker.add(now, energy_mj, now))
            now = tracker.next_reading_ns(now)
            if is_at_once:
                now = tracker.pass_unchanged(now, energy_mj, left[0][0])
        found.append([edge for edge in edges if edge is not None])
    assert found[0] == found[1]
    assert len(found[0]) > 90


def test_least_squares_finds_unknowns_across_groups_and_says_how_well() -> None:
    rng = random.Random(2)
    squares = LeastSquares(2)
    for offset in (5.0, -100.0, 1e6):
        x = [(rng.uniform(0, 10), rng.uniform(0, 10)) for _ in range(50)]
        squares.add_group([Observation(row, offset + 3 * row[0] - 2 * row[1] + rng.gauss(0, 0.1), 0.1) for row in x])
    first, second = squares.solve([Unknown(0.0, 100.0)] * 2)
    assert first.value == pytest.approx(3, abs=4 * first.error)
    assert second.value == pytest.approx(-2, abs=4 * second.error)
    assert 0.001 < first.error < 0.01


def test_what_cannot_be_told_apart_is_believed_alike_and_known_to_be_doubtful() -> None:
    squares = LeastSquares(2)
    squares.add_group([Observation((k, k), 500.0 * k, 0.1) for k in range(10)])
    first, second = squares.solve([Unknown(300.0, 300.0)] * 2)
    assert first.value == pytest.approx(second.value)
    assert first.value + second.value == pytest.approx(500, rel=0.01)
    assert first.error > 100


def test_what_varies_by_no_more_than_its_error_tells_nothing_apart() -> None:
    """An unknown whose factor is the other's but for errors was believed to be near 0, and the other one to be both."""
    rng = random.Random(5)
    squares = LeastSquares(2)
    blurred = [Observation((k + rng.gauss(0, 0.2), k), 500.0 * k, 0.1, blurred=0, blur=0.2) for k in range(50)]
    squares.add_group(blurred)
    first, second = squares.solve([Unknown(250.0, 250.0)] * 2)
    assert first.value == pytest.approx(250, rel=0.1)
    assert second.value == pytest.approx(250, rel=0.1)


def test_the_ledger_interpolates_energy_and_waits_for_it() -> None:
    ledger = Ledger()
    for iteration in range(3):
        ledger.begin_iteration(iteration, iteration * S)
        ledger.end_pipeline(iteration * S + S // 2)
        ledger.end_iteration(iteration * S + 3 * S // 4)
        ledger.add_energy(iteration * S + 10 * MS, 1000 * iteration + 10)
    assert [report.iteration for report in ledger.take(2 * S + 20 * MS)] == [0, 1]
    ledger.add_energy(4 * S, 4000)
    ledger.interrupt()
    (last,) = ledger.take(4 * S)
    assert last.time_s == 0.75  # what came between it and the next iteration is not its own
    assert last.pipeline_time_s == 0.5
    assert last.energy_j == pytest.approx(0.75, rel=0.02)


def test_energy_that_never_comes_is_not_waited_for_and_not_made_up() -> None:
    ledger = Ledger()
    ledger.begin_iteration(0, 0)
    ledger.add_energy(-1, 5)
    ledger.begin_iteration(1, S)
    assert ledger.take(S + 100 * MS) == ()
    (report,) = ledger.take(5 * S)
    assert report.energy_j is None
    ledger.add_energy(20 * S, 500)  # too long after the last one
    ledger.begin_iteration(2, 2 * S)
    (report,) = ledger.take(21 * S)
    assert report.energy_j is None


def test_reports_that_nobody_takes_are_counted_as_lost() -> None:
    ledger = Ledger()
    for iteration in range(MAX_REPORTS + 11):
        ledger.begin_iteration(iteration, iteration * S)
    assert ledger.num_lost == 10
    taken = ledger.take(10_000 * S)
    assert [report.iteration for report in taken] == list(range(10, MAX_REPORTS + 10))


def test_only_an_iteration_whose_begin_and_end_were_seen_in_time_is_live() -> None:
    """A backlog, as at a slow attach: the device has passed boundaries of several iterations at one look."""
    ledger = Ledger()
    for iteration in range(3):
        ledger.begin_iteration(iteration, 10 * S, late_ns=8 * S)
    for iteration in range(3, 5):
        ledger.begin_iteration(iteration, (8 + iteration) * S, late_ns=2 * MS)
    ledger.begin_iteration(5, 13 * S, late_ns=300 * MS)
    ledger.begin_iteration(6, 23 * S, late_ns=MS)
    ledger.close(24 * S, late_ns=MS)
    taken = ledger.take(40 * S)
    assert [report.iteration for report in taken if report.is_live] == [3, 5, 6], "5 is long beside what is not known"
    assert [report.time_s for report in taken] == [0, 0, 1, 1, 1, 10, 1]


def test_an_iteration_that_ends_by_its_own_word_is_live_by_when_that_was_seen() -> None:
    for late_ns, is_live in ((MS, True), (S, False)):
        ledger = Ledger()
        ledger.begin_iteration(0, 0)
        ledger.end_iteration(S, late_ns=late_ns)
        ledger.interrupt()
        (report,) = ledger.take(9 * S)
        assert report.is_live is is_live


def end_looks(running: Running, end_ns: int, *, is_change_due: bool = True) -> list[int]:
    """Of an agent whose instruction ends at ``end_ns``; the last sees it."""
    looked_ns = [running.since_ns]
    while looked_ns[-1] < end_ns:
        looked_ns.append(looked_ns[-1] + end_delay_ns(running, looked_ns[-1], is_change_due=is_change_due))
    return looked_ns[1:]


def test_the_device_is_looked_at_closely_only_when_an_end_is_near() -> None:
    running = Running(since_ns=7 * S, duration_ns=100 * MS)
    assert [end_delay_ns(running, 7 * S + at) for at in (0, 98 * MS, 99 * MS)] == [94_500_000, 1_400_000, MS // 2]
    assert [end_delay_ns(running, 7 * S + at * MS) for at in (101, 104, 108, 116, 200, 900)] == [
        MS // 2, MS // 2, MS, 2 * MS, 2 * MS, 2 * MS,
    ]  # fmt: skip
    seen = end_looks(running, 7 * S + 100 * MS)
    assert len(seen) < 6
    assert seen[-1] < 7 * S + 100.5 * MS


def test_an_end_behind_which_the_clock_stays_is_looked_for_an_eighth_of_the_instruction_apart() -> None:
    for duration_ms, apart_ms in ((3, 2), (40, 5), (400, 8)):
        running = Running(since_ns=0, duration_ns=duration_ms * MS)
        for end_ms in (duration_ms, duration_ms + 50):
            seen = end_looks(running, round(end_ms * MS), is_change_due=False)
            assert end_ms * MS <= seen[-1] < (end_ms + apart_ms) * MS
        assert len(end_looks(running, duration_ms * MS, is_change_due=False)) <= 3


def test_a_begin_is_looked_for_an_eighth_of_the_instruction_apart_where_the_trainer_says_when_it_was() -> None:
    def delay_ns(duration_ns: int, *, is_device_ordered: bool) -> int:
        return begin_delay_ns(Awaited(0, 0, duration_ns), 0, is_device_ordered=is_device_ordered)

    assert begin_delay_ns(None, 0, is_device_ordered=False) == 2 * MS
    assert delay_ns(3 * MS, is_device_ordered=False) == 2 * MS
    assert delay_ns(40 * MS, is_device_ordered=False) == 5 * MS
    assert delay_ns(400 * MS, is_device_ordered=False) == 8 * MS
    assert delay_ns(400 * MS, is_device_ordered=True) == 2 * MS
    assert begin_delay_ns(Awaited(0, 0, 400 * MS), 0, is_device_ordered=True, is_change_due=False) == 8 * MS


def looks(awaited: Awaited, begin_ns: int) -> list[int]:
    """Of an agent whose instruction begins at ``begin_ns``; the last sees it."""
    looked_ns = [awaited.since_ns]
    while looked_ns[-1] < begin_ns:
        looked_ns.append(looked_ns[-1] + begin_delay_ns(awaited, looked_ns[-1], is_device_ordered=True))
    return looked_ns[1:]


def test_a_begin_is_looked_for_closely_from_shortly_before_it_may_come() -> None:
    awaited = Awaited(since_ns=7 * S, wait_ns=100 * MS, duration_ns=400 * MS)
    for waited_ms in (92, 100, 130, 500):
        seen = looks(awaited, 7 * S + waited_ms * MS)
        assert seen[0] == 7 * S + 94_500_000 if waited_ms > 94 else seen[0] < 7 * S + 95 * MS
        steps = [after - before for before, after in pairwise(seen)]
        assert all(2 * MS <= step <= max(2 * MS, (waited_ms - 94) * MS // 4) and step <= 8 * MS for step in steps)
        assert steps == sorted(steps)
        assert len(seen) <= 1 + (waited_ms - 89) // 2 + 1
    assert looks(awaited._replace(wait_ns=0), 7 * S + 3 * MS) == [7 * S + 2 * MS, 7 * S + 4 * MS]


def test_an_iteration_that_ends_early_is_seen_some_milliseconds_late_at_most() -> None:
    awaited = Awaited(since_ns=0, wait_ns=100 * MS, duration_ns=0)
    assert looks(awaited, 50 * MS)[-1] == 56 * MS
    assert 0 <= looks(awaited, 100 * MS)[-1] - 100 * MS <= 2 * MS


def test_a_begin_that_comes_too_early_is_seen_in_the_first_half_of_the_instruction() -> None:
    for duration_ms in (4, 10, 50, 400):
        awaited = Awaited(since_ns=0, wait_ns=1000 * MS, duration_ns=duration_ms * MS)
        for begin_ms in range(1, 1000, 7):
            late_ns = looks(awaited, begin_ms * MS)[-1] - begin_ms * MS
            assert late_ns <= max(2, duration_ms / 2) * MS


def spec(**changes: object) -> RankSpec:
    fields: dict[str, object] = {
        "job_id": "job",
        "rank": 0,
        "pp_rank": 0,
        "dp_rank": 0,
        "tp_rank": 0,
        "pp_size": 1,
        "dp_size": 1,
        "tp_size": 1,
        "schedule": "0F0 0B0\n",
        "local_rank": 0,
    }
    return RankSpec(**{**fields, **changes})  # type: ignore[arg-type]


def test_targets_are_written_as_on_the_command_line() -> None:
    assert parse_target("t_min") == Target()
    assert parse_target("slowdown=1.05") == Target(slowdown=1.05)
    assert parse_target("deadline=2.5") == parse_target("deadline_s=2.5") == Target(deadline_s=2.5)
    for text in ("", "fast", "slowdown=", "slowdown=-1", "slowdown=1e", "deadline_s=0"):
        with pytest.raises(SpecError, match="expected t_min"):
            parse_target(text)


def test_options_are_checked() -> None:
    assert settings_from_spec(spec(options={"lease_s": "0.5"})).lease_s == 0.5
    for value in ("0", "-1", "nan", "x"):
        with pytest.raises(SpecError, match=f"option lease_s={value}: expected a positive number"):
            settings_from_spec(spec(options={"lease_s": value}))


def test_agents_of_a_host_name_their_clock_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_id, namespace = tmp_path / "boot_id", tmp_path / "time"
    monkeypatch.setattr(startup, "_BOOT_ID", boot_id)
    monkeypatch.setattr(startup, "_TIME_NAMESPACE", namespace)
    assert settings_from_spec(spec()).host_clock == "", "not known: no clock is taken for another"
    boot_id.write_text("ced0382a\n")
    before = settings_from_spec(spec()).host_clock
    assert before == settings_from_spec(spec()).host_clock != "", "a kernel without time namespaces"
    namespace.touch()
    assert settings_from_spec(spec()).host_clock not in ("", before)


@pytest.mark.parametrize(
    ("stages", "shown"), [((0, 1, 2, 3), "0, 1, 2, 3"), ((0,), "0"), ((1,), "1"), ((1, 2), "1, 2")]
)
def test_a_saved_profile_of_other_stages_is_refused(
    stages: tuple[int, ...], shown: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "profile.csv"
    rows = "".join(f"{stage},forward,1410,0.05,15.5\n" for stage in stages)
    path.write_text(f"stage,instruction,frequency,time,energy\n{rows}")
    schedule = "0F0 0B0\n1F0 1B0\n"
    assert saved_profile_from_spec(spec(profile=str(path), pp_size=2, schedule=schedule)) is None
    assert f"{path}: saw stages {shown}, expected 0 to 1, those of this job" in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [(None, "cannot be read (No such file or directory)"), ("no profile", "expected a header with the columns stage,")],
)
def test_a_job_is_measured_where_its_saved_profile_cannot_be_used(
    text: str | None, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "profile.csv"
    if text is not None:
        path.write_text(text)
    asked = spec(profile=str(path), options={"cache": str(tmp_path)})
    assert saved_profile_from_spec(asked) is None
    [record] = caplog.records
    assert "is not used, the job is measured anew" in record.message
    assert str(path) in record.message
    assert why in record.message
    gpu = Gpu(uuid="GPU-0", name="A100", driver_version="550", clocks_mhz=(1410, 1200), control="direct")
    devices = Devices(gpu=gpu, control=ObserveOnly(refusal=""), meter=None, is_simulated=True)
    assert cache_file(asked, devices) is not None


def test_a_saved_profile_is_of_all_chunks(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    rows = "".join(f"{stage},forward,1410,0.05,15.5\n" for stage in range(4))
    path.write_text(f"stage,instruction,frequency,time,energy\n{rows}")
    interleaved = "0F0 2F0 2B0 0B0\n1F0 3F0 3B0 1B0\n"
    saved = saved_profile_from_spec(spec(profile=str(path), pp_size=2, schedule=interleaved))
    assert saved is not None
    assert {sample.stage for sample in saved.samples} == {0, 1, 2, 3}


def test_a_saved_profile_is_read_on_rank_0_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "profile.csv")
    header = "stage,instruction,frequency,time,energy,samples,time_std"
    Path(path).write_text(f"{header}\n0,forward,1410,0.05,15.5,7,0.001\n0,forward,1200,0.06,12.5,7,\n")
    assert saved_profile_from_spec(spec(profile=path, rank=1)) is None
    profile = saved_profile_from_spec(spec(profile=path, options={"blocking_power_w": "80"}))
    assert profile is not None
    assert profile.blocking_power_w == 80
    assert [(s.kind, s.clock_mhz, s.num_runs, s.time_std_s) for s in profile.samples] == [
        ("F", 1410, 7, 0.001),
        ("F", 1200, 7, 0.0),
    ]
