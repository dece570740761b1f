"""Sentences of ``perseus-dist audit``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from perseus_dist.cli import main
from perseus_dist.cli.node import audit
from perseus_dist.cli.node.audit import _sentence
from perseus_dist.planner.service import access_service
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("t_min", "slowdown=1.05", "slowdown=1.05, before: t_min; done"),
        ("", "token ops: view, all jobs", "token ops: view, all jobs; done"),
        ("token ops: view, all jobs", "", "before: token ops: view, all jobs; done"),  # a token that was revoked
        ("", "", "done"),
    ],
)
def test_a_change_names_what_was_and_what_is(before: str, after: str, sentence: str) -> None:
    assert _sentence(pb.AuditRecord(before=before, after=after, outcome="done")) == sentence


def test_records_of_a_hundred_years_are_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So long ago is before the year 1970, which a planner refuses."""

    class Planner:
        def ReadAudit(self, request: pb.ReadAuditRequest, **_: object) -> pb.ReadAuditResponse:  # noqa: N802
            check = Checker()
            check.number("since_s", request.since_s, access_service._MAX_TIME_S)
            check.finish()
            return pb.ReadAuditResponse()

    @contextmanager
    def planner_calls(*_: object) -> Iterator[tuple[Any, Any]]:
        yield Planner(), ()

    monkeypatch.setattr(audit, "planner_calls", planner_calls)
    assert main(["audit", "--since", "5000w", "--planner", "127.0.0.1:1"]) == 0
    assert capsys.readouterr().out == "no records\n"
