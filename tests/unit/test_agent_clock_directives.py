"""Which of its orders a rank follows in an iteration."""

from array import array

from builders import make_rank

from perseus_dist.agent.core.clock_directives import ClockDirectives
from perseus_dist.messages.from_planner import PlanTable, Probe, StopSweep, Sweep, Switch
from perseus_dist.messages.terms import NO_POINT, Gpu

CLOCKS_MHZ = (1400, 1200, 1000)
DIGEST = "d" * 64


def orders() -> ClockDirectives:
    """Of a rank with two instructions that follows point 1 of its table from iteration 2 on."""
    rank = make_rank(schedule_digest=DIGEST)
    gpu = Gpu(uuid="GPU-0", name="A100", driver_version="550", clocks_mhz=CLOCKS_MHZ, control="clockd")
    made = ClockDirectives(rank=rank, gpu=gpu, num_instructions=2)
    clocks = array("H", [1400, 1400, 1200, 1000])
    made.apply(
        PlanTable(
            revision=1,
            schedule_digest=DIGEST,
            num_points=2,
            num_instructions=2,
            clocks_mhz=clocks.tobytes(),
            times_s=(1.0, 1.1),
            energies_j=(2.0, 1.0),
            expected=(),
            switch_latency_s=0.01,
        ),
        0,
    )
    made.apply(Switch(table_revision=1, point=1, effective_iteration=2, switch_revision=1), 0)
    return made


def points(made: ClockDirectives, iterations: range) -> list[int]:
    return [made.row(iteration).point for iteration in iterations]


def test_a_probe_releases_its_iterations_and_no_other() -> None:
    made = orders()
    assert made.apply(Probe(first_iteration=5, num_iterations=3), 3) == []
    assert points(made, range(4, 10)) == [1, NO_POINT, NO_POINT, NO_POINT, 1, 1]
    assert made.row(5).clocks_mhz is None


def test_clocks_are_at_their_highest_from_the_second_iteration_of_a_probe_on() -> None:
    made = orders()
    made.apply(Probe(first_iteration=5, num_iterations=3), 3)
    assert [iteration for iteration in range(12) if made.is_at_full_clocks(iteration)] == [6, 7]
    made.apply(Sweep(sweep_id=1, first_iteration=5, iterations_per_clock=1, clocks_mhz=CLOCKS_MHZ[1:2]), 3)
    assert [iteration for iteration in range(12) if made.is_at_full_clocks(iteration)] == [7]
    made.release()
    assert not any(made.is_at_full_clocks(iteration) for iteration in range(12))


def test_times_are_wanted_of_the_second_iteration_after_a_sweep_and_of_a_probes_last() -> None:
    """Links that became slow in the sweep were known only by the first probe of a plan that knew nothing of them."""
    made = orders()
    assert not any(made.is_timed(iteration) for iteration in range(1, 12))
    made.apply(Sweep(sweep_id=1, first_iteration=3, iterations_per_clock=2, clocks_mhz=CLOCKS_MHZ), 1)
    made.apply(StopSweep(sweep_id=1, first_iteration=7), 5)
    assert [iteration for iteration in range(1, 12) if made.is_timed(iteration)] == [8]
    made.apply(Probe(first_iteration=9, num_iterations=2), 8)
    assert [iteration for iteration in range(1, 12) if made.is_timed(iteration)] == [8, 10]


def test_a_probe_that_comes_late_begins_with_the_next_iteration_and_ends_with_the_others() -> None:
    made = orders()
    made.apply(Probe(first_iteration=5, num_iterations=3), 6)
    assert points(made, range(5, 10)) == [1, 1, NO_POINT, 1, 1]
    made.apply(Probe(first_iteration=5, num_iterations=3), 9)
    assert points(made, range(5, 12)) == [1] * 7


def test_a_sweep_goes_before_a_probe() -> None:
    made = orders()
    made.apply(Sweep(sweep_id=1, first_iteration=5, iterations_per_clock=2, clocks_mhz=CLOCKS_MHZ[1:2]), 3)
    made.apply(Probe(first_iteration=5, num_iterations=3), 3)
    assert made.row(5).clocks_mhz == (1200, 1200)
    made.apply(StopSweep(sweep_id=1, first_iteration=6), 5)
    assert points(made, range(6, 9)) == [NO_POINT, NO_POINT, 1]


def test_a_switch_during_a_probe_takes_force_after_it() -> None:
    made = orders()
    made.apply(Probe(first_iteration=5, num_iterations=3), 3)
    made.apply(Switch(table_revision=1, point=0, effective_iteration=6, switch_revision=2), 5)
    assert points(made, range(5, 10)) == [NO_POINT, NO_POINT, NO_POINT, 0, 0]


def test_a_release_ends_a_probe() -> None:
    made = orders()
    made.apply(Probe(first_iteration=5, num_iterations=3), 3)
    made.release()
    made.apply(Switch(table_revision=1, point=0, effective_iteration=6, switch_revision=2), 5)
    assert points(made, range(6, 9)) == [0, 0, 0]
