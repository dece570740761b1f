"""Results that appear together, and progress on a terminal."""

import io
import sys
from pathlib import Path

import pytest

from perseus_dist.cli.planning.output import shown_progress, staged_output
from perseus_dist.errors import OutputError

NAMES = ("one.txt", "two.txt")


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_files_appear_together_in_a_folder_that_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "results"
    with staged_output(folder, NAMES) as staging:
        for name in NAMES:
            (staging / name).write_text(name)
        assert not any((folder / name).exists() for name in NAMES)
    assert contents(tmp_path) == {"deep/results/one.txt": "one.txt", "deep/results/two.txt": "two.txt"}
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)


def write_half_and_fail(folder: Path, error: type[BaseException]) -> None:
    with staged_output(folder, NAMES) as staging:
        (staging / "one.txt").write_text("half")
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_everything_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "one.txt").write_text("old")
    for folder in (tmp_path / "old", tmp_path / "new" / "er"):
        with pytest.raises(error):
            write_half_and_fail(folder, error)
    assert contents(tmp_path) == {"old/one.txt": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_what_a_success_did_not_write_does_not_stay_from_before(tmp_path: Path) -> None:
    for name in (*NAMES, "other.txt"):
        (tmp_path / name).write_text("old")
    with staged_output(tmp_path, NAMES) as staging:
        (staging / "two.txt").write_text("new")
    assert contents(tmp_path) == {"two.txt": "new", "other.txt": "old"}


def test_refuses_a_file_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with (
            pytest.raises(
                OutputError, match=r"--out .*file.*: cannot be written to \(Not a directory\); name a folder"
            ),
            staged_output(folder, NAMES),
        ):
            pytest.fail("it was entered")


def test_refuses_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "one.txt").mkdir()
    with pytest.raises(OutputError, match=r"one\.txt is a folder there"), staged_output(tmp_path, NAMES):
        pytest.fail("it was entered")
    assert [path.name for path in tmp_path.iterdir()] == ["one.txt"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_shows_on_a_terminal_once_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with shown_progress() as progress:
        assert progress is not None
        assert terminal.getvalue() == ""
        assert progress("exact frontier", 0.25)
        assert "exact frontier" in terminal.getvalue()
        assert progress("realised plans", 0.5)
    assert "realised plans" in terminal.getvalue()
    assert "50%" in terminal.getvalue()


def test_no_progress_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with shown_progress() as progress:
        assert progress is None
    assert file.getvalue() == ""
