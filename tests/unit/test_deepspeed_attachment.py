"""An engine that Perseus leaves has what its script gave it, before and meanwhile."""

import weakref
from typing import Any

import pytest

from perseus_dist.deepspeed import attachment as module
from perseus_dist.deepspeed.attachment import Attachment
from perseus_dist.training.rank.job_member import JobMember


class Engine:
    """As DeepSpeed's, as far as attributes of it are replaced."""

    def save_checkpoint(self) -> str:
        return "saved"

    def eval_batch(self) -> str:
        return "evaluated"


def test_what_the_script_has_put_over_ours_stays() -> None:
    engine: Any = Engine()
    engine.eval_batch = before = lambda: "evaluated by the script"
    attachment = Attachment(engine)
    for name in ("save_checkpoint", "eval_batch"):
        attachment._replace(name, attachment._marked(getattr(engine, name), "checkpoint"))
    ours = engine.save_checkpoint
    engine.save_checkpoint = lambda: f"{ours()} and uploaded"
    attachment.remove()
    assert engine.save_checkpoint() == "saved and uploaded"
    assert engine.eval_batch is before


def test_what_was_the_classs_is_the_classs_again() -> None:
    engine = Engine()
    attachment = Attachment(engine)
    attachment._replace("eval_batch", attachment._marked(engine.eval_batch, "eval_begin"))
    attachment.remove()
    assert vars(engine) == {}


def test_an_engine_that_is_refused_trains_in_turns_with_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would train at whatever clock the other's plan has set last."""

    closed: list[JobMember] = []
    monkeypatch.setattr(JobMember, "close", closed.append)
    active, refused = Attachment(Engine()), Attachment(Engine())
    active._member = member = object.__new__(JobMember)
    monkeypatch.setattr(module, "_newest", weakref.ref(active))
    assert refused.run_iteration(lambda: "loss") == "loss"
    assert closed == [member]
    assert not active.is_active
    assert active.run_iteration(lambda: "loss") == refused.run_iteration(lambda: "loss") == "loss"
    assert [record.getMessage() for record in caplog.records] == [
        "perseus: two engines train in this process, and a GPU has one clock: clocks are released"
    ]
