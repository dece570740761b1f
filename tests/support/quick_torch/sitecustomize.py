"""For processes with this folder in PYTHONPATH: torch comes by ``torch_without_compiler``, if it comes.

Where ``TORCHDYNAMO_DISABLE`` is set. No process looks for garbage as it ends, which is a fifth of a short one's time.
Threads run in the order that ``PERSEUS_TEST_THREADS`` names, if any (``thread_order.py``). Each of a thousand processes
imports this module, most of them no torch: it imports nothing that Python has to look for.
"""

import atexit
import gc
import os
import sys

ASK_FOR_TORCH = ("torch", "transformers", "accelerate")


class Start:
    """Has the finder that matters take its place at the first import that is about torch."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name not in ASK_FOR_TORCH:
            return None
        finder = import_beside("torch_without_compiler", os.path.dirname(__file__)).FINDER  # type: ignore[attr-defined] # noqa: PTH120
        finders: list[object] = [*sys.meta_path]
        sys.meta_path[:] = [finder if one is self else one for one in finders]  # type: ignore[misc]
        found: object = finder.find_spec(name, path, target)
        return found


def import_beside(name: str, folder: str) -> object:
    """A module of a folder that need not be in the path any more."""
    sys.path.append(folder)
    try:
        return __import__(name)
    finally:
        sys.path.pop()


atexit.register(gc.freeze)
if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
    sys.meta_path.insert(0, Start())  # type: ignore[arg-type]
if os.environ.get("PERSEUS_TEST_THREADS"):
    import_beside("thread_order", __file__.rpartition("/quick_torch/")[0]).choose()  # type: ignore[attr-defined]
