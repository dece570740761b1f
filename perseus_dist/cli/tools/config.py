"""``perseus-dist config``: the settings in force, and where each is from."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perseus_dist.cli.settings.effective import Setting
    from perseus_dist.cli.settings.files import SettingsFile

_EPILOG = """\
example:
  perseus-dist config
  perseus-dist config --json
  perseus-dist config --check perseus.toml

Settings are the long options of a service's command in [planner], [planning-worker] and [clockd], and in [client]
those with which jobs, watch, target, straggler, fetch, policy, token, audit, health, doctor and simulate --planner
find a planner. The state commands and doctor read the planner's state-dir.
A later source wins:

  1. built-in default
  2. /etc/perseus-dist/perseus.toml
  3. $XDG_CONFIG_HOME/perseus-dist/perseus.toml, or ~/.config/perseus-dist/perseus.toml
  4. $PERSEUS_SECTION_KEY, such as PERSEUS_PLANNER_METRICS_PORT; for the client $PERSEUS_PLANNER and
     $PERSEUS_TOKEN_FILE, for clockd $PERSEUS_LEASE_DIR too
  5. the command line

$PERSEUS_CONFIG names one file to be read instead of both, or 'off' for none. A file must belong to the user who runs
the command, or to root, and others may not write it. Relative paths in it start from its folder. Training jobs, their
agents and their own planners read no file. Variables named as settings are that are none are told of.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "config",
        help="show settings and where each is from, or check a file of them",
        description="Show the settings of services and operators' commands, and where each is from.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", type=Path, metavar="FILE", help="check this file alone, and say whether it would do")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show or check.

    Raises:
        SettingsError: A file cannot be used, or a setting is refused.
    """
    code = _check(args.check, as_json=args.json) if args.check is not None else _show(as_json=args.json)
    from perseus_dist.cli.settings.effective import unknown_variables

    for name, nearest in unknown_variables(os.environ):
        print(f"perseus-dist: ${_text(name[:80])} is no setting; the nearest is ${nearest}", file=sys.stderr)
    return code


def _show(*, as_json: bool) -> int:
    from perseus_dist.cli.settings.files import candidate_files, read_files

    files = read_files(os.environ)
    settings = _settings(files, os.environ)
    read = [file.path for file in files]
    candidates = candidate_files(os.environ)
    states = [{"path": str(path), "read": path in read} for path in candidates]
    if as_json:
        print(json.dumps({"files": states, "settings": [_document(setting) for setting in settings]}))
        return 0
    for path in candidates:
        print(f"# {path}: {'read' if path in read else _why_not(path)}")
    rows = [(f"{one.section}.{one.key}", _text(one.value), one.source) for one in settings]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        print(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}")
    return 0


def _why_not(path: Path) -> str:
    try:
        path.stat()
    except PermissionError:
        return "in a folder that may not be looked into"
    except OSError:
        pass
    return "not there"


def _check(path: Path, *, as_json: bool) -> int:
    from perseus_dist.cli.node.doctor.settings_together import check_together
    from perseus_dist.cli.settings.files import read_file, write_doubt

    file = read_file(path.absolute(), must_exist=True, any_owner=True)
    assert file is not None
    settings = [setting for setting in _settings([file], {}) if setting.file is not None]
    if missing := check_together(settings, where=f"{path}: "):
        names = ", ".join(f"{setting.section}.{setting.key}" for setting in missing)
        print(f"perseus-dist: the files of {names} cannot be read here, and were not checked", file=sys.stderr)
    if doubt := write_doubt(path.stat()):
        print(f"perseus-dist: {path} is refused where it is in force: it {doubt}", file=sys.stderr)
    if as_json:
        print(json.dumps({"file": str(path), "settings": [_document(setting) for setting in settings]}))
    else:
        print(f"{path}: {len(settings)} {'setting' if len(settings) == 1 else 'settings'}, no errors")
    return 0


def _settings(files: "list[SettingsFile]", environ: "Mapping[str, str]") -> "list[Setting]":
    from perseus_dist.cli.settings.command_parser import command_parser
    from perseus_dist.cli.settings.effective import check_sections, effective_settings
    from perseus_dist.cli.settings.keys import COMMAND_OF

    for file in files:
        check_sections(file)
    return [
        setting
        for section, command in COMMAND_OF.items()
        for setting in effective_settings(section, command_parser(command), files, environ)
    ]


def _document(setting: "Setting") -> dict[str, Any]:
    return {
        "section": setting.section,
        "key": setting.key,
        "value": str(setting.value) if isinstance(setting.value, Path) else setting.value,
        "source": "file" if setting.file else "environment" if setting.variable else "default",
        "file": str(setting.file) if setting.file else None,
        "line": setting.line,
        "variable": setting.variable or None,
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = "-" if value is None else str(value)
    return text if text.isprintable() else repr(text)
