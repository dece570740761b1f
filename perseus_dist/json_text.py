"""Documents in JSON from outside: each key of an object once, or refused."""

from typing import Any


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An ``object_pairs_hook`` of ``json.loads`` that takes each key once.

    Raises:
        ValueError: A key stands in an object twice, and one of the two would be lost.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"{ascii(twice)[:80]} stands there twice")
    return found
