"""Elements of pages: sections, lists, tables, pictures."""

from collections.abc import Iterable, Sequence
from html import escape


def section(title: str, content: str) -> str:
    """A heading, and what is below it."""
    return f"<section><h2>{title}</h2>{content}</section>"


def bullets(sentences: Iterable[str], *, kind: str = "") -> str:
    """A list of sentences, of a class of the style sheet; nothing without any."""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="{kind}">{items}</ul>' if items else ""


def figure(markup: str, name: str, caption: str) -> str:
    """A picture's markup with its caption below."""
    return f'<figure><div class="picture {name}">{markup}</div><figcaption>{escape(caption)}</figcaption></figure>'


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Sequence[int] = (0,), wide: int | None = None
) -> str:
    """A table that scrolls by itself where the screen is narrow.

    Args:
        headers: Of the columns.
        rows: Their cells.
        texts: Columns that stand to the left, as texts do.
        wide: The column whose texts may break into lines.
    """

    def line(cells: Sequence[str], tag: str) -> str:
        classes = ["text" * (column in texts) + " wide" * (column == wide) for column in range(len(cells))]
        return "".join(
            f'<{tag} class="{kind.strip()}">{escape(cell)}</{tag}>' for kind, cell in zip(classes, cells, strict=True)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{line(headers, "th")}</tr></thead><tbody>{body}</tbody></table></div>'
    )
