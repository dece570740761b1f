"""What a seed breaks is printed as a file that breaks it again: shown by a fault that is planted."""

from pathlib import Path

import pytest

from perseus_dist.cli import main
from perseus_dist.simulation.chaos.drawing.draw import draw_history
from perseus_dist.simulation.chaos.drawing.fault_kinds import FaultKind
from perseus_dist.simulation.chaos.scenario.scenario_file import read_scenario
from perseus_dist.simulation.virtual.lease import VirtualLease

SEED = 264


@pytest.mark.stress
def test_a_shrunk_history_is_a_file_that_breaks_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = draw_history(SEED)
    assert FaultKind.AGENT_KILLED in drawn.faults
    assert main(["simulate", "--virtual-time", "--chaos", str(SEED)]) == 0
    monkeypatch.setattr(VirtualLease, "close", lambda _: None)  # a lease that ends unlocks nothing
    capsys.readouterr()
    assert main(["simulate", "--virtual-time", "--chaos", str(SEED)]) == 1
    out = capsys.readouterr().out
    assert "broken: durability: 1 GPUs are locked" in out
    assert "a smaller history that breaks durability, for --scenario FILE:" in out
    file = tmp_path / "history.json"
    file.write_text(out[out.index("{") :])
    small = read_scenario(file)
    assert len(small.events) < max(2, len(drawn.scenario.events))
    assert small.iterations < drawn.scenario.iterations
    assert main(["simulate", "--virtual-time", "--scenario", str(file)]) == 1
    assert "broken: durability: 1 GPUs are locked" in capsys.readouterr().out
    monkeypatch.undo()
    assert main(["simulate", "--virtual-time", "--scenario", str(file)]) == 0
