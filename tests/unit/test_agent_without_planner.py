"""The agent's process where a part of its begin fails: it goes on without that part."""

import os
from pathlib import Path

import pytest
from builders import make_spec

from perseus_dist.agent.link import embedded_planner
from perseus_dist.agent.process.devices import Devices
from perseus_dist.agent.process.process import AgentProcess
from perseus_dist.boundaries.rank_spec import AgentStart
from perseus_dist.boundaries.ring import RingWriter
from perseus_dist.device.observe import ObserveOnly
from perseus_dist.errors import NoRoomError
from perseus_dist.messages.terms import Gpu
from perseus_dist.rpc.node_jobs import running_jobs, state_prefix

GPU = Gpu(uuid="", name="", driver_version="", clocks_mhz=(), control="observe")


def test_an_agent_goes_on_without_the_planner_of_a_killed_one_whose_files_find_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    def replace_file(path: Path, data: bytes, *, mode: int) -> None:
        raise NoRoomError(f"{path}: {len(data)} bytes of mode {mode:o} find no room")

    monkeypatch.setattr(embedded_planner, "replace_file", replace_file)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rendezvous = tmp_path / "rendezvous"
    rendezvous.mkdir()
    spec = make_spec(schedule="0F0 0B0\n", rendezvous=str(rendezvous))
    killed = rendezvous / f"{state_prefix(spec.job_id)}abcdefgh"
    killed.mkdir()
    (killed / "operator-token").write_text("token")
    ring, doorbell, trainer = RingWriter(), os.eventfd(0, os.EFD_NONBLOCK), os.pidfd_open(os.getpid())
    image, kept = os.pipe()
    start = AgentStart(
        spec=spec,
        trainer_pid=os.getpid(),
        trainer_pidfd=trainer,
        trainer_image_fd=image,
        ring_fd=ring.fd,
        doorbell_fd=doorbell,
        is_replacement=True,
    )
    devices = Devices(control=ObserveOnly(refusal=""), meter=None, gpu=GPU, is_simulated=False)
    assert AgentProcess(start)._find_planner(spec, devices) is None
    assert "the job's planner cannot be started" in caplog.text
    assert list(tmp_path.iterdir()) == [tmp_path / "state"]
    assert running_jobs() == []
    ring.close()
    for descriptor in (doorbell, trainer, image, kept):
        os.close(descriptor)


def test_a_planner_is_told_which_agent_it_ends_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def start(command: list[str], **_: object) -> None:
        commands.append(command)
        raise OSError("no process can be started")

    monkeypatch.setattr("subprocess.Popen", start)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(OSError, match="no process can be started"):
        embedded_planner.EmbeddedPlanner(tmp_path / "rendezvous", make_spec(schedule="0F0 0B0\n"), 0)
    assert commands[0][commands[0].index("--parent") + 1] == str(os.getpid())


def test_a_planner_that_cannot_be_started_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def start(*_: object, pass_fds: tuple[int, ...], **__: object) -> None:
        seen.extend(job.job_id for job in running_jobs())
        held.extend(pass_fds)
        raise OSError("no process can be started")

    held: list[int] = []
    monkeypatch.setattr("subprocess.Popen", start)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    spec = make_spec(schedule="0F0 0B0\n")
    with pytest.raises(OSError, match="no process can be started"):
        embedded_planner.EmbeddedPlanner(tmp_path / "rendezvous", spec, 0)
    assert seen == [spec.job_id]
    assert running_jobs() == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not (tmp_path / "rendezvous").exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held[0])


def test_the_planner_of_a_killed_agent_goes_and_what_others_have_in_the_rendezvous_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[dict[str, str]] = []

    def start(command: list[str], **_: object) -> None:
        state = Path(command[command.index("--state-dir") + 1])
        assert state.name.startswith(state_prefix(spec.job_id))
        kept.append({path.name: path.read_text() for path in state.iterdir()})
        raise OSError(f"{command[0]} cannot be started")

    monkeypatch.setattr("subprocess.Popen", start)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    spec, folder = make_spec(schedule="0F0 0B0\n"), tmp_path / "rendezvous"
    killed, other, results = (
        folder / name
        for name in (f"{state_prefix(spec.job_id)}abcdefgh", f"{state_prefix('other')}abcdefgh", "planner-results")
    )
    for state in (killed, other, results):
        state.mkdir(parents=True)
        for name in ("planner.sqlite", "operator-token"):
            (state / name).write_text(state.name)
    with pytest.raises(OSError, match="cannot be started"):
        embedded_planner.EmbeddedPlanner(folder, spec, 0, is_continued=True)
    assert kept == [{"operator-token": killed.name}]
    assert set(folder.iterdir()) == {other, results}
    assert all((state / "planner.sqlite").read_text() == state.name for state in (other, results))
