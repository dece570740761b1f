"""Python's own hook at start. This folder stands on PYTHONPATH below ``deepspeed --perseus --no_python`` alone."""

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

import_module("perseus_dist_start")  # it waits for DeepSpeed
_FOLDER = str(Path(__file__).parent)
sys.path[:] = [path for path in sys.path if path != _FOLDER]

# The environment's own sitecustomize, which this one hides.
_spec = PathFinder.find_spec("sitecustomize", sys.path)
if _spec is not None and _spec.loader is not None:
    _module = module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
