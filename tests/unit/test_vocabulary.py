"""Docstrings and comments use the field's words and say something: active verbs, named subjects, a noun at first."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import perseus_dist

PACKAGE = Path(perseus_dist.__file__).parent
GENERATED = PACKAGE / "rpc" / "v1"

ANYWHERE = {
    r"nobody": "name who does not: no rank, no process, no user; or 'is not known'",
    r"whoever": "name who: a rank that, a process that, the caller",
    r"(is|are|was|were|be|been|being) told": "say how: is sent, reported, logged; 'is not known' for 'cannot be told'",
    r"(its|his|their) likes": "its peers",
    r"how-manieth": "index",
    r"to be feared": "upper bound",
    r"worth nothing": "discard",
    r"what comes next belongs to nothing": "out of sync until the next iteration",
}
AT_THE_BEGIN = {
    r"What": "begin with the noun that the thing is, or with a verb",
    r"(It|They)": "name the subject",
}
MIN_WORDS = 3
THERE = re.compile(r"(See|As) ``[\w.]+``\.")


def documentation(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each docstring, each string that documents a constant, and each comment."""
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, " ".join(text.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")


def findings(source: str) -> list[str]:
    """A sentence for each word of our own that stands in the documentation of a module."""
    found = []
    for line, text in documentation(source):
        for pattern, remedy in ANYWHERE.items():
            if match := re.search(rf"\b{pattern}\b", text, re.IGNORECASE):
                found.append(f"{line}: saw {match[0]!r}; {remedy}")
        for pattern, remedy in AT_THE_BEGIN.items():
            if match := re.match(rf"{pattern}\b", text):
                found.append(f"{line}: saw {match[0]!r} at the begin; {remedy}")
    return found


def short_docstrings(source: str, body: Sequence[ast.stmt] | None = None, path: str = "") -> Iterator[str]:
    """Public classes and functions whose docstring has fewer than three words, and names no other's that says it."""
    for node in ast.parse(source).body if body is None else body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name, text = f"{path}{node.name}", ast.get_docstring(node)
            is_public = not node.name.startswith("_")
            if is_public and text and len(text.split()) < MIN_WORDS and not THERE.fullmatch(text):
                yield f"{name}: {text}"
            if isinstance(node, ast.ClassDef):
                yield from short_docstrings(source, node.body, f"{name}.")


def test_public_docstrings_say_something() -> None:
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if GENERATED not in path.parents]
    found = {str(path.relative_to(PACKAGE)): [*short_docstrings(path.read_text())] for path in paths}
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.parametrize(
    ("source", "num"),
    [
        ('def end():\n    """The end."""', 1),
        ('class A:\n    """A class of three."""\n    async def end(self):\n        """Nothing."""', 1),
        ('class _A:\n    def end(self):\n        """Nothing."""', 1),
        ('def end():\n    """See ``ClockControl``."""', 0),
        ('def end():\n    """See above."""', 1),
        ('def _end():\n    """The end."""', 0),
        ('def end():\n    """Close the file."""', 0),
    ],
)
def test_a_docstring_that_says_nothing_is_found(source: str, num: int) -> None:
    assert len([*short_docstrings(source)]) == num


@pytest.mark.parametrize("room", sorted({path.parent for path in PACKAGE.rglob("*.py")} - {GENERATED}), ids=str)
def test_docstrings_and_comments_use_the_fields_words(room: Path) -> None:
    found = {path.name: findings(path.read_text()) for path in sorted(room.glob("*.py"))}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        '"""What a rank does."""',
        'def end():\n    """It ends."""',
        "x = 1  # nobody reads it",
        "# What a rank does.\nx = 1",
        "x = 1  # It ends.",
        "x = 1  #: They end.",
        'X = 1\n"""Its values are\ntold to all."""',
        '"""Slower than its likes."""',
    ],
)
def test_a_word_of_our_own_is_found(source: str) -> None:
    assert len(findings(source)) == 1


def test_code_and_the_fields_words_pass() -> None:
    assert findings('"""What_if is a name."""\nnobody = "nobody is told"  # a string is for users\n') == []
