import logging

import pytest

from perseus_dist.megatron import activation
from perseus_dist.training.options import PerseusOptions

OPTIONS = PerseusOptions(job="x")
SENTENCE = "Megatron 9.9 has no forward_step"
SAID = f"perseus: clocks stay as they are: {SENTENCE}"


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_options", None), ("_refusal", None), ("_is_refusal_said", False)):
        monkeypatch.setattr(activation, name, value)
    for name in ("RANK", "PERSEUS_DISABLE"):
        monkeypatch.delenv(name, raising=False)


def test_asking_again_replaces() -> None:
    assert activation.asked() is None
    activation.ask(PerseusOptions(target="t_min"))
    activation.ask(OPTIONS)
    assert activation.asked() == OPTIONS


def test_a_refusal_is_said_once_perseus_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    activation.refuse(SENTENCE)
    assert caplog.messages == []
    activation.ask(OPTIONS)
    activation.ask(OPTIONS)
    activation.refuse("another reason")
    assert caplog.messages == [SAID]
    assert caplog.records[0].levelno == logging.WARNING
    assert activation.refusal() == SENTENCE


def test_or_after_that(caplog: pytest.LogCaptureFixture) -> None:
    activation.ask(OPTIONS)
    activation.refuse(SENTENCE)
    assert caplog.messages == [SAID]


def test_by_rank_0_alone(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    activation.ask(OPTIONS)
    activation.refuse(SENTENCE)
    assert caplog.messages == []
    assert activation.refusal() == SENTENCE


def test_disabled(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_DISABLE", "1")
    activation.refuse(SENTENCE)
    activation.ask(OPTIONS)
    assert activation.asked() is None
    assert caplog.messages == []
