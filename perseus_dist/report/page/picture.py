"""A picture inside a page: its SVG without what belongs to a file, in colours that follow the page's light or dark."""

import re

from perseus_dist.report.plots import theme

# Ink and paper become the page's variables; what encodes a value, such as the colour of a clock, stays.
_VARIABLES = {
    theme.INK: "--ink",
    theme.MUTED: "--muted",
    theme.HAIRLINE: "--hairline",
    theme.WAITING: "--waiting",
    theme.CONSTANT: "--constant",
    theme.ACCENT: "--accent",
    theme.PLANS: "--plans",
}


def inline_picture(svg: bytes, name: str, *, label: str) -> str:
    """Markup for a page.

    Args:
        svg: As ``theme.figure_bytes`` writes it.
        name: Goes before every id, so that several pictures share a page.
        label: Read aloud instead of the picture.
    """
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    head, body = text.split(">", 1)
    view_box = re.search(r'viewBox="[^"]*"', head)
    assert view_box is not None  # matplotlib always writes one
    body = body.replace(f'id="{theme.ON_COLOUR}"', f'class="{theme.ON_COLOUR}"')
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    body = body.replace("fill: #ffffff", "fill: var(--paper)").replace("stroke: #ffffff", "stroke: var(--edge)")
    links = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {view_box[0]} {links} role="img" aria-label="{label}">{body}'
