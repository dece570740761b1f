"""Fixtures and settings for all tests."""

import gc
import os
import signal
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = [
    "aimed_signals",
    "leftovers",
    "file_leftovers",
    "longest_first",
    "postgres_server",
    "slow_machines",
    "thread_order",
    "tier_files",
]

# How long one example takes says nothing on a busy machine. Every run tries the same examples, or a failure would say
# nothing of the change that met it; the soak tier draws others with --hypothesis-profile drawn.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("drawn", deadline=None)
settings.load_profile("fixed")

# Looking for garbage takes a sixth of a framework's import.
SEES_PARENT = """\
import gc, os, site, sys
gc.set_threshold(50_000, 20, 50)
sys.path.append({ours!r})
for name in sorted(os.listdir({ours!r})):
    if name.endswith(".pth") and not name.startswith("perseus_dist_"):
        site.addpackage({ours!r}, name, None)
"""

# Matrices of tests are small, and starting threads for them takes a quarter of numpy's import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# In the background of many CI runners SIGINT is ignored, under nohup SIGHUP; what a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Simulated jobs make millions of objects, and looking for garbage takes a seventh of collecting the tests.
gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish() -> None:
    """Never look for garbage among the tests themselves."""
    gc.freeze()


QUICK_TORCH = Path(__file__).parent / "support" / "quick_torch"
OF_TESTS = ("PERSEUS_TEST_", "PERSEUS_NUM_")


@pytest.fixture(scope="session", autouse=True)
def _state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Planners and jobs of tests are apart from those of the user who runs the tests, in state and settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PERSEUS_") and not name.startswith(OF_TESTS)]:
            patch.delenv(name)
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("PERSEUS_CONFIG", "off")
        patch.setenv("PERSEUS_CACHE", "off")  # or a test's job would begin where an earlier test's ended
        yield


@pytest.fixture(scope="session", autouse=True)
def _compiles_nothing() -> Iterator[None]:
    """PyTorch's compiler stays unloaded in the ranks that tests start, of which each makes an optimizer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHDYNAMO_DISABLE", "1")
        patch.setenv("PYTHONPATH", str(QUICK_TORCH), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Third-party measurements beside the checkout; never a part of it."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no ../shared/data beside this checkout: third-party measurements are not shipped with the project")
    return folder


@pytest.fixture
def child_venv(tmp_path: Path) -> Path:
    """A virtual environment that sees what this one has installed, and not what this one was enabled for."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False)
    (site_packages,) = folder.glob("lib/python3*/site-packages")
    code = SEES_PARENT.format(ours=sysconfig.get_path("purelib"))
    (site_packages / "parent.pth").write_text(f"import sys; exec({code!r}, {{}})\n")
    return folder
