"""``perseus-dist profile show``."""

import json
import sys
from pathlib import Path

import pytest

from perseus_dist.cli import main

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
PNG_MAGIC = b"\x89PNG"
SHOW = ("profile", "show", str(EXAMPLE), "--blocking-power-w", "80")


@pytest.fixture
def dirty(tmp_path: Path) -> Path:
    """Two GPUs, a constant, one rejected row and one suspicious point."""
    lines = ["stage,instruction,frequency,time,energy,gpu"]
    for clock_mhz in range(1410, 1110, -15):
        time_s = 0.05 * 1410 / clock_mhz
        for gpu in ("a", "b"):
            lines += 4 * [f"0,forward,{clock_mhz},{time_s},{300 * time_s},{gpu}"]
            spike = 1.2 if (clock_mhz, gpu) == (1260, "b") else 1.0
            lines.append(f"0,backward,{clock_mhz},{2 * time_s},{spike * 600 * time_s},{gpu}")
    lines += [f"0,load,1410,0.003,0.4,{gpu}" for gpu in ("a", "b")]
    lines.append("0,forward,1410,0.08,15,a")
    path = tmp_path / "dirty.csv"
    path.write_text("\n".join(lines))
    return path


def test_the_table_has_a_whole_row_for_every_instruction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SHOW) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:2] for row in rows] == [[str(s), name] for s in range(4) for name in ("forward", "backward")]
    assert rows[0][2:6] == ["38", "855", "1410", "38"]
    assert {len(row) for row in rows} == {16}


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHOW, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["num_stages"] == 4
    assert shown["blocking_power_w"] == [80.0] * 4
    assert not shown["rejected"]
    assert not shown["suspicious"]
    first = shown["instructions"][0]
    assert (first["stage"], first["instruction"]) == (0, "forward")
    assert (first["min_clock_mhz"], first["max_clock_mhz"], first["num_clocks"]) == (855, 1410, 38)
    assert first["time_at_max_clock_s"] == pytest.approx(0.0368, rel=0.01)
    assert 25 < first["saving_percent"] < 40
    assert 20 < first["slowdown_percent"] < 60
    assert first["num_choices"] > first["num_hull_vertices"] > 2


def test_blocking_power_changes_what_is_saved(capsys: pytest.CaptureFixture[str]) -> None:
    savings = []
    for power in ("0", "80", "0,0,0,80"):
        assert main([*SHOW[:4], power, "--stage", "3", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert {record["stage"] for record in shown["instructions"]} == {3}
        savings.append(shown["instructions"][0]["saving_percent"])
    assert savings[0] < savings[1] == savings[2]


def test_groups_constants_rejected_rows_and_suspicious_points(dirty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", str(dirty)]) == 0
    out = capsys.readouterr().out
    assert f"{dirty}:204: rejected row, stage 0 forward at 1410 MHz gpu a: 0.08 s, 15 J" in out
    assert f"{dirty}: suspicious point, stage 0 backward at 1260 MHz gpu b: energy +20.0 % off" in out
    load = next(line.split() for line in out.splitlines() if line.split()[1:2] == ["load"])
    assert load == ["0", "load", "1", "-", "-", "2", "0.003000", "0.800", "-", "0.0", "0.0", "1", "1", "0.0", "0", "0"]

    assert main(["profile", "show", str(dirty), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["rejected"][0]["line"] == 204
    assert shown["suspicious"][0]["gpu"] == "b"
    assert shown["instructions"][0]["energy_at_max_clock_j"] == pytest.approx(30.0)


@pytest.mark.parametrize(("name", "start"), [("curves.svg", b"<?xml"), ("curves.png", PNG_MAGIC)])
def test_the_picture(tmp_path: Path, dirty: Path, name: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / name
    assert main(["profile", "show", str(dirty), "--out", str(out)]) == 0
    picture = out.read_bytes()
    assert picture.startswith(start)
    assert main(["profile", "show", str(dirty), "--out", str(out)]) == 0
    assert out.read_bytes() == picture


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["profile", "show", "missing.csv"], "missing.csv: cannot be read"),
        ([*SHOW, "--stage", "4"], "--stage: saw 4, expected one of the profile's, 0 to 3"),
        ([*SHOW, "--out", "curves.pdf"], "--out: saw 'curves.pdf', expected a file name that ends in .svg or .png"),
        ([*SHOW, "--out", "missing/curves.svg"], "missing/curves.svg: cannot be written"),
        (
            [*SHOW[:4], "80,80"],
            "--blocking-power-w: saw 2 values, expected 1 or 4; give one for all, or one for each stage",
        ),
    ],
)
def test_bad_input_exits_2_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert part in captured.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("power", ["nan", "-1", "watts"])
def test_bad_blocking_power_exits_2_with_one_line(capsys: pytest.CaptureFixture[str], power: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*SHOW[:3], f"--blocking-power-w={power}"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_without_matplotlib_a_picture_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in list(sys.modules):
        if name.startswith("perseus_dist.report."):
            monkeypatch.delitem(sys.modules, name)
    for name in ["matplotlib", *(name for name in sys.modules if name.startswith("matplotlib."))]:
        monkeypatch.setitem(sys.modules, name, None)
    assert main([*SHOW, "--out", str(tmp_path / "curves.svg")]) == 2
    assert capsys.readouterr().err.endswith("pip install 'perseus-dist[report]'\n")
    assert main(SHOW) == 0
