"""Files that pages load: styles and modules, read once, named by their content so that browsers may keep them."""

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_SHOWN_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file that the page loads, with its digest for caches."""

    content: bytes
    media_type: str
    digest: str


def load_assets() -> dict[str, Asset]:
    """All of them by name."""
    assets = {}
    for path in files("perseus_dist.planner.web").joinpath("static").iterdir():
        suffix = path.name[path.name.rfind(".") :]
        if suffix in _TYPES:
            content = path.read_bytes()
            digest = sha256(content).hexdigest()[:_SHOWN_DIGITS]
            assets[path.name] = Asset(content=content, media_type=_TYPES[suffix], digest=digest)
    return assets


def revision_of(assets: dict[str, Asset]) -> str:
    """Of all together: modules import each other without a query, and are checked by their digest."""
    return sha256("".join(assets[name].digest for name in sorted(assets)).encode()).hexdigest()[:_SHOWN_DIGITS]
