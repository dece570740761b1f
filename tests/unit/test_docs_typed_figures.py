"""Measured figures in sentences of the documentation are read from results, not typed.

What tells a measured figure from a setting is a guess: a number with a unit and a decimal point, a count such as
"3 of 120", or a number with a unit in a sentence that tells of an outcome ("saved", "took", "late"). Sentences
that name a bar are left alone, and so is what stands in ``SETTINGS``.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "cli.md"),  # made from the parser
]
SETTINGS = {  # thresholds, definitions and what an experiment is made of: no result could hold them
    "glossary.md": ("1.05 is 5 % longer",),
    "measure.md": ("times to 0.01 %",),
    "megatron.md": ("35 % of the least power",),
    "planning.md": (
        "0.01 % of the energy below the exact one",
        "by more than 0.75 % of their time",
        "at most 0.35 % longer",
        "by 0.3 to 1.5 % and by more than chance explains",
        "for 5 % more time",
        "the 0.5 % that jobs are promised",
    ),
    "policies.md": ("would change by less than 0.5 %", "by at most 0.5 % more than at best"),
    "results.md": (
        "a clock change that takes 12 ms",
        "a tolerance of 0.01 %",
        "last stage 30 % heavier, 80 iterations",
        "backward on two ranks, of which the last stage is 30 % slower",
        "15 ms forward and 30 ms",
        "iterations of 1.8 s",
        "Going 5 or 10 % slower",
        "started again after 0.5 s",
        "stay more than 0.5 % longer than without",
        "with DP 4 and 20 ms",
        "whose counter ticks every 100 ms",
    ),
    "stragglers.md": ("a plan that is 2 % late by either", "down to 0.5 % where iterations vary little"),
}
_GENERATED = re.compile(r"<!-- (table|metrics): .*?<!-- end of \1 -->|^```.*?^```$", re.DOTALL | re.MULTILINE)
_READ = re.compile(r"<!-- figure: .*?<!-- end -->|`[^`\n]*`")
_PARAGRAPHS = re.compile(r"\n\s*\n|\n(?=[|*#-] ?)")
_SENTENCES = re.compile(r"(?<=[.;|]) ")
_NUMBER = r"(?<![\w.,])[-+]?\d[\d,]*(?:\.\d+)?(?:(?: to | and | or |-|, )[-+]?\d[\d,.]*)*"
_UNIT = r" ?(?:%|(?:points|us|ms|s|J|W|kB|MB|GB|KiB|MiB|GiB)\b)"
_FIGURE = re.compile(_NUMBER + _UNIT)
_COUNT = re.compile(r"(?<![\w.,])\d[\d,]* of \d[\d,]*\b(?!\.\d)")
_OUTCOME = re.compile(r"\b(?:saved|took|predicted|less energy|load average|per core-hour|late|slower|longer)\b")
_BAR = re.compile(r"\b(?:bars?|wanted|allowed)\b", re.IGNORECASE)


def typed_figures(page: str) -> Iterator[str]:
    """Sentences with figures that look measured and are typed."""
    prose = _READ.sub("it", _GENERATED.sub("\n\n", page))
    for paragraph in _PARAGRAPHS.split(prose):
        for sentence in _SENTENCES.split(" ".join(paragraph.split())):
            figures = _FIGURE.findall(sentence)
            is_measured = any("." in figure for figure in figures) or (figures and _OUTCOME.search(sentence))
            if (is_measured or _COUNT.search(sentence)) and not _BAR.search(sentence):
                yield sentence


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_measured_figure_is_typed(path: Path) -> None:
    page = path.read_text()
    for setting in SETTINGS.get(path.name, ()):
        assert setting in " ".join(page.split()), "the page says this no more: take it out of SETTINGS"
        page = re.sub(r"\s+".join(map(re.escape, setting.split())), "it", page)
    assert list(typed_figures(page)) == [], (
        "read them from benchmarks/results (docs/tools/tables.py explains the marks), "
        "or add a setting or a definition to SETTINGS"
    )


@pytest.mark.parametrize(
    "sentence",
    [
        "It saved 9.6 % less energy.",
        "Iterations were 3 % longer\nthan without.",
        "A scrape took 67, 133 and 265 ms.",
        "It starts in 18.7 ms.",
        "By chance 3 of 120 missed it.",
        "| a | b |\n| --- | --- |\n| it | saved 12 % |",
    ],
)
def test_a_typed_figure_is_found(sentence: str) -> None:
    assert len(list(typed_figures(f"# A page\n\n{sentence}\n"))) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "It saved <!-- figure: planners / EnvPipe / saving -->14.2 %<!-- end -->.",
        "A lease ends after 2 s, and agents ask again every 15 to 45 s.",
        "The bar is 0.5 %, and 9 of 10.",
        "DeepSpeed 0.19.8 was tried, by `--slowdown 1.05`.",
        "```sh\nsleep 0.5 s took\n```",
        "<!-- table: planners -->\n| 14.2 % |\n<!-- end of table -->",
    ],
)
def test_settings_and_read_figures_are_left_alone(sentence: str) -> None:
    assert list(typed_figures(f"# A page\n\n{sentence}\n")) == []
