"""A damaged database on a disk that has hardly any room left."""

import os
import subprocess
from pathlib import Path

import pytest
from test_planner_store import hundred_jobs

from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.store import Store


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_salvage_that_the_disk_has_no_room_for_leaves_the_database_as_it_is(tmp_path: Path) -> None:
    """Room for its copy and for the journal of the new one, and none for that journal's end."""
    folder = tmp_path / "state"
    folder.mkdir()
    hundred_jobs(tmp_path / "planner.sqlite")
    damaged = (tmp_path / "planner.sqlite").read_bytes()[:-4096]
    size = f"size={len(damaged) * 33 // 10}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "small", str(folder)], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        path = folder / "planner.sqlite"
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match="cannot be copied"):
            Store(path)
        assert path.read_bytes() == damaged
    finally:
        subprocess.run(["umount", str(folder)], check=True)
