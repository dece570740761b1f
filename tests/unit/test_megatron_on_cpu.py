"""Megatron's C++ helper, where Megatron-LM trains on the CPU."""

import sysconfig
from pathlib import Path
from types import ModuleType

from perseus_dist.simulation.megatron_on_cpu import _make_helper


def test_a_checkouts_helper_is_made_for_this_python_and_a_packages_is_left(tmp_path: Path) -> None:
    """Megatron's Makefile takes the ending of whichever ``python3-config`` is first on the PATH."""
    module = ModuleType("utils")
    module.__file__ = str(tmp_path / "utils.py")
    _make_helper(module)
    module.compile_helpers()
    assert not list(tmp_path.iterdir())
    (tmp_path / "Makefile").write_text("LIBEXT = .of_another.so\ndefault:\n\ttouch helpers_cpp$(LIBEXT)\n")
    _make_helper(module)
    module.compile_helpers()
    assert (tmp_path / f"helpers_cpp{sysconfig.get_config_var('EXT_SUFFIX')}").exists()
