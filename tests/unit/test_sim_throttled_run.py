"""What is read off a run with injected throttles, on invented iterations."""

import numpy as np
import pytest

from perseus_dist.messages.job_status import JobEvent
from perseus_dist.report.analysis.pipelines import FollowedSwitch, PipelineIterations
from perseus_dist.runlog.events import Injection
from perseus_dist.runlog.frontier_csv import FrontierPoints
from perseus_dist.simulation.errors import SimulationError
from perseus_dist.simulation.frameworks.throttled_run import NUM_SETTLING, ThrottledRun

CAPPED, LIFTED, END = 20, 40, 60
BLOCKING_W = 100.0


def event(sequence: int, kind: str, iteration: int, **other: object) -> JobEvent:
    return JobEvent(sequence=sequence, kind=kind, age_s=0.0, iteration=iteration, sentence="", **other)  # type: ignore[arg-type]


def a_run() -> ThrottledRun:
    number = np.arange(END)
    is_capped = (number >= CAPPED) & (number < LIFTED)
    time_s = np.where(is_capped, 1.5, 1.0)
    events = (
        event(1, "switch", 8, switch_revision=1, effective_iteration=9, points=(0, 0)),
        event(2, "verdict", CAPPED + 1, rank=3, dp_rank=1, degree=1.5),
        event(3, "switch", CAPPED + 1, switch_revision=2, effective_iteration=CAPPED + 2, t_prime_s=1.4, points=(1, 0)),
        event(4, "switch", CAPPED + 1, switch_revision=3, effective_iteration=CAPPED + 3, t_prime_s=1.5, points=(1, 0)),
        event(5, "recovered", LIFTED, rank=3, dp_rank=1),
        event(6, "switch", LIFTED, switch_revision=4, effective_iteration=LIFTED + 2, points=(0, 0)),
    )
    first_followed = {1: 9, 2: None, 3: CAPPED + 3, 4: LIFTED + 2}  # the second was overtaken
    return ThrottledRun(
        injections=(Injection(CAPPED, 3, 1005), Injection(LIFTED, 3, None)),
        slow_pipeline=1,
        pipelines=PipelineIterations(
            dp_ranks=(0, 1),
            number=number,
            time_s=time_s,
            own_time_s=np.array([np.ones(END), time_s]),
            energy_j=np.array([np.where(is_capped, 300.0, 400.0), np.full(END, 350.0)]),
            table_revision=np.ones((2, END), dtype=np.int64),
            point=np.zeros((2, END), dtype=np.int64),
        ),
        events=events,
        switches=tuple(
            FollowedSwitch(event=one, first_iteration=first_followed[one.switch_revision], last_iteration=END)
            for one in events
            if one.kind == "switch"
        ),
        frontier=FrontierPoints(
            times_s=np.array([0.9, 1.0, 1.2, 1.4, 1.6]),
            energies_j=np.array([420.0, 400.0, 350.0, 300.0, 295.0]),
            bounds_j=np.zeros(5),
        ),
        all_maximum_s=1.0,
        blocking_w=BLOCKING_W,
    )


def test_stretches_begin_with_injections_and_settle() -> None:
    before, capped, lifted = a_run().stretches
    assert [stretch.name for stretch in (before, capped, lifted)] == ["before", "1005 MHz", "lifted"]
    assert (before.first, before.last) == (CAPPED - NUM_SETTLING, CAPPED - 1)
    assert (capped.first, capped.last) == (CAPPED + NUM_SETTLING, LIFTED - 1)
    assert (lifted.first, lifted.last) == (LIFTED + NUM_SETTLING, END - 2)


def test_figures_of_a_stretch() -> None:
    run = a_run()
    before, capped, lifted = run.stretches
    assert [run.time_s(stretch) for stretch in run.stretches] == [1.0, 1.5, 1.0]
    assert [run.energy_j(stretch) for stretch in run.stretches] == [400.0, 300.0, 400.0]
    assert run.energy_j(capped, of_slow=True) == 350.0
    assert (run.own_time_s(capped), run.own_time_s(capped, of_slow=True)) == (1.0, 1.5)
    assert [run.told_after(stretch) for stretch in (capped, lifted)] == [1, 0]
    assert [run.switched_after(stretch) for stretch in (capped, lifted)] == [3, 2]
    with pytest.raises(SimulationError, match="before the first injection"):
        run.told_after(before)


def test_what_the_frontier_promises() -> None:
    # Until 1.5 s: 400 J + 100 W x 0.5 s under T_min's plan; 300 J + 100 W x 0.1 s under the best that is in time.
    assert a_run().waiting_j(1.5) == pytest.approx((450.0, 310.0))
    assert a_run().waiting_j(0.5) == pytest.approx((350.0, 350.0))  # no earlier than T_min's
