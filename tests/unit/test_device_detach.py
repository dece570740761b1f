"""Which control groups a lease process leaves, from what /proc and the mounts say."""

import os
from pathlib import Path

import pytest

from perseus_dist.device.lease.detach import OWN_GROUP, leave_job, read_hierarchies


class Node:
    """A folder like /proc/self, and the top of one hierarchy."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "cgroup"
        self.top.mkdir()
        self.proc = folder / "proc"
        (self.proc / "ns").mkdir(parents=True)
        (self.proc / "ns/pid").symlink_to("/proc/self/ns/pid")

    def write(self, groups: str, kind: str = "cgroup2", shown: str = "/", options: str = "rw") -> None:
        (self.proc / "cgroup").write_text(groups)
        (self.proc / "mountinfo").write_text(f"41 31 0:38 {shown} {self.top} rw - {kind} {kind} {options}\n")

    @property
    def moved(self) -> str:
        path = self.top / OWN_GROUP / "cgroup.procs"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path)
    here = (made.proc / "ns/pid").stat().st_ino
    monkeypatch.setattr("perseus_dist.device.lease.detach._INITIAL_PID_NAMESPACE", here)
    return made


def test_a_group_below_the_machines_topmost_one_is_left(node: Node) -> None:
    node.write("0::/slurm/job_7/step_0\n")
    assert leave_job(node.proc) == ""
    assert node.moved == f"{os.getpid()}\n"


def test_who_is_in_the_topmost_group_stays(node: Node) -> None:
    node.write("0::/\n")
    assert leave_job(node.proc) == ""
    assert node.moved == ""


def test_a_group_that_a_namespace_shows_as_topmost_cannot_be_left(node: Node) -> None:
    (node.top / "cgroup.type").write_text("domain\n")
    node.write("0::/job\n")
    assert leave_job(node.proc) == "its control group /job"
    assert node.moved == ""


def test_a_part_of_the_hierarchy_is_not_its_top(node: Node) -> None:
    node.write("0::/docker/abc\n", shown="/docker/abc")
    assert leave_job(node.proc) == "its control group /docker/abc"
    node.write("0::/docker/abc\n", kind="tmpfs")
    assert leave_job(node.proc) == "its control group /docker/abc"


def test_where_it_may_not_be_written_that_is_said(node: Node) -> None:
    (node.top / OWN_GROUP).write_text("no folder")
    node.write("0::/job\n")
    assert leave_job(node.proc) == "its control group /job"


def test_a_freezer_of_version_1_is_left_too(node: Node) -> None:
    (node.top / "release_agent").touch()
    node.write("6:freezer:/slurm/job_7\n4:memory:/slurm/job_7\n", kind="cgroup", options="rw,freezer")
    assert [hierarchy.controllers for hierarchy in read_hierarchies(node.proc)] == ["freezer"]
    assert leave_job(node.proc) == ""
    assert node.moved == f"{os.getpid()}\n"


def test_a_container_cannot_be_left(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_dist.device.lease.detach._INITIAL_PID_NAMESPACE", 1)
    node.write("0::/job\n")
    assert leave_job(node.proc) == "its container"
    assert node.moved  # what can be left is left


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert leave_job(tmp_path) == ""
