"""Docstrings and comments use the field's words: active verbs, named subjects, a noun at the begin."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
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
