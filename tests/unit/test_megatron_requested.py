import logging

import pytest

from perseus_dist.megatron import requested
from perseus_dist.training.options import PerseusOptions

OPTIONS = PerseusOptions(job="x")
SENTENCE = "Megatron 9.9 has no forward_step"
SAID = f"perseus: clocks stay as they are: {SENTENCE}"


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_options", None), ("_given", None), ("_refusal", None), ("_is_refusal_said", False)):
        monkeypatch.setattr(requested, name, value)
    for name in ("RANK", "PERSEUS_DISABLE"):
        monkeypatch.delenv(name, raising=False)


def test_asking_again_replaces() -> None:
    assert requested.requested_options() is None
    requested.request_options(PerseusOptions(target="t_min"))
    requested.request_options(OPTIONS)
    assert requested.requested_options() == OPTIONS


def test_what_stands_on_the_command_line_comes_before_what_a_script_asks_for_later() -> None:
    requested.request_options(PerseusOptions(target="t_min", job="early"), given=PerseusOptions(target="t_min"))
    requested.request_options(PerseusOptions(target="slowdown=1.1", job="late"))
    assert requested.requested_options() == PerseusOptions(target="t_min", job="late")


def test_a_refusal_is_said_once_perseus_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    requested.report_refusal(SENTENCE)
    assert caplog.messages == []
    requested.request_options(OPTIONS)
    requested.request_options(OPTIONS)
    requested.report_refusal("another reason")
    assert caplog.messages == [SAID]
    assert caplog.records[0].levelno == logging.WARNING
    assert requested.refusal() == SENTENCE


def test_or_after_that(caplog: pytest.LogCaptureFixture) -> None:
    requested.request_options(OPTIONS)
    requested.report_refusal(SENTENCE)
    assert caplog.messages == [SAID]


def test_by_rank_0_alone(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    requested.request_options(OPTIONS)
    requested.report_refusal(SENTENCE)
    assert caplog.messages == []
    assert requested.refusal() == SENTENCE


def test_disabled(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_DISABLE", "1")
    requested.report_refusal(SENTENCE)
    requested.request_options(OPTIONS)
    assert requested.requested_options() is None
    assert caplog.messages == []
