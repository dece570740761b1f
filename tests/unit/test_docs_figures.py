"""Figures within sentences of the documentation are those of committed results."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "docs" / "tools" / "tables.py"
RESULT = {
    "command": "python bench.py",
    "machine": "a machine",
    "date": "2026-11-27",
    "commit": "0123456",
    "columns": ["job", "M", "saving", "slowdown [%]"],
    "rows": [
        ["GPT", "12", "14.2 % (13.0)", "+0.17"],
        ["GPT", "96", "1,203.5 %", "-0.37"],
        ["Bloom", "12", "none", "+1.10"],
    ],
}


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The tool, over a folder of its own."""
    spec = importlib.util.spec_from_file_location("docs_tables", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "bench.json").write_text(json.dumps(RESULT))
    (tmp_path / "docs" / "page.md").write_text("<!-- table: bench -->\n<!-- end of table -->\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return module


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("bench / GPT / 12 / saving", "14.2 % (13.0)"),
        ("bench / GPT / 12 / saving #2", "13.0"),
        ("bench / GPT / 12 / saving as .0f", "14"),
        ("bench / GPT / 96 / saving #1", "1,203.5"),
        ("bench / Bloom / slowdown [%]", "+1.10"),
        ("most bench / slowdown [%]", "1.10"),
        ("least bench / slowdown [%]", "-0.37"),
        ("most bench / GPT / slowdown [%] as .1f", "0.2"),
        ("median bench / slowdown [%]", "0.17"),
        ("mean bench / slowdown [%] as .1f", "0.3"),
    ],
)
def test_a_figure_is_read_from_its_cell(tables: ModuleType, wanted: str, text: str) -> None:
    assert tables.figure_text(wanted) == text
    page = f"It saves <!-- figure: {wanted} -->1<!-- end -->, and <!-- figure: {wanted} -->2<!-- end -->."
    made = tables.filled(page)
    assert made == page.replace("-->1<", f"-->{text}<").replace("-->2<", f"-->{text}<")
    assert tables.filled(made) == made


@pytest.mark.parametrize(
    ("page", "refusal"),
    [
        ("a <!-- figure: other / GPT / saving -->1<!-- end -->", "expected NAME / CELL / COLUMN"),
        ("a <!-- figure: bench -->1<!-- end -->", "expected NAME / CELL / COLUMN"),
        ("a <!-- figure: bench / GPT / 12 / power -->1<!-- end -->", "expected a column of job, M, saving"),
        ("a <!-- figure: bench / GPT / saving -->1<!-- end -->", "saw 2 rows that begin so, expected one"),
        ("a <!-- figure: bench / OPT / saving -->1<!-- end -->", "saw 0 rows that begin so, expected one"),
        ("a <!-- figure: most bench / saving -->1<!-- end -->", "saw a cell without that number"),
        ("a <!-- figure: bench / GPT / 12 / saving #3 -->1<!-- end -->", "saw a cell without that number"),
        ("a <!-- figure: bench / GPT / 12 / saving as .q -->1<!-- end -->", "expected a column of job, M, saving"),
        ("a <!-- figure: bench / GPT / 12 / saving -->1\n<!-- end -->", "saw a figure without '<!-- end -->'"),
        ("a\n<!-- figure: bench / GPT / 12 / saving -->1<!-- end -->", "saw a line that begins with the mark"),
        ("- <!-- figure: bench / GPT / 12 / saving -->1<!-- end -->", "saw a line that begins with the mark"),
    ],
)
def test_marks_that_name_no_cell_are_refused(
    tables: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    page: str,
    refusal: str,
) -> None:
    (tmp_path / "README.md").write_text(page)
    monkeypatch.setattr(sys, "argv", ["tables.py"])
    assert tables.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("README.md: ")
    assert refusal in line
    assert (tmp_path / "README.md").read_text() == page


def test_a_stale_figure_fails_the_check(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text("up to <!-- figure: most bench / slowdown [%] -->1.1<!-- end --> %\n")
    for option, code in (("--check", 1), ("", 0), ("--check", 0)):
        monkeypatch.setattr(sys, "argv", ["tables.py", *filter(None, [option])])
        assert tables.main() == code
    assert (
        tmp_path / "README.md"
    ).read_text() == "up to <!-- figure: most bench / slowdown [%] -->1.10<!-- end --> %\n"
    assert "not what benchmarks/results give: README.md, docs/page.md" in capsys.readouterr().err


def test_the_pages_of_the_project_are_not_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("docs_tables_of_project", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    assert module.main() == 0
