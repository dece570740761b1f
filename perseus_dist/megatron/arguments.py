"""``--enable-perseus`` and its options in the parser that Megatron fills itself, before or after other additions."""

import argparse
import functools
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from perseus_dist.megatron import requested
from perseus_dist.training.disabled import is_disabled
from perseus_dist.training.option_parser import OptionParser
from perseus_dist.training.options import (
    OptionError,
    PerseusOptions,
    add_options,
    check_profile,
    options_from_environment,
    options_from_namespace,
)
from perseus_dist.training.report_launcher import ReportLauncher

FLAG = "--enable-perseus"

_KNOWS_US = "_perseus_knows_us"  # of the function in the place of add_megatron_arguments


def patch_arguments(module: ModuleType) -> None:
    """Add our options to Megatron's parsers. A second call changes nothing.

    Args:
        module: ``megatron.training.arguments``.
    """
    add_theirs = module.add_megatron_arguments
    if hasattr(add_theirs, _KNOWS_US):
        return

    @functools.wraps(add_theirs)
    def add_megatron_arguments(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        filled: argparse.ArgumentParser = add_theirs(parser, *args, **kwargs)
        add_perseus_arguments(filled)
        return filled

    setattr(add_megatron_arguments, _KNOWS_US, True)
    module.add_megatron_arguments = add_megatron_arguments  # type: ignore[attr-defined] # parse_args looks it up there


def add_perseus_arguments(parser: argparse.ArgumentParser) -> None:
    """Have a parser know our options. What is given goes to ``requested`` as it is parsed, and not to a namespace.

    Megatron replaces its namespace under ``--yaml-cfg`` and saves it in checkpoints, from where it is read back.

    Args:
        parser: Ends the process with one line and exit code 2 where a value cannot be used.
    """
    if isinstance(parser, OptionParser):
        return
    # Megatron has made it, and keeps it: it stays of its class, and becomes of ours.
    parser.__class__ = type(type(parser).__name__, (_MegatronParser, type(parser)), {})


class _MegatronParser(OptionParser):
    perseus_flag = FLAG

    def add_perseus_options(self) -> None:
        add_options(
            self, flag=FLAG, action=functools.partial(_Ask, argparse.Namespace(), requested.requested_options())
        )


class _Ask(argparse.Action):
    """Asks for Perseus with all that was given to one parser so far, over what the script itself asked for."""

    def __init__(self, given: argparse.Namespace, before: PerseusOptions | None, **usual: Any) -> None:
        super().__init__(**usual)
        self._given = given
        self._before = before or PerseusOptions()

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 - see add_perseus_arguments
        values: str | Sequence[Any] | None,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        if is_disabled():
            return
        setattr(self._given, self.dest, values)
        try:
            given = options_from_namespace(self._given)
            options = given.over(self._before).over(options_from_environment())
            if os.environ.get("RANK", "0") == "0":
                if self.dest == "perseus_profile":
                    check_profile(options)
                if options.report is not None:
                    ReportLauncher(options.report)  # whose folder can be written to
        except OptionError as error:
            parser.exit(2, f"{parser.prog}: {' '.join(str(error).split())}\n")
        requested.request_options(options, given=given)
