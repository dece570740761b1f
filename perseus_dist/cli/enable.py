"""``perseus-dist enable`` and ``disable``: a framework's own launcher learns ``--perseus``, and forgets it."""

import argparse
import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

_FRAMEWORKS = ("deepspeed",)

_ENABLE_EPILOG = """\
example:
  perseus-dist enable deepspeed
  perseus-dist enable deepspeed --shim ~/bin

The first writes one file into this environment's site-packages; the second a wrapper into a folder, for environments
that you may not write to. Afterwards `deepspeed --perseus train.py` works, `deepspeed --help` shows the options, and
without --shim a "perseus" block in a DeepSpeed config is heeded. Jobs without either run as before. `perseus-deepspeed`
needs none of this.
"""

_DISABLE_EPILOG = """\
example:
  perseus-dist disable deepspeed
  perseus-dist disable deepspeed --shim ~/bin
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add both commands."""
    for name, run, text, epilog in (
        ("enable", _enable, "make `deepspeed --perseus` work in this environment", _ENABLE_EPILOG),
        ("disable", _disable, "undo `enable`", _DISABLE_EPILOG),
    ):
        parser = subparsers.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("framework", choices=_FRAMEWORKS, help="whose launcher")
        parser.add_argument("--shim", type=Path, metavar="DIR", help="a wrapper of the launcher in DIR")
        parser.set_defaults(run=run)


def _enable(args: argparse.Namespace) -> int:
    from perseus_dist.deepspeed.launcher import opt_in

    if args.shim is None:
        print(f"Wrote {opt_in.write_pth()}: `deepspeed --perseus` works in this environment.")
        print("Undo it with: perseus-dist disable deepspeed")
    else:
        folder = args.shim.expanduser().absolute()
        print(f"Wrote {opt_in.write_shim(folder, sys.executable)}: it knows --perseus.")
        print(f"Undo it with: perseus-dist disable deepspeed --shim {shlex.quote(str(folder))}")
        if not _is_first_on_path(folder):
            print(f'Put it first on PATH: export PATH={shlex.quote(str(folder))}:"$PATH"')
    if find_spec("deepspeed") is None:
        print(f"DeepSpeed itself is not installed yet: {shlex.quote(sys.executable)} -m pip install deepspeed")
    return 0


def _disable(args: argparse.Namespace) -> int:
    from perseus_dist.deepspeed.launcher import opt_in

    if args.shim is None:
        removed, place = opt_in.remove_pth(), opt_in.pth_file().parent
    else:
        place = args.shim.expanduser().absolute()
        removed = opt_in.remove_shim(place)
    print(f"Nothing to undo in {place}." if removed is None else f"Removed {removed}.")
    return 0


def _is_first_on_path(folder: Path) -> bool:
    found = shutil.which("deepspeed", path=os.environ.get("PATH"))
    return found is not None and Path(found).parent.resolve() == folder.resolve()
