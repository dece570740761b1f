"""Fixtures and settings for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("shared_machine", deadline=None)  # how long one example takes says nothing on a busy machine
settings.load_profile("shared_machine")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Third-party measurements beside the checkout; never a part of it."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no ../shared/data beside this checkout: third-party measurements are not shipped with the project")
    return folder
