"""Which folder ``doctor`` takes for that of a planner on this node."""

import os
import tempfile
from pathlib import Path

import pytest
from another_user import another_user

from perseus_dist.cli.node.doctor import backup
from perseus_dist.cli.node.doctor.backup import is_planner_kept_here, planner_state_dir
from perseus_dist.cli.settings.effective import Setting
from perseus_dist.planner.store.state_dir import DATABASE


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The user's own and the service's."""
    own, service = tmp_path / "own", tmp_path / "service"
    for folder in (own, service):
        folder.mkdir()
    monkeypatch.setattr(backup, "default_state_dir", lambda: own)
    monkeypatch.setattr(backup, "_OF_THE_UNIT", service)
    return own, service


def test_the_services_folder_is_looked_into_where_the_settings_name_none_and_no_state_is_in_the_users(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    own, service = folders
    assert planner_state_dir([]) == own
    assert not is_planner_kept_here([])
    (service / DATABASE).touch()
    assert planner_state_dir([]) == service
    assert is_planner_kept_here([])
    (own / DATABASE).touch()
    assert planner_state_dir([]) == own
    named = Setting(section="planner", key="state-dir", dest="state_dir", value=tmp_path / "named")
    assert planner_state_dir([named]) == tmp_path / "named"
    assert not is_planner_kept_here([named])


def test_a_folder_of_the_service_that_may_not_be_listed_is_none(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = folders
    with tempfile.TemporaryDirectory() as name:  # others may look into its parents
        service = Path(name)
        monkeypatch.setattr(backup, "_OF_THE_UNIT", service)
        (service / DATABASE).touch()
        for mode, is_taken in ((0o755, True), (0o711 if os.geteuid() == 0 else 0o311, False)):
            service.chmod(mode)
            with another_user():
                assert planner_state_dir([]) == (service if is_taken else own)
        service.chmod(0o700)
