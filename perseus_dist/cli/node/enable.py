"""``perseus-dist enable`` and ``disable``: an environment's jobs learn of Perseus, and forget it."""

import argparse
import json
import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from perseus_dist.training.environment_start import FRAMEWORKS

_ENABLE_EPILOG = """\
example:
  perseus-dist enable deepspeed
  perseus-dist enable deepspeed --shim ~/bin
  perseus-dist enable megatron
  perseus-dist enable pipelining --json

Without --shim one file is written into this environment's site-packages. Afterwards `deepspeed --perseus train.py`
works, `deepspeed --help` shows the options, and a "perseus" block in a DeepSpeed config is heeded; for megatron,
`torchrun ... pretrain_gpt.py --enable-perseus` works, and the script's --help shows the options; where the environment
variable PERSEUS_ENABLE is 1, jobs without Megatron's parser, as Megatron-Bridge's, run under Perseus too; for
pipelining, with the same variable, those that use torch.distributed.pipelining, as torchtitan does. It asks for Perseus
in DeepSpeed's jobs as well, whatever starts them. Jobs that ask for nothing run as before.

Where you may not write there, --shim writes a wrapper of deepspeed into a folder. `perseus-deepspeed`,
`torchrun ... -m perseus_dist.megatron pretrain_gpt.py --enable-perseus` and
`torchrun ... -m perseus_dist.pipelining train.py` need none of this.
"""

_DISABLE_EPILOG = """\
example:
  perseus-dist disable deepspeed
  perseus-dist disable deepspeed --shim ~/bin
  perseus-dist disable megatron
  perseus-dist disable pipelining
"""

_WORKS = {
    "deepspeed": "`deepspeed --perseus` works in this environment",
    "megatron": "Megatron's scripts know --enable-perseus in this environment",
    "pipelining": "PERSEUS_ENABLE=1 puts jobs with torch.distributed.pipelining under Perseus in this environment",
}
_INSTEAD = {
    "deepspeed": "use --shim DIR, or perseus-deepspeed in place of deepspeed",
    "megatron": "use python -m perseus_dist.megatron SCRIPT, or torchrun -m perseus_dist.megatron SCRIPT",
    "pipelining": "use torchrun -m perseus_dist.pipelining SCRIPT",
}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add both commands."""
    enable_text = (
        "make `deepspeed --perseus`, Megatron's `--enable-perseus` or `PERSEUS_ENABLE=1` work in this environment"
    )
    for name, run, text, epilog in (
        ("enable", _enable, enable_text, _ENABLE_EPILOG),
        ("disable", _disable, "undo `enable`", _DISABLE_EPILOG),
    ):
        parser = subparsers.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("framework", choices=tuple(FRAMEWORKS), help="whose jobs")
        parser.add_argument("--shim", type=Path, metavar="DIR", help="a wrapper of DeepSpeed's launcher in DIR")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.set_defaults(run=run)


def _enable(args: argparse.Namespace) -> int:
    from perseus_dist.deepspeed.launcher.shim import write_shim
    from perseus_dist.training.opt_in import write_pth

    framework, folder = args.framework, _shim_folder(args)
    written = (
        write_pth(framework, instead=_INSTEAD[framework]) if folder is None else write_shim(folder, sys.executable)
    )
    # Megatron is often but a folder on PYTHONPATH.
    misses_framework = framework == "deepspeed" and find_spec("deepspeed") is None
    if args.json:
        print(
            json.dumps(
                {
                    "framework": framework,
                    "written": str(written),
                    "is_first_on_path": None if folder is None else _is_first_on_path(folder),
                    "is_framework_installed": not misses_framework if framework == "deepspeed" else None,
                }
            )
        )
        return 0
    if folder is None:
        print(f"Wrote {written}: {_WORKS[framework]}.")
        print(f"Undo it with: perseus-dist disable {framework}")
    else:
        print(f"Wrote {written}: it knows --perseus.")
        print(f"Undo it with: perseus-dist disable deepspeed --shim {shlex.quote(str(folder))}")
        if not _is_first_on_path(folder):
            print(f'Put it first on PATH: export PATH={shlex.quote(str(folder))}:"$PATH"')
    if misses_framework:
        print(f"DeepSpeed itself is not installed yet: {shlex.quote(sys.executable)} -m pip install deepspeed")
    return 0


def _disable(args: argparse.Namespace) -> int:
    from perseus_dist.deepspeed.launcher.shim import remove_shim
    from perseus_dist.training.opt_in import pth_file, remove_pth

    folder = _shim_folder(args)
    if folder is None:
        removed, place = remove_pth(args.framework), pth_file(args.framework).parent
    else:
        removed, place = remove_shim(folder), folder
    if args.json:
        print(json.dumps({"framework": args.framework, "removed": None if removed is None else str(removed)}))
    else:
        print(f"Nothing to undo in {place}." if removed is None else f"Removed {removed}.")
    return 0


def _shim_folder(args: argparse.Namespace) -> Path | None:
    from perseus_dist.planning.output_file import no_folder_in
    from perseus_dist.training.opt_in import OptInError

    if args.shim is None:
        return None
    if args.framework != "deepspeed":
        raise OptInError(
            f"--shim wraps a framework's launcher, and {args.framework} has none, only scripts; "
            f"{_INSTEAD[args.framework]}"
        )
    folder: Path = args.shim.expanduser().absolute()
    try:
        folder.is_dir()
    except OSError as error:  # a name that is too long; a folder that is not there is another matter
        raise OptInError(f"--shim {str(folder)[:80]}...: {error.strerror}; name a folder on your PATH") from None
    if (file := no_folder_in(folder)) is not None:
        raise OptInError(f"--shim {folder}: {file} is no folder; name a folder on your PATH")
    return folder


def _is_first_on_path(folder: Path) -> bool:
    found = shutil.which("deepspeed", path=os.environ.get("PATH"))
    return found is not None and Path(found).parent.resolve() == folder.resolve()
