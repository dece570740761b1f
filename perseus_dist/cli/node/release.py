"""``perseus-dist release``: unlock clocks that a crash left locked."""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from perseus_dist.device.lease.file import lease_folder, prepare_lease_folder
from perseus_dist.device.nvml.nvml import NvmlError
from perseus_dist.device.release import ReleaseError, Result, find_stray_locks, release_named, release_touched

_EPILOG = """\
example:
  perseus-dist release
  perseus-dist release 0 GPU-8932f937
  perseus-dist release --all --if-unleased

Without arguments, GPUs are unlocked whose clocks were set by a process that died before it could restore them, and GPUs
are named that the hardware shows as locked without such a record. With GPUs or --all, every lock is lifted, also an
operator's. A GPU that a living process holds is left alone.

--if-unleased is for sweeps of a node at boot and between jobs: GPUs that are leased or that a process computes on are
left alone, and that is no failure. Set clocks of your own after it.
"""

_UNHARMED = (Result.RESTORED, Result.HELD, Result.IN_USE)


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
    parser.add_argument(
        "--if-unleased", action="store_true", help="leave GPUs alone that are leased or in use; with --all or GPUs"
    )
    parser.add_argument("--lease-dir", type=Path, metavar="DIR", help="where lease files are kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Unlock.

    Returns:
        0; 1 if a GPU is still locked, could not be unlocked or is held by a living process. The last of these is no
        failure with --if-unleased. 2 if the GPUs could not be looked at.

    Raises:
        ReleaseError: The arguments name no GPU that is here.
    """
    if args.if_unleased and not args.all and not args.gpus:
        raise ReleaseError("--if-unleased: expected --all or GPUs beside it")
    folder = args.lease_dir or lease_folder(os.environ)
    prepare_lease_folder(folder)
    trouble = ""
    if args.all or args.gpus:
        released = release_named(folder, None if args.all else args.gpus, if_unleased=args.if_unleased)
    else:
        released = release_touched(folder)
        try:
            known = {gpu.gpu_uuid for gpu in released}
            released += [gpu for gpu in find_stray_locks(folder) if gpu.gpu_uuid not in known]
        except NvmlError as error:
            trouble = str(error)
    if args.json:
        print(json.dumps({"gpus": [asdict(gpu) for gpu in released], "trouble": trouble}))
    else:
        for gpu in released:
            print(f"{gpu.gpu_uuid}: {gpu.result}{': ' if gpu.detail else ''}{gpu.detail}")
        if trouble:
            print(f"No GPU could be looked at: {trouble}")
        elif not released:
            print("Nothing to do: no GPU's clocks are locked.")
    if trouble:
        return 2
    unharmed = _UNHARMED if args.if_unleased else (Result.RESTORED,)
    return 0 if all(gpu.result in unharmed for gpu in released) else 1
