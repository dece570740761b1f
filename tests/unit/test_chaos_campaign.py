"""What is printed of seeds that were tried; trials are made by hand."""

import json

import pytest

from perseus_dist.cli import main
from perseus_dist.simulation.chaos import campaign, trial
from perseus_dist.simulation.chaos.campaign import Campaign, run_campaign
from perseus_dist.simulation.chaos.drawing.draw import draw_history
from perseus_dist.simulation.chaos.record import Broken
from perseus_dist.simulation.chaos.scenario_file import parse_scenario, scenario_document
from perseus_dist.simulation.chaos.trial import Trial

BROKEN = (
    Broken(name="settled_time", sentence="too slow"),
    Broken(name="waiting", sentence="somebody waits"),
    Broken(name="waiting", sentence="and somebody else"),
)


def fake_trial(seed: int) -> Trial:
    """Every third seed breaks something."""
    history = draw_history(seed)
    return Trial(
        seed=seed,
        scenario=history.scenario,
        faults=history.faults,
        broken=BROKEN if seed % 3 == 0 else (),
        reached_plan=seed % 10 != 0,
        cpu_s=1.8,
    )


@pytest.fixture(autouse=True)
def _made_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "try_seed", fake_trial)
    monkeypatch.setattr(trial, "try_seed", fake_trial)
    monkeypatch.setattr(trial, "judge", lambda _: (None, BROKEN))


def tried() -> Campaign:
    seen: list[int] = []
    result = run_campaign(range(20), processes=1, progress=lambda one: seen.append(one.seed))
    assert seen == list(range(20))
    return result


def test_the_document() -> None:
    document = tried().document()
    assert (document["seeds"], document["broken_seeds"]) == (20, 7)
    assert document["broken_by_invariant"]["settled_time"] == document["broken_by_invariant"]["waiting"] == 7
    assert document["broken_by_invariant"]["total_time"] == 0
    assert [one["seed"] for one in document["failing"]] == [0, 3, 6, 9, 12, 15, 18]
    assert document["distribution"]["share_that_reached_a_plan"] == 0.9
    assert document["distribution"]["mean_iterations"] > 100
    assert document["seeds_per_core_hour"] == pytest.approx(2000)


def test_the_text() -> None:
    lines = tried().text().splitlines()
    assert lines[0] == "7 of 20 seeds broke an invariant: settled_time 7, waiting 7"
    assert lines[1] == "  seed 0: settled_time: too slow"
    assert lines[-1] == "2000 seeds per core-hour"
    assert not any("left out" in line for line in lines)


def test_many_seeds_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--virtual-time", "--chaos", "1-2"]) == 0
    assert main(["simulate", "--virtual-time", "--chaos", "1-3", "--json"]) == 1
    seen = capsys.readouterr()
    assert "2/2: seed 2: holds" in seen.err
    assert "3/3: seed 3: settled_time, waiting" in seen.err
    assert json.loads(seen.out.splitlines()[-1])["broken_seeds"] == 1


def test_one_seed_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--virtual-time", "--chaos", "1"]) == 0
    assert "no invariant is broken" in capsys.readouterr().out
    assert main(["simulate", "--virtual-time", "--chaos", "3"]) == 1
    out = capsys.readouterr().out
    assert "broken: waiting: somebody waits" in out
    small = parse_scenario(out[out.index("{") :])
    assert small.events == ()
    assert main(["simulate", "--virtual-time", "--chaos", "3", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["scenario"] == scenario_document(small)
    assert [one["name"] for one in document["broken_invariants"]] == ["settled_time", "waiting", "waiting"]
