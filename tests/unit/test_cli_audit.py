"""Sentences of ``perseus-dist audit``."""

import pytest

from perseus_dist.cli.node.audit import _sentence
from perseus_dist.rpc.v1 import planner_pb2 as pb


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
