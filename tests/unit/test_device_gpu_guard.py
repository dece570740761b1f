"""Which processes count as a claimant's own: real ones."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perseus_dist.device.nvml.gpu_guard import Claimant, describe_process, is_own, translate_pids

ME = Claimant(pid=os.getpid(), uid=os.geteuid())
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"])
print(child.pid, flush=True)
child.wait()
"""


@contextmanager
def process(*command: str, user: int | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A process that ends with its input."""
    with subprocess.Popen(
        command or ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=user
    ) as running:
        try:
            yield running
        finally:
            running.communicate("\n")


def test_related_processes_are_own() -> None:
    assert is_own(os.getpid(), ME)
    with process(sys.executable, "-c", PARENT) as child:
        assert child.stdout is not None
        grandchild_pid = int(child.stdout.readline())
        assert is_own(child.pid, ME)
        assert is_own(grandchild_pid, ME)
        assert is_own(grandchild_pid, Claimant(pid=child.pid, uid=ME.uid))
        assert is_own(child.pid, Claimant(pid=grandchild_pid, uid=ME.uid))


def test_siblings_are_not_unless_named() -> None:
    with process() as one, process() as other:
        claimant = Claimant(pid=one.pid, uid=ME.uid)
        assert not is_own(other.pid, claimant)
        assert is_own(other.pid, Claimant(pid=one.pid, uid=ME.uid, own_pids=(other.pid,)))
        assert str(other.pid) in describe_process(other.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="init belongs to root")
def test_init_is_own_where_it_is_named_as_the_trainer_of_a_container() -> None:
    assert not is_own(1, ME)
    trainer = Claimant(pid=os.getpid(), uid=0, own_pids=(1,))
    assert is_own(1, trainer)
    with process() as child:
        assert is_own(child.pid, trainer)


def test_ids_of_a_containers_processes_are_translated(tmp_path: Path) -> None:
    def add(pid: int, namespace: str, nspid: str) -> None:
        (tmp_path / str(pid) / "ns").mkdir(parents=True)
        (tmp_path / namespace).touch()
        (tmp_path / str(pid) / "ns/pid").hardlink_to(tmp_path / namespace)
        (tmp_path / str(pid) / "status").write_text(f"Name:\tpython\nNSpid:\t{nspid}\n")

    add(1, "node", "1")
    add(900, "container", "900 1")
    add(950, "container", "950 20")
    add(970, "another", "970 1")
    (tmp_path / "self").symlink_to(tmp_path / "1")
    assert translate_pids([1], 950, tmp_path) == (900,)
    assert translate_pids([1, 20, 21], 950, tmp_path) == (900, 950)
    assert translate_pids([1, 7], 1, tmp_path) == (1, 7)
    assert translate_pids([7], 4711, tmp_path) == (7,)  # it has ended
    (tmp_path / "950" / "ns" / "pid").unlink()  # as of another user's process, for a daemon without CAP_SYS_PTRACE
    assert translate_pids([1, 20], 950, tmp_path) == ()
    assert translate_pids([1], 0, tmp_path) == ()  # of a namespace that is not below ours


def test_init_and_the_dead_are_not() -> None:
    with process() as child:
        pass
    assert not is_own(child.pid, ME)
    assert not is_own(child.pid, Claimant(pid=os.getpid(), uid=ME.uid, own_pids=(child.pid,)))
    assert "not visible here" in describe_process(child.pid)
    assert not is_own(1, Claimant(pid=os.getpid(), uid=12345))


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user, which needs root")
def test_other_users_processes_are_not_even_if_named() -> None:
    with process(user=65534) as other:
        assert not is_own(other.pid, Claimant(pid=os.getpid(), uid=0, own_pids=(other.pid,)))
        assert is_own(other.pid, Claimant(pid=other.pid, uid=65534))
        assert not is_own(os.getpid(), Claimant(pid=other.pid, uid=65534, own_pids=(os.getpid(),)))
