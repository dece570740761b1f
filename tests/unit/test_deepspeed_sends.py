"""When results leave a simulated GPU: in the commands that send them, of a real engine class's map."""

from typing import Any

from perseus_dist.deepspeed.attachment import Attachment


class Commands:
    """Classes of commands, by the names that DeepSpeed gives them."""

    SendActivation = type("SendActivation", (), {})
    SendGrad = type("SendGrad", (), {})
    RecvGrad = type("RecvGrad", (), {})


class Recorded:
    """A member that writes down what leaves."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def send(self, kind: str, stage: int) -> None:
        self._log.append(f"{stage}{kind} leaves")


def test_results_leave_in_the_commands_that_send_them_while_training() -> None:
    log: list[str] = []
    attachment: Any = Attachment(engine=None)
    attachment._member = Recorded(log)
    for command in (Commands.RecvGrad, Commands.SendActivation, Commands.SendGrad):
        run = attachment._told(command, lambda _, name=command.__name__: log.append(name))
        for attachment._is_training in (False, True):
            run(None)
    assert log == [
        *["RecvGrad"] * 2,
        *["SendActivation", "0F leaves", "SendActivation"],
        *["SendGrad", "0B leaves", "SendGrad"],
    ]
