"""What is printed of seeds that were tried; trials are made by hand."""

import json
import re
from pathlib import Path

import pytest

from perseus_dist.cli import main
from perseus_dist.simulation.chaos import campaign, trial
from perseus_dist.simulation.chaos.campaign import Campaign, run_campaign
from perseus_dist.simulation.chaos.drawing.draw import draw_history
from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.known_failures import format_known_failures, read_known_failures
from perseus_dist.simulation.chaos.record import Broken
from perseus_dist.simulation.chaos.scenario.scenario_file import parse_scenario, scenario_document
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


def test_known_failures_are_no_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "known.json"
    file.write_text(format_known_failures(tried().trials))
    assert read_known_failures(file)[3] == {"settled_time", "waiting"}
    command = ["simulate", "--virtual-time", "--chaos", "0-19", "--known-failures", str(file)]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "every seed does what is known of it"
    file.write_text(
        '{"0": ["waiting"], "3": ["settled_time", "total_time", "waiting"], "4": ["crash"], "99": ["crash"]}'
    )
    assert main(["simulate", "--virtual-time", "--chaos", "0-4", "--known-failures", str(file)]) == 1
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "seed 0 newly breaks settled_time",
        "seed 3 no longer breaks total_time: take it from the file",
        "seed 4 no longer breaks crash: take it from the file",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "saw [], expected an object"),
        ("{", "expected one JSON object"),
        ('{"a": ["waiting"]}', "the seed"),
        ('{"1": []}', "seed 1: saw []"),
        ('{"1": ["wating"]}', "expected a list of crash, durability"),
    ],
)
def test_a_bad_file_of_known_failures_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "known.json"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=re.escape(message)):
        read_known_failures(file)


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
