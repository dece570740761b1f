"""A user's training script that trains nothing: it writes down how it was started.

probe.py [--local_rank=N] --out FOLDER [--exit-code N] [--import-deepspeed] ARGUMENT...
"""

import argparse
import json
import os
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--exit-code", type=int, default=0)
    parser.add_argument("--import-deepspeed", action="store_true")
    args, _ = parser.parse_known_args()
    if args.import_deepspeed:
        import deepspeed  # noqa: F401
    activation = sys.modules.get("perseus_dist.deepspeed.activation")
    rank = next(os.environ[name] for name in ("RANK", "PMI_RANK", "SLURM_PROCID") if name in os.environ)
    host = os.environ.get("STANDIN_HOST", "")
    found = {
        "argv": sys.argv,
        "environment": dict(os.environ),
        "path": sys.path,
        "cwd": str(Path.cwd()),
        "file": __file__,
        "name": __name__,
        "host": host,
        "imported_torch": "torch" in sys.modules,
        "options": None if activation is None else activation._options_text,
        "is_active": activation is not None and activation._is_active,
    }
    args.out.mkdir(exist_ok=True)
    (args.out / f"{host}{rank}.json").write_text(json.dumps(found))
    return int(args.exit_code)


if __name__ == "__main__":
    sys.exit(main())
