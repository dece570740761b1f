"""Write manual pages from the parser itself: perseus-dist(1), one for each command, and perseus.toml(5).

    python docs/tools/man_pages.py FOLDER

writes FOLDER/man1 and FOLDER/man5, in the macros of man(7), which man-db, mandoc and groff read.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

from cli_reference import commands

from perseus_dist import __version__
from perseus_dist.cli.parser import COMMANDS, GROUPS, HIDDEN, build_parser
from perseus_dist.cli.settings.command_parser import command_parser
from perseus_dist.cli.settings.files import CONFIG_VARIABLE, OFF, SYSTEM_FILE
from perseus_dist.cli.settings.keys import ALIASES, COMMAND_OF, is_switch, options_of, variable_of

_PROGRAM = "perseus-dist"
_FILE_PAGE = "perseus.toml"
_EXAMPLE = "example:\n"


def pages() -> Iterator[tuple[str, str]]:
    """(name such as ``perseus-dist-plan.1``, its source) of every page."""
    parser = build_parser(command for command in COMMANDS if command not in HIDDEN)
    found = [(command.prog.split()[1:], command, line) for command, line in commands(parser)]
    yield f"{_PROGRAM}.1", "".join(_overview(parser, [("-".join(words), line) for words, _, line in found]))
    for words, command, line in found:
        yield f"{_PROGRAM}-{'-'.join(words)}.1", "".join(_command(words, command, line))
    yield f"{_FILE_PAGE}.5", "".join(_settings())


def escape(text: str) -> str:
    """Text as it is, between macros: no line of it is one, and every hyphen can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in text.split("\n"))


def _filled(text: str) -> str:
    """Text whose lines may be broken anew."""
    return escape(fill(" ".join(text.split()), 72, break_long_words=False, break_on_hyphens=False))


def _title(name: str, volume: int, line: str) -> str:
    line = line.replace("`", "").rstrip(".")
    return (
        f'.\\" Made from the parser by docs/tools/man_pages.py.\n'
        f'.TH "{escape(name.upper())}" "{volume}" "" "perseus\\-dist {escape(__version__)}" "perseus\\-dist"\n'
        ".nh\n.ad l\n"
        f".SH NAME\n{escape(name)} \\- {escape(line)}\n"
    )


def _overview(parser: argparse.ArgumentParser, found: list[tuple[str, str]]) -> Iterator[str]:
    yield _title(_PROGRAM, 1, "energy-optimal GPU clocks for pipeline-parallel training")
    yield f".SH SYNOPSIS\n.B perseus\\-dist\n.I COMMAND\n[...]\n.SH DESCRIPTION\n{_filled(parser.description or '')}\n"
    yield ".SH COMMANDS\n"
    for group, names in GROUPS.items():
        shown = [(name, line) for first in names for name, line in found if name.split("-")[0] == first]
        if shown:
            yield f".SS For {escape(group)}\n"
        for name, line in shown:
            yield f".TP\n.BR {escape(f'{_PROGRAM}-{name}')} (1)\n{_filled(line)}\n"
    yield from _last()


def _command(words: list[str], command: argparse.ArgumentParser, line: str) -> Iterator[str]:
    name = f"{_PROGRAM}-{'-'.join(words)}"
    yield _title(name, 1, line)
    usage = " ".join(command.format_usage().split()).removeprefix("usage: ").removeprefix(command.prog)
    yield f".SH SYNOPSIS\n.B {escape(command.prog)}\n{_filled(usage)}\n"
    yield f".SH DESCRIPTION\n{_filled(command.description or '')}\n"
    example, _, more = (command.epilog or "").removeprefix(_EXAMPLE).partition("\n\n")
    for block in filter(None, more.rstrip().split("\n\n")):
        yield f".PP\n.nf\n{escape(block)}\n.fi\n" if "\n  " in f"\n{block}" else f".PP\n{_filled(block)}\n"
    if actions := [action for action in command._actions if action.help != argparse.SUPPRESS]:
        yield ".SH OPTIONS\n"
        yield from (f".TP\n{_synopsis(action)}\n{_filled(_explained(action))}\n" for action in actions)
    if example:
        lines = "\n".join(part.removeprefix("  ") for part in example.rstrip().split("\n"))
        yield f".SH EXAMPLES\n.nf\n{escape(lines)}\n.fi\n"
    yield from _last()


def _synopsis(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    shown = escape(" ".join(value) if isinstance(value, tuple) else value)
    if not action.option_strings:
        return f"\\fI{shown}\\fR"
    names = ", ".join(f"\\fB{escape(name)}\\fR" for name in action.option_strings)
    return names if action.nargs == 0 else f"{names} \\fI{shown}\\fR"


def _explained(action: argparse.Action) -> str:
    default = "" if action.default in (None, argparse.SUPPRESS) else str(action.default)
    words = " ".join((action.help or "").replace("%(default)s", default).replace("%%", "%").split())
    words = f"{words}; required" if action.required and action.option_strings else words
    return f"{words[:1].upper()}{words[1:]}."


def _settings() -> Iterator[str]:
    yield _title(_FILE_PAGE, 5, "settings of perseus-dist's services and operators' commands")
    yield f".SH SYNOPSIS\n.I {escape(str(SYSTEM_FILE))}\n.br\n.I $XDG_CONFIG_HOME/perseus\\-dist/perseus.toml\n"
    yield (
        ".SH DESCRIPTION\nDefaults of commands, in TOML. The user's file comes before the system's, the environment\n"
        "before both, the command line before all.\n"
        f".B {CONFIG_VARIABLE}\nnames one file to be read instead of both, or\n.B {OFF}\nfor none. A file must belong\n"
        "to the user who runs the command, or to root, and others may not write it. Relative paths start from\n"
        "its folder.\n"
        "Training jobs, their agents and their own planners read no file.\n"
    )
    for section, command in COMMAND_OF.items():
        yield f".SH [{section}]\n"
        for key, action in options_of(section, command_parser(command)).items():
            value = "true|false" if is_switch(action) else action.metavar or "|".join(map(str, action.choices or ()))
            variables = ", ".join(filter(None, (variable_of(section, key), ALIASES.get((section, key)))))
            yield f".TP\n\\fB{escape(key)}\\fR = \\fI{escape(str(value))}\\fR\n{_filled(_explained(action))}\n"
            yield f"Environment: {variables}.\n"
    yield '.SH EXAMPLES\n.nf\n[planner]\nmetrics\\-port = 9464\n\n[client]\nplanner = "planner.example:50151"\n.fi\n'
    yield ".SH SEE ALSO\n.BR perseus\\-dist\\-config (1)\n"


def _last() -> Iterator[str]:
    yield (
        ".SH EXIT STATUS\n0; 2 for bad input, after one line on standard error; 1 where a command says so;\n"
        "128 and a signal's number.\n"
        f".SH SEE ALSO\n.BR perseus\\-dist (1),\n.BR {_FILE_PAGE} (5)\n"
    )


def main() -> int:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="such as build/share/man")
    folder: Path = parser.parse_args().folder
    for name, text in pages():
        path = folder / f"man{name[-1]}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
