"""Python's own hook at start. This folder stands on PYTHONPATH below ``deepspeed --perseus --no_python`` alone."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_HERE = Path(__file__).parent
sys.path[:] = [path for path in sys.path if path != str(_HERE)]

# By its path: this interpreter may be another environment's.
_spec = spec_from_file_location("perseus_dist_start", _HERE.parents[2] / "training" / "environment_start.py")
if _spec is not None and _spec.loader is not None:
    _module = module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    _module.wait_for("deepspeed")

# The environment's own sitecustomize, which this one hides.
_spec = PathFinder.find_spec("sitecustomize", sys.path)
if _spec is not None and _spec.loader is not None:
    _module = module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
