"""Where modules live: rooms that can be looked over, and imports that never go in a circle; which tests start first."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from longest_first import LONGEST

import perseus_dist

PACKAGE = Path(perseus_dist.__file__).parent
MAX_MODULES = 15
MAX_WITH_PREFIX = 3
SOURCES = (".py", ".c", ".h")


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*") if path.suffix in SOURCES})


def room(folder: Path) -> str:
    return str(folder.relative_to(PACKAGE.parent))


def modules(folder: Path) -> set[str]:
    """A C file and its header are one."""
    return {path.stem for path in folder.iterdir() if path.suffix in SOURCES and path.name != "__init__.py"}


def imports(name: str) -> Iterator[str]:
    """What a module imports of this package, in functions and for type checking as well."""
    for node in ast.walk(ast.parse(PATHS[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in PATHS)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from submodules & PATHS.keys()
            if node.module in PATHS and not submodules <= PATHS.keys():
                yield node.module


def neighbours() -> dict[str, dict[str, set[str]]]:
    """By package: what its modules and packages import of each other, whole packages taken together.

    An import of a package that one is in is none: Python has imported that before.
    """
    result: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in PATHS:
        for imported in imports(name):
            ours, theirs = name.split("."), imported.split(".")
            same = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
            if same is not None:
                result[".".join(ours[:same])][ours[same]].add(theirs[same])
    return result


@pytest.mark.parametrize("folder", FOLDERS, ids=room)
def test_a_room_can_be_looked_over(folder: Path) -> None:
    assert len(modules(folder)) <= MAX_MODULES, "make rooms of what belongs together"


@pytest.mark.parametrize("folder", FOLDERS, ids=room)
def test_what_shares_a_prefix_has_a_room(folder: Path) -> None:
    names = modules(folder) | {path.name for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}
    prefixes = Counter(name.partition("_")[0] for name in names)
    assert [prefix for prefix, count in prefixes.items() if count > MAX_WITH_PREFIX] == []


def test_imports_never_go_in_a_circle() -> None:
    """Neither between modules of a package nor between packages, and no import in a function hides one."""
    rooms = neighbours()
    assert sum(len(imported) for room in rooms.values() for imported in room.values()) > len(PATHS)
    circles = {}
    for package, graph in rooms.items():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circles[package] = error.args[1]
    assert circles == {}


def test_every_folder_of_modules_is_a_package_that_says_what_it_holds() -> None:
    docs = {
        name: ast.get_docstring(ast.parse(path.read_text()))
        for name, path in PATHS.items()
        if path.name == "__init__.py"
    }
    assert [name for name, doc in docs.items() if not doc] == []
    packages = {PATHS[name].parent for name in docs}
    by_path = {PACKAGE / "deepspeed" / "launcher" / "on_pythonpath"}  # stands on PYTHONPATH
    assert {path.parent for path in PATHS.values()} - packages == by_path


def test_walks_name_modules_that_there_are_and_count_them() -> None:
    architecture = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
    section = architecture.partition("## Walks through the modules")[2].partition("\n## ")[0]
    walks = re.findall(r"^- \*\*(.+?)\*\*, (\d+) modules.*?: (`.+`)\.$", section, re.MULTILINE)
    assert len(walks) >= 5
    for title, count, modules_text in walks:
        names = re.findall(r"`([a-z_/]+)`", modules_text)
        assert len(set(names)) == int(count), title
        assert [name for name in names if not (PACKAGE / f"{name}.py").is_file()] == [], title
        if title.startswith("A figure"):  # what a new one touches, on a road that is there
            continue
        modules_of_walk = {f"{PACKAGE.name}.{name.replace('/', '.')}" for name in names}
        imported = {name: modules_of_walk.intersection(imports(name)) for name in modules_of_walk}
        alone = modules_of_walk - {name for name in imported if imported[name]} - set().union(*imported.values())
        assert alone == set(), f"{title}: between these and the others something is left out"


def test_the_files_that_start_first_are_there() -> None:
    names = [path.name for path in Path(__file__).parents[1].glob("*/test_*.py")]
    assert [name for name in LONGEST if names.count(name) != 1] == []
