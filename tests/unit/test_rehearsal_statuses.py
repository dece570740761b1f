"""What a rehearsal knows of its jobs, between two looks at the planner."""

from perseus_dist.planner.job.measured_iterations import MeasuredIterations
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.simulation.outcome import Outcome
from perseus_dist.simulation.rehearsal import RehearsedJob, newest_statuses


def status(num_iterations: int, saving: float, phase: str = "enforcing") -> pb.JobStatus:
    return pb.JobStatus(
        job_id="a",
        phase=phase,
        enforced=pb.MeasuredIterations(num_iterations=num_iterations, time_s=1.0 if num_iterations else 0.0),
        predicted_saving=saving,
    )


def test_a_job_that_ends_just_after_a_switch_has_run_under_the_plan_before() -> None:
    before = {"a": status(20, 0.1)}
    now = newest_statuses(before, {"a": status(0, 0.2, phase="done")})
    assert now["a"].enforced == before["a"].enforced
    assert now["a"].predicted_saving == 0.1
    assert now["a"].phase == "done"


def test_figures_of_the_newest_plan_are_taken_once_there_are_any() -> None:
    assert newest_statuses({"a": status(20, 0.1)}, {"a": status(1, 0.2)})["a"].predicted_saving == 0.2


def test_a_job_that_is_not_seen_for_a_while_is_known_as_it_was() -> None:
    before = {"a": status(3, 0.1), "b": status(0, 0.0)}
    assert newest_statuses(before, {}) == before
    assert set(newest_statuses({}, before)) == {"a", "b"}


def test_where_nothing_was_measured_neither_time_nor_energy_differs() -> None:
    """Not by -0.0, as JSON would show it."""
    job = RehearsedJob(job_id="a", num_ranks=1, nodes=(0,), status=None, fault="")
    nothing = MeasuredIterations()
    outcome = Outcome(
        baseline=nothing,
        enforced=nothing,
        predicted_saving=0.0,
        predicted_saving_low=0.0,
        predicted_saving_high=0.0,
        num_profiled_clocks=0,
        reason="",
        troubles=(),
        planner_restarts=0,
        clocks_left_locked=0,
        is_virtual=True,
    )
    for document in (job.document(), outcome.document()):
        assert [str(document[f"{figure}_percent"]) for figure in ("slowdown", "saving")] == ["0.0", "0.0"]
