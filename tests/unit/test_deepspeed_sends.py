"""When transfers take their time on a simulated GPU: in DeepSpeed's commands that send and receive."""

from typing import Any

from perseus_dist.deepspeed.attachment import Attachment
from perseus_dist.deepspeed.engine_schedule import InstructionCounter


class Recorded:
    """A member that writes down what is sent."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def send(self, kind: str, stage: int) -> None:
        self._log.append(f"{stage}{kind} is sent")


def test_transfers_lie_in_the_commands_of_both_sides_while_training() -> None:
    log: list[str] = []
    attachment: Any = Attachment(engine=None)
    attachment._member, attachment._counter = Recorded(log), InstructionCounter((2,))
    for name in ("RecvActivation", "SendActivation", "RecvGrad", "SendGrad"):
        run = attachment._told(type(name, (), {}), lambda _, name=name: log.append(name))
        for attachment._is_training in (False, True):
            run(None)
    assert log == [
        *["RecvActivation", "RecvActivation", "1F is sent"],
        *["SendActivation", "SendActivation", "2F is sent"],
        *["RecvGrad", "RecvGrad", "3B is sent"],
        *["SendGrad", "SendGrad", "2B is sent"],
    ]


def test_dualpipev_puts_transfers_in_line_and_each_link_carries_one_after_the_other() -> None:
    log: list[str] = []
    attachment: Any = Attachment(engine=None)
    attachment._member, attachment._counter = Recorded(log), InstructionCounter((1, 6))
    attachment._is_training = True

    def run(name: str, **buffer: int) -> None:
        attachment._told(type(name, (), {}), lambda _, **given: log.append(f"{name} {given}".strip(" {}")))(
            None, **buffer
        )

    run("RecvActivation", phase=0)  # from pp_rank 0
    run("RecvGrad", phase=1)  # from there, too
    run("SendActivation", phase=0)  # to pp_rank 2
    run("SendGrad", phase=0)  # to pp_rank 0
    log.clear()
    run("CommitP2P")
    run("CommitP2P")
    assert log == ["CommitP2P", "0F is sent", "7B is sent", "CommitP2P"]
