"""Single mutations of the pure cores, and how functions in memory are given one."""

import ast
import gc
import importlib
from collections.abc import Sequence
from functools import cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CORES = ("planner/lifecycle", "planner/job", "straggler", "device/lease/clock_slot.py", "agent/core", "planning")

# What may stand for what. An equivalent mutant (a bound that no input reaches) is a survivor that a reader explains.
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is not": "is", "is": "is not"}
COMPARISONS |= {"not in": "in", "in": "not in"}
OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "//": "*",
    "%": "*",
    "**": "*",
    "and": "or",
    "or": "and",
    "|": "&",
    "&": "|",
}


class Mutation(NamedTuple):
    """One change of one file: the text between two offsets."""

    path: str
    line: int
    begin: int
    end: int
    new: str

    def changed(self, source: str) -> str:
        """The file with the change."""
        return source[: self.begin] + self.new + source[self.end :]

    def text(self) -> str:
        """What it changes, for a reader."""
        source = source_of(self.path)
        whole = source.split("\n")[self.line - 1].strip()
        return f"{self.path}:{self.line}: {source[self.begin : self.end]!r} -> {self.new!r} in {whole}"


def modules() -> list[Path]:
    """The files of the pure cores."""
    paths = [ROOT / "perseus_dist" / core for core in CORES]
    return sorted(file for path in paths for file in ([path] if path.suffix else path.rglob("*.py")))


def mutations_of(path: Path) -> list[Mutation]:
    """All mutations of a file."""
    source = path.read_text()
    starts = [0]
    for line in source.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    if not source.isascii():  # columns of ``ast`` count bytes
        return []
    name = str(path.relative_to(ROOT))
    found: list[Mutation] = []

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column

    def between(left: ast.expr, right: ast.expr, replacements: dict[str, str]) -> None:
        assert left.end_lineno is not None
        assert left.end_col_offset is not None
        begin, end = offset(left.end_lineno, left.end_col_offset), offset(right.lineno, right.col_offset)
        gap = source[begin:end]
        operator = " ".join(gap.strip(" ()\n\t").split())
        if operator in replacements and operator in gap:
            at = begin + gap.index(operator)
            line = source.count("\n", 0, at) + 1
            found.append(Mutation(name, line, at, at + len(operator), replacements[operator]))

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
                between(left, right, COMPARISONS)
        elif isinstance(node, ast.BinOp):
            between(node.left, node.right, OPERATORS)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                between(left, right, OPERATORS)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            begin, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
            new = str(not node.value) if isinstance(node.value, bool) else f"({source[begin:end]} + 1)"
            found.append(Mutation(name, node.lineno, begin, end, new))
    return found


@cache
def source_of(path: str) -> str:
    """A file as it was when mutations were drawn."""
    return (ROOT / path).read_text()


def is_in_function(mutation: Mutation) -> bool:
    """Whether it is in the body of a function, and changes its code."""
    source = source_of(mutation.path)
    return _functions(source) != _functions(mutation.changed(source))


def _functions(source: str, path: str = "") -> dict[tuple[str, int], CodeType]:
    """The code of all functions of a module, by name and first line."""
    found: dict[tuple[str, int], CodeType] = {}
    open_codes = [compile(source, path, "exec", dont_inherit=True)]
    while open_codes:
        inner = [one for one in open_codes.pop().co_consts if isinstance(one, CodeType)]
        found |= {(one.co_qualname, one.co_firstlineno): one for one in inner if one.co_flags & CO_OPTIMIZED}
        open_codes += inner
    return found


def functions_of(mutations: Sequence[Mutation]) -> list[FunctionType]:
    """All functions of the modules that mutations change, as they are in this process."""
    paths = {mutation.path for mutation in mutations}
    for path in paths:
        importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    names = {str(ROOT / path) for path in paths}
    gc.unfreeze()  # or they would not be found
    found = [one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__code__.co_filename in names]
    gc.freeze()
    return found


def change_functions(mutation: Mutation, functions: Sequence[FunctionType]) -> None:
    """Give functions their changed code.

    Raises:
        LookupError: None of them is there.
    """
    path = ROOT / mutation.path
    num_changed = 0
    changed = _functions(mutation.changed(source_of(mutation.path)), str(path))
    for one in functions:
        if one.__code__.co_filename == str(path):
            code = changed.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
            if code is not None and code != one.__code__:
                one.__code__ = code
                num_changed += 1
    if not num_changed:
        raise LookupError(f"saw no function to change for {mutation.text()}")
