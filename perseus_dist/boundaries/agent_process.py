"""Starting a rank's agent beside its trainer."""

import os
import subprocess
import sys

from perseus_dist.boundaries.descriptors import above_standard
from perseus_dist.boundaries.rank_spec import AgentStart, RankSpec

_STDERR = 2
_IMAGE = "image"

_pipes: "dict[str, _Pipe]" = {}


def start_agent(spec: RankSpec, *, ring_fd: int, doorbell_fd: int, is_replacement: bool = False) -> int:
    """Start ``python -m perseus_dist.agent`` and return its pid. Waits for exec alone, not for Python to start.

    The agent is spawned, never forked, inherits no descriptor but its own and standard error, and belongs to a session
    of its own, so that a terminal's Ctrl-C reaches the trainer first. ``AgentKeeper`` waits for its end.

    Args:
        spec: The rank.
        ring_fd: Of the boundaries' memory.
        doorbell_fd: The eventfd that wakes the agent.
        is_replacement: Whether the rank's agent before this one was killed or crashed.

    Raises:
        OSError: It cannot be started.
    """
    image_fd = _image_fd()
    trainer_pidfd = above_standard(os.pidfd_open(os.getpid()))
    # A file and not a pipe: a pipe that is full blocks its writer, and a large schedule fills it.
    stdin = os.memfd_create("perseus-agent-start", os.MFD_CLOEXEC)
    try:
        start = AgentStart(
            spec=spec,
            trainer_pid=os.getpid(),
            trainer_pidfd=trainer_pidfd,
            trainer_image_fd=image_fd,
            ring_fd=ring_fd,
            doorbell_fd=doorbell_fd,
            is_replacement=is_replacement,
        )
        with open(stdin, "wb", closefd=False) as file:
            file.write(start.to_json())
        os.lseek(stdin, 0, os.SEEK_SET)
        process = subprocess.Popen(
            # -P: the trainer's working directory must not stand in for installed packages.
            [sys.executable, "-P", "-m", "perseus_dist.agent"],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=_own_stderr(),
            pass_fds=(trainer_pidfd, image_fd, ring_fd, doorbell_fd),
            start_new_session=True,
        )
    finally:
        os.close(stdin)
        os.close(trainer_pidfd)
    process.returncode = 0  # it outlives this object on purpose, which would otherwise warn of that
    return process.pid


def _image_fd() -> int:
    """A pipe's end that is readable once this process runs another program: the other end is closed on exec.

    All agents of a process share one pipe. Forked children close both ends, so that a child may outlive the program.
    """
    pipe = _pipes.get(_IMAGE)
    if pipe is None or not all(map(pipe.is_end, pipe.ends)):
        _pipes.pop(_IMAGE, None)
        made = _Pipe()
        pipe = _pipes.setdefault(_IMAGE, made)
        if pipe is not made:  # the keeper of another hook was faster
            made.close()
    return pipe.ends[0]


class _Pipe:
    """Both ends of a pipe. The trainer may close them, and other files may then have their numbers.

    Attributes:
        ends: To read and to write.
    """

    def __init__(self) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        self.ends = above_standard(reader), above_standard(writer)
        self._identity = os.fstat(self.ends[0])

    def is_end(self, fd: int) -> bool:
        """Whether this descriptor is still the pipe's."""
        try:
            return os.path.samestat(os.fstat(fd), self._identity)
        except OSError:
            return False

    def close(self) -> None:
        """Close the ends that are the pipe's still."""
        for fd in filter(self.is_end, self.ends):
            os.close(fd)


def _give_up_image() -> None:
    if _IMAGE in _pipes:
        _pipes.pop(_IMAGE).close()


os.register_at_fork(after_in_child=_give_up_image)


def _own_stderr() -> int | None:
    """Standard error for an agent: this process's. Where that is closed, any file may have its number: then none."""
    try:
        os.fstat(_STDERR)
    except OSError:
        return subprocess.DEVNULL
    return subprocess.DEVNULL if sys.__stderr__ is None else None
