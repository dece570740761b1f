"""Schedules that a process attaches one after the other: ranks agree on them, also once one rank alone has failed."""

from types import SimpleNamespace
from typing import Any

import pytest

from perseus_dist.pipelining import adapter, attachment
from perseus_dist.pipelining.attachment import Attachment
from perseus_dist.training.options import PerseusOptions
from perseus_dist.training.rank.job_member import RankIdentity
from perseus_dist.training.rank.join_pace import JoinPace


class Schedule:
    """As torch's, as far as an iteration goes."""

    def __init__(self) -> None:
        self._has_backward = True
        self._n_microbatches = 4

    def _step_microbatches(self) -> int:
        return 7

    def _maybe_compute_loss(self) -> None:
        pass


class Member:
    """As ``JobMember``; on the rank that fails its first iteration raises."""

    fails = False
    waits: list[int]

    def __init__(self, *_: object, first_join: int) -> None:
        Member.waits.append(first_join)

    def begin_iteration(self, _: object) -> None:
        if self.fails:
            raise OSError("no agent can be started")

    def end_iteration(self, _: int) -> None:
        pass

    def mark(self, _: str) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(params=[False, True], ids=["a rank that goes on", "the rank that failed"])
def waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of the members of a process's schedules, each asked for here."""
    monkeypatch.setattr(attachment, "_newest", None)
    monkeypatch.setattr(attachment, "_pace", JoinPace())
    monkeypatch.setattr(attachment, "reason_against", lambda *_: None)
    monkeypatch.setattr(attachment, "stages_of", lambda _: [])
    order = SimpleNamespace(ranks=[()])
    monkeypatch.setattr(attachment, "read_schedule", lambda *_, **__: order)
    monkeypatch.setattr(attachment, "_device_opener", lambda *_: None)
    monkeypatch.setattr(attachment, "JobMember", Member)
    monkeypatch.setattr(Member, "fails", request.param)
    monkeypatch.setattr(Member, "waits", [], raising=False)
    return Member.waits


def attach(schedule: Any) -> Attachment:
    place = RankIdentity(rank=1, pp_rank=0, dp_rank=1, tp_rank=0, pp_size=1, dp_size=2, tp_size=1, local_rank=1)
    return adapter.attach_by(schedule, PerseusOptions(), optimizer=None, read_place=lambda _: place)


def train(schedule: Schedule, num_iterations: int) -> None:
    assert [schedule._step_microbatches() for _ in range(num_iterations)] == [7] * num_iterations


@pytest.mark.parametrize(("num_iterations", "wait"), [(1, 2), (100, 0)])
def test_the_next_schedule_joins_at_one_iteration_on_all_ranks(
    num_iterations: int, wait: int, waits: list[int]
) -> None:
    first, second = Schedule(), Schedule()
    attach(first)
    train(first, num_iterations)
    first._has_backward = False
    train(first, 20)  # evaluates
    attach(second)
    assert waits == [0, wait]


def test_a_schedule_that_the_script_detaches_delays_none_on_any_rank(waits: list[int]) -> None:
    first, second = Schedule(), Schedule()
    attach(first)
    train(first, 1)
    adapter.detach(first)
    train(first, 1)
    attach(second)
    assert waits == [0, 0]


def test_a_schedule_that_is_attached_again_is_one_on_all_ranks(waits: list[int]) -> None:
    schedule = Schedule()
    before = attach(schedule)
    train(schedule, 1)
    assert attach(schedule) is before
    assert waits == [0]
    adapter.detach(schedule)
    assert attach(schedule) is not before
    assert waits == [0, 0]


def test_two_schedules_that_train_in_turns_are_both_let_go_on_all_ranks(waits: list[int]) -> None:
    first, second = Schedule(), Schedule()
    attach(first)
    train(first, 1)
    later = attach(second)
    train(first, 1)
    assert not later.is_active
    assert "_step_microbatches" not in vars(first)
    assert "_step_microbatches" not in vars(second)
    assert len(waits) == 2
