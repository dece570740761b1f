"""Where a process of a test looks for a framework: in the folders that the test names, before those of all tests."""

import os
from pathlib import Path


def python_path(*folders: str | Path) -> str:
    """PYTHONPATH with the folders first."""
    others = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([*(str(Path(folder).resolve()) for folder in folders), *filter(None, [others])])
