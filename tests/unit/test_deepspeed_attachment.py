"""An engine that Perseus leaves has what its script gave it, before and meanwhile."""

from typing import Any

from perseus_dist.deepspeed.attachment import Attachment


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
