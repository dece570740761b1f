"""What ranks run in place of the user's script: it must be to the script as if ``python`` had run it."""

import os
import py_compile
import shutil
import subprocess
import sys
import zipapp
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from perseus_dist.training.options import PerseusOptions

RANK_MAIN = Path(__file__).parents[2] / "perseus_dist" / "deepspeed" / "rank_main.py"

Start = Callable[..., Sequence[str]]

SCRIPT = '''\
"""A script that looks about."""
import atexit, inspect, json, multiprocessing, os, pickle, sys

class Point:
    def __init__(self, x): self.x = x

def double(point):
    return Point(2 * point.x)

def at_exit():
    print(json.dumps(["at exit", __name__, Point.__module__]), flush=True)

if __name__ == "__main__":
    import helper
    atexit.register(at_exit)
    main = sys.modules["__main__"]
    print(json.dumps({
        "argv": sys.argv, "path": sys.path, "file": __file__, "name": __name__, "doc": __doc__, "package": __package__,
        "spec": str(__spec__ and __spec__.name), "loader": type(__loader__).__name__, "helper": helper.__file__,
        "main": main.Point is Point, "globals": sorted(globals()), "source": inspect.getsource(double),
        "flags": list(sys.flags), "options": sys.orig_argv[1:2],
    }))
    print(pickle.loads(pickle.dumps(Point(3))).x)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [Point(4)])[0].x, flush=True)
    if "--fail" in sys.argv:
        raise ValueError("on purpose")
    sys.exit(5)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    for path in (folder / "train.py", folder / "package" / "train.py"):
        path.write_text(SCRIPT)
    for path in (folder / "helper.py", folder / "package" / "__init__.py"):
        path.touch()
    (tmp_path / "linked.py").symlink_to(folder / "train.py")
    return folder


@pytest.fixture
def packed(project: Path) -> Path:
    """The project with all that Python runs: its script works in each, and finds its helper there."""
    # Spawned processes find no function of such a __main__ again, with or without us; and not all has a source.
    script = SCRIPT.replace("inspect.getsource(double)", "None")
    script = script[: script.index("    with multiprocessing")] + script[script.index('    if "--fail"') :]
    application = project / "application"
    application.mkdir()
    (application / "__main__.py").write_text(script)
    (application / "helper.py").touch()
    (project.parent / "linked").symlink_to(application)
    shutil.make_archive(str(project / "train"), "zip", application)
    zipapp.create_archive(application, project / "application.pyz", interpreter="/usr/bin/env python3")
    py_compile.compile(str(application / "__main__.py"), cfile=str(project / "train.pyc"))
    for folder in ("empty", "folder with a script"):
        (project / folder).mkdir()
    shutil.copy(project / "train.py", project / "folder with a script")
    with zipfile.ZipFile(project / "empty.zip", "w"):
        pass
    return project


def python(*arguments: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERSEUS", "PYTEST"))}
    return subprocess.run(
        [sys.executable, "-u", *arguments],
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def ours(how: str, target: str, *arguments: str) -> Sequence[str]:
    """As DeepSpeed's launcher starts a rank."""
    return (str(RANK_MAIN), "--local_rank=1", "--perseus-options", PerseusOptions().to_text(), how, target, *arguments)


def our_runner(how: str, target: str, *arguments: str) -> Sequence[str]:
    """As a user starts one of Megatron's."""
    module = ("-m",) if how == "module" else ()
    return ("-m", "perseus_dist.megatron", *module, target, "--local_rank=1", *arguments)


@pytest.fixture(params=[ours, our_runner], ids=["deepspeed", "megatron"])
def start(request: pytest.FixtureRequest) -> Start:
    function: Start = request.param
    return function


@pytest.mark.parametrize("path", ["train.py", "../linked.py"])
@pytest.mark.parametrize("environment", [{}, {"PYTHONSAFEPATH": "1", "PYTHONPATH": "."}])
def test_a_script(project: Path, start: Start, path: str, environment: dict[str, str]) -> None:
    plain = python(path, "--local_rank=1", "-x", "--perseus-options", cwd=project, **environment)
    under = python(*start("script", path, "-x", "--perseus-options"), cwd=project, **environment)
    assert under.stdout == plain.stdout
    assert (under.returncode, plain.returncode) == (5, 5)
    assert under.stderr == ""


@pytest.mark.parametrize(
    "path", ["application", "application/", "../linked", "train.zip", "./application.pyz", "train.pyc"]
)
@pytest.mark.parametrize("environment", [{}, {"PYTHONSAFEPATH": "1", "PYTHONPATH": "."}])
def test_what_else_python_runs(packed: Path, start: Start, path: str, environment: dict[str, str]) -> None:
    """Folders and ZIP files with a ``__main__``, and compiled scripts."""
    plain = python(path, "--local_rank=1", "-x", "--perseus-options", cwd=packed, **environment)
    under = python(*start("script", path, "-x", "--perseus-options"), cwd=packed, **environment)
    assert under.stdout == plain.stdout
    assert (under.returncode, plain.returncode) == (5, 5), under.stderr + plain.stderr
    assert under.stderr == ""


@pytest.mark.parametrize("path", ["empty", "empty.zip", "folder with a script"])
def test_nothing_in_it_that_runs(packed: Path, start: Start, path: str) -> None:
    plain = python(path, cwd=packed)
    under = python(*start("script", path), cwd=packed)
    assert "can't find '__main__' module in" in plain.stderr
    assert under.stderr == plain.stderr
    assert (under.returncode, plain.returncode) == (1, 1)


def test_a_module(project: Path, start: Start) -> None:
    plain = python("-m", "package.train", "--local_rank=1", "-x", cwd=project)
    under = python(*start("module", "package.train", "-x"), cwd=project)
    assert under.stdout.replace(str(RANK_MAIN), "-m") == plain.stdout
    assert (under.returncode, plain.returncode) == (5, 5)
    assert under.stderr == ""


def test_an_executable(project: Path) -> None:
    (project / "run").write_text('#!/bin/sh\necho "$0" "$@"\nexit 5\n')
    (project / "run").chmod(0o755)
    under = python(*ours("exec", "./run", "two words"), cwd=project)
    assert under.stdout == "./run --local_rank=1 two words\n"
    assert under.returncode == 5


@pytest.mark.parametrize(
    ("how", "target", "last_line"),
    [
        ("script", "train.py", "ValueError: on purpose"),
        ("script", "nowhere.py", "FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.py'"),
        ("module", "nowhere", f"{sys.executable}: No module named nowhere"),
        ("exec", "./nowhere", "FileNotFoundError: [Errno 2] No such file or directory: './nowhere'"),
    ],
)
def test_failures_are_the_users(project: Path, how: str, target: str, last_line: str) -> None:
    under = python(*ours(how, target, "--fail"), cwd=project)
    assert under.returncode == 1
    assert under.stderr.splitlines()[-1] == last_line


def test_a_package_that_is_broken_trains_on_without(project: Path, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    broken = "import sys\nsys.modules['perseus_dist.megatron.activation'] = None\n"
    (tmp_path / "first" / "sitecustomize.py").write_text(broken)
    under = python(*our_runner("script", "train.py"), cwd=project, PYTHONPATH=str(tmp_path / "first"))
    assert under.returncode == 5
    assert under.stderr.startswith("training runs without Perseus: ")
    assert under.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], [""], ["-m"], ["--enable-perseus", "train.py"]])
def test_nothing_to_run(project: Path, arguments: list[str]) -> None:
    under = python("-m", "perseus_dist.megatron", *arguments, cwd=project)
    assert under.returncode == 2
    assert under.stderr.startswith("usage: python -m perseus_dist.megatron {SCRIPT | -m MODULE} [ARGUMENT ...]")
    assert under.stderr.count("\n") == 1


def test_a_script_that_is_not_there(project: Path) -> None:
    under = python("-m", "perseus_dist.megatron", "nowhere.py", "--enable-perseus", cwd=project)
    assert under.returncode == 2
    assert under.stderr.startswith("python -m perseus_dist.megatron: no script at nowhere.py; usage: ")


def test_a_package_that_is_not_there_trains_on_without(project: Path, tmp_path: Path) -> None:
    """As where a node has none: here Python is told so before anything else."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text("import sys\nsys.modules['perseus_dist'] = None\n")
    under = python(*ours("script", "train.py"), cwd=project, PYTHONPATH=str(tmp_path / "first"))
    assert under.returncode == 5
    assert under.stderr.startswith("training runs without Perseus: No module named 'perseus_dist.deepspeed'")
    assert under.stderr.count("\n") == 1


def test_neither_torch_nor_a_framework_is_imported_before_the_script_does(project: Path, start: Start) -> None:
    (project / "train.py").write_text(
        "import sys\n"
        "heavy = ('torch', 'deepspeed', 'megatron', 'numpy', 'logging', 'grpc', 'perseus_dist.hooks')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    assert python(*start("script", "train.py"), cwd=project).stdout == "[]\n"


def test_an_enabled_environment_without_the_package_still_has_deepspeed() -> None:
    """Whoever uninstalls the package and forgets ``disable`` hears nothing of it."""
    start = RANK_MAIN.parents[1] / "training" / "environment_start.py"
    ask = "wait_for('deepspeed')\nfor _ in range(2): print(sys.meta_path[0].find_spec('deepspeed.runtime'))"
    code = f"{start.read_text()}\n{ask}"
    alone = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert alone.stderr == ""
    assert alone.stdout == "None\nNone\n"


def test_pythons_own_hook_at_start_is_not_lost(project: Path, tmp_path: Path) -> None:
    """Below ``--no_python``, Python processes find our sitecustomize first, and then the environment's."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys\nsys.theirs = __file__\n")
    (project / "look.py").write_text(
        "import sys\n"
        "print(sys.theirs, sys.modules['sitecustomize'].__file__ == sys.theirs, 'on_pythonpath' in str(sys.path))\n"
        "print([name for name in map(lambda finder: type(finder).__name__, sys.meta_path) if name == 'PerseusStart'])\n"
    )
    (project / "run").write_text(f"#!/bin/sh\nexec {sys.executable} look.py\n")
    (project / "run").chmod(0o755)
    under = python(*ours("exec", "./run"), cwd=project, PYTHONPATH=str(tmp_path / "site"))
    theirs = str(tmp_path / "site" / "sitecustomize.py")
    assert under.stdout.splitlines() == [f"{theirs} True False", "['PerseusStart']"]
