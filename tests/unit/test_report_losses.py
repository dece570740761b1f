"""Whether two runs have the same losses, bit by bit; files that hold none are refused with their line."""

from pathlib import Path

import pytest

from perseus_dist.report.analysis.losses import LossesError, losses_equal, read_losses


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_losses_are_equal_to_the_last_bit_or_not_at_all(tmp_path: Path) -> None:
    ours = write(tmp_path / "ours", '{"step": 1, "loss": 0.1}', '{"step": 2, "loss": "nan"}')
    same = write(tmp_path / "same", '{"step": 2, "loss": "nan"}', '{"step": 1, "loss": 9}', '{"step": 1, "loss": 0.1}')
    other = write(tmp_path / "other", '{"step": 1, "loss": 0.10000000000000002}', '{"step": 2, "loss": "nan"}')
    assert losses_equal(ours, same)
    assert not losses_equal(ours, other)


def test_runs_of_different_steps_are_not_compared(tmp_path: Path) -> None:
    ours = write(tmp_path / "ours", '{"step": 1, "loss": 1}')
    theirs = write(tmp_path / "theirs", '{"step": 1, "loss": 1}', '{"step": 4, "loss": 1}')
    with pytest.raises(LossesError, match=r"1 steps from 1 to 1 and \S+ 2 steps from 1 to 4; expected the same steps"):
        losses_equal(ours, theirs)


@pytest.mark.parametrize("line", ["[]", "{", '{"step": 1}', '{"step": -1, "loss": 1}', '{"step": 1, "loss": "much"}'])
def test_a_line_that_is_no_loss_is_named(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "losses", '{"step": 1, "loss": 1}', line)
    with pytest.raises(LossesError) as refused:
        read_losses(path)
    assert str(refused.value) == f'{path}:2: saw {line!r}, expected a line such as {{"step": 3, "loss": 5.4321}}'


def test_a_file_without_losses_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "losses")
    with pytest.raises(LossesError, match="no losses in it; name the file of a run that has trained"):
        read_losses(path)
    with pytest.raises(LossesError, match=r"; name a file of losses$"):
        read_losses(tmp_path / "none")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(LossesError, match="not text; expected lines such as"):
        read_losses(path)
