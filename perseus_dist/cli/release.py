"""``perseus-dist release``: unlock clocks that a crash left locked."""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from perseus_dist.device.lease_file import lease_folder, prepare_lease_folder
from perseus_dist.device.release import Result, release_named, release_touched

_EPILOG = """\
example:
  perseus-dist release
  perseus-dist release 0 GPU-8932f937

Without arguments, GPUs are unlocked whose clocks were set by a process that died before it could restore them. With
GPUs or --all, locks are lifted whoever set them, also an operator's. A GPU that a living process holds is left alone.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "release",
        help="unlock clocks that a crash left locked",
        description="Unlock the clocks of GPUs, and say what was done.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("gpus", nargs="*", metavar="GPU", help="a UUID, its beginning, or nvidia-smi's number")
    parser.add_argument("--all", action="store_true", help="all GPUs of this node")
    parser.add_argument("--lease-dir", type=Path, metavar="DIR", help="where lease files are kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Unlock.

    Returns:
        0; 1 if a GPU could not be unlocked or is held by a living process.
    """
    folder = args.lease_dir or lease_folder(os.environ)
    prepare_lease_folder(folder)
    if args.all or args.gpus:
        released = release_named(folder, None if args.all else args.gpus)
    else:
        released = release_touched(folder)
    if args.json:
        print(json.dumps({"gpus": [asdict(gpu) for gpu in released]}))
    elif not released:
        print("Nothing to do: no GPU's clocks were left locked.")
    else:
        for gpu in released:
            print(f"{gpu.gpu_uuid}: {gpu.result}{': ' if gpu.detail else ''}{gpu.detail}")
    return 0 if all(gpu.result is Result.RESTORED for gpu in released) else 1
