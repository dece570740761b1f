"""The native part as C: NVIDIA's own header agrees with it, and compilers have nothing to say."""

import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import perseus_dist.simulator

SOURCES = Path(perseus_dist.simulator.__file__).parent / "native"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
STRICT = ("-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Werror")

pytestmark = pytest.mark.skipif(
    COMPILER is None or not SOURCES.is_dir(), reason="no C compiler, or no sources installed"
)


def compile_sources(pattern: str, *options: str) -> None:
    sources = sorted(SOURCES.glob(pattern))
    assert sources
    command = [str(COMPILER), *STRICT, f"-I{SOURCES}", *options, *map(str, sources)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_prototypes_are_those_of_nvidias_header() -> None:
    try:
        package = distribution("nvidia-nvml-dev-cu12")
    except PackageNotFoundError:
        pytest.skip("the package nvidia-nvml-dev-cu12, which brings nvml.h, is not installed")
    include = Path(str(package.locate_file("nvidia/nvml_dev/include")))
    # A function that the header does not declare has no prototype before its definition.
    options = (
        "-DPERSEUS_SIM_NVML_H",
        "-DNVML_NO_UNVERSIONED_FUNC_DEFS",
        "-Wmissing-prototypes",
        "-Wno-missing-declarations",
    )
    compile_sources("nvml/*.c", *options, "-isystem", str(include))


def test_sources_compile_without_warnings() -> None:
    compile_sources("**/*.c")
