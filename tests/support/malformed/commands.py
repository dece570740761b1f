"""The commands of a parser."""

import argparse
from collections.abc import Iterator


def leaves(parser: argparse.ArgumentParser, words: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Commands that have no second word, or with it, and the parser of each.

    Args:
        parser: Of the whole line, or of what follows ``words``.
        words: The command so far.
    """
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield words.strip(), parser
    for action in below:
        for word, found in action.choices.items():
            yield from leaves(found, f"{words} {word}")
