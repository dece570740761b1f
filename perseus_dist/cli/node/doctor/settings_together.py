"""Checks of settings together, by the commands that they are for."""

import argparse
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from perseus_dist.cli.settings.command_parser import command_parser
from perseus_dist.cli.settings.defaults import with_sources
from perseus_dist.cli.settings.files import SettingsError
from perseus_dist.cli.settings.keys import COMMAND_OF, waive
from perseus_dist.errors import PerseusError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perseus_dist.cli.settings.effective import Setting

_FILES = {
    "planner": (
        *("tls-cert", "tls-key", "tls-client-ca", "signals"),
        *("metrics-tls-cert", "metrics-tls-key", "metrics-password-file"),
    ),
    "planning-worker": ("store-password-file",),
    "clockd": (),
    "client": ("tls-ca", "tls-cert", "tls-key"),
}
"""By section, the keys that name what the section's commands read as they begin."""
_ON_THE_LINE = ("store",)  # asked for, and given on the command line where no setting gives it


def check_together(settings: "Sequence[Setting]", *, where: str = "") -> "list[Setting]":
    """Check settings as the commands that they are for check them, were nothing else given.

    They may be checked where the files that they name are not, or may not be read: a section's are looked at where all
    of them can be.

    Args:
        settings: Of one file, or all that are in force.
        where: Begins an error's sentence.

    Returns:
        Those whose files cannot be read here.

    Raises:
        SettingsError: A command refuses the settings.
    """
    all_missing: list[Setting] = []
    for section in COMMAND_OF:
        given = [setting for setting in settings if setting.section == section]
        if not given:
            continue
        parser = command_parser(COMMAND_OF[section])
        parser.set_defaults(**{setting.dest: setting.value for setting in given})
        waive(parser, _ON_THE_LINE)
        args = parser.parse_args([])
        named = [one for one in given if one.key in _FILES[section]]
        missing = [one for one in named if not os.access(one.value, os.R_OK)]
        try:
            _check(section, args, with_files=bool(named) and not missing)
        except PerseusError as error:
            raise SettingsError(f"{where}[{section}]: {with_sources(str(error), args, given)}") from None
        all_missing += missing
    return all_missing


def _check(section: str, args: argparse.Namespace, *, with_files: bool) -> None:
    if section == "planner":
        from perseus_dist.cli.node import planner

        planner.check_options(args)
        if with_files:
            with suppress(ModuleNotFoundError):  # on a node that serves no planner
                planner.check_files(args)
    elif section == "planning-worker":
        from perseus_dist.cli.node.planner import check_store

        if with_files and args.store:
            check_store(args)
    elif section == "clockd":
        from perseus_dist.cli.node import clockd

        clockd.check_options(args)
    else:
        from perseus_dist.cli.jobs.planner_client import client_tls, parse_addresses
        from perseus_dist.rpc.connection import check_pem

        if args.planner:
            parse_addresses(args.planner)
        if (tls := client_tls(args)) is not None and with_files:
            check_pem(tls)
