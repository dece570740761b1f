"""A framework's argument parser, which knows our options where a command line asks for one, and only there."""

import argparse
import sys
from typing import Any

from perseus_dist.training.options import add_options, is_option


class OptionParser(argparse.ArgumentParser):
    """argparse's, with our options behind those that were added before parsing, from the first time they are needed.

    That is where a word is one of them, or where help is shown. Every other command line is parsed, and refused, as by
    the parser without us: no abbreviation becomes ambiguous, and no usage lists what was not asked for. Ours cannot be
    abbreviated. Where the framework or the script has an option of such a name, it stays theirs, and none is added.
    """

    perseus_flag = "--perseus"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """argparse's, of a parser that knows our options where a word is one."""
        words = sys.argv[1:] if args is None else list(args)
        if any(map(self._is_ours, words)):
            self._add_ours()
        return super().parse_known_args(words, namespace)

    def format_help(self) -> str:
        """argparse's, with our options."""
        self._add_ours()
        return super().format_help()

    def add_perseus_options(self) -> None:
        """Add ours; overridden where values go elsewhere than to the namespace."""
        add_options(self, flag=self.perseus_flag)

    def _add_ours(self) -> None:
        if not any(map(self._is_ours, self._option_string_actions)):
            self.add_perseus_options()

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        return [found for found in super()._get_option_tuples(option_string) if not self._is_ours(found[1])]

    def _is_ours(self, word: str) -> bool:
        return is_option(word, flag=self.perseus_flag)
