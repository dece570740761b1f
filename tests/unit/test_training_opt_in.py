"""Files that enable a framework: written whole or not at all."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perseus_dist.training.opt_in import OptInError, mark, remove, write

FILE = "perseus_dist_deepspeed.pth"
TEXT = f"{mark('deepspeed')}\n" + "import sys\n" * 100


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """Room in every file for so much, as on a disk that is almost full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def enable(path: Path, text: str = TEXT) -> None:
    write(path, text, framework="deepspeed", mode=0o644, instead="make room")


@pytest.mark.parametrize("room", [0, 60], ids=["full", "almost full"])
def test_a_file_for_which_there_is_no_room_is_not_there(tmp_path: Path, room: int) -> None:
    """Python reads what stands there at every start, and half of it is not known to be ours."""
    with room_for(room), pytest.raises(OptInError, match="make room"):
        enable(tmp_path / FILE)
    assert not list(tmp_path.iterdir())
    enable(tmp_path / FILE)  # there is room again


def test_a_file_that_cannot_be_renewed_stays(tmp_path: Path) -> None:
    path = tmp_path / FILE
    enable(path)
    with room_for(0), pytest.raises(OptInError):
        enable(path, TEXT + "import os\n")
    assert path.read_text() == TEXT
    assert remove(path, framework="deepspeed") == path
    assert not list(tmp_path.iterdir())
