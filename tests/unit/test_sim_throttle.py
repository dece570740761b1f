"""Scripts of thermal caps."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from perseus_dist.runlog.file_names import INJECTED_FILE
from perseus_dist.simulation.frameworks.injection import Injection
from perseus_dist.simulator import SimulatedMachine, SimulatorError, Throttle, ThrottleScript, parse_throttle


def test_texts() -> None:
    assert parse_throttle("3:1005@30.5") == Throttle(at=30.5, gpu=3, cap_mhz=1005)
    assert parse_throttle("0:none@60") == Throttle(at=60, gpu=0, cap_mhz=None)


@pytest.mark.parametrize("text", ["", "1005@30", "0:1005", "0:hot@30", "-1:1005@30", "0:1005@-3", "0:1005@nan", "0:@1"])
def test_a_text_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SimulatorError, match="give GPU:MHZ@WHEN"):
        parse_throttle(text)


def test_each_is_done_once_when_it_is_due() -> None:
    with SimulatedMachine("a100", count=2, virtual=True) as machine:
        for gpu in machine.gpus:
            gpu.stream.kernel("forward", 100.0)
        hot = Throttle(at=10, gpu=1, cap_mhz=1005)
        cool = Throttle(at=20, gpu=1, cap_mhz=None)
        script = ThrottleScript([cool, hot], machine.gpus)
        assert script.apply_due(9.9) == []
        assert script.apply_due(12) == [hot]
        assert machine.gpu(1).state().clock_mhz == 1005
        assert machine.gpu(0).state().clock_mhz == 1410
        machine.gpu(1).set_thermal_cap(900)
        assert script.apply_due(13) == []
        assert machine.gpu(1).state().clock_mhz == 900
        assert script.apply_due(100) == [cool]
        assert machine.gpu(1).state().clock_mhz == 1410


def test_what_is_not_there_is_refused() -> None:
    with SimulatedMachine("a100", count=2, virtual=True) as machine:
        with pytest.raises(SimulatorError, match="GPU 2: there are 0 to 1"):
            ThrottleScript([Throttle(at=0, gpu=2, cap_mhz=1005)], machine.gpus)
        with pytest.raises(SimulatorError, match=r"1006 MHz: .* has 210 to 1410 MHz in steps of 15"):
            ThrottleScript([Throttle(at=0, gpu=0, cap_mhz=1006)], machine.gpus)


def test_what_was_done_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / INJECTED_FILE
    path.write_text("of an earlier run\n")
    iteration = -1
    with SimulatedMachine("a100", count=1, virtual=True) as machine:
        script = ThrottleScript(
            [Throttle(at=3, gpu=0, cap_mhz=1005), Throttle(at=5, gpu=0, cap_mhz=None)], machine.gpus
        )
        injection = Injection(script, tmp_path, lambda: iteration)
        assert not path.exists()
        for iteration in (-1, 2, 4, 4, 5, 6):  # noqa: B007 - the injection reads it
            injection.look()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["iteration"], line["gpu"], line["thermal_cap_mhz"]) for line in lines] == [(4, 0, 1005), (5, 0, None)]
    assert all(datetime.fromisoformat(line["at"]).tzinfo is not None for line in lines)
