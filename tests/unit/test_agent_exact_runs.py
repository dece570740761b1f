"""Runs become exact at once in host order, and with the device's times in device order."""

from perseus_dist.agent.following.exact_runs import ExactRun, ExactRuns, RanAt
from perseus_dist.agent.following.position import Run, Stamp

AT = RanAt((1410, 1410), 1410)


def never(run: Run) -> None:
    raise AssertionError(f"{run} was forgotten")


def run(before: int, begin: int, end: int, place: int = 0, iteration: int = 0) -> Run:
    """With sequences for arguments, and as many times ten for the times at which they were seen."""
    stamps = [Stamp(10 * sequence, sequence, iteration) for sequence in (before, begin, end)]
    return Run(place=place, iteration=iteration, before=stamps[0], begin=stamps[1], end=stamps[2])


def test_the_host_is_believed_at_once() -> None:
    learnt: list[ExactRun] = []
    ExactRuns(learnt.append, never).add(run(1, 3, 4), AT, is_host_timed=True)
    assert learnt == [ExactRun(0, 0, 20, 10, AT)]


def test_the_device_tells_later_and_what_it_leaves_out_is_forgotten() -> None:
    learnt: list[ExactRun] = []
    forgotten: list[Run] = []
    runs = ExactRuns(learnt.append, forgotten.append)
    for k in range(4):
        runs.add(run(2 * k + 1, 2 * k + 2, 2 * k + 3, place=k), AT, is_host_timed=False)
    assert learnt == []
    for sequence, device_ns in ((1, 0), (2, 7), (3, 107), (5, 300), (6, 301), (7, 401), (8, 405), (9, 505)):
        runs.add_device_time(sequence, 0, device_ns)
    # The begin of the second one was not told.
    assert learnt == [ExactRun(0, 0, 7, 100, AT), ExactRun(2, 0, 1, 100, AT), ExactRun(3, 0, 4, 100, AT)]
    assert [run.place for run in forgotten] == [1]


def test_times_of_different_iterations_are_not_compared() -> None:
    learnt: list[ExactRun] = []
    forgotten: list[Run] = []
    runs = ExactRuns(learnt.append, forgotten.append)
    runs.add(run(1, 2, 3), AT, is_host_timed=False)
    runs.add_device_time(1, 0, 0)
    runs.add_device_time(2, 0, 7)
    runs.add_device_time(3, 1, 107)
    assert learnt == []
    assert len(forgotten) == 1
