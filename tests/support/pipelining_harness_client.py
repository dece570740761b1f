"""Cases with real schedules of ``torch.distributed.pipelining``, so that tests import no torch."""

from typing import Any

import framework_harness

STEPS = ("train", "attach", "train", "train", "eval", "train", "detach", "train")

Seen = dict[str, Any]


class Harness(framework_harness.Harness):
    """A process with torch imported."""

    def __init__(self) -> None:
        super().__init__("pipelining_harness.py", {})

    def run_schedules(self, *schedules: str, **case: Any) -> list[dict[str, Seen]]:
        """What each rank saw, by schedule."""
        case = {"pp": 2, "mb": 4, "steps": STEPS, "is_refused": False, **case}
        return self.run(schedules=schedules, **case)
