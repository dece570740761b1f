"""PATH for commands that run beside simulated GPUs."""

import os


def searchable_path(*first: str) -> str:
    """This process's PATH without the folders that may not be searched.

    DeepSpeed on the CPU looks for numactl, and ends with PermissionError where PATH names such a folder.

    Args:
        first: Folders to look in before.
    """
    folders = (*first, *os.environ.get("PATH", os.defpath).split(os.pathsep))
    return os.pathsep.join(folder for folder in folders if os.access(folder or ".", os.X_OK))
